//! The control door over a real socket: conversations, bad lines, shutdown.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use export::control::{
    CallError, ControlReply, ControlRequest, ControlServer, REQUEST_BYTES_MAX, bind, call,
};
use serde_json::{Value, json};
use uring::{Kernel, KernelOptions};

const PATIENCE: Duration = Duration::from_secs(10);

/// A server on a thread of its own; `stop` ends it.
struct Serving {
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Serving {
    fn start() -> Serving {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let listening = bind(&path).unwrap();
        let thread = std::thread::spawn(move || {
            let (io, kernel) = Kernel::start(KernelOptions::default()).unwrap();
            let (stop, mut stopped) = io::mailbox(1);
            let clock = io.clone();
            let server = ControlServer::new(io.clone(), move |request| {
                let (stop, clock) = (stop.clone(), clock.clone());
                async move { answer(request, &clock, &stop).await }
            });
            let listener = kernel.adopt_listener(listening).unwrap();
            let accepting = server.clone();
            io.spawn(async move { accepting.serve(listener).await });
            io.block_on(async {
                stopped.receive().await;
                server.shutdown().await;
                assert_eq!(server.clients(), 0);
            });
        });
        Serving { path, thread: Some(thread), _directory: directory }
    }

    fn connect(&self) -> (UnixStream, BufReader<UnixStream>) {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        (stream.try_clone().unwrap(), BufReader::new(stream))
    }

    fn stop(&mut self) {
        let reply = call(&self.path, &ControlRequest::new("stop"), PATIENCE).unwrap();
        assert_eq!(reply, ControlReply::Done(Value::Null));
        self.thread.take().unwrap().join().unwrap();
    }
}

async fn answer(request: ControlRequest, io: &io::Io, stop: &io::Sender<()>) -> ControlReply {
    match request.command.as_str() {
        "echo" => ControlReply::Done(Value::Object(request.arguments)),
        "large" => ControlReply::Done(json!("x".repeat(3 << 20))),
        "slow" => {
            io.sleep(300_000_000).await;
            ControlReply::Done(json!("slept"))
        }
        "stop" => {
            stop.send(()).unwrap();
            // Still at work when the shutdown begins.
            io.sleep(50_000_000).await;
            ControlReply::Done(Value::Null)
        }
        other => ControlReply::failed("unknown_command", format!("'{other}' is not a command")),
    }
}

fn line(reader: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
}

#[test]
fn calls_bring_values_refusals_and_large_replies() {
    let mut serving = Serving::start();
    let request = ControlRequest::new("echo").with("volume", "tank").with("count", 3);
    let reply = call(&serving.path, &request, PATIENCE).unwrap();
    assert_eq!(reply, ControlReply::Done(json!({"volume": "tank", "count": 3})));
    let unknown = call(&serving.path, &ControlRequest::new("dance"), PATIENCE).unwrap();
    assert!(matches!(unknown, ControlReply::Failed(refusal) if refusal.code == "unknown_command"));
    let large = call(&serving.path, &ControlRequest::new("large"), PATIENCE).unwrap();
    assert!(matches!(large, ControlReply::Done(Value::String(text)) if text.len() == 3 << 20));
    serving.stop();
}

#[test]
fn a_call_says_whether_nobody_serves_or_nobody_answers() {
    let mut serving = Serving::start();
    let slow = ControlRequest::new("slow");
    let late = call(&serving.path, &slow, Duration::from_millis(50)).unwrap_err();
    assert!(matches!(late, CallError::TimedOut(_)), "{late}");
    serving.stop();
    let gone = call(&serving.path, &slow, PATIENCE).unwrap_err();
    assert!(matches!(gone, CallError::NotServed(_)), "{gone}");
    let missing = call(Path::new("/nowhere/control"), &slow, PATIENCE).unwrap_err();
    assert!(matches!(missing, CallError::NotServed(_)), "{missing}");
}

#[test]
fn requests_in_one_write_or_many_are_answered_in_order() {
    let mut serving = Serving::start();
    let (mut stream, mut reader) = serving.connect();
    stream
        .write_all(b"{\"command\":\"slow\"}\n{\"command\":\"echo\",\"n\":1}\n{\"command\":")
        .unwrap();
    assert_eq!(line(&mut reader)["value"], "slept");
    assert_eq!(line(&mut reader)["value"]["n"], 1);
    stream.write_all(b"\"echo\",\"n\":2}\n").unwrap();
    assert_eq!(line(&mut reader)["value"]["n"], 2);
    serving.stop();
}

#[test]
fn bad_lines_are_answered_and_endless_ones_end_the_connection() {
    let mut serving = Serving::start();
    let (mut stream, mut reader) = serving.connect();
    let bad: [&[u8]; 6] =
        [b"\n", b"nonsense\n", b"[1]\n", b"{}\n", b"{\"command\":7}\n", b"\xff\0\n"];
    for bad in bad {
        stream.write_all(bad).unwrap();
        assert_eq!(line(&mut reader)["error"]["code"], "bad_request", "{bad:?}");
    }
    stream.write_all(b"{\"command\":\"echo\"}\n").unwrap();
    assert_eq!(line(&mut reader)["ok"], true);
    // The server may hang up while this is still being written.
    let _ = stream.write_all(&vec![b'x'; 4 * REQUEST_BYTES_MAX]);
    let mut rest = Vec::new();
    let _ = reader.read_to_end(&mut rest);
    assert!(rest.len() < 4096, "an answer of {} bytes", rest.len());
    // Others are not disturbed.
    call(&serving.path, &ControlRequest::new("echo"), PATIENCE).unwrap();
    serving.stop();
}

#[test]
fn seeded_garbage_never_stops_the_server() {
    let mut serving = Serving::start();
    let mut state = 4_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..200 {
        let (mut stream, _reader) = serving.connect();
        let mut text = br#"{"command":"echo","a":[1,{"b":null}],"c":"d"}"#.to_vec();
        for _ in 0..1 + random() % 4 {
            let place = random() as usize % text.len();
            text[place] = random() as u8;
        }
        text.push(b'\n');
        stream.write_all(&text).unwrap();
    }
    let reply = call(&serving.path, &ControlRequest::new("echo").with("alive", true), PATIENCE);
    assert_eq!(reply.unwrap(), ControlReply::Done(json!({"alive": true})));
    serving.stop();
}

#[test]
fn a_shutdown_ends_idle_connections_and_lets_answers_finish() {
    let mut serving = Serving::start();
    let (_idle, mut idle_reader) = serving.connect();
    let (mut busy, mut busy_reader) = serving.connect();
    busy.write_all(b"{\"command\":\"slow\"}\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    serving.stop();
    assert_eq!(line(&mut busy_reader)["value"], "slept");
    assert_eq!(idle_reader.read(&mut [0; 16]).unwrap(), 0);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn one_connection_too_many_is_told_so() {
    let mut serving = Serving::start();
    let mut connections: Vec<_> = (0..64).map(|_| serving.connect()).collect();
    for (stream, reader) in &mut connections {
        stream.write_all(b"{\"command\":\"echo\"}\n").unwrap();
        assert_eq!(line(reader)["ok"], true);
    }
    let (_stream, mut reader) = serving.connect();
    assert_eq!(line(&mut reader)["error"]["code"], "too_many_clients");
    drop(connections);
    serving.stop();
}
