//! fio as a process of ours: it ends when we do, however that comes about.
//!
//! A signal that asks us to end is passed on, and what it was told to do is waited for. Where we are killed without a word
//! the kernel ends it (`setpriv`, of util-linux, asks for that; without that program fio goes on to the end of its step).

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often a signal is looked for.
const POLL: Duration = Duration::from_millis(50);
/// fio that does not end on a signal within this time is killed.
const END_MAX: Duration = Duration::from_secs(10);

/// Somebody asked us to end.
const INTERRUPTED: &str = "interrupted; finished steps are kept where --out says, and the same command goes on behind them";

/// See the head of the file.
pub(super) struct Measurer {
    asked: Arc<AtomicBool>,
}

impl Measurer {
    /// Listens for signals from now on.
    ///
    /// # Errors
    /// When there is no fio, or signals cannot be listened for.
    pub(super) fn new() -> Result<Measurer, String> {
        if Command::new("fio").arg("--version").output().is_err() {
            return Err("fio is not installed; it is what measures real drives".to_owned());
        }
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, asked.clone())
                .map_err(|error| format!("cannot listen for signals: {error}"))?;
        }
        Ok(Measurer { asked })
    }

    /// Runs a job file in its directory to its end. With `read_only` fio is held to that: it makes a file
    /// that is too short for its jobs longer also to read, and then begins with another in its place.
    ///
    /// # Errors
    /// When it does not start, or somebody asks us to end: fio has ended then.
    pub(super) fn run(&self, job: &Path, read_only: bool) -> Result<Output, String> {
        let begin = |program: &mut Command| {
            let directory = job.parent().unwrap_or(Path::new("."));
            program
                .args(["--output-format=json", "--eta=never"])
                .args(read_only.then_some("--readonly"))
                .arg(job)
                .current_dir(directory)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
        };
        let mut tied = Command::new("setpriv");
        tied.args(["--pdeathsig", "TERM", "fio"]);
        let mut child = begin(&mut tied)
            .or_else(|_| begin(&mut Command::new("fio")))
            .map_err(|error| format!("fio does not start: {error}"))?;
        let printed = drain(child.stdout.take());
        let said = drain(child.stderr.take());
        let status = loop {
            if self.asked.load(Ordering::Relaxed) {
                end(&mut child);
                return Err(INTERRUPTED.to_owned());
            }
            match child.try_wait().map_err(|error| format!("fio cannot be waited for: {error}"))? {
                Some(status) => break status,
                None => thread::sleep(POLL),
            }
        };
        let [stdout, stderr] = [printed, said].map(|reader| reader.join().unwrap_or_default());
        Ok(Output { status, stdout, stderr })
    }

    /// Does nothing for so long.
    ///
    /// # Errors
    /// When somebody asks us to end.
    pub(super) fn rest(&self, duration: Duration) -> Result<(), String> {
        let end = Instant::now() + duration;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            if self.asked.load(Ordering::Relaxed) {
                return Err(INTERRUPTED.to_owned());
            }
            thread::sleep(left.min(POLL));
        }
        Ok(())
    }
}

/// Asks it to end, and sees to it.
fn end(child: &mut Child) {
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    let until = Instant::now() + END_MAX;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        thread::sleep(POLL);
    }
}

fn drain<R: Read + Send + 'static>(from: Option<R>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // What came before an error is what there is.
            let _ = from.read_to_end(&mut bytes);
        }
        bytes
    })
}
