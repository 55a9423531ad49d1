//! `attach` and `detach`: file systems live on the device, and everything is cleaned up, also
//! after the server was killed.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::*;

fn loops_over(place: &Place) -> usize {
    let list = must(tool("losetup").args(["--list", "--noheadings", "--output", "BACK-FILE"]));
    list.lines().filter(|line| line.contains(place.dir.path().to_str().unwrap())).count()
}

/// Makes a file system, fills it until nothing fits any more, checks what was written, and has
/// its own tool check it.
fn live(make: &[&str], check: &[&str]) {
    let what = make[0];
    if !can_attach(what) || !has_tools(what, &[make[0], check[0]]) {
        return;
    }
    let place = Place::new();
    place.create("v", "128M", "512M");
    let attachment = place.attach("v");
    must(tool(make[0]).args(&make[1..]).arg(&attachment.device));
    let mount = Mount::new(&attachment.device, place.path("mnt"));
    must(tool("cp").arg("-r").arg("/usr/include").arg(mount.dir.join("tree")));
    must(tool("sync").arg("-f").arg(&mount.dir));
    fill(&mount.dir);
    must(tool("diff").args(["-r", "/usr/include"]).arg(mount.dir.join("tree")));
    mount.unmount();
    must(tool(check[0]).args(&check[1..]).arg(&attachment.device));
    // Once more from the drives: after detaching and attaching again.
    drop(attachment);
    place.bimetal(&["check", "v"]).expect(0, &[]);
    let attachment = place.attach("v");
    let mount = Mount::new(&attachment.device, place.path("mnt"));
    must(tool("diff").args(["-r", "/usr/include"]).arg(mount.dir.join("tree")));
    verify_filling(&mount.dir);
    mount.unmount();
    drop(attachment);
    assert_eq!(loops_over(&place), 0);
    assert_eq!(fs::read_dir(place.path("conf/run")).unwrap().count(), 1, "only the log is left");
}

/// Writes files of known content until the file system is full.
fn fill(dir: &Path) {
    for number in 0..10_000 {
        let bytes = pattern(number, 4 << 20);
        if fs::write(dir.join(format!("fill.{number}")), bytes).is_err() {
            return;
        }
    }
    panic!("the file system never filled up");
}

/// Reads back every file of [`fill`] but the last, which did not fit.
fn verify_filling(dir: &Path) {
    let mut whole = 0;
    while dir.join(format!("fill.{}", whole + 1)).exists() {
        let bytes = fs::read(dir.join(format!("fill.{whole}"))).unwrap();
        assert!(bytes == pattern(whole, 4 << 20), "fill.{whole} has changed");
        whole += 1;
    }
    assert!(whole > 10, "only {whole} files fitted");
}

#[test]
fn ext4_lives_on_it_until_it_is_full() {
    live(&["mkfs.ext4", "-q"], &["e2fsck", "-fn"]);
}

#[test]
fn xfs_lives_on_it_until_it_is_full() {
    live(&["mkfs.xfs", "-q"], &["xfs_repair", "-n"]);
}

#[test]
fn btrfs_lives_on_it_until_it_is_full() {
    if can_check_mounts("btrfs") {
        live(&["mkfs.btrfs", "-q"], &["btrfs", "check"]);
    }
}

#[test]
fn a_device_in_use_is_not_taken_away() {
    if !can_attach("detach while mounted") || !has_tools("detach while mounted", &["mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    let attachment = place.attach("v");
    // A second attach gives the same device.
    let again = place.bimetal(&["attach", "v"]);
    assert_eq!(Path::new(again.out.trim()), attachment.device);
    let said = place.bimetal(&["--json", "attach", "v", "--sector", "512"]).json();
    assert_eq!((&said["read_only"], &said["sector_bytes"]), (&false.into(), &512.into()), "{said}");
    // One that is not as it was asked for is not given.
    for other in [&["--read-only"][..], &["--sector", "4096"]] {
        let said = place.bimetal(&[&["attach", "v"], other].concat());
        said.expect(4, &["attached already, read-write", "512", "detach v"]);
    }
    must(tool("mkfs.ext4").arg("-q").arg(&attachment.device));
    let mount = Mount::new(&attachment.device, place.path("mnt"));
    place.bimetal(&["detach", "v"]).expect(4, &["mounted", "mnt"]);
    fs::write(mount.dir.join("file"), "still here").unwrap();
    mount.unmount();
    place.bimetal(&["detach", "v"]).expect(0, &[]);
    place.bimetal(&["detach", "v"]).expect(1, &["not attached"]);
    assert_eq!(place.status("v")["state"], "offline");
}

#[test]
fn a_read_only_device_is_not_taken_for_a_writable_one() {
    if !can_attach("attach --read-only") {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    let words = ["--json", "attach", "v", "--read-only", "--sector", "4096"];
    let said = place.bimetal(&words).json();
    assert_eq!((&said["read_only"], &said["sector_bytes"]), (&true.into(), &4096.into()), "{said}");
    assert_eq!(place.bimetal(&words).json()["device"], said["device"]);
    place.bimetal(&["attach", "v"]).expect(4, &["attached already, read-only", "4096"]);
    place.bimetal(&["detach", "v"]).expect(0, &[]);
}

#[test]
fn a_copy_of_an_attached_volume_is_not_given_its_device() {
    if !can_attach("attach a copy") {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    place.copy_drives("v", "copy");
    let attachment = place.attach("v");
    for words in [&["attach"][..], &["attach", "--ublk"], &["detach"]] {
        let copy = ["--fast", "copy.fast", "--slow", "copy.slow"];
        let said = place.bimetal(&[words, &copy].concat());
        said.expect(4, &["from other drives", "v.fast"]);
        assert_eq!(said.out, "");
    }
    // The volume itself is known by its drives as well.
    let own = ["--fast", "v.fast", "--slow", "v.slow"];
    let again = place.bimetal(&[&["attach"][..], &own].concat());
    assert_eq!(Path::new(again.out.trim()), attachment.device, "{again:?}");
    place.bimetal(&[&["detach"][..], &own].concat()).expect(0, &[]);
}

#[test]
fn what_a_killed_server_leaves_behind_is_cleared_away() {
    if !can_attach("clearing up") {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    let attachment = place.attach("v");
    attachment.kill_server();
    assert_eq!(loops_over(&place), 1);
    let said = place.bimetal(&["detach", "v"]);
    assert!(said.code == 0 && said.out.contains("killed server"), "{said:?}");
    assert_eq!(loops_over(&place), 0);
    assert!(!place.path("conf/run/v.mount").exists());
    // Attaching clears up by itself.
    let attachment = place.attach("v");
    attachment.kill_server();
    let again = place.attach("v");
    assert!(fs::read(&again.device).is_ok());
    drop(again);
    assert_eq!(loops_over(&place), 0);
}

#[test]
fn detaching_says_when_the_volume_was_not_closed_in_order() {
    let what = "detach from a drive without room";
    if !can_attach(what) {
        return;
    }
    let place = Place::new();
    let host = Mount::tmpfs("80M", place.path("host"));
    place.bimetal(&["create", "v", "--fast", "host/f:64M", "--slow", "v.slow:128M"]).expect(0, &[]);
    // Read-only nothing is closed, and that is in order.
    place.bimetal(&["attach", "v", "--read-only"]).expect(0, &[]);
    place.bimetal(&["detach", "v"]).expect(0, &[]);
    let attachment = place.attach("v");
    // What is left for the fast drive's file goes to another one, and the log has no room.
    fs::write(place.path("host/other"), vec![1; 80 << 20]).unwrap_err();
    let target = format!("of={}", attachment.device.display());
    let write = ["if=/dev/zero", &target, "bs=4k", "count=4096", "oflag=direct", "status=none"];
    let written = run(tool("dd").args(write).arg("conv=notrunc,fsync"));
    assert!(!written.status.success(), "a log without room was written");
    let said = place.bimetal(&["detach", "v"]);
    said.expect(1, &["ended without closing the volume in order", "conf/run/v.log"]);
    assert!(!said.out.contains("closed volume"), "{said:?}");
    fs::remove_file(place.path("host/other")).unwrap();
    let attachment = place.attach("v");
    place.bimetal(&["detach", "v"]).expect(0, &[]);
    drop(attachment);
    place.bimetal(&["check", "v"]).expect(0, &[]);
    host.unmount();
}

#[test]
fn a_cache_without_its_fast_drive_is_closed_in_order_too() {
    if !can_attach("detach a cache that goes on alone") {
        return;
    }
    let place = Place::new();
    let words =
        ["create", "v", "--fast", "v.fast:64M", "--slow", "v.slow:128M", "--class", "cache"];
    place.bimetal(&words).expect(0, &[]);
    fs::remove_file(place.path("v.fast")).unwrap();
    place.bimetal(&["attach", "v"]).expect(3, &[]);
    let said = place.bimetal(&["detach", "v"]);
    assert!(said.code == 0 && said.out.contains("closed volume"), "{said:?}");
}

#[test]
fn a_failure_of_the_background_server_comes_back_to_the_caller() {
    if !can_attach("attach that fails") {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    place.create("w", "64M", "128M");
    fs::copy(place.path("w.slow"), place.path("v.slow")).unwrap();
    place.bimetal(&["attach", "v"]).expect(4, &["another volume"]);
    let server = place.serve(&["w"]);
    place.bimetal(&["attach", "w"]).expect(4, &["not as a file", "--fuse"]);
    assert!(server.stop().success());
}

/// How long an attach is watched that has to wait: many times what it takes where it need not.
const WATCHED: Duration = Duration::from_secs(1);

/// An attach, seen to wait for the server of the moment.
fn waiting_attach(place: &Place) -> Child {
    let mut attach = place.command();
    attach.args(["attach", "v"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut attaching = attach.spawn().unwrap();
    std::thread::sleep(WATCHED);
    if attaching.try_wait().unwrap().is_some() {
        panic!("it did not wait: {:?}", attaching.wait_with_output());
    }
    assert_eq!(loops_over(place), 0);
    attaching
}

/// The device that it prints at last.
fn attached(mut attaching: Child) -> PathBuf {
    let ended = wait(&mut attaching).expect("it ends when the server is settled");
    let output = attaching.wait_with_output().unwrap();
    assert!(ended.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().into()
}

#[test]
fn an_attach_waits_for_a_server_that_is_ending_and_starts_its_own() {
    let what = "attach while a server ends";
    if !can_attach(what) {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    let mut server = place.serve_saying(&["v", "--fuse", "mnt"], "said");
    // A file in use keeps the server from ending.
    let used = fs::File::open(&server.uri).unwrap();
    server.signal(Signal::TERM);
    let said = || fs::read_to_string(place.path("said")).unwrap();
    eventually("it ends", || said().contains("waiting to stop serving 'v'"));
    let attaching = waiting_attach(&place);
    drop(used);
    assert!(wait(&mut server.child).expect("it ends").success(), "{}", said());
    let device = attached(attaching);
    let status = place.status("v");
    assert_ne!(status["server"]["pid"], server.child.id(), "{status}");
    fs::read(&device).unwrap();
    place.bimetal(&["detach", "v"]).expect(0, &[]);
    assert_eq!(loops_over(&place), 0);
}

/// A server stopped by a signal before it is ready.
struct Beginning(Child);

impl Beginning {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.0.id() as i32).unwrap(), signal).unwrap();
    }

    /// `None`: it was ready before it was stopped.
    fn start(place: &Place) -> Option<Beginning> {
        let mut serve = place.command();
        serve.args(["serve", "v", "--fuse", "mnt", "--exit-with-parent"]);
        serve.stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Beginning(serve.spawn().unwrap());
        let pid = u64::from(server.0.id());
        let record = || {
            let text = fs::read_to_string(place.path("conf/run/v.server")).unwrap_or_default();
            serde_json::from_str::<serde_json::Value>(&text).ok().filter(|said| said["pid"] == pid)
        };
        while record().is_none() {
            assert_eq!(server.0.try_wait().unwrap(), None, "it has begun");
        }
        server.signal(Signal::STOP);
        // Each of its threads stops at the next chance.
        std::thread::sleep(Duration::from_millis(50));
        record().is_some_and(|said| said["ready"] == false).then_some(server)
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_attach_waits_for_a_server_that_is_beginning_and_takes_its_file() {
    if !can_attach("attach while a server begins") {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    // It takes some milliseconds from its lock to its doors; on a busy machine we may come too late.
    let mut server = (0..50).find_map(|_| Beginning::start(&place)).expect("one in time");
    let attaching = waiting_attach(&place);
    server.signal(Signal::CONT);
    let device = attached(attaching);
    let status = place.status("v");
    assert_eq!(status["server"]["pid"], server.0.id(), "{status}");
    let backing =
        must(tool("losetup").args(["--noheadings", "--output", "BACK-FILE"]).arg(&device));
    assert_eq!(Path::new(backing.trim()), place.path("mnt/v"));
    // The server takes the device away with its file.
    server.signal(Signal::TERM);
    assert!(wait(&mut server.0).expect("it stops when asked").success());
    assert_eq!(loops_over(&place), 0);
}

#[test]
fn discards_reach_the_volume_and_give_space_back() {
    if !can_attach("discards") || !has_tools("discards", &["blkdiscard"]) {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    let attachment = place.attach("v");
    fs::write(place.path("data"), pattern(9, 32 << 20)).unwrap();
    must(
        tool("dd")
            .arg(format!("if={}", place.path("data").display()))
            .arg(format!("of={}", attachment.device.display()))
            .args(["bs=1M", "oflag=direct", "conv=notrunc,fsync", "status=none"]),
    );
    // The kernel may cut requests where it likes: what went to the log gets its home, or gives it
    // back, when the volume is idle.
    let mapped = || place.status("v")["extents_mapped"].as_u64().unwrap();
    eventually("all is written", || mapped() >= 250);
    must(tool("blkdiscard").arg(&attachment.device));
    let bytes = must(tool("sh").arg("-c").arg(format!(
        "head -c 33554432 '{}' | tr -d '\\000' | wc -c",
        attachment.device.display()
    )));
    assert_eq!(bytes.trim(), "0", "discarded blocks read as zeros");
    eventually("all is discarded", || mapped() == 0);
}

#[test]
fn a_cache_that_goes_on_without_its_fast_drive_is_attached_with_a_warning() {
    if !can_attach("a cache without its fast drive") || !has_tools("ext4", &["mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    let drives = ["--fast", "v.fast:64M", "--slow", "v.slow:256M"];
    place.bimetal(&[&["create", "v", "--class", "cache"][..], &drives].concat()).expect(0, &[]);
    fs::rename(place.path("v.fast"), place.path("late")).unwrap();
    let warned = ["goes on without its fast drive", "not taken back", "attach-cache v"];
    let said = place.bimetal(&["attach", "v"]);
    said.expect(3, &warned);
    let device = said.out.trim().to_owned();
    assert!(device.starts_with("/dev/loop"), "{said:#?}");
    let again = place.bimetal(&["--json", "attach", "v"]);
    assert_eq!(again.expect(3, &warned).json()["without_fast_drive"], true);
    must(tool("mkfs.ext4").arg("-q").arg(&device));
    let mount = Mount::new(device.as_ref(), place.path("mnt"));
    fs::write(mount.dir.join("film"), pattern(1, 1 << 20)).unwrap();
    must(tool("sync").arg("-f").arg(&mount.dir));
    place.bimetal(&["warm", "mnt/film"]).expect(1, &["the fast drive is gone", "attach-cache"]);
    place.bimetal(&["pin", "v", "mnt/film"]).expect(1, &["the fast drive is gone"]);
    mount.unmount();
    place.bimetal(&["detach", "v"]).expect(0, &[]);
}
