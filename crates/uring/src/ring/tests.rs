use std::io::Write;

use io::Op;

use super::*;
use crate::drive::{Access, Drive};

/// Polls until something has ended, as the executor does.
fn wait(ring: &mut Ring, desk: &mut Desk) -> io::Completed {
    loop {
        ring.poll(desk, Park::Forever);
        if let Some(done) = desk.ended.pop() {
            return done;
        }
    }
}

/// Older kernels refuse the newer levels; a newer one stands in for them by being asked for less.
#[test]
fn every_level_of_kernel_support_works() {
    for level in Level::ALL {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[6; 64 << 10]).unwrap();
        let pool = Pool::new(1 << 20);
        let wakeup = Arc::new(Wakeup::new().unwrap());
        let ring = Ring::with_levels(&[level], 8, &pool, wakeup.clone());
        let mut ring = ring.unwrap_or_else(|why| panic!("{level:?}: {}", why.0));
        let mut desk = Desk::default();
        let mut drive = Drive::open(file.path(), Access::ReadWrite).unwrap();
        drive.file.registered = ring.register(drive.file.fd);
        desk.drives.push(drive);
        let device = io::DeviceId(0);

        for round in 0..100 {
            let op = Op::Read { device, at: 4096 * (round % 16), buf: pool.take_zeroed(4096) };
            let call = desk.admit(OpId(3), op).expect("a read is not trivial");
            ring.start(&mut desk, OpId(3), call);
            let done = wait(&mut ring, &mut desk);
            assert_eq!((done.id, done.result), (OpId(3), Ok(4096)), "{level:?}");
            assert!(done.buf.unwrap().iter().all(|byte| *byte == 6), "{level:?}");
        }

        let call = desk.admit(OpId(0), Op::Trim { device, at: 0, length: 4096 }).unwrap();
        ring.start(&mut desk, OpId(0), call);
        assert_eq!(wait(&mut ring, &mut desk).result, Ok(4096), "{level:?}");
        let before_ns = now_ns();
        ring.poll(&mut desk, Park::Until(before_ns + 5 * io::units::MILLISECOND_NS));
        assert!(now_ns() - before_ns < 5 * io::units::SECOND_NS, "{level:?}");

        let waker = std::thread::spawn(move || wakeup.unpark());
        // Ends through a wake alone: nothing else is under way.
        ring.poll(&mut desk, Park::Forever);
        waker.join().unwrap();
        assert!(ring.wind_down(&mut desk, Duration::from_secs(5)), "{level:?}");
    }
}

#[test]
fn a_buffer_the_kernel_may_still_write_into_is_never_freed() {
    let pool = Pool::new(1 << 20);
    let wakeup = Arc::new(Wakeup::new().unwrap());
    let mut ring = Ring::with_levels(&Level::ALL, 8, &pool, wakeup).ok().expect("a ring");
    let mut desk = Desk::default();
    // Nothing ever comes, and nobody shuts it down: as a drive that hangs.
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let socket = desk.sockets.add(ours.into(), crate::sockets::Role::Stream, "a test".into());
    let call = desk.admit(OpId(0), Op::Receive { socket, buf: pool.take(4096) }).unwrap();
    ring.start(&mut desk, OpId(0), call);
    assert!(!ring.wind_down(&mut desk, Duration::from_millis(50)), "it cannot have ended");
    desk.abandon();
    drop(ring);
    drop(desk);
    assert!(pool.usage().in_use_bytes >= 4096, "the buffer went back to the pool");
    // Late data finds no reader and does no harm.
    let _ = theirs.write_all(b"late");
}

#[test]
fn a_flush_of_a_quick_drive_with_nothing_beside_it_is_done_at_once() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[6; 64 << 10]).unwrap();
    let pool = Pool::new(1 << 20);
    let wakeup = Arc::new(Wakeup::new().unwrap());
    let mut ring = Ring::with_levels(&Level::ALL, 8, &pool, wakeup).ok().expect("a ring");
    let mut desk = Desk::default();
    let mut drive = Drive::open(file.path(), Access::ReadWrite).unwrap();
    drive.file.registered = ring.register(drive.file.fd);
    desk.drives.push(drive);
    let device = io::DeviceId(0);
    let begin = |ring: &mut Ring, desk: &mut Desk, id, op| {
        let call = desk.admit(OpId(id), op).expect("nothing here is trivial");
        ring.start(desk, OpId(id), call);
        desk.ended.pop().map(|done| done.result)
    };
    let flush = || Op::Flush { device };

    assert_eq!(begin(&mut ring, &mut desk, 1, flush()), None, "nothing is known of the drive");
    assert_eq!(wait(&mut ring, &mut desk).result, Ok(0));
    ring.quick_flushes[0] = QUICK_IN_A_ROW;
    assert_eq!(begin(&mut ring, &mut desk, 1, flush()), Some(Ok(0)));
    ring.quick_flushes[0] = QUICK_IN_A_ROW - 1;
    assert_eq!(begin(&mut ring, &mut desk, 1, flush()), None);
    assert_eq!(wait(&mut ring, &mut desk).result, Ok(0));
    assert_ne!(ring.quick_flushes[0], QUICK_IN_A_ROW - 1, "it was timed");
    ring.note_flush(0, QUICK_FLUSH_NS + 1);
    assert_eq!(ring.quick_flushes[0], 0, "one that is not says more than many that were");

    ring.quick_flushes[0] = QUICK_IN_A_ROW;
    let read = Op::Read { device, at: 0, buf: pool.take(4096) };
    assert_eq!(begin(&mut ring, &mut desk, 1, read), None);
    assert_eq!(begin(&mut ring, &mut desk, 2, flush()), None, "somebody waits for the drive");
    let mut ids = [wait(&mut ring, &mut desk).id, wait(&mut ring, &mut desk).id];
    ids.sort();
    assert_eq!(ids, [OpId(1), OpId(2)]);
    assert_eq!(ring.quick_flushes[0], QUICK_IN_A_ROW, "that says nothing of the drive");
}
