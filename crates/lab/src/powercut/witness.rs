//! Writer and witness over TCP: the writer sends the run, then each epoch, as lines of JSON; the
//! witness answers the run once, so that the writer knows that it is heard, and writes everything
//! down as it comes.
//!
//! A machine that loses power says no goodbye: the witness takes a silence for the cut.

use std::io::{BufRead, BufReader, ErrorKind, Write as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::plan::Run;
use super::record::{Acknowledged, append};
use super::writer::Witness;

/// How long a writer waits to be connected and answered.
const PATIENCE: Duration = Duration::from_secs(10);

/// A line longer than this is no message of ours.
const LINE_BYTES_MAX: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Heard {
    heard: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flushed {
    epoch: u64,
}

/// The writer's end of the wire.
pub struct Wire {
    stream: TcpStream,
    line: Vec<u8>,
}

impl Wire {
    /// Connects to the witness and introduces the run.
    pub fn connect(address: &str, run: &Run) -> Result<Wire, String> {
        let failed =
            |error: std::io::Error| format!("cannot reach the witness at {address}: {error}");
        let mut addresses = address.to_socket_addrs().map_err(failed)?;
        let first = addresses.next().ok_or_else(|| format!("{address} is no address"))?;
        let mut stream = TcpStream::connect_timeout(&first, PATIENCE).map_err(failed)?;
        // Word of a flush must leave at once: what waits in this machine dies with it.
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        append(&mut stream, run).map_err(failed)?;
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).map_err(failed)?;
        match serde_json::from_str::<Heard>(&answer) {
            Ok(Heard { heard: true }) => Ok(Wire { stream, line: Vec::new() }),
            _ => Err(format!("what listens at {address} is no witness of this version")),
        }
    }
}

impl Witness for Wire {
    fn flushed(&mut self, epoch: u64) -> Result<(), String> {
        self.line.clear();
        append(&mut self.line, &Flushed { epoch })
            .and_then(|()| self.stream.write_all(&self.line))
            .map_err(|error| format!("the witness is gone: {error}"))
    }
}

/// What a witness has heard in the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told {
    /// The run's drive, as the writer called it.
    pub drive: String,
    /// Epochs recorded.
    pub epochs: u64,
    /// The writer closed the connection; otherwise it fell silent.
    pub goodbye: bool,
}

/// Waits for a writer and records what it says, until it goes or is silent for `silence`.
/// `heard` is told each epoch.
pub fn listen(
    listener: &TcpListener,
    record: &mut dyn std::io::Write,
    silence: Duration,
    mut heard: impl FnMut(u64),
) -> Result<Told, String> {
    let failed = |error: std::io::Error| format!("cannot hear a writer: {error}");
    let (stream, _) = listener.accept().map_err(failed)?;
    stream.set_read_timeout(Some(silence)).map_err(failed)?;
    let mut lines = BufReader::new(&stream);
    let Some(line) = next_line(&mut lines)? else {
        return Err("the writer went before it had said what it writes".to_owned());
    };
    let run: Run = serde_json::from_str(&line)
        .map_err(|error| format!("what connected is no writer of this version: {error}"))?;
    if let Some(problem) = run.problem() {
        return Err(format!("the writer's run cannot be: {problem}"));
    }
    let kept = |error: std::io::Error| format!("cannot write the record: {error}");
    append(&mut &mut *record, &run).and_then(|()| record.flush()).map_err(kept)?;
    append(&mut &stream, &Heard { heard: true }).map_err(failed)?;
    let began = Instant::now();
    let mut told = Told { drive: run.drive, epochs: 0, goodbye: false };
    loop {
        let line = match next_line(&mut lines) {
            Ok(Some(line)) => line,
            Ok(None) => {
                told.goodbye = true;
                return Ok(told);
            }
            Err(_) => return Ok(told),
        };
        let Flushed { epoch } = serde_json::from_str(&line)
            .map_err(|error| format!("the writer says what is no epoch: {error}"))?;
        if epoch != told.epochs + 1 {
            return Err(format!("the writer says epoch {epoch} after {}", told.epochs));
        }
        told.epochs = epoch;
        let at_ms = began.elapsed().as_millis() as u64;
        append(&mut &mut *record, &Acknowledged { epoch, at_ms })
            .and_then(|()| record.flush())
            .map_err(kept)?;
        heard(epoch);
    }
}

/// The next whole line; `None` at the end, an error after silence or a broken connection.
fn next_line(lines: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut line = String::new();
    let mut bounded = std::io::Read::take(&mut *lines, LINE_BYTES_MAX);
    loop {
        match bounded.read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => return Ok(Some(line)),
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => return Err("a line broke off, or is too long".to_owned()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::powercut::Record;

    fn run() -> Run {
        Run::new(3, "/dev/x", 1 << 26, 512).unwrap()
    }

    #[test]
    fn what_is_said_is_recorded() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let writer = std::thread::spawn(move || {
            let mut wire = Wire::connect(&address, &run()).unwrap();
            for epoch in 1..=5 {
                wire.flushed(epoch).unwrap();
            }
        });
        let mut text = Vec::new();
        let told = listen(&listener, &mut text, PATIENCE, |_| ()).unwrap();
        writer.join().unwrap();
        assert_eq!(told, Told { drive: "/dev/x".to_owned(), epochs: 5, goodbye: true });
        let record = Record::read(&text[..]).unwrap();
        assert_eq!((record.run.clone(), record.epochs()), (run(), 5));
    }

    #[test]
    fn silence_is_taken_for_the_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let writer = std::thread::spawn(move || {
            let mut wire = Wire::connect(&address, &run()).unwrap();
            wire.flushed(1).unwrap();
            let _ = wait.recv();
        });
        let told = listen(&listener, &mut Vec::new(), Duration::from_millis(200), |_| ()).unwrap();
        drop(done);
        writer.join().unwrap();
        assert_eq!((told.epochs, told.goodbye), (1, false));
    }

    #[test]
    fn strangers_are_told_apart() {
        for (says, words) in [
            ("GET / HTTP/1.1\r\n\r\n", "no writer"),
            ("{}\n", "no writer"),
            ("", "went before"),
            ("no line end", "broke off"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            stream.write_all(says.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let error = listen(&listener, &mut Vec::new(), PATIENCE, |_| ()).unwrap_err();
            assert!(error.contains(words), "{says:?}: {error}");
        }
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        assert!(Wire::connect(&nobody, &run()).err().unwrap().contains("cannot reach"));
    }
}
