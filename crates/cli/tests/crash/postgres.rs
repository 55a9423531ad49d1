//! PostgreSQL under kills: a cluster on the mounted file system, pgbench for load, and clients of
//! our own that note which of their inserts were acknowledged.
//!
//! The server refuses to run as root: it runs as the user `postgres`, as a child of this process.
//! Its socket and its messages are outside the file system that dies.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{must, run, tool, wait};

/// Our own clients; each has its own rows.
const WRITERS: u64 = 2;
/// pgbench's scale: 100,000 accounts each, about 15 MiB.
const SCALE: u64 = 3;

/// A cluster whose data directory is `DIR/pg`.
pub struct Cluster {
    programs: PathBuf,
    data: PathBuf,
    socket: PathBuf,
    messages: PathBuf,
    /// Rows found of each writer, or begun with.
    rows: [u64; WRITERS as usize],
    server: Option<Child>,
}

/// The directory of the newest installed server's programs.
pub fn programs() -> Option<PathBuf> {
    let mut versions: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    versions.sort();
    let programs = versions.pop()?.join("bin");
    programs.join("pg_amcheck").exists().then_some(programs)
}

fn as_postgres(program: &Path) -> Command {
    let mut command = tool("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command.current_dir("/");
    command
}

impl Cluster {
    /// Makes one in `dir`, on the file system that will die; `outside` lies beyond it.
    pub fn make(programs: PathBuf, dir: &Path, outside: &Path) -> Cluster {
        let socket = outside.join("socket");
        std::fs::create_dir_all(&socket).expect("it can be made");
        // Its user must be able to come here.
        must(tool("chmod").arg("755").arg(outside));
        must(tool("chown").arg("postgres").arg(&socket).arg(dir));
        let (data, messages) = (dir.join("pg"), outside.join("postgres.log"));
        let rows = [0; WRITERS as usize];
        let mut cluster = Cluster { programs, data, socket, messages, rows, server: None };
        must(as_postgres(&cluster.programs.join("initdb")).arg("-D").arg(&cluster.data).args([
            "-A",
            "trust",
            "--no-locale",
            "--data-checksums",
            "--wal-segsize=4",
        ]));
        cluster.start();
        must(cluster.client("pgbench").args(["-i", "-q", "-s", &SCALE.to_string()]));
        cluster.ask(
            "create extension amcheck; create table ledger(writer int, n bigint, body text, \
             primary key (writer, n)); create index by_body on ledger(body)",
        );
        cluster
    }

    /// Starts it and waits until it answers: with recovery, after a crash.
    pub fn start(&mut self) {
        let messages = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.messages)
            .expect("messages can be kept");
        let settings = [
            "listen_addresses=",
            "shared_buffers=32MB",
            "min_wal_size=16MB",
            "max_wal_size=48MB",
            "checkpoint_timeout=30s",
            "wal_sync_method=fdatasync",
        ];
        let mut command = as_postgres(&self.programs.join("postgres"));
        command.arg("-D").arg(&self.data).arg("-k").arg(&self.socket);
        settings.iter().for_each(|setting| _ = command.arg("-c").arg(setting));
        command.stdout(Stdio::null()).stderr(messages);
        self.server = Some(command.spawn().expect("PostgreSQL starts"));
        let deadline = Instant::now() + Duration::from_secs(120);
        while !run(self.client("psql").args(["-c", "select 1"])).status.success() {
            let ended = self.server.as_mut().expect("just set").try_wait().expect("it is ours");
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "PostgreSQL does not start ({ended:?}): {}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The end of what it said.
    fn said(&self) -> String {
        let text = std::fs::read(&self.messages).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(4000)..]).into_owned()
    }

    fn client(&self, program: &str) -> Command {
        let mut command = tool("env");
        command.arg(self.programs.join(program)).arg("-h").arg(&self.socket);
        command.args(["-U", "postgres", "-d", "postgres"]).env("PGOPTIONS", "");
        // Its own defaults, not those of whoever runs the tests.
        ["PGHOST", "PGPORT", "PGDATABASE", "PGUSER"]
            .iter()
            .for_each(|name| _ = command.env_remove(name));
        command
    }

    fn ask(&self, question: &str) -> String {
        must(self.client("psql").args(["-X", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", question]))
            .trim()
            .to_owned()
    }

    /// pgbench, and clients that insert and note what was acknowledged.
    pub fn load(&self) -> Load {
        let bench = self
            .client("pgbench")
            .args(["-n", "-c", "3", "-T", "600"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pgbench starts");
        let writers = (0..WRITERS)
            .map(|writer| {
                let mut client = self.client("psql");
                client.args(["-X", "-qAt", "-v", "ON_ERROR_STOP=1"]);
                Writer::start(client, writer, self.rows[writer as usize])
            })
            .collect();
        Load { bench, writers }
    }

    /// Ends it in order.
    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            signal(&server, Signal::INT);
            wait(&mut server).expect("it stops when asked");
        }
    }

    /// Ends what is left of it after its file system has died.
    pub fn abandon(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        signal(&server, Signal::QUIT);
        let deadline = Instant::now() + Duration::from_secs(20);
        while server.try_wait().expect("it is ours").is_none() {
            if Instant::now() > deadline {
                // Its own children end when they miss it.
                let _ = server.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// After recovery: compares what is there with what was acknowledged, and has PostgreSQL's
    /// own tool verify tables and indexes. Gives the number of rows of our own.
    pub fn judge(&mut self, ends: &[(u64, u64)]) -> u64 {
        for (writer, &(acknowledged, asked)) in ends.iter().enumerate() {
            let found = self.ask(&format!(
                "select count(*), coalesce(max(n), 0), coalesce(sum(n), 0), \
                 count(*) filter (where body <> repeat(md5(n::text), 1 + (n % 60)::int)) \
                 from ledger where writer = {writer}"
            ));
            let count: u64 =
                found.split('|').next().and_then(|text| text.parse().ok()).expect(&found);
            let expected = format!("{count}|{count}|{}|0", count * (count + 1) / 2);
            assert!(
                acknowledged <= count && count <= asked && found == expected,
                "writer {writer}: rows 1 to {acknowledged} were acknowledged, {asked} asked for; \
                 count, greatest, sum and changed are {found}"
            );
            self.rows[writer] = count;
        }
        // Each of pgbench's transactions adds the same number to one of each.
        let sums = self.ask(
            "select (select sum(abalance) from pgbench_accounts), \
             (select sum(bbalance) from pgbench_branches), \
             (select sum(tbalance) from pgbench_tellers), \
             (select coalesce(sum(delta), 0) from pgbench_history)",
        );
        let mut each = sums.split('|');
        let first = each.next();
        assert!(each.all(|sum| Some(sum) == first), "torn transactions: sums are {sums}");
        let mut check = tool("env");
        check.arg(self.programs.join("pg_amcheck")).arg("-h").arg(&self.socket);
        must(check.args([
            "-U",
            "postgres",
            "--all",
            "--install-missing",
            "--heapallindexed",
            "--parent-check",
        ]));
        self.rows.iter().sum()
    }

    /// Has the checksum of every page verified; it must have been stopped.
    pub fn verify_pages(&self) {
        must(
            as_postgres(&self.programs.join("pg_checksums"))
                .arg("--check")
                .arg("-D")
                .arg(&self.data),
        );
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.abandon();
    }
}

fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

/// All clients.
pub struct Load {
    bench: Child,
    writers: Vec<Writer>,
}

impl Load {
    /// Ends them; for each writer the last row acknowledged and the last asked for.
    pub fn end(mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.writers).into_iter().map(Writer::end).collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.bench.kill();
        let _ = self.bench.wait();
    }
}

struct Writer {
    child: Child,
    pump: Option<JoinHandle<(u64, u64)>>,
}

impl Writer {
    fn start(mut client: Command, writer: u64, rows: u64) -> Writer {
        let mut child = client
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("psql starts");
        let mut stdin = child.stdin.take().expect("piped");
        let mut answers = BufReader::new(child.stdout.take().expect("piped")).lines();
        // One row after the other: the next is asked for when the last was acknowledged.
        let pump = std::thread::spawn(move || {
            let mut acknowledged = rows;
            loop {
                let n = acknowledged + 1;
                let insert = format!(
                    "insert into ledger values ({writer}, {n}, repeat(md5('{n}'), 1 + {})) \
                     returning n;\n",
                    n % 60
                );
                if stdin.write_all(insert.as_bytes()).is_err() {
                    return (acknowledged, n);
                }
                match answers.next().and_then(Result::ok).and_then(|line| line.parse::<u64>().ok())
                {
                    Some(answer) if answer == n => acknowledged = n,
                    _ => return (acknowledged, n),
                }
            }
        });
        Writer { child, pump: Some(pump) }
    }

    fn end(mut self) -> (u64, u64) {
        let _ = self.child.kill();
        let pump = self.pump.take().expect("not ended before");
        pump.join().expect("the pump ends")
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
