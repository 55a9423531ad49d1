//! Class cache for users: what survives a kill, and what losing the fast drive means.

mod support;

use std::fs;

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
