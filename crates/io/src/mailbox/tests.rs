use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::{Completed, Io, Op, OpId, Park, Pool, SocketId, Unpark, World};

/// A world without devices whose only event is another thread's unpark.
struct Parked {
    since: Instant,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Unpark for Bell {
    fn unpark(&self) {
        *self.rung.lock().unwrap() = true;
        self.heard.notify_one();
    }
}

impl World for Parked {
    fn now_ns(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }

    fn random(&mut self) -> u64 {
        4
    }

    fn submit(&mut self, _: OpId, op: Op) {
        panic!("this world has nothing to carry out {op:?} with");
    }

    fn poll(&mut self, park: Park, _: &mut Vec<Completed>) {
        let mut rung = self.bell.rung.lock().unwrap();
        let patience = match park {
            Park::Never => Duration::ZERO,
            Park::Until(at_ns) => Duration::from_nanos(at_ns.saturating_sub(self.now_ns())),
            // Long enough that only a lost wake-up reaches it; then the test must not hang.
            Park::Forever => Duration::from_secs(10),
        };
        let started = Instant::now();
        while !*rung && started.elapsed() < patience {
            rung = self.bell.heard.wait_timeout(rung, patience).unwrap().0;
        }
        assert!(*rung || park != Park::Forever, "nobody woke the executor");
        *rung = false;
    }

    fn shutdown(&mut self, _: SocketId) {}
    fn close(&mut self, _: SocketId) {}

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        Some(self.bell.clone())
    }
}

fn executor() -> Io {
    let world = Parked { since: Instant::now(), bell: Arc::default() };
    Io::new(Box::new(world), Pool::new(0))
}

#[test]
fn values_of_several_threads_all_arrive_each_thread_in_order() {
    const THREADS: u64 = 4;
    const VALUES: u64 = 5_000;
    let io = executor();
    let (sender, mut receiver) = mailbox(64);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let sender = sender.clone();
            thread::spawn(move || {
                for value in 0..VALUES {
                    sender.send((thread, value)).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let mut next = [0; THREADS as usize];
    io.block_on(async {
        while let Some((thread, value)) = receiver.receive().await {
            assert_eq!(next[thread as usize], value);
            next[thread as usize] += 1;
        }
    });
    assert_eq!(next, [VALUES; THREADS as usize]);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_parked_executor_is_woken_by_a_send_from_another_thread() {
    let io = executor();
    let (sender, mut receiver) = mailbox(1);
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        sender.send(7).unwrap();
        // Keeps the sender alive, so that it is the value and not the end that wakes.
        sender
    });
    assert_eq!(io.block_on(receiver.receive()), Some(7));
    drop(thread.join().unwrap());
    assert_eq!(io.block_on(receiver.receive()), None);
}

#[test]
fn a_batch_takes_everything_and_the_end_comes_after_it() {
    let io = executor();
    let (sender, mut receiver) = mailbox(10);
    (0..3).for_each(|value| sender.send(value).unwrap());
    drop(sender);
    let mut batch = VecDeque::from([9]);
    assert!(io.block_on(receiver.receive_all(&mut batch)));
    assert_eq!(batch, [9, 0, 1, 2]);
    assert!(!io.block_on(receiver.receive_all(&mut batch)));
}

#[test]
fn a_full_mailbox_holds_its_sender_back() {
    let io = executor();
    let (sender, mut receiver) = mailbox(2);
    let third_sent = Arc::new(AtomicBool::new(false));
    let thread = {
        let third_sent = third_sent.clone();
        thread::spawn(move || {
            (0..3).for_each(|value| sender.send(value).unwrap());
            third_sent.store(true, Ordering::SeqCst);
        })
    };
    thread::sleep(Duration::from_millis(50));
    assert!(!third_sent.load(Ordering::SeqCst));
    let first = io.block_on(receiver.receive());
    assert_eq!(first, Some(0));
    thread.join().unwrap();
    assert!(third_sent.load(Ordering::SeqCst));
}

#[test]
fn a_value_nobody_will_take_comes_back_even_to_a_blocked_sender() {
    let (sender, receiver) = mailbox(1);
    sender.send("kept").unwrap();
    let blocked = {
        let sender = sender.clone();
        thread::spawn(move || sender.send("blocked"))
    };
    thread::sleep(Duration::from_millis(20));
    drop(receiver);
    let Err(Undelivered(value)) = blocked.join().unwrap() else { panic!("nobody took it") };
    assert_eq!(value, "blocked");
    assert!(sender.send("late").is_err());
}
