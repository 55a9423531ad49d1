//! SQLite under kills: a shell that commits as fast as it can and says so, and the judge of what
//! its database holds afterwards.
//!
//! Row n is inserted and the running total updated in one transaction; then n is printed. What
//! was printed must be there, nothing may be there that was not asked for, and both tables must
//! agree. The printed numbers are kept in this process.
//!
//! Of a deleted journal only what was printed before the kill counts. Its commit is an fsync of the
//! directory, and ext4 answers one with success after its device has died, if another file's
//! fsync has met the failed transaction before: nothing is left to commit then
//! (docs/crash-testing.md).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::support::{must, tool, wait};

/// How a commit becomes durable.
#[derive(Clone, Copy, Debug)]
pub struct Journal {
    /// Of `pragma journal_mode`.
    mode: &'static str,
    /// The least `pragma synchronous` that makes a commit durable in this mode: removing the
    /// journal commits, and its directory is synchronised only with "extra".
    synchronous: &'static str,
    /// A commit ends with an fsync of the directory, which is not to be believed once the device is gone.
    ends_in_directory: bool,
}

/// All ways.
pub const JOURNALS: [Journal; 3] = [
    Journal { mode: "wal", synchronous: "full", ends_in_directory: false },
    Journal { mode: "delete", synchronous: "extra", ends_in_directory: true },
    Journal { mode: "truncate", synchronous: "full", ends_in_directory: false },
];

/// A database and how far it is known to have come.
pub struct Database {
    journal: Journal,
    /// Rows found, or begun with.
    rows: u64,
}

/// Rows of growing length, so that pages, overflow pages and journals all vary.
fn body(n: &str) -> String {
    format!("printf('%0*d', 20 + ({n} * 7919) % 6000, {n})")
}

impl Database {
    /// Makes it in `dir`.
    pub fn make(dir: &Path, journal: Journal) -> Database {
        let database = Database { journal, rows: 0 };
        let schema = "create table ledger(n integer primary key, body text);
                      create index by_body on ledger(body);
                      create table total(count integer, sum integer);
                      insert into total values(0, 0);";
        let mode = format!("pragma journal_mode={}; {schema}", journal.mode);
        must(tool("sqlite3").arg(database.path(dir)).arg(mode));
        must(tool("sync").arg("-f").arg(dir));
        database
    }

    fn path(&self, dir: &Path) -> std::path::PathBuf {
        dir.join(format!("{}.db", self.journal.mode))
    }

    /// Commits until it is stopped or its file system fails.
    pub fn commit_on(&self, dir: &Path) -> Committer {
        let mut child = tool("stdbuf")
            .args(["-oL", "sqlite3", "-batch", "-bail"])
            .arg(self.path(dir))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sqlite3 starts");
        let mut stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let Journal { mode, synchronous, ends_in_directory } = self.journal;
        let asked = Arc::new(AtomicU64::new(self.rows));
        let asking = asked.clone();
        let writer = std::thread::spawn(move || {
            let mut words = format!(
                ".output /dev/null\npragma journal_mode={mode};\npragma synchronous={synchronous};\n\
                 pragma wal_autocheckpoint=200;\n.output stdout\n"
            );
            loop {
                if stdin.write_all(words.as_bytes()).is_err() {
                    return;
                }
                let n = asking.fetch_add(1, Ordering::SeqCst) + 1;
                words = format!(
                    "begin immediate; insert into ledger values({n}, {}); update total set \
                     count = count + 1, sum = sum + {n}; commit;\nselect {n};\n",
                    body(&n.to_string())
                );
            }
        });
        let printed = Arc::new(AtomicU64::new(self.rows));
        let printing = printed.clone();
        let reader = std::thread::spawn(move || {
            let lines = stdout.lines().map_while(Result::ok);
            for row in lines.filter_map(|line| line.trim().parse().ok()) {
                printing.store(row, Ordering::SeqCst);
            }
        });
        let threads = Some([writer, reader]);
        Committer { child, asked, printed, believed: None, ends_in_directory, threads }
    }

    /// Compares what is there with what was acknowledged; gives the number of rows.
    pub fn judge(&mut self, dir: &Path, acknowledged: u64, asked: u64) -> u64 {
        let path = self.path(dir);
        let ask = |question: &str| must(tool("sqlite3").arg(&path).arg(question)).trim().to_owned();
        assert_eq!(ask("pragma integrity_check"), "ok", "{:?}", self.journal);
        let found = ask("select count(*), ifnull(max(n), 0), ifnull(sum(n), 0) from ledger");
        let count: u64 = found.split('|').next().and_then(|text| text.parse().ok()).expect(&found);
        let sum = count * (count + 1) / 2;
        assert!(
            acknowledged <= count && count <= asked && found == format!("{count}|{count}|{sum}"),
            "{:?}: rows 1 to {acknowledged} were acknowledged, {asked} asked for; \
             count, greatest and sum are {found}",
            self.journal
        );
        assert_eq!(ask("select count, sum from total"), format!("{count}|{sum}"), "torn commit");
        let changed = ask(&format!("select count(*) from ledger where body <> {}", body("n")));
        assert_eq!(changed, "0", "rows of {:?} have changed", self.journal);
        self.rows = count;
        count
    }
}

/// A running shell.
pub struct Committer {
    child: Child,
    asked: Arc<AtomicU64>,
    printed: Arc<AtomicU64>,
    /// What was printed when the device was about to go, where later numbers do not count.
    believed: Option<u64>,
    ends_in_directory: bool,
    threads: Option<[JoinHandle<()>; 2]>,
}

impl Committer {
    /// The device goes now.
    pub fn device_goes(&mut self) {
        self.believed = self.ends_in_directory.then(|| self.printed.load(Ordering::SeqCst));
    }

    /// Ends it; gives the last number whose commit must be there, and the last it can have been
    /// asked for.
    pub fn end(mut self) -> (u64, u64) {
        let _ = self.child.kill();
        wait(&mut self.child).expect("it ends");
        for thread in self.threads.take().expect("not ended before") {
            thread.join().expect("its reader and writer end");
        }
        let printed = self.printed.load(Ordering::SeqCst);
        (self.believed.unwrap_or(printed), self.asked.load(Ordering::SeqCst))
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
