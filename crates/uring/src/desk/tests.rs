use io::Pool;

use super::*;
use crate::drive::Access;

/// A desk with one drive of 64 KiB.
fn desk() -> (tempfile::NamedTempFile, Desk, Pool) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(64 << 10).unwrap();
    let drive = Drive::open(file.path(), Access::ReadWrite).unwrap();
    (file, Desk { drives: vec![drive], ..Desk::default() }, Pool::new(0))
}

const DEVICE: DeviceId = DeviceId(0);
const ID: OpId = OpId(7);

fn errno(number: i32) -> i64 {
    -i64::from(number)
}

#[test]
fn a_short_write_goes_on_where_it_stopped() {
    let (_file, mut desk, pool) = desk();
    let buf = pool.take(16384);
    let start = buf.as_ptr() as usize;
    desk.admit(ID, Op::Write { device: DEVICE, at: 4096, buf }).unwrap();
    let Some(Call::Write { at, memory, length, .. }) = desk.settle(ID, 4096) else {
        panic!("the rest was not asked for")
    };
    assert_eq!((at, memory as usize - start, length), (8192, 4096, 12288));
    // A part of a sector does not count: what follows must be aligned.
    let Some(Call::Write { at, length, .. }) = desk.settle(ID, 4096 + 100) else {
        panic!("the rest was not asked for")
    };
    assert_eq!((at, length), (12288, 8192));
    assert!(desk.settle(ID, 8192).is_none());
    assert_eq!(desk.ended.pop().unwrap().result, Ok(16384));
}

#[test]
fn a_write_that_gets_nowhere_fails() {
    let (_file, mut desk, pool) = desk();
    desk.admit(ID, Op::Write { device: DEVICE, at: 0, buf: pool.take(4096) }).unwrap();
    assert!(desk.settle(ID, 0).is_none());
    let done = desk.ended.pop().unwrap();
    assert_eq!(done.result.unwrap_err().kind, ErrorKind::Io);
    assert_eq!(done.buf.unwrap().len(), 4096);
}

#[test]
fn an_interrupted_read_is_tried_again_but_not_for_ever() {
    let (file, mut desk, pool) = desk();
    desk.admit(ID, Op::Read { device: DEVICE, at: 8192, buf: pool.take(4096) }).unwrap();
    let mut tries = 0;
    while desk.settle(ID, errno(libc::EAGAIN)).is_some() {
        tries += 1;
    }
    assert_eq!(tries, RETRIES_MAX);
    let error = desk.ended.pop().unwrap().result.unwrap_err();
    let begin = format!("read of 4096 bytes at 8192 on {}: ", file.path().display());
    assert!(error.message.starts_with(&begin), "{error}");
}

#[test]
fn a_failed_flush_is_not_tried_again() {
    let (_file, mut desk, _pool) = desk();
    for number in [libc::EINTR, libc::EAGAIN, libc::EIO] {
        desk.admit(ID, Op::Flush { device: DEVICE }).unwrap();
        assert!(desk.settle(ID, errno(number)).is_none(), "errno {number}");
        let error = desk.ended.pop().unwrap().result.unwrap_err();
        assert_eq!(error.errno, number);
        assert!(error.message.starts_with("flush of "), "{error}");
    }
}

#[test]
fn a_partial_send_goes_on_and_a_receive_takes_what_there_is() {
    let (_file, mut desk, pool) = desk();
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let socket = desk.sockets.add(ours.into(), Role::Stream, "a test".into());
    desk.admit(ID, Op::Send { socket, buf: pool.take(100) }).unwrap();
    let next = desk.settle(ID, 33);
    assert!(matches!(next, Some(Call::Send { length: 67, .. })), "{next:?}");
    assert!(desk.settle(ID, 67).is_none());
    assert_eq!(desk.ended.pop().unwrap().result, Ok(100));
    desk.admit(ID, Op::Receive { socket, buf: pool.take(100) }).unwrap();
    assert!(desk.settle(ID, 33).is_none());
    assert_eq!(desk.ended.pop().unwrap().result, Ok(33));
}

#[test]
fn an_accept_survives_a_client_that_gave_up() {
    let (_file, mut desk, _pool) = desk();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = desk.sockets.add(listener.into(), Role::Listener, "a test".into());
    desk.admit(ID, Op::Accept { listener }).unwrap();
    assert!(desk.settle(ID, errno(libc::ECONNABORTED)).is_some());
    assert!(desk.settle(ID, errno(libc::EMFILE)).is_none());
    let error = desk.ended.pop().unwrap().result.unwrap_err();
    assert_eq!(error.errno, libc::EMFILE);
}
