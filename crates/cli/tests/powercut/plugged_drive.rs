//! A simulated drive behind an NBD server, in real time, with a plug that is pulled at its Nth
//! change.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use export::nbd::{NbdOptions, NbdServer};
use io::{
    Buf, Device, Durability, ErrorKind, Io, IoError, Place, Span, Volume, VolumeInfo, ZeroMode,
};
use twin::{CacheLoss, DriveSpec, Simulation};
use uring::{Kernel, KernelOptions};

const SIZE_BYTES: u64 = 16 << 20;

/// What kind of drive it is, and when its plug is pulled.
#[derive(Clone, Copy)]
pub struct Temper {
    pub lies: bool,
    pub loss: CacheLoss,
    /// Writes and flushes until the cut.
    pub operations: u64,
}

/// The running server.
pub struct PluggedDrive {
    directory: tempfile::TempDir,
    powered: Arc<AtomicBool>,
    stop: Option<io::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PluggedDrive {
    pub fn start(temper: Temper) -> PluggedDrive {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let powered = Arc::new(AtomicBool::new(true));
        let plug = powered.clone();
        let (stop, mut stopped) = io::mailbox::<()>(1);
        let (ready, started) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (io, kernel) = Kernel::start(KernelOptions::default()).unwrap();
            let listener = kernel.listen_unix(&path).unwrap();
            let volume = Rc::new(Twin::new(io.clone(), plug, temper));
            let server = NbdServer::new(io.clone(), volume, NbdOptions::default());
            let serving = server.clone();
            io.spawn(async move { serving.serve(listener).await });
            ready.send(()).unwrap();
            io.block_on(async {
                stopped.receive().await;
                server.shutdown().await;
            });
        });
        started.recv().unwrap();
        PluggedDrive { directory, powered, stop: Some(stop), thread: Some(thread) }
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.directory.path().join("nbd.sock").display())
    }

    /// The plug is in again.
    pub fn power_on(&self) {
        assert!(!self.powered.swap(true, Ordering::SeqCst), "the plug was never pulled");
    }
}

impl Drop for PluggedDrive {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One simulated drive as a volume. Each request is carried out in virtual time, and answered
/// when as much real time has passed.
struct Twin {
    io: Io,
    simulation: Simulation,
    inside: RefCell<(Io, Device)>,
    powered: Arc<AtomicBool>,
    left: Cell<u64>,
    loss: CacheLoss,
}

impl Twin {
    fn new(io: Io, powered: Arc<AtomicBool>, temper: Temper) -> Twin {
        let simulation = Simulation::new(1);
        let drive = simulation.add_drive(DriveSpec::fast("twin", SIZE_BYTES));
        simulation.set_lying_flush(drive, temper.lies);
        let inner = simulation.boot();
        let device = simulation.device(&inner, drive);
        let inside = RefCell::new((inner, device));
        Twin {
            io,
            simulation,
            inside,
            powered,
            left: Cell::new(temper.operations),
            loss: temper.loss,
        }
    }

    /// Counts a change; pulls the plug at the last one.
    fn spend(&self) {
        if self.left.get() == 0 {
            return;
        }
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            self.simulation.power_cut(self.loss);
            let drive = self.simulation.drives()[0];
            let inner = self.simulation.boot();
            let device = self.simulation.device(&inner, drive);
            self.inside.replace((inner, device));
            self.powered.store(false, Ordering::SeqCst);
        }
    }

    fn powered(&self) -> Result<(), IoError> {
        let on = self.powered.load(Ordering::SeqCst);
        let error = || IoError::new(ErrorKind::Disconnected, "the twin has no power");
        on.then_some(()).ok_or_else(error)
    }

    /// Runs `work` on the drive in virtual time, then lets as much real time pass.
    async fn carry_out<T, F: Future<Output = T>>(&self, work: impl FnOnce(Device) -> F) -> T {
        let (outcome, took_ns) = {
            let inside = self.inside.borrow();
            let before_ns = self.simulation.now_ns();
            let outcome = self.simulation.run(&inside.0, work(inside.1.clone())).done();
            (outcome, self.simulation.now_ns() - before_ns)
        };
        self.io.sleep(took_ns).await;
        outcome
    }
}

impl Volume for Twin {
    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            size_bytes: SIZE_BYTES,
            sector_bytes: 512,
            preferred_bytes: 4096,
            transfer_bytes_max: 1 << 20,
            read_only: false,
        }
    }

    async fn read(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>) {
        match self.powered() {
            Ok(()) => self.carry_out(|device| async move { device.read(at, buf).await }).await,
            Err(error) => (buf, Err(error)),
        }
    }

    async fn write(&self, at: u64, buf: Buf, durability: Durability) -> (Buf, Result<(), IoError>) {
        if let Err(error) = self.powered() {
            return (buf, Err(error));
        }
        let (buf, outcome) =
            self.carry_out(|device| async move { device.write(at, buf).await }).await;
        self.spend();
        match (outcome, durability) {
            (Ok(()), Durability::Durable) => (buf, self.flush().await),
            (outcome, _) => (buf, outcome.and_then(|()| self.powered())),
        }
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.powered()?;
        self.carry_out(|device| async move { device.flush().await }).await?;
        self.spend();
        self.powered()
    }

    async fn trim(&self, _: u64, _: u64, _: Durability) -> Result<(), IoError> {
        self.powered()
    }

    async fn write_zeroes(
        &self,
        at: u64,
        length: u64,
        _: ZeroMode,
        _: Durability,
    ) -> Result<(), IoError> {
        self.powered()?;
        self.carry_out(|device| async move { device.write_zeroes(at, length).await }).await
    }

    async fn cache(&self, _: u64, _: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn places(&self, _: u64, length: u64, _: usize) -> Vec<Span> {
        vec![Span { length, place: Place::Slow }]
    }
}
