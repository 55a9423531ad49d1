//! An NBD server over a volume in memory, on a thread of its own, for the outside tests.

#![allow(dead_code)] // Each test binary uses its own part.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use export::nbd::{NbdOptions, NbdServer};
use io::Io;
use uring::{Kernel, KernelOptions};

use super::memory::{Counts, MemoryVolume};

/// No client needs longer than this for what the tests ask of it, even on a loaded machine.
const CLIENT_PATIENCE: Duration = Duration::from_secs(120);

/// A running server.
pub struct Server {
    directory: tempfile::TempDir,
    /// Where it also listens, on loopback.
    pub tcp: SocketAddr,
    stop: io::Sender<()>,
    thread: JoinHandle<Report>,
}

/// What a server knew when it ended.
#[derive(Debug)]
pub struct Report {
    pub counts: Counts,
    pub connections: usize,
    /// Buffers that nobody gave back, in bytes.
    pub leaked_bytes: usize,
    pub peak_bytes: usize,
}

impl Server {
    /// Starts one with `size_bytes` and the default options.
    pub fn start(size_bytes: u64) -> Server {
        Server::start_with(move |io| {
            (MemoryVolume::new(io.clone(), size_bytes), NbdOptions::default())
        })
    }

    /// Starts one as `setup` makes it.
    pub fn start_with(
        setup: impl FnOnce(&Io) -> (MemoryVolume, NbdOptions) + Send + 'static,
    ) -> Server {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("nbd.sock");
        let (stop, stopped) = io::mailbox::<()>(1);
        let (ready, started) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (io, kernel) = Kernel::start(KernelOptions::default()).expect("a kernel world");
            let listener = kernel.listen_unix(&path).expect("a socket");
            let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
            let (tcp_listener, tcp) = kernel.listen_tcp(any_port).expect("a port");
            let (volume, options) = setup(&io);
            let volume = Rc::new(volume);
            let server = NbdServer::new(io.clone(), volume.clone(), options);
            for listener in [listener, tcp_listener] {
                let serving = server.clone();
                io.spawn(async move { serving.serve(listener).await });
            }
            ready.send(tcp).expect("the test waits");
            let mut stopped = stopped;
            io.block_on(async {
                stopped.receive().await;
                server.shutdown().await;
            });
            let usage = io.pool().usage();
            Report {
                counts: volume.counts(),
                connections: server.connections(),
                leaked_bytes: usage.in_use_bytes,
                peak_bytes: usage.in_use_peak_bytes,
            }
        });
        let tcp = started.recv().expect("the server starts");
        Server { directory, tcp, stop, thread }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd.sock")
    }

    /// A place for files of the test.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    pub fn tls_uri(&self, rest: &str) -> String {
        format!("nbds+unix://{rest}socket={}", self.socket().display())
    }

    /// Ends the server and gives its report.
    pub fn stop(self) -> Report {
        let _ = self.stop.send(());
        self.thread.join().expect("the server does not panic")
    }
}

/// Whether the tool is there; says so loudly if not.
pub fn has(tool: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|paths| {
        std::env::split_paths(&paths).any(|directory| directory.join(tool).is_file())
    });
    if !found {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {tool} is not installed");
    }
    found
}

/// Runs a client to its end, or panics when it hangs.
pub fn run(command: &mut Command) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let begun = Instant::now();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let out = std::thread::spawn(move || read_all(out.expect("piped")));
    let err = std::thread::spawn(move || read_all(err.expect("piped")));
    let status = loop {
        if let Some(status) = child.try_wait().expect("our child") {
            break status;
        }
        if begun.elapsed() > CLIENT_PATIENCE {
            child.kill().expect("our child");
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let join = |reader: JoinHandle<Vec<u8>>| reader.join().expect("a reader does not panic");
    Output { status, stdout: join(out), stderr: join(err) }
}

fn read_all(mut from: impl std::io::Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).expect("a pipe can be read");
    bytes
}

/// Runs a client that must succeed; gives what it printed.
pub fn succeed(command: &mut Command) -> String {
    let output = run(command);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} failed\n{out}\n{err}");
    out.into_owned()
}

/// nbdsh, run by a Python that has the module; the first one in the path may be another than the
/// one the module was installed for. Says so loudly if there is none.
pub fn nbdsh() -> Option<Command> {
    for python in ["python3", "/usr/bin/python3"] {
        let mut probe = Command::new(python);
        probe.args(["-c", "import nbd"]).stdout(Stdio::null()).stderr(Stdio::null());
        if probe.status().is_ok_and(|status| status.success()) {
            let mut command = Command::new(python);
            command.args(["-m", "nbd"]);
            return Some(command);
        }
    }
    let _ = writeln!(std::io::stderr(), "SKIPPED: no Python has the module nbd (python3-libnbd)");
    None
}

/// Runs a script of this directory's `nbd_scripts` in nbdsh against `uri`.
pub fn script(name: &str, uri: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nbd_scripts").join(name);
    let code = std::fs::read_to_string(&path).expect("a script of ours");
    let Some(mut nbdsh) = nbdsh() else { return };
    succeed(nbdsh.args(["-c", &format!("uri = {uri:?}"), "-c", &code]));
}

/// Bytes that differ everywhere, the same for the same seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed | 1);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A small generator (xorshift64*), so that a failure repeats with its seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
