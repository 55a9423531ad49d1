//! Time and wakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use uring::{Access, Backend};

use crate::world::scratch::Scratch;
use crate::{on_both, start};

on_both!(
    a_timer_fires_when_due,
    timers_and_transfers_do_not_hold_each_other_up,
    a_thread_wakes_a_parked_world,
    no_wake_is_lost_in_a_rush,
    random_numbers_differ,
);

fn a_timer_fires_when_due(backend: Backend) {
    let (io, _kernel) = start(backend);
    let before_ns = io.now_ns();
    io.block_on(io.sleep(30 * io::units::MILLISECOND_NS));
    let took_ns = io.now_ns() - before_ns;
    assert!(took_ns >= 30 * io::units::MILLISECOND_NS, "{took_ns} ns");
    assert!(took_ns < 5 * io::units::SECOND_NS, "{took_ns} ns");
}

fn a_thread_wakes_a_parked_world(backend: Backend) {
    let (io, _kernel) = start(backend);
    for _ in 0..3 {
        let (sender, receiver) = std::sync::mpsc::channel::<Waker>();
        let thread = std::thread::spawn(move || {
            let waker = receiver.recv().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        let mut polls = 0;
        io.block_on(std::future::poll_fn(|context| {
            polls += 1;
            if polls == 1 {
                sender.send(context.waker().clone()).unwrap();
                return Poll::Pending;
            }
            Poll::Ready(())
        }));
        thread.join().unwrap();
    }
}

fn timers_and_transfers_do_not_hold_each_other_up(backend: Backend) {
    let file = Scratch::new(1 << 20);
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    let timers = io.clone();
    let fired = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = fired.clone();
    io.spawn(async move {
        loop {
            timers.sleep(io::units::MILLISECOND_NS).await;
            count.set(count.get() + 1);
        }
    });
    io.block_on(async {
        let end_ns = io.now_ns() + 100 * io::units::MILLISECOND_NS;
        while io.now_ns() < end_ns {
            device.read(0, io.pool().take(4096)).await.1.unwrap();
        }
    });
    // A hundred when the machine is idle.
    assert!(fired.get() >= 10, "{} timers fired", fired.get());
    io.drop_tasks();
}

fn no_wake_is_lost_in_a_rush(backend: Backend) {
    const ROUNDS: usize = 3000;
    let (io, _kernel) = start(backend);
    let (sender, receiver) = std::sync::mpsc::channel::<(Waker, Arc<AtomicBool>)>();
    let thread = std::thread::spawn(move || {
        for (waker, flag) in receiver {
            flag.store(true, Ordering::Release);
            waker.wake();
        }
    });
    let started = std::time::Instant::now();
    for _ in 0..ROUNDS {
        let flag = Arc::new(AtomicBool::new(false));
        let mut asked = false;
        // A lost wake would leave this waiting for ever.
        io.block_on(std::future::poll_fn(|context| {
            if !std::mem::replace(&mut asked, true) {
                sender.send((context.waker().clone(), flag.clone())).unwrap();
            }
            if flag.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        }));
    }
    drop(sender);
    thread.join().unwrap();
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

fn random_numbers_differ(backend: Backend) {
    let (io, _kernel) = start(backend);
    let numbers: std::collections::BTreeSet<u64> = (0..100).map(|_| io.random()).collect();
    assert_eq!(numbers.len(), 100);
}
