//! A volume in memory behind the door, on a thread of its own.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use export::vhost_user::{VhostUserDoor, VhostUserOptions};
use io::{IoError, Sender, mailbox};
use tempfile::TempDir;
use uring::{Backend, Kernel, KernelOptions};

use crate::memory::{Counts, MemoryVolume};

pub const SIZE_BYTES: u64 = 16 << 20;

pub const SERIAL: &str = "a volume";

enum Order {
    Counts(mpsc::Sender<Counts>),
    Fail(Option<IoError>, mpsc::Sender<()>),
    Delay(u64, mpsc::Sender<()>),
    /// Closes the door in order and opens it again.
    Reopen(mpsc::Sender<()>),
    /// Ends as if killed: nothing is finished, nobody is told.
    Die,
}

pub struct Server {
    pub path: PathBuf,
    directory: Option<TempDir>,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<usize>>,
    reports: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub fn start() -> Server {
        Server::with(|volume| volume)
    }

    pub fn with(change: impl FnOnce(MemoryVolume) -> MemoryVolume + Send + 'static) -> Server {
        Server::on(Backend::Auto, change)
    }

    pub fn on(
        backend: Backend,
        change: impl FnOnce(MemoryVolume) -> MemoryVolume + Send + 'static,
    ) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let mut server = Server::at(directory.path(), backend, change);
        server.directory = Some(directory);
        server
    }

    fn at(
        directory: &Path,
        backend: Backend,
        change: impl FnOnce(MemoryVolume) -> MemoryVolume + Send + 'static,
    ) -> Server {
        let path = directory.join("vhost.sock");
        let reports = Arc::<Mutex<Vec<String>>>::default();
        let (orders, mut received) = mailbox(8);
        let (started, start) = mpsc::channel();
        let (its_path, its_reports) = (path.clone(), reports.clone());
        let thread = std::thread::spawn(move || {
            let options = KernelOptions { backend, ..KernelOptions::default() };
            let (io, _kernel) = Kernel::start(options).unwrap();
            let volume = Rc::new(change(MemoryVolume::new(io.clone(), SIZE_BYTES)));
            let open = || {
                let reports = its_reports.clone();
                let report = move |what: &str| reports.lock().unwrap().push(what.to_owned());
                let options = VhostUserOptions {
                    path: its_path.clone(),
                    serial: SERIAL.into(),
                    report: Arc::new(report),
                };
                VhostUserDoor::open(io.clone(), volume.clone(), options).unwrap()
            };
            let mut door = open();
            started.send(()).unwrap();
            let killed = io.block_on(async {
                while let Some(order) = received.receive().await {
                    match order {
                        Order::Counts(reply) => reply.send(volume.counts()).unwrap(),
                        Order::Fail(failure, reply) => {
                            *volume.failure.borrow_mut() = failure;
                            reply.send(()).unwrap();
                        }
                        Order::Delay(delay_ns, reply) => {
                            volume.delay_ns.set(delay_ns);
                            reply.send(()).unwrap();
                        }
                        Order::Reopen(reply) => {
                            door.shutdown().await;
                            door = open();
                            reply.send(()).unwrap();
                        }
                        Order::Die => return true,
                    }
                }
                door.shutdown().await;
                assert_eq!(door.queues(), 0);
                false
            });
            drop(door);
            io.drop_tasks();
            // What a killed server leaves behind is the kernel's to free.
            if killed { 0 } else { io.pool().usage().in_use_bytes }
        });
        start.recv().unwrap();
        Server { path, directory: None, orders: Some(orders), thread: Some(thread), reports }
    }

    fn ask<T>(&self, order: impl FnOnce(mpsc::Sender<T>) -> Order) -> T {
        let (reply, answer) = mpsc::channel();
        self.orders.as_ref().unwrap().send(order(reply)).unwrap();
        answer.recv().unwrap()
    }

    pub fn counts(&self) -> Counts {
        self.ask(Order::Counts)
    }

    pub fn fail(&self, failure: Option<IoError>) {
        self.ask(|reply| Order::Fail(failure, reply));
    }

    pub fn delay(&self, delay: Duration) {
        self.ask(|reply| Order::Delay(delay.as_nanos() as u64, reply));
    }

    pub fn reopen(&self) {
        self.ask(Order::Reopen);
    }

    /// Ends as if killed, and starts a new server with an empty volume at the same place.
    pub fn replace(mut self) -> Server {
        self.orders.take().unwrap().send(Order::Die).unwrap();
        self.thread.take().unwrap().join().unwrap();
        let directory = self.directory.take().unwrap();
        let mut server = Server::at(directory.path(), Backend::Auto, |volume| volume);
        server.directory = Some(directory);
        server
    }

    /// Waits for a report that contains `text`.
    pub fn await_report(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let reports = self.reports.lock().unwrap().clone();
            if reports.iter().any(|report| report.contains(text)) {
                return;
            }
            assert!(Instant::now() < deadline, "no {text:?} among {reports:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn reports(&self) -> Vec<String> {
        self.reports.lock().unwrap().clone()
    }

    /// Ends in order; every buffer must be back.
    pub fn stop(mut self) {
        drop(self.orders.take());
        assert_eq!(self.thread.take().unwrap().join().unwrap(), 0, "buffers are missing");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
