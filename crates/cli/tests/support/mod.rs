//! What the outside tests stand on: a place of their own, the built binary with a deadline, a
//! server that is never left behind, and loud skipping.

#![allow(dead_code)] // Each test binary uses a part of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than any command takes on a busy machine; reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(120);

/// Says what is not tested here and why, past the capturing of test output.
pub fn skip(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}");
}

/// Whether every tool is here; says so loudly when not.
pub fn has_tools(what: &str, tools: &[&str]) -> bool {
    let missing: Vec<&&str> = tools.iter().filter(|tool| find_tool(tool).is_none()).collect();
    if !missing.is_empty() {
        skip(what, &format!("{missing:?} not installed ('make setup' installs what tests need)"));
    }
    missing.is_empty()
}

fn find_tool(tool: &str) -> Option<PathBuf> {
    search_path().split(':').map(|dir| Path::new(dir).join(tool)).find(|path| path.is_file())
}

/// Whether block devices can be made here: root, FUSE and loop.
pub fn can_attach(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    let fuse = Path::new("/dev/fuse").exists();
    let loops = Path::new("/dev/loop-control").exists();
    if !(root && fuse && loops) {
        skip(
            what,
            &format!("needs root ({root}), /dev/fuse ({fuse}), /dev/loop-control ({loops})"),
        );
    }
    root && fuse && loops
}

/// Whether btrfs's tools work here: they look behind every mounted loop device, and refuse any
/// device while the server of one of those is gone. Says so loudly when not.
pub fn can_check_mounts(what: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let loops = mounts.lines().filter_map(|line| line.strip_prefix("/dev/loop"));
    let dead: Vec<String> = loops
        .filter_map(|line| {
            let number = line.split(' ').next()?;
            let backing = format!("/sys/block/loop{number}/loop/backing_file");
            let file = std::fs::read_to_string(backing).ok()?;
            Path::new(file.trim_end()).symlink_metadata().err().map(|_| line.to_owned())
        })
        .collect();
    if !dead.is_empty() {
        skip(what, &format!("unmount first, its server is gone: /dev/loop{}", dead.join(", ")));
    }
    dead.is_empty()
}

/// A command with a sane environment.
pub fn tool(program: &str) -> Command {
    let mut command = Command::new(find_tool(program).unwrap_or_else(|| program.into()));
    command.env("PATH", search_path()).stdin(Stdio::null());
    command
}

/// The system's own tools first: nbdsh needs the system's Python, where its library is.
fn search_path() -> String {
    let rest = std::env::var("PATH").unwrap_or_default();
    format!("/usr/bin:/bin:/usr/sbin:/sbin:{rest}")
}

/// Runs to the end within [`PATIENCE`], collecting output.
pub fn run(command: &mut Command) -> Output {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
    let drain = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.expect("piped").read_to_end(&mut bytes);
            bytes
        })
    };
    let stdout = drain(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = drain(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let status = wait(&mut child).unwrap_or_else(|| {
        let _ = child.kill();
        panic!("{command:?} did not end within {PATIENCE:?}")
    });
    Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// Waits for the end within [`PATIENCE`].
pub fn wait(child: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("it is ours") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// Waits until it is so, within [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Runs, and panics with everything it said unless it succeeds; gives standard output.
pub fn must(command: &mut Command) -> String {
    let output = run(command);
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
    stdout.into_owned()
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// Panics unless it ended with this code and standard error contains every word.
    #[track_caller]
    pub fn expect(&self, code: i32, words: &[&str]) -> &Said {
        assert_eq!(self.code, code, "{self:#?}");
        for word in words {
            assert!(self.err.contains(word), "'{word}' is missing: {self:#?}");
        }
        assert!(!self.err.contains("panicked"), "{self:#?}");
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// A directory with its own configuration, in which volumes come and go.
pub struct Place {
    /// Removed at the end.
    pub dir: tempfile::TempDir,
}

impl Place {
    /// A fresh one.
    pub fn new() -> Place {
        Place { dir: tempfile::Builder::new().prefix("bimetal-test.").tempdir().unwrap() }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The binary, with this place's configuration and working directory.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bimetal"));
        command
            .current_dir(self.dir.path())
            .env("BIMETAL_CONFIG_DIR", self.path("conf"))
            .env("PATH", search_path())
            .env_remove("LISTEN_FDS")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null());
        command
    }

    /// Runs `bimetal` with these words.
    pub fn bimetal(&self, words: &[&str]) -> Said {
        let output = run(self.command().args(words));
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Creates the volume `name` on sparse files `NAME.fast` and `NAME.slow`.
    pub fn create(&self, name: &str, fast: &str, slow: &str) {
        let (fast, slow) = (format!("{name}.fast:{fast}"), format!("{name}.slow:{slow}"));
        self.bimetal(&["create", name, "--fast", &fast, "--slow", &slow]).expect(0, &[]);
    }

    /// Copies the drives of the volume `name` to `COPY.fast` and `COPY.slow`, as they are now.
    pub fn copy_drives(&self, name: &str, copy: &str) {
        for drive in ["fast", "slow"] {
            let [from, to] = [name, copy].map(|name| self.path(&format!("{name}.{drive}")));
            std::fs::copy(from, to).unwrap();
        }
    }

    /// Serves and runs a shell command, which must succeed; gives what it printed.
    pub fn serve_run(&self, name: &str, script: &str) -> String {
        let said = self.bimetal(&["serve", name, "--run", script]);
        assert_eq!(said.code, 0, "{said:#?}");
        said.out
    }

    /// Starts a server and waits until it says where it is.
    pub fn serve(&self, words: &[&str]) -> Server {
        Server::start(&mut self.serving(words))
    }

    fn serving(&self, words: &[&str]) -> Command {
        let mut command = self.command();
        command.arg("serve").args(words).arg("--print-uri").arg("--exit-with-parent");
        command
    }

    /// As [`Place::serve`], with what the server says about itself in a file of that name.
    pub fn serve_saying(&self, words: &[&str], said: &str) -> Server {
        let file = std::fs::File::create(self.path(said)).expect("a new file");
        Server::start_saying(&mut self.serving(words), file.into())
    }

    /// The volume's status as JSON.
    pub fn status(&self, name: &str) -> serde_json::Value {
        let said = self.bimetal(&["--json", "status", name]);
        assert!(said.code == 0 || said.code == 3, "{said:#?}");
        said.json()["volumes"][0].clone()
    }

    /// Detaches when the test ends, however it ends.
    pub fn attach(&self, name: &str) -> Attachment<'_> {
        let said = self.bimetal(&["attach", name]);
        said.expect(0, &[]);
        Attachment { place: self, name: name.to_owned(), device: said.out.trim().into() }
    }
}

/// A running server, killed when dropped.
pub struct Server {
    /// The process.
    pub child: Child,
    /// What it printed first.
    pub uri: String,
    /// Keeps the pipe open.
    _stdout: BufReader<std::process::ChildStdout>,
}

impl Server {
    /// Starts what prints its URI first, and waits for that.
    pub fn start(command: &mut Command) -> Server {
        Server::start_saying(command, Stdio::inherit())
    }

    /// As [`Server::start`], with what it says about itself going there.
    pub fn start_saying(command: &mut Command, said: Stdio) -> Server {
        let mut child =
            command.stdout(Stdio::piped()).stderr(said).spawn().expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut uri = String::new();
        stdout.read_line(&mut uri).unwrap();
        assert!(!uri.is_empty(), "it ended before it was ready: {:?}", child.wait());
        Server { child, uri: uri.trim().to_owned(), _stdout: stdout }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Asks it to end and waits until it has.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        wait(&mut self.child).expect("it stops when asked")
    }

    /// Ends it as a crash would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An attached volume, detached when dropped.
pub struct Attachment<'a> {
    place: &'a Place,
    name: String,
    /// The block device.
    pub device: PathBuf,
}

impl Attachment<'_> {
    /// Kills the server behind the device.
    pub fn kill_server(&self) {
        let pid = self.place.status(&self.name)["server"]["pid"].as_i64().unwrap();
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while rustix::process::test_kill_process(pid).is_ok() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Attachment<'_> {
    fn drop(&mut self) {
        let _ = run(self.place.command().args(["detach", &self.name]));
    }
}

/// A mounted file system, unmounted when dropped.
pub struct Mount {
    /// Where.
    pub dir: PathBuf,
}

impl Mount {
    /// Mounts `device` at `dir` (made when missing).
    pub fn new(device: &Path, dir: PathBuf) -> Mount {
        Mount::with(device, dir, "defaults")
    }

    /// The same with options.
    pub fn with(device: &Path, dir: PathBuf, options: &str) -> Mount {
        std::fs::create_dir_all(&dir).unwrap();
        must(tool("mount").arg("-o").arg(options).arg(device).arg(&dir));
        Mount { dir }
    }

    /// Mounts a tmpfs that holds at most `size` at `dir`.
    pub fn tmpfs(size: &str, dir: PathBuf) -> Mount {
        std::fs::create_dir_all(&dir).unwrap();
        must(tool("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(&dir));
        Mount { dir }
    }

    /// Unmounts, and panics when that fails.
    pub fn unmount(self) {
        must(tool("umount").arg(&self.dir));
        std::mem::forget(self);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = run(tool("umount").arg("-l").arg(&self.dir));
    }
}

/// Bytes that are all different from each other and from every other seed's.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // xorshift64: fast, and good enough not to repeat within a test.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
