//! Time and wakes.

use std::time::Duration;

use uring::Backend;

use crate::{on_both, start};

on_both!(a_timer_fires_when_due, a_thread_wakes_a_parked_world);

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
        let (sender, receiver) = std::sync::mpsc::channel::<std::task::Waker>();
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
                return std::task::Poll::Pending;
            }
            std::task::Poll::Ready(())
        }));
        thread.join().unwrap();
    }
}
