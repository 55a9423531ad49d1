//! The server is killed in the middle of things, again and again: after each restart every
//! acknowledged flush must be there, and what stands on the volume must be whole.
//!
//! `BIMETAL_CRASH_ROUNDS` sets the number of rounds of each test (2 without it); `make crash`
//! runs 50. Kill times come from a seed that is printed (`BIMETAL_CRASH_SEED` sets it).

mod support;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use support::*;

fn rounds() -> u64 {
    std::env::var("BIMETAL_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// Random times within bounds, from a printed seed.
struct Moments(u64);

impl Moments {
    fn new() -> Moments {
        let given = std::env::var("BIMETAL_CRASH_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| {
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
                as u64
        });
        eprintln!("BIMETAL_CRASH_SEED={seed}");
        Moments(seed | 1)
    }

    fn within(&mut self, low_ms: u64, high_ms: u64) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_millis(low_ms + self.0 % (high_ms - low_ms))
    }
}

/// Prints progress past the capturing of output when someone asked for many rounds.
fn tell(what: &str, round: u64) {
    if rounds() > 2 {
        eprintln!("{what}: round {} of {}", round + 1, rounds());
    }
}

/// A client that flushes after every batch and writes down what was acknowledged.
const FLUSHER: &str = r#"
import nbd, os, struct, random
seed, path = int(os.environ['SEED']), os.environ['JOURNAL']
blocks = h.get_size() // 4096
dice = random.Random(seed)
journal = open(path, 'w')
version = seed << 32
try:
    while True:
        batch = []
        for n in range(dice.randrange(1, 9)):
            version += 1
            count = dice.choice([1, 1, 1, 2, 8, 64])
            at = dice.randrange(0, min(blocks, 20000) - count)
            data = b''.join(struct.pack('<QQ', version, at + i) * 256 for i in range(count))
            journal.write('w %d %d %d\n' % (version, at, count))
            journal.flush()
            h.pwrite(data, at * 4096)
            batch.append(version)
        h.flush()
        journal.write('f %d\n' % version)
        journal.flush()
except nbd.Error:
    pass
"#;

/// Reads every block the journals know and compares it with what is allowed: the version of the
/// last acknowledged flush, or any version begun after it.
const JUDGE: &str = r#"
import os, sys, struct
floor, newer = {}, {}
for path in os.environ['JOURNALS'].split():
    pending = {}
    for line in open(path):
        words = line.split()
        if words[0] == 'w' and len(words) == 4:
            version, at, count = map(int, words[1:])
            for block in range(at, at + count):
                newer.setdefault(block, set()).add(version)
                pending[block] = version
        elif words[0] == 'f':
            for block, version in pending.items():
                floor[block] = version
                newer[block] = {v for v in newer[block] if v > version}
            pending = {}
checked = 0
for block in sorted(newer.keys() | floor.keys()):
    data = h.pread(4096, block * 4096)
    version, where = struct.unpack('<QQ', data[:16])
    whole = data == data[:16] * 256
    allowed = newer.get(block, set()) | {floor.get(block, 0)}
    if not whole or version not in allowed or (version and where != block):
        sys.exit('block %d: found version %d of block %d (whole: %s), allowed %s' % (block, version, where, whole, sorted(allowed)))
    checked += 1
print(checked)
"#;

#[test]
fn every_acknowledged_flush_survives_a_kill() {
    if !has_tools("kill -9 under flushed writes", &["nbdsh"]) {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    let mut moments = Moments::new();
    let mut journals: Vec<String> = Vec::new();
    for round in 0..rounds().max(5) {
        tell("flushed writes", round);
        let server = place.serve(&["v"]);
        let judged = run(tool("nbdsh")
            .current_dir(place.dir.path())
            .env("JOURNALS", journals.join(" "))
            .args(["-u", &server.uri, "-c", JUDGE]));
        let said = String::from_utf8_lossy(&judged.stderr).into_owned();
        assert!(judged.status.success(), "round {round}: {said}");
        let journal = format!("journal.{round}");
        let mut flusher = tool("nbdsh");
        flusher.current_dir(place.dir.path()).args(["-u", &server.uri, "-c", FLUSHER]);
        flusher.env("SEED", (round + 1).to_string()).env("JOURNAL", &journal);
        let mut flusher = flusher.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(moments.within(300, 1500));
        server.kill();
        wait(&mut flusher).unwrap();
        journals.push(journal);
        place.bimetal(&["check", "v"]).expect(0, &[]);
    }
    let flushes: usize = journals
        .iter()
        .map(|journal| fs::read_to_string(place.path(journal)).unwrap().matches("f ").count())
        .sum();
    assert!(flushes > 10, "only {flushes} flushes were acknowledged: nothing was tested");
}

#[test]
fn fio_finds_every_block_whole_after_a_kill() {
    if !has_tools("kill -9 under fio", &["fio"]) {
        return;
    }
    let place = Place::new();
    place.create("v", "128M", "512M");
    let mut moments = Moments::new();
    for round in 0..rounds() {
        tell("fio", round);
        let server = place.serve(&["v"]);
        let mut load = tool("fio");
        load.current_dir(place.dir.path()).args([
            "--name=load",
            "--ioengine=nbd",
            "--rw=randwrite",
        ]);
        load.arg(format!("--uri={}", server.uri)).args(["--size=300M", "--bsrange=4k-128k"]);
        load.args([
            "--iodepth=16",
            "--fsync=32",
            "--verify=crc32c",
            "--do_verify=0",
            "--time_based",
        ]);
        load.args(["--runtime=60", "--verify_state_save=0", "--bs_unaligned=0"]);
        let mut load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(moments.within(500, 2500));
        server.kill();
        let _ = load.kill();
        let _ = load.wait();
        place.bimetal(&["check", "v"]).expect(0, &[]);
        // The recovered volume takes a verified load over everything it holds.
        let server = place.serve(&["v"]);
        must(
            tool("fio")
                .current_dir(place.dir.path())
                .args(["--name=verify", "--ioengine=nbd"])
                .arg(format!("--uri={}", server.uri))
                .args(["--rw=randrw", "--size=64M", "--bssplit=4k/50:8k/20:64k/20:512/10"])
                .args([
                    "--iodepth=16",
                    "--verify=crc32c",
                    "--verify_fatal=1",
                    "--verify_state_save=0",
                ]),
        );
        assert!(server.stop().success());
    }
}

/// Attaches and mounts ext4; after `load` has been killed with the server, checks and mounts it
/// again and lets `judge` look.
fn on_ext4(
    what: &str,
    tools: &[&str],
    (low_ms, high_ms): (u64, u64),
    prepare: impl Fn(&Path),
    load: impl Fn(&Path) -> std::process::Child,
    judge: impl Fn(&Path),
) {
    if !can_attach(what) || !has_tools(what, &[tools, &["mkfs.ext4", "e2fsck"]].concat()) {
        return;
    }
    let place = Place::new();
    place.create("v", "128M", "512M");
    let dir = place.path("mnt");
    {
        let attachment = place.attach("v");
        must(tool("mkfs.ext4").arg("-q").arg(&attachment.device));
        let mount = Mount::new(&attachment.device, dir.clone());
        prepare(&dir);
        mount.unmount();
    }
    let mut moments = Moments::new();
    for round in 0..rounds() {
        tell(what, round);
        let attachment = place.attach("v");
        let mount = Mount::new(&attachment.device, dir.clone());
        let mut load = load(&dir);
        std::thread::sleep(moments.within(low_ms, high_ms));
        attachment.kill_server();
        // The load's device is gone: it gets errors and ends, or is ended.
        let _ = load.kill();
        let _ = load.wait();
        let _ = run(tool("umount").arg(&dir));
        drop(mount);
        drop(attachment);
        place.bimetal(&["check", "v"]).expect(0, &[]);
        let attachment = place.attach("v");
        // Replays the journal, as mounting would, and then everything must be right.
        let repaired = run(tool("e2fsck").args(["-p"]).arg(&attachment.device));
        assert!(repaired.status.code().is_some_and(|code| code <= 1), "{repaired:?}");
        must(tool("e2fsck").args(["-fn"]).arg(&attachment.device));
        let mount = Mount::new(&attachment.device, dir.clone());
        judge(&dir);
        mount.unmount();
    }
}

#[test]
fn sqlite_keeps_every_commit_through_a_kill() {
    let load = |dir: &Path| {
        // Each transaction is printed when SQLite says that it is committed; only with
        // "synchronous=extra" does that mean durable. The list is on another file system.
        let script = format!(
            "i=$(sqlite3 {db} 'select coalesce(max(n),0) from t'); while :; do i=$((i+1)); \
             sqlite3 {db} \"pragma synchronous=extra; insert into t values($i, hex(randomblob(2000)));\" \
             >/dev/null 2>&1 && echo $i >> {list} || exit; done",
            db = dir.join("db").display(),
            list = dir.parent().unwrap().join("committed").display()
        );
        tool("sh").args(["-c", &script]).spawn().unwrap()
    };
    let judge = |dir: &Path| {
        let db = dir.join("db");
        let ask = |question: &str| must(tool("sqlite3").arg(&db).arg(question)).trim().to_owned();
        assert_eq!(ask("pragma integrity_check"), "ok");
        let list = dir.parent().unwrap().join("committed");
        let list = fs::read_to_string(list).unwrap_or_default();
        let committed = list.lines().next_back().map_or(0, |line| line.parse::<u64>().unwrap());
        let found: u64 = ask("select count(*) from t").parse().unwrap();
        assert!(found >= committed, "{committed} were committed, {found} are there");
        assert!(committed > 0, "nothing was committed: nothing was tested");
    };
    let prepare = |dir: &Path| {
        let schema = "create table t(n integer primary key, x text);";
        must(tool("sqlite3").arg(dir.join("db")).arg(schema));
    };
    on_ext4("kill -9 under SQLite", &["sqlite3"], (800, 3000), prepare, load, judge);
}

/// PostgreSQL refuses to run as root: everything of it runs as its own user.
struct Postgres {
    bin: String,
}

impl Postgres {
    fn find() -> Option<Postgres> {
        let mut versions: Vec<_> =
            fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path()).collect();
        versions.sort();
        let bin = versions.pop()?.join("bin");
        bin.join("pg_amcheck").exists().then(|| Postgres { bin: bin.display().to_string() })
    }

    fn command(&self, script: &str) -> std::process::Command {
        let mut command = tool("runuser");
        let path = format!("{}:/usr/bin:/bin", self.bin);
        command.args(["-u", "postgres", "--", "env", &format!("PATH={path}"), "sh", "-c", script]);
        command.current_dir("/");
        command
    }

    /// Starts the database, runs `script` with `$D` as its directory, and stops it.
    fn with_database(&self, dir: &Path, script: &str) -> String {
        must(&mut self.command(&format!(
            "D='{}'; pg_ctl -D $D/pg -w -t 60 -l $D/log -o \"-k $D -c listen_addresses=''\" start \
             >/dev/null && ({script}); code=$?; pg_ctl -D $D/pg -w -m fast stop >/dev/null; exit $code",
            dir.display()
        )))
    }
}

#[test]
fn postgresql_keeps_every_commit_through_a_kill() {
    let what = "kill -9 under PostgreSQL";
    let Some(postgres) = Postgres::find() else {
        return skip(what, "PostgreSQL is not installed ('make setup' installs what tests need)");
    };
    let prepare = |dir: &Path| {
        // Its user must be able to come here through the test's own directory.
        let open = "chmod 755 \"$(dirname \"$0\")\" && chown postgres \"$0\"";
        must(tool("sh").args(["-c", open]).arg(dir));
        must(
            &mut postgres.command(&format!(
                "initdb -D '{}/pg' -A trust --no-locale >/dev/null",
                dir.display()
            )),
        );
        postgres.with_database(
            dir,
            "pgbench -h $D -i -s 2 -q postgres 2>/dev/null && \
             psql -qh $D postgres -c 'create extension amcheck; create table c(n bigint primary key)'",
        );
    };
    let load = |dir: &Path| {
        let list = dir.parent().unwrap().join("committed.pg");
        fs::write(&list, "").unwrap();
        must(tool("chown").arg("postgres").arg(&list));
        let script = format!(
            "D='{}'; pg_ctl -D $D/pg -w -t 60 -l $D/log -o \"-k $D -c listen_addresses=''\" start \
             >/dev/null || exit 1; pgbench -h $D -T 60 -c 4 -n postgres >/dev/null 2>&1 & \
             i=$(psql -qAth $D postgres -c 'select coalesce(max(n),0) from c'); \
             while :; do i=$((i+1)); psql -qh $D postgres -c \"insert into c values($i)\" \
             >/dev/null 2>&1 && echo $i >> {} || break; done; \
             pg_ctl -D $D/pg -m immediate stop >/dev/null 2>&1",
            dir.display(),
            list.display()
        );
        postgres.command(&script).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let judge = |dir: &Path| {
        let list = dir.parent().unwrap().join("committed.pg");
        let list = fs::read_to_string(list).unwrap();
        let committed = list.lines().next_back().map_or(0, |line| line.parse::<u64>().unwrap());
        let out = postgres.with_database(
            dir,
            "pg_amcheck -h $D --heapallindexed postgres >&2 && \
             psql -qAth $D postgres -c 'select count(*) from c'",
        );
        let found: u64 = out.trim().parse().unwrap();
        assert!(found >= committed, "{committed} were committed, {found} are there");
        assert!(committed > 0, "nothing was committed: nothing was tested");
    };
    on_ext4(what, &["runuser"], (2500, 6000), prepare, load, judge);
}
