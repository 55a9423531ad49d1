//! Streams and listeners.

use std::io::{Read, Write};

use io::{ErrorKind, Io, Listener};
use uring::{Backend, Kernel};

use crate::{on_both, start};

on_both!(
    a_unix_socket_echoes,
    a_tcp_socket_echoes,
    shutting_a_listener_down_ends_a_waiting_accept,
    shutting_a_connection_down_ends_a_waiting_receive,
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
