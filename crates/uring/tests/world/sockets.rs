//! Streams and listeners.

use std::cell::Cell;
use std::io::{Read, Write};
use std::rc::Rc;

use io::{ErrorKind, Io, Listener, WaitList};
use uring::{Backend, Kernel};

use crate::{on_both, start};

on_both!(
    a_unix_socket_echoes,
    a_tcp_socket_echoes,
    shutting_a_listener_down_ends_a_waiting_accept,
    shutting_a_connection_down_ends_a_waiting_receive,
    a_dropped_connection_ends_for_the_peer_while_a_receive_waits,
    an_accept_nobody_waits_for_leaves_no_connection_open,
    a_send_to_a_peer_that_left_fails,
    a_send_waits_for_a_slow_reader,
    a_stale_socket_file_is_replaced_and_a_live_one_is_not,
    a_descriptor_that_is_no_socket_is_refused,
    many_connections_come_and_go,
    two_of_our_own_talk_to_each_other,
);

/// Accepts one connection and sends back what it gets until the peer ends.
async fn echo(io: &Io, listener: &Listener) -> usize {
    let socket = listener.accept().await.unwrap();
    let mut total = 0;
    loop {
        let (mut buf, outcome) = socket.receive(io.pool().take(64 << 10)).await;
        let count = outcome.unwrap();
        if count == 0 {
            return total;
        }
        total += count;
        buf.truncate(count);
        let (_, outcome) = socket.send(buf).await;
        assert_eq!(outcome.unwrap(), count);
    }
}

/// Sends 3 MB, more than any socket buffer, and reads them back meanwhile.
fn converse(mut stream: impl Read, mut sink: impl Write + Send, end: impl FnOnce() + Send) {
    let sent: Vec<u8> =
        (0..3_000_000u32).map(|n| (n.wrapping_mul(2654435761) >> 24) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sink.write_all(&sent).unwrap();
            end();
        });
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == sent, "what came back is not what was sent");
    });
}

fn a_unix_socket_echoes(backend: Backend) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("echo.sock");
    let (io, kernel) = start(backend);
    let listener = kernel.listen_unix(&path).unwrap();
    let client = std::thread::spawn(move || {
        let stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        converse(&stream, &stream, || stream.shutdown(std::net::Shutdown::Write).unwrap());
    });
    assert_eq!(io.block_on(echo(&io, &listener)), 3_000_000);
    client.join().unwrap();
}

fn a_tcp_socket_echoes(backend: Backend) {
    let (io, kernel) = start(backend);
    let (listener, address) = kernel.listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let client = std::thread::spawn(move || {
        let stream = std::net::TcpStream::connect(address).unwrap();
        converse(&stream, &stream, || stream.shutdown(std::net::Shutdown::Write).unwrap());
    });
    assert_eq!(io.block_on(echo(&io, &listener)), 3_000_000);
    client.join().unwrap();
}

fn pair(kernel: &Kernel) -> (io::Socket, std::os::unix::net::UnixStream) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    (kernel.adopt_stream(ours.into()).unwrap(), theirs)
}

fn shutting_a_listener_down_ends_a_waiting_accept(backend: Backend) {
    let directory = tempfile::tempdir().unwrap();
    let (io, kernel) = start(backend);
    let unix = kernel.listen_unix(&directory.path().join("s")).unwrap();
    let (tcp, _) = kernel.listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let foreign = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let adopted = kernel.adopt_listener(foreign.try_clone().unwrap().into()).unwrap();
    for listener in [unix, tcp, adopted] {
        let ender = listener.clone();
        let timer = io.clone();
        io.spawn(async move {
            timer.sleep(10 * io::units::MILLISECOND_NS).await;
            ender.shutdown();
        });
        let error = io.block_on(listener.accept()).err().expect("nobody connects");
        assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");
        let error = io.block_on(listener.accept()).err().expect("it stays shut");
        assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");
    }
    // The one handed over still belongs to its owner, and works.
    let _client = std::net::TcpStream::connect(foreign.local_addr().unwrap()).unwrap();
    foreign.set_nonblocking(false).unwrap();
    foreign.accept().unwrap();
}

fn shutting_a_connection_down_ends_a_waiting_receive(backend: Backend) {
    let (io, kernel) = start(backend);
    let (socket, mut theirs) = pair(&kernel);
    let (ender, timer) = (socket.clone(), io.clone());
    io.spawn(async move {
        timer.sleep(10 * io::units::MILLISECOND_NS).await;
        ender.shutdown();
    });
    let (_, outcome) = io.block_on(socket.receive(io.pool().take(4096)));
    assert_eq!(outcome.unwrap(), 0);
    assert_eq!(theirs.read(&mut [0; 8]).unwrap(), 0);
}

fn a_dropped_connection_ends_for_the_peer_while_a_receive_waits(backend: Backend) {
    let (io, kernel) = start(backend);
    let (socket, mut theirs) = pair(&kernel);
    let receive = socket.receive(io.pool().take(4096));
    io.block_on(io.sleep(io::units::MILLISECOND_NS));
    // The operation is forgotten, not cancelled: closing the socket must end it.
    drop(receive);
    drop(socket);
    let reader = std::thread::spawn(move || theirs.read(&mut [0; 8]).unwrap());
    io.drain();
    assert_eq!(reader.join().unwrap(), 0);
    assert_eq!(io.pool().usage().in_use_bytes, 0);
}

fn an_accept_nobody_waits_for_leaves_no_connection_open(backend: Backend) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let (io, kernel) = start(backend);
    let listener = kernel.listen_unix(&path).unwrap();
    drop(listener.accept());
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    io.drain();
    client.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    assert_eq!(client.read(&mut [0; 8]).expect("it was closed"), 0);
}

fn a_send_to_a_peer_that_left_fails(backend: Backend) {
    let (io, kernel) = start(backend);
    let (socket, theirs) = pair(&kernel);
    drop(theirs);
    let (_, outcome) = io.block_on(socket.send(io.pool().take_zeroed(4096)));
    let error = outcome.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");
    assert!(error.message.starts_with("send on the connection handed over: "), "{error}");
}

fn a_send_waits_for_a_slow_reader(backend: Backend) {
    const BYTES: usize = 8 << 20;
    let (io, kernel) = start(backend);
    let (socket, mut theirs) = pair(&kernel);
    let reader = std::thread::spawn(move || {
        let mut piece = vec![0; 100_000];
        let (mut total, mut sum) = (0, 0u64);
        loop {
            let count = theirs.read(&mut piece).unwrap();
            if count == 0 {
                return (total, sum);
            }
            total += count;
            sum += piece[..count].iter().map(|byte| u64::from(*byte)).sum::<u64>();
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
    });
    let mut buf = io.pool().take(BYTES);
    buf.fill(3);
    let (_, outcome) = io.block_on(socket.send(buf));
    assert_eq!(outcome.unwrap(), BYTES);
    drop(socket);
    assert_eq!(reader.join().unwrap(), (BYTES, 3 * BYTES as u64));
}

fn a_stale_socket_file_is_replaced_and_a_live_one_is_not(backend: Backend) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    // Dropping a listener leaves its file, as a crash does.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (_io, kernel) = start(backend);
    let listener = kernel.listen_unix(&path).expect("nobody listens there");
    let error = kernel.listen_unix(&path).err().expect("we listen there");
    assert!(error.message.contains("another program listens on"), "{error}");
    drop(listener);
    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let error = kernel.listen_unix(&file).err().expect("it is a file");
    assert!(error.message.contains("is not a socket"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

fn a_descriptor_that_is_no_socket_is_refused(backend: Backend) {
    let (_io, kernel) = start(backend);
    let file = || std::os::fd::OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    assert!(kernel.adopt_listener(file()).is_err());
    assert!(kernel.adopt_stream(file()).is_err());
    let (stream, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let error = kernel.adopt_listener(stream.into()).err().expect("it does not listen");
    assert!(error.message.contains("does not listen"), "{error}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = kernel.adopt_stream(listener.into()).err().expect("it listens");
    assert!(error.message.contains("listens"), "{error}");
}

fn many_connections_come_and_go(backend: Backend) {
    const COUNT: usize = 200;
    let (io, kernel) = start(backend);
    let (listener, address) = kernel.listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let client = std::thread::spawn(move || {
        for number in 0..COUNT {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(&[number as u8]).unwrap();
            let mut answer = [0; 1];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer[0], number as u8);
        }
    });
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let (served, changed) = (Rc::new(Cell::new(0)), Rc::new(WaitList::new()));
    io.block_on(async {
        for _ in 0..COUNT {
            let socket = listener.accept().await.unwrap();
            let (io, served, changed) = (io.clone(), served.clone(), changed.clone());
            io.clone().spawn(async move {
                let (mut buf, outcome) = socket.receive(io.pool().take(16)).await;
                buf.truncate(outcome.unwrap());
                socket.send(buf).await.1.unwrap();
                served.set(served.get() + 1);
                changed.wake_all();
            });
        }
        changed.until(|| (served.get() == COUNT).then_some(())).await;
    });
    client.join().unwrap();
    // Other tests of this process open descriptors meanwhile, but not as many.
    assert!(descriptors() < before + COUNT / 2, "connections were not closed");
}

fn two_of_our_own_talk_to_each_other(backend: Backend) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let (io, kernel) = start(backend);
    let listener = kernel.listen_unix(&path).unwrap();
    let client = kernel.connect_unix(&path).unwrap();
    let served = io.clone();
    io.spawn(async move {
        echo(&served, &listener).await;
    });
    io.block_on(async {
        for length in [1, 28, 4096, 100_000] {
            let mut buf = io.pool().take(length);
            buf.fill(length as u8);
            client.send(buf).await.1.unwrap();
            let mut received = 0;
            while received < length {
                let (buf, outcome) = client.receive(io.pool().take(length - received)).await;
                let count = outcome.unwrap();
                assert!(count > 0 && buf[..count].iter().all(|byte| *byte == length as u8));
                received += count;
            }
        }
    });
}
