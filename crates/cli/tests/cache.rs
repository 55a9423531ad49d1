//! Class cache for users: what survives a kill, and what losing the fast drive means.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use support::{Place, has_tools};

const TOOLS: [&str; 2] = ["nbdsh", "nbdinfo"];

fn create(place: &Place, mode: &[&str]) {
    let words =
        ["create", "v", "--fast", "v.fast:64M", "--slow", "v.slow:256M", "--class", "cache"];
    place.bimetal(&[&words[..], mode].concat()).expect(0, &[]);
}

/// Writes a hundred and a half megabytes, each with its number plus `add`, and flushes.
fn fill(add: u32) -> String {
    format!(
        "nbdsh -u $uri -c '\
         for i in range(150): h.pwrite(bytes([i + {add}]) * 1048576, i * 1048576)\n\
         h.flush()'"
    )
}

fn verify(add: u32) -> String {
    format!(
        "nbdsh -u $uri -c '\
         for i in range(150): assert h.pread(1048576, i * 1048576) == bytes([i + {add}]) * 1048576, i'"
    )
}

#[test]
fn a_write_through_cache_goes_on_without_its_fast_drive_and_gets_a_new_one() {
    if !has_tools("a write-through cache", &TOOLS) {
        return;
    }
    let place = Place::new();
    create(&place, &[]);
    let status = place.status("v");
    assert_eq!((&status["class"], &status["mode"]), (&"cache".into(), &"writethrough".into()));
    place.serve_run("v", &fill(1));

    // A crash after a flush.
    let server = place.serve(&["v"]);
    let script = format!("uri='{}'; {}", server.uri, fill(2));
    support::must(support::tool("sh").arg("-c").arg(script));
    assert_eq!(place.status("v")["dirty_bytes"], 0);
    server.kill();
    place.serve_run("v", &verify(2));

    // The fast drive is gone for good: served all the same, for writing too.
    fs::remove_file(place.path("v.fast")).unwrap();
    let server = place.serve(&["v"]);
    let status = place.status("v");
    assert_eq!(status["state"], "degraded", "{status}");
    assert!(status["status"].as_str().unwrap().contains("Nothing is lost"), "{status}");
    let lost = place.bimetal(&["lost", "v"]);
    lost.expect(0, &[]);
    assert!(lost.out.contains("goes on without its fast drive"), "{lost:?}");
    assert!(lost.out.contains("nothing is lost"), "{lost:?}");
    // It takes writes, and what is about two drives is refused for what it is.
    for words in [&["pin", "v", "0+1M"][..], &["set", "v", "quiet=true"]] {
        let refused = place.bimetal(words);
        refused.expect(1, &["the fast drive is gone", "attach-cache"]);
        assert!(!refused.err.contains("stopped taking writes"), "{refused:?}");
    }
    let script = format!("uri='{}'; {} && {}", server.uri, verify(2), fill(3));
    support::must(support::tool("sh").arg("-c").arg(script));
    server.kill();
    let server = place.serve(&["v"]);
    let script = format!("uri='{}'; {}", server.uri, verify(3));
    support::must(support::tool("sh").arg("-c").arg(script));
    assert_eq!(server.stop().code(), Some(3));

    fs::copy(place.path("v.slow"), place.path("older.slow")).unwrap();
    place.bimetal(&["attach-cache", "v", "--fast", "new.fast:32M"]).expect(0, &[]);
    place.serve_run("v", &verify(3));
    assert_eq!(place.status("v")["state"], "offline");
    place.bimetal(&["check", "v"]).expect(0, &[]);

    // A slow drive of the time before the new fast one is told apart, and is not served alone either.
    fs::rename(place.path("v.slow"), place.path("newer.slow")).unwrap();
    fs::rename(place.path("older.slow"), place.path("v.slow")).unwrap();
    place.bimetal(&["serve", "v", "--run", "true"]).expect(4, &["was replaced since", "v.slow"]);
    let status = place.status("v");
    assert_eq!(status["state"], "unavailable", "{status}");
    fs::rename(place.path("newer.slow"), place.path("v.slow")).unwrap();
    place.serve_run("v", &verify(3));
}

#[test]
fn a_write_back_cache_says_what_is_dirty_and_becomes_write_through_while_in_use() {
    if !has_tools("a write-back cache", &TOOLS) {
        return;
    }
    let place = Place::new();
    create(&place, &["--mode", "writeback"]);
    // What is dirty stays so, however long this takes.
    place.bimetal(&["set", "v", "quiet=true"]).expect(0, &[]);
    place.serve_run("v", &fill(1));
    fs::rename(place.path("v.fast"), place.path("away")).unwrap();
    place.bimetal(&["serve", "v", "--run", "true"]).expect(4, &["fast", "is gone"]);
    let lost = place.bimetal(&["--json", "lost", "v"]).json();
    assert!(!lost["ranges"].as_array().unwrap().is_empty(), "{lost}");
    place
        .bimetal(&["attach-cache", "v", "--fast", "new.fast:64M"])
        .expect(4, &["write-back", "bimetal lost v"]);
    assert!(!place.path("new.fast").exists());
    fs::rename(place.path("away"), place.path("v.fast")).unwrap();

    let server = place.serve(&["v"]);
    assert!(place.status("v")["dirty_bytes"].as_u64().unwrap() > 0);
    place.bimetal(&["set", "v", "mode=writethrough"]).expect(0, &[]);
    let status = place.status("v");
    assert_eq!((&status["mode"], &status["dirty_bytes"]), (&"writethrough".into(), &0.into()));
    server.kill();
    fs::remove_file(place.path("v.fast")).unwrap();
    let said = place.bimetal(&["serve", "v", "--run", &verify(1)]);
    assert_eq!(said.code, 0, "{said:#?}");
}

#[test]
fn modes_are_for_caches_and_writethrough_is_not_deferred() {
    let place = Place::new();
    let drives = ["--fast", "v.fast:64M", "--slow", "v.slow:256M"];
    let create = |words: &[&str]| place.bimetal(&[&["create", "v"][..], &drives, words].concat());
    create(&["--mode", "writeback"]).expect(2, &["--class cache"]);
    create(&["--class", "cache", "--durability", "deferred=250"]).expect(2, &["strict"]);
    create(&[]).expect(0, &[]);
    place.bimetal(&["set", "v", "mode=writeback"]).expect(1, &["class span"]);
    place.bimetal(&["evacuate", "v", "--fast"]).expect(1, &["class span has no home below"]);
    place.bimetal(&["attach-cache", "v", "--fast", "new.fast:64M"]).expect(4, &["class span"]);
    assert!(!place.path("new.fast").exists());
}

#[test]
fn a_new_fast_drive_is_not_touched_before_the_slow_one_is_known_to_do() {
    let place = Place::new();
    create(&place, &[]);
    let other =
        ["create", "w", "--fast", "w.fast:64M", "--slow", "w.slow:256M", "--class", "cache"];
    place.bimetal(&other).expect(0, &[]);
    fs::remove_file(place.path("v.fast")).unwrap();
    fs::rename(place.path("v.slow"), place.path("away")).unwrap();
    let held = b"precious";
    fs::write(place.path("new"), held).unwrap();
    let attach = |size: &str| {
        let drive = format!("new:{size}");
        place.bimetal(&["attach-cache", "v", "--fast", &drive, "--force"])
    };
    // The slow drive of another cache by the name that was this one's, and no drive of any.
    fs::copy(place.path("w.slow"), place.path("v.slow")).unwrap();
    attach("64M").expect(4, &["another volume", "'w'"]);
    assert!(fs::read(place.path("v.slow")).unwrap() == fs::read(place.path("w.slow")).unwrap());
    fs::File::create(place.path("v.slow")).unwrap().set_len(256 << 20).unwrap();
    attach("64M").expect(4, &["v.slow carries no bimetal superblock"]);
    fs::rename(place.path("away"), place.path("v.slow")).unwrap();
    attach("1M").expect(2, &["too small for the fast drive"]);
    assert_eq!(fs::read(place.path("new")).unwrap(), held);
    attach("64M").expect(0, &[]);
    place.bimetal(&["check", "v"]).expect(0, &[]);

    // The fast drive under the slow one's name.
    fs::rename(place.path("new"), place.path("v.slow")).unwrap();
    place
        .bimetal(&["attach-cache", "v", "--fast", "newer:64M"])
        .expect(4, &["is the fast drive of 'v'"]);
    assert!(!place.path("newer").exists());
}

#[test]
fn inclusion_is_for_class_span_and_is_set_at_creation_or_in_use() {
    let place = Place::new();
    let drives = ["--fast", "v.fast:64M", "--slow", "v.slow:256M"];
    let create = |words: &[&str]| place.bimetal(&[&["create", "v"][..], &drives, words].concat());
    create(&["--class", "cache", "--inclusion", "on"]).expect(2, &["class span"]);
    create(&["--inclusion", "on"]).expect(0, &[]);
    place.bimetal(&["set", "v", "inclusion=perhaps"]).expect(2, &["neither on nor off"]);
    let server = place.serve(&["v"]);
    let status = place.status("v");
    assert_eq!(
        (&status["policy"]["inclusion"], &status["extents_clean"]),
        (&true.into(), &0.into())
    );
    place.bimetal(&["set", "v", "inclusion=off"]).expect(0, &[]);
    assert_eq!(place.status("v")["policy"]["inclusion"], false);
    assert_eq!(server.stop().code(), Some(0));
    place.bimetal(&["check", "v"]).expect(0, &[]);
}

/// Lets a process run for a moment now and then: what it does takes long, and it answers all the same.
struct Slowed {
    ends: std::sync::Arc<std::sync::atomic::AtomicBool>,
    slows: Option<std::thread::JoinHandle<()>>,
}

impl Slowed {
    fn new(pid: i64) -> Slowed {
        let ends = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (told, pid) = (ends.clone(), Pid::from_raw(pid as i32).unwrap());
        let slows = std::thread::spawn(move || {
            while !told.load(std::sync::atomic::Ordering::Relaxed) {
                for (signal, ms) in [(Signal::STOP, 120), (Signal::CONT, 2)] {
                    let _ = kill_process(pid, signal);
                    std::thread::sleep(std::time::Duration::from_millis(ms));
                }
            }
        });
        Slowed { ends, slows: Some(slows) }
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        self.ends.store(true, std::sync::atomic::Ordering::Relaxed);
        self.slows.take().map(std::thread::JoinHandle::join);
    }
}

/// A cache `v` of whose data much is on the fast drive alone, and stays there by itself.
fn with_much_above() -> Place {
    let place = Place::new();
    let drives = ["--fast", "v.fast:512M", "--slow", "v.slow:1G"];
    let words = [&["create", "v", "--class", "cache", "--mode", "writeback"][..], &drives].concat();
    place.bimetal(&words).expect(0, &[]);
    place.bimetal(&["set", "v", "quiet=true"]).expect(0, &[]);
    place.serve_run("v", &fill(1));
    place
}

/// A command that is under way.
fn begun(place: &Place, words: &[&str]) -> (std::process::Child, Pid) {
    let piped = std::process::Stdio::piped;
    let child = place.command().args(words).stdout(piped()).stderr(piped()).spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    (child, pid)
}

#[test]
fn ctrl_c_ends_what_a_flush_or_an_evacuation_has_begun() {
    if !has_tools("the end of a flush", &TOOLS) {
        return;
    }
    let place = with_much_above();
    let server = place.serve(&["v"]);
    let dirty = || place.status("v")["dirty_bytes"].as_u64().unwrap();
    assert!(dirty() > 100 << 20);
    for words in [&["flush", "v"][..], &["evacuate", "v", "--fast"]] {
        let slowed = Slowed::new(i64::from(server.child.id()));
        let before = dirty();
        let (child, pid) = begun(&place, words);
        support::eventually("something came home", || dirty() < before);
        kill_process(pid, Signal::INT).unwrap();
        let ended = child.wait_with_output().unwrap();
        drop(slowed);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("ended by Ctrl-C: ") && said.contains("are not home"), "{said}");
        assert!(dirty() > 0, "{said}");
        assert_eq!(place.status("v")["mode"], "writeback", "{said}");
        let again = place.bimetal(&["flush", "v", "--cancel"]);
        assert!(again.expect(0, &[]).out.contains("nothing was under way"), "{again:?}");
    }
    place.bimetal(&["evacuate", "v", "--fast"]).expect(0, &[]);
    assert_eq!(place.status("v")["mode"], "writethrough");
    assert!(server.stop().success());
}

#[test]
fn ctrl_c_ends_what_a_change_of_mode_or_a_flush_at_rest_has_begun() {
    if !has_tools("the end of a change at rest", &TOOLS) {
        return;
    }
    let place = with_much_above();
    // Of a sparse file: nobody else tells how far it is while the drives are in use.
    let below = || fs::metadata(place.path("v.slow")).unwrap().blocks() * 512;
    for (words, kept) in [
        (&["set", "v", "mode=writethrough"][..], "the mode is the one it was"),
        (&["set", "v", "mode=writearound"], "the mode is the one it was"),
        (&["flush", "v"], "all else is as it was"),
    ] {
        let before = below();
        let (child, pid) = begun(&place, words);
        let slowed = Slowed::new(i64::from(child.id()));
        support::eventually("something came home", || below() > before + (2 << 20));
        kill_process(pid, Signal::INT).unwrap();
        // Slowed to its end, and no longer than its number is its own.
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        drop(slowed);
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("ended by Ctrl-C: ") && said.contains(kept), "{said}");
        assert!(said.contains("ask for it again"), "{said}");
        let status = place.status("v");
        assert_eq!((&status["state"], &status["mode"]), (&"offline".into(), &"writeback".into()));
    }
    // It was closed in order each time, has everything, and comes to an end when it is let.
    let said = place.bimetal(&["serve", "v", "--run", &verify(1)]);
    assert!(said.code == 0 && !said.err.contains("had not been closed in order"), "{said:#?}");
    place.bimetal(&["set", "v", "mode=writethrough"]).expect(0, &[]);
    assert_eq!(place.status("v")["mode"], "writethrough");
    fs::remove_file(place.path("v.fast")).unwrap();
    let said = place.bimetal(&["serve", "v", "--run", &verify(1)]);
    assert_eq!(said.code, 0, "{said:#?}");
}
