//! Events shared with others, and commands to drivers.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use io::{Driver, ErrorKind, Event, Watch};
use rustix::event::{EventfdFlags, eventfd};
use uring::Backend;

use crate::{on_both, start};

on_both!(
    an_event_is_waited_for_and_taken,
    an_event_raised_before_is_found,
    raising_reaches_who_else_holds_the_event,
    shutting_an_event_down_ends_the_wait_and_leaves_the_event,
    what_is_no_event_is_refused,
    what_is_watched_is_told_of_and_left_to_its_owner,
    a_driver_answers_commands_where_there_is_a_ring,
);

/// Both kinds there are: whether reads wait is the owner's choice.
fn kinds() -> [OwnedFd; 2] {
    let blocking = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    [blocking, eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()]
}

fn raise(fd: impl AsFd, count: u64) {
    assert_eq!(rustix::io::write(fd, &count.to_ne_bytes()), Ok(8));
}

fn an_event_is_waited_for_and_taken(backend: Backend) {
    let (io, _kernel) = start(backend);
    for fd in kinds() {
        let other = fd.try_clone().unwrap();
        let event = Event::adopt(&io, fd).unwrap();
        let raiser = std::thread::spawn(move || {
            for round in 0..3 {
                std::thread::sleep(Duration::from_millis(5));
                raise(&other, 1 + round);
            }
        });
        let taken = io.block_on(async {
            let mut taken = 0;
            while taken < 6 {
                taken += event.wait().await.unwrap();
            }
            taken
        });
        assert_eq!(taken, 6);
        raiser.join().unwrap();
    }
}

fn an_event_raised_before_is_found(backend: Backend) {
    let (io, _kernel) = start(backend);
    for fd in kinds() {
        raise(&fd, 5);
        let event = Event::adopt(&io, fd).unwrap();
        assert_eq!(io.block_on(event.wait()), Ok(5));
    }
}

fn raising_reaches_who_else_holds_the_event(backend: Backend) {
    let (io, _kernel) = start(backend);
    for fd in kinds() {
        let other = fd.try_clone().unwrap();
        let event = Event::adopt(&io, fd).unwrap();
        drop(event.raise());
        io.block_on(event.raise()).unwrap();
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&other, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 2);
        // Full: raised as soon as somebody takes it.
        raise(&other, u64::MAX - 1);
        let waiting = event.raise();
        let taker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            rustix::io::read(&other, &mut [0; 8]).unwrap()
        });
        io.block_on(waiting).unwrap();
        assert_eq!(taker.join().unwrap(), 8);
    }
}

fn shutting_an_event_down_ends_the_wait_and_leaves_the_event(backend: Backend) {
    let (io, _kernel) = start(backend);
    for fd in kinds() {
        let other = fd.try_clone().unwrap();
        let event = Event::adopt(&io, fd).unwrap();
        let waiting = event.wait();
        io.block_on(io.sleep(1_000_000));
        event.shutdown();
        let outcome = io.block_on(waiting);
        assert_eq!(outcome.unwrap_err().kind, ErrorKind::Disconnected);
        assert_eq!(io.block_on(event.wait()).unwrap_err().kind, ErrorKind::Disconnected);
        drop(event);
        raise(&other, 3);
        let again = Event::adopt(&io, other).unwrap();
        assert_eq!(io.block_on(again.wait()), Ok(3), "nobody else has taken it");
    }
}

fn what_is_no_event_is_refused(backend: Backend) {
    let (io, _kernel) = start(backend);
    let file = std::fs::File::open("/dev/zero").unwrap();
    let error = Event::adopt(&io, file.into()).err().expect("a refusal");
    assert!(error.message.contains("eventfd was wanted"), "{error}");
}

fn what_is_watched_is_told_of_and_left_to_its_owner(backend: Backend) {
    let (io, _kernel) = start(backend);
    let (reader, writer) = std::io::pipe().unwrap();
    let watch = Watch::adopt(&io, reader.try_clone().unwrap().into()).unwrap();
    let other = writer.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(rustix::io::write(&other, b"ab"), Ok(2));
    });
    io.block_on(watch.readable()).unwrap();
    sender.join().unwrap();
    // Nothing was taken, so it is told again.
    io.block_on(watch.readable()).unwrap();
    let mut taken = [0; 8];
    assert_eq!(rustix::io::read(&reader, &mut taken), Ok(2));
    assert_eq!(&taken[..2], b"ab");
    // That nobody is left to write is told, too.
    drop(writer);
    io.block_on(watch.readable()).unwrap();
    assert_eq!(rustix::io::read(&reader, &mut taken), Ok(0));
}

/// `/dev/null` takes every command (since Linux 5.19); a plain file takes none.
fn a_driver_answers_commands_where_there_is_a_ring(backend: Backend) {
    let (io, _kernel) = start(backend);
    let null = std::fs::File::open("/dev/null").unwrap();
    let driver = Driver::adopt(&io, null.into());
    if backend == Backend::Threads {
        let error = driver.err().expect("a refusal");
        assert!(error.message.contains("need io_uring"), "{error}");
        return;
    }
    let driver = driver.unwrap();
    for code in 0..100 {
        assert_eq!(io.block_on(driver.command(code, [7; 16])), Ok(0));
    }
    let file = Driver::adopt(&io, tempfile::tempfile().unwrap().into()).unwrap();
    let error = io.block_on(file.command(1, [0; 16])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
}
