//! The server is killed in the middle of things, again and again: after each restart every
//! acknowledged flush must be there, and what stands on the volume must be whole.
//!
//! A few rounds of each test run with all the other tests; `make crash ROUNDS=50` runs many.
//! `docs/crash-testing.md` tells what is done and what was seen, `crash/campaign.rs` which
//! variables there are.

mod support;

#[path = "crash/campaign.rs"]
mod campaign;
#[path = "crash/file_system.rs"]
mod file_system;
#[path = "crash/filling.rs"]
mod filling;
#[path = "crash/ledger.rs"]
mod ledger;
#[path = "crash/nbd_client.rs"]
mod nbd_client;
#[path = "crash/nbd_load.rs"]
mod nbd_load;
#[path = "crash/postgres.rs"]
mod postgres;
#[path = "crash/sqlite.rs"]
mod sqlite;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use campaign::{Campaign, Dice, Evidence};
use file_system::{FileSystem, Kind};
use filling::Filling;
use ledger::Ledger;
use nbd_load::{MANNERS, Manner, NbdLoad, look};
use postgres::Cluster;
use rustix::fs::{FlockOperation, flock};
use sqlite::{Committer, Database, JOURNALS};
use support::*;

/// Rounds on one volume before the next one of another size begins.
const ROUNDS_PER_VOLUME: u64 = 5;

/// A volume's measures, as `create` takes them.
struct Measures {
    fast: &'static str,
    slow: &'static str,
    landing: &'static str,
    extent: &'static str,
}

/// Small ones, so that log, both drives, destage and checkpoints all come to their turn within a
/// round.
const MEASURES: [Measures; 4] = [
    Measures { fast: "64M", slow: "128M", landing: "4M", extent: "128K" },
    Measures { fast: "128M", slow: "384M", landing: "16M", extent: "64K" },
    Measures { fast: "96M", slow: "256M", landing: "8M", extent: "1M" },
    Measures { fast: "256M", slow: "1G", landing: "32M", extent: "128K" },
];

/// Makes the volume "v" in a place of its own.
fn volume(measures: &Measures) -> Place {
    let place = Place::new();
    let (fast, slow) = (format!("v.fast:{}", measures.fast), format!("v.slow:{}", measures.slow));
    let drives = ["create", "v", "--fast", &fast, "--slow", &slow];
    let sizes = ["--landing", measures.landing, "--extent", measures.extent];
    place.bimetal(&[&drives[..], &sizes[..]].concat()).expect(0, &[]);
    place
}

fn socket_of(server: &Server) -> PathBuf {
    let (_, socket) = server.uri.split_once("socket=").expect("a unix socket");
    PathBuf::from(socket)
}

/// Starts a server and kills it on its way up, without waiting for it to be ready.
fn kill_during_start(place: &Place, after: Duration) {
    let mut command = place.command();
    let mut child = command
        .args(["serve", "v", "--exit-with-parent"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    std::thread::sleep(after);
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    released(place);
}

/// Waits until nobody holds the drives any more; gives how long that took. The kernel takes a
/// killed process's io_uring apart after the process has ended, and finishes what was in flight:
/// until then the drives are locked, rightly.
fn released(place: &Place) -> Duration {
    let killed = Instant::now();
    for drive in ["v.fast", "v.slow"] {
        let file = std::fs::File::open(place.path(drive)).expect("a drive");
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            assert!(killed.elapsed() < Duration::from_secs(30), "{drive} stays locked");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    killed.elapsed()
}

#[test]
fn every_acknowledged_flush_survives_a_kill() {
    let mut campaign = Campaign::new("own client", 2);
    let mut round = 0;
    let mut flushes = 0;
    while round < campaign.rounds {
        let place = volume(&MEASURES[(round / ROUNDS_PER_VOLUME) as usize % MEASURES.len()]);
        let evidence = Evidence::new(&place);
        let mut server = place.serve(&["v"]);
        let size_bytes = place.status("v")["size_bytes"].as_u64().expect("a size");
        let mut ledger = Ledger::new(size_bytes);
        for round_here in 0..ROUNDS_PER_VOLUME.min(campaign.rounds - round) {
            let manner = MANNERS[(round_here + round / ROUNDS_PER_VOLUME) as usize % MANNERS.len()];
            let load = NbdLoad::new(&mut ledger, campaign.dice.split(), manner);
            let lives = campaign.dice.moment(50, 3000);
            let socket = socket_of(&server);
            let tally = std::thread::scope(|scope| {
                let load = scope.spawn(|| load.run(&socket));
                std::thread::sleep(lives);
                server.kill();
                load.join().expect("the client does not fall")
            });
            let released_after = released(&place);
            evidence.before_restart();
            assert!(tally.wrong.is_empty(), "round {round}, {manner:?}: {:#?}", tally.wrong);
            flushes += tally.flushes;
            let again = campaign.dice.below(3);
            for _ in 0..again {
                kill_during_start(&place, campaign.dice.moment(0, 250));
            }
            place.bimetal(&["check", "v"]).expect(0, &[]);
            server = place.serve(&["v"]);
            let (verdict, wrong) = look(&mut ledger, &socket_of(&server));
            assert!(
                wrong.is_empty(),
                "round {round}, {manner:?}, {tally:?}: {} blocks are wrong\n{}",
                wrong.len(),
                wrong[..wrong.len().min(10)].join("\n")
            );
            campaign.tell(
                round,
                &format!(
                    "{manner:?} for {lives:?}, {} changes, {} flushes, {} reads, {again} kills \
                     during start, drives released after {released_after:?}; {} blocks right, \
                     {} undecided, {} of them new",
                    tally.changes,
                    tally.flushes,
                    tally.reads,
                    verdict.blocks,
                    verdict.open,
                    verdict.newest
                ),
            );
            round += 1;
        }
        assert!(server.stop().success());
        place.bimetal(&["check", "v"]).expect(0, &[]);
    }
    assert!(flushes > 0, "no flush was acknowledged: nothing was tested");
}

#[test]
fn drives_put_back_to_an_older_state_are_noticed() {
    // The canary: a volume that forgets acknowledged flushes must fail the look at it. The dice
    // are such that sixteen requests are in flight and many of them are flushes.
    let place = volume(&MEASURES[0]);
    let mut server = place.serve(&["v"]);
    let size_bytes = place.status("v")["size_bytes"].as_u64().expect("a size");
    let mut ledger = Ledger::new(size_bytes);
    let load = |ledger: &mut Ledger, server: Server, dice: u64| {
        let load = NbdLoad::new(ledger, Dice::new(dice), Manner::Small);
        let socket = socket_of(&server);
        std::thread::scope(|scope| {
            let load = scope.spawn(|| load.run(&socket));
            std::thread::sleep(Duration::from_millis(700));
            server.kill();
            load.join().expect("the client does not fall")
        })
    };
    assert!(load(&mut ledger, server, 8).wrong.is_empty());
    released(&place);
    let copy = |from: &str, to: &str| {
        must(tool("cp").arg("--sparse=always").arg(place.path(from)).arg(place.path(to)));
    };
    ["fast", "slow"].iter().for_each(|drive| copy(&format!("v.{drive}"), &format!("old.{drive}")));
    server = place.serve(&["v"]);
    // What was in flight is there or not: clients that read it would not know which.
    let (_, wrong) = look(&mut ledger, &socket_of(&server));
    assert!(wrong.is_empty(), "{wrong:?}");
    let tally = load(&mut ledger, server, 4);
    assert!(tally.wrong.is_empty() && tally.flushes > 0, "{tally:?}");
    released(&place);
    ["fast", "slow"].iter().for_each(|drive| copy(&format!("old.{drive}"), &format!("v.{drive}")));
    let server = place.serve(&["v"]);
    let (_, wrong) = look(&mut ledger, &socket_of(&server));
    assert!(!wrong.is_empty(), "{tally:?} were forgotten, and nobody noticed");
}

#[test]
fn fio_finds_every_block_whole_after_a_kill() {
    if !has_tools("kill -9 under fio", &["fio"]) {
        return;
    }
    let mut campaign = Campaign::new("fio", 1);
    // A header with a checksum in every 4 KiB, whatever the request's size: after a kill each is
    // old or new, and whole.
    let fio = |place: &Place, server: &Server, words: &[&str]| {
        let mut fio = tool("fio");
        fio.current_dir(place.dir.path())
            .args(["--name=job", "--ioengine=nbd", "--verify=crc32c", "--verify_interval=4k"])
            .args(["--verify_fatal=1", "--verify_state_save=0", "--size=60%"])
            .arg(format!("--uri={}", server.uri))
            .args(words);
        fio
    };
    let mut round = 0;
    while round < campaign.rounds {
        let place = volume(&MEASURES[(round / ROUNDS_PER_VOLUME) as usize % MEASURES.len()]);
        let evidence = Evidence::new(&place);
        let mut server = place.serve(&["v"]);
        let first = ["--rw=write", "--bs=256k", "--iodepth=8", "--do_verify=0", "--end_fsync=1"];
        must(&mut fio(&place, &server, &first));
        for _ in 0..ROUNDS_PER_VOLUME.min(campaign.rounds - round) {
            let lives = campaign.dice.moment(300, 3000);
            let depth = format!("--iodepth={}", campaign.dice.pick(&[1, 8, 32]));
            let fsync = format!("--fsync={}", campaign.dice.pick(&[1, 16, 200]));
            let sizes = campaign.dice.pick(&["--bs=4k", "--bsrange=4k-128k", "--bsrange=64k-1m"]);
            let seed = format!("--randseed={}", campaign.dice.below(1 << 30));
            let words = [&depth, &fsync, sizes, &seed, "--rw=randwrite", "--do_verify=0"];
            let endless = ["--time_based", "--runtime=60"];
            let mut load = fio(&place, &server, &[&words[..], &endless[..]].concat())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("fio starts");
            std::thread::sleep(lives);
            server.kill();
            // Without its server it would wait for its runtime.
            let _ = load.kill();
            let _ = load.wait();
            released(&place);
            evidence.before_restart();
            place.bimetal(&["check", "v"]).expect(0, &[]);
            server = place.serve(&["v"]);
            must(&mut fio(&place, &server, &["--rw=read", "--bs=256k", "--iodepth=4"]));
            campaign.tell(round, &format!("{lives:?} {words:?}: every block whole"));
            round += 1;
        }
        assert!(server.stop().success());
    }
}

/// For file systems, of which some want at least 300 MiB.
const LARGER_MEASURES: [Measures; 3] = [
    Measures { fast: "128M", slow: "384M", landing: "8M", extent: "128K" },
    Measures { fast: "96M", slow: "640M", landing: "4M", extent: "128K" },
    Measures { fast: "256M", slow: "1G", landing: "32M", extent: "64K" },
];

#[test]
fn sqlite_keeps_every_commit_through_a_kill() {
    let what = "kill -9 under SQLite";
    if !can_attach(what) || !has_tools(what, &["sqlite3", "stdbuf"]) {
        return;
    }
    let mut campaign = Campaign::new("SQLite", 1);
    let (mut round, mut acknowledged) = (0, 0);
    while round < campaign.rounds {
        let number = (round / ROUNDS_PER_VOLUME) as usize;
        let kind = [Kind::Ext4, Kind::Ext4, Kind::Xfs, Kind::Ext4, Kind::Btrfs][number % 5];
        if !has_tools(what, &kind.tools()) {
            return;
        }
        let place = volume(&LARGER_MEASURES[number % LARGER_MEASURES.len()]);
        let evidence = Evidence::new(&place);
        let mut file_system = FileSystem::make(&place, kind);
        let dir = file_system.dir();
        let mut databases = JOURNALS.map(|journal| Database::make(&dir, journal));
        for _ in 0..ROUNDS_PER_VOLUME.min(campaign.rounds - round) {
            let lives = campaign.dice.moment(300, 4000);
            let mut committers = databases.each_ref().map(|database| database.commit_on(&dir));
            std::thread::sleep(lives);
            committers.iter_mut().for_each(Committer::device_goes);
            file_system.kill_server();
            let ends = committers.map(|committer| committer.end());
            file_system.clear_away();
            evidence.before_restart();
            file_system.recover();
            let mut told = String::new();
            for (database, (known, asked)) in databases.iter_mut().zip(ends) {
                let found = database.judge(&dir, known, asked);
                told += &format!(", {known} acknowledged and {found} there");
                acknowledged += known;
            }
            file_system.verify();
            file_system.mount_again();
            campaign.tell(round, &format!("{kind:?} for {lives:?}{told}"));
            round += 1;
        }
        file_system.close();
    }
    assert!(acknowledged > 0, "no commit was acknowledged: nothing was tested");
}

#[test]
fn postgresql_keeps_every_commit_through_a_kill() {
    let what = "kill -9 under PostgreSQL";
    let needed = [&Kind::Ext4.tools()[..], &["setpriv"]].concat();
    if !can_attach(what) || !has_tools(what, &needed) {
        return;
    }
    let Some(programs) = postgres::programs() else {
        return skip(what, "PostgreSQL is not installed ('make setup' installs what tests need)");
    };
    let mut campaign = Campaign::new("PostgreSQL", 1);
    let (mut round, mut acknowledged) = (0, 0);
    while round < campaign.rounds {
        let number = (round / ROUNDS_PER_VOLUME) as usize;
        let place = volume(&LARGER_MEASURES[number % LARGER_MEASURES.len()]);
        let evidence = Evidence::new(&place);
        let mut file_system = FileSystem::make(&place, Kind::Ext4);
        let mut cluster = Cluster::make(programs.clone(), &file_system.dir(), place.dir.path());
        for _ in 0..ROUNDS_PER_VOLUME.min(campaign.rounds - round) {
            let lives = campaign.dice.moment(500, 5000);
            let load = cluster.load();
            std::thread::sleep(lives);
            file_system.kill_server();
            let ends = load.end();
            cluster.abandon();
            file_system.clear_away();
            evidence.before_restart();
            file_system.recover();
            cluster.start();
            let found = cluster.judge(&ends);
            let known: u64 = ends.iter().map(|(known, _)| known).sum();
            acknowledged += known;
            cluster.stop();
            cluster.verify_pages();
            file_system.verify();
            file_system.mount_again();
            cluster.start();
            campaign.tell(round, &format!("{lives:?}, {known} acknowledged and {found} there"));
            round += 1;
        }
        cluster.stop();
        drop(cluster);
        file_system.close();
    }
    assert!(acknowledged > 0, "no commit was acknowledged: nothing was tested");
}

/// Filling takes time: hardly more than the least that every kind of file system accepts.
const FILLED_MEASURES: Measures =
    Measures { fast: "96M", slow: "256M", landing: "4M", extent: "128K" };

#[test]
fn a_file_system_lives_through_filling_emptying_and_filling_again() {
    let what = "file systems filled to the last byte";
    if !can_attach(what) {
        return;
    }
    let mut campaign = Campaign::new("filling", 1);
    let mut kinds = vec![Kind::Ext4, Kind::Xfs, Kind::Btrfs];
    if !campaign.is_long() {
        kinds = vec![campaign.dice.pick(&kinds)];
    }
    // Once with each kind; killing is not what this is about.
    campaign.rounds = kinds.len() as u64;
    for (round, kind) in kinds.into_iter().enumerate() {
        if !has_tools(what, &kind.tools()) {
            continue;
        }
        let place = volume(&FILLED_MEASURES);
        let _evidence = Evidence::new(&place);
        let mut file_system = FileSystem::make(&place, kind);
        let (dir, mut filling) = (file_system.dir(), Filling::default());
        filling.fill(&dir, &mut campaign.dice);
        let full = filling.verify(&dir);
        filling.delete_half(&dir);
        filling.fill(&dir, &mut campaign.dice);
        let again = filling.verify(&dir);
        file_system.close();
        // From the drives, with nothing in any cache above them.
        file_system.recover();
        assert_eq!(filling.verify(&dir), again);
        assert!(full > 150 << 20 && again > 150 << 20, "only {full} and {again} bytes fitted");
        file_system.close();
        campaign
            .tell(round as u64, &format!("{kind:?}: {} MiB, then {} MiB", full >> 20, again >> 20));
    }
}
