//! Drives that are not what they should be: every one gets a clear message with what, where and
//! what to do; nothing panics, and nothing is lost that could be kept.

mod support;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};

use support::*;

/// Serving by drives, so that no volume file stands in the way.
fn serve(place: &Place, fast: &str, slow: &str) -> Said {
    place.bimetal(&["serve", "--fast", fast, "--slow", slow, "--run", "true"])
}

fn volume() -> Place {
    let place = Place::new();
    place.create("v", "64M", "128M");
    place
}

fn flip(place: &Place, name: &str, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(place.path(name)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn swapped_drives_are_told_apart() {
    let place = volume();
    serve(&place, "v.slow", "v.fast").expect(4, &["swapped", "other way round"]);
    place
        .bimetal(&["check", "--fast", "v.slow", "--slow", "v.fast"])
        .expect(4, &["swapped", "other way round"]);
    serve(&place, "v.fast", "v.slow").expect(0, &[]);
}

#[test]
fn a_drive_of_another_volume_is_named() {
    let place = volume();
    place.create("w", "64M", "128M");
    serve(&place, "v.fast", "w.slow").expect(4, &["different volumes", "'v'", "'w'"]);
    // Under the path in the volume's file it is a refusal: the drive was exchanged.
    fs::copy(place.path("w.slow"), place.path("v.slow")).unwrap();
    place.bimetal(&["serve", "v", "--run", "true"]).expect(4, &["another volume", "'w'", "scan"]);
    let said = place.bimetal(&["--json", "status", "v"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(said.json()["volumes"][0]["state"], "unavailable");
}

#[test]
fn an_older_copy_of_one_drive_is_noticed_and_the_newer_pair_still_opens() {
    let place = volume();
    fs::copy(place.path("v.slow"), place.path("old.slow")).unwrap();
    fs::copy(place.path("v.fast"), place.path("old.fast")).unwrap();
    place.serve_run("v", "true");
    place
        .bimetal(&["check", "--fast", "v.fast", "--slow", "old.slow"])
        .expect(3, &["older", "earlier copy"]);
    serve(&place, "v.fast", "old.slow").expect(4, &["older", "earlier copy"]);
    serve(&place, "old.fast", "v.slow").expect(4, &["older", "earlier copy"]);
    let said = place.bimetal(&["--json", "status", "--fast", "v.fast", "--slow", "old.slow"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(said.json()["volumes"][0]["drives"]["slow"]["state"], "faulty");
    serve(&place, "v.fast", "v.slow").expect(0, &[]);
}

#[test]
fn a_truncated_drive_is_refused_and_opens_again_at_full_length() {
    let place = volume();
    for drive in ["v.fast", "v.slow"] {
        let file = OpenOptions::new().write(true).open(place.path(drive)).unwrap();
        let length = file.metadata().unwrap().len();
        file.set_len(length - (1 << 20)).unwrap();
        serve(&place, "v.fast", "v.slow").expect(4, &["truncated", drive, "nothing was changed"]);
        place.bimetal(&["check", "v"]).expect(3, &["truncated", drive]);
        let said = place.bimetal(&["status", "v"]);
        assert!(said.code == 3 && said.out.contains("FAULTY"), "{said:?}");
        assert!(said.out.contains("truncated"), "{said:?}");
        place.bimetal(&["list"]).expect(3, &[]);
        file.set_len(length).unwrap();
        serve(&place, "v.fast", "v.slow").expect(0, &[]);
    }
}

#[test]
fn one_damaged_superblock_costs_nothing_and_two_are_said_to_be_damaged() {
    let place = volume();
    flip(&place, "v.fast", 4096 + 100);
    serve(&place, "v.fast", "v.slow").expect(0, &[]);
    flip(&place, "v.fast", 4096 + 100);
    flip(&place, "v.fast", (512 << 10) + 100);
    serve(&place, "v.fast", "v.slow").expect(1, &["superblock", "v.fast", "damaged"]);
    place.bimetal(&["check", "v"]).expect(3, &["superblock", "v.fast", "damaged"]);
    let said = place.bimetal(&["status", "v"]);
    assert!(said.code == 3 && said.out.contains("UNAVAILABLE"), "{said:?}");
}

#[test]
fn flipped_bytes_in_the_map_are_repaired_from_the_other_copy() {
    if !has_tools("a damaged map", &["nbdcopy"]) {
        return;
    }
    let place = volume();
    fs::write(place.path("data"), pattern(1, 30 << 20)).unwrap();
    place.serve_run("v", "nbdcopy --flush data \"$uri\"");
    // The map begins after the first MiB: hit one copy of its first pages on one drive.
    for at in [0, 100, 2000, 4090] {
        flip(&place, "v.fast", (1 << 20) + at);
        flip(&place, "v.fast", (1 << 20) + 4096 + at);
    }
    let check = place.bimetal(&["check", "v"]);
    assert!(check.code == 3 && check.out.contains("repairable"), "{check:?}");
    place.serve_run("v", "nbdcopy \"$uri\" - | head -c 31457280 | cmp - data");
    let check = place.bimetal(&["--json", "check", "v"]).json();
    assert_eq!(check["errors"].as_array().unwrap().len(), 0, "{check}");
}

#[test]
fn flipped_bytes_in_the_log_give_an_error_and_never_wrong_data() {
    if !has_tools("a damaged log", &["nbdsh"]) {
        return;
    }
    let place = volume();
    // Killed after two flushes: the data is in the log only, at known content. The records of the
    // second say that the first was durable, so that damage there cannot pass for a torn write.
    let server = place.serve(&["v"]);
    let script = "for i in range(64):\n\
        \x20   h.pwrite(bytes([65 + i % 26]) * 4096, i * 65536)\n\
        \x20   if i == 31: h.flush()\n\
        h.flush()";
    must(tool("nbdsh").args(["-u", &server.uri, "-c", script]));
    server.kill();
    let bytes = fs::read(place.path("v.fast")).unwrap();
    let needle = [b'K'; 4096];
    let at = bytes.chunks_exact(4096).position(|block| block == needle).expect("it is in the log");
    flip(&place, "v.fast", at as u64 * 4096 + 77);
    let server = place.serve(&["v"]);
    let script = "import nbd\nbad = []\n\
        for i in range(64):\n\
        \x20   try:\n\
        \x20       if h.pread(4096, i * 65536) != bytes([65 + i % 26]) * 4096: bad.append(('wrong', i))\n\
        \x20   except nbd.Error: bad.append(('error', i))\n\
        print(bad)";
    let bad = must(tool("nbdsh").args(["-u", &server.uri, "-c", script]));
    assert_eq!(bad.trim(), "[('error', 10)]", "{:#}", place.status("v"));
    drop(server);
}

#[test]
fn a_missing_or_blank_drive_is_named() {
    let place = volume();
    fs::File::create(place.path("blank")).unwrap().set_len(128 << 20).unwrap();
    serve(&place, "v.fast", "blank").expect(1, &["blank", "not part of a bimetal volume"]);
    serve(&place, "blank", "blank2").expect(1, &["no drive at blank2"]);
    fs::write(place.path("empty"), "").unwrap();
    // Never advice to give it a size: its data would be zeros.
    let said = serve(&place, "v.fast", "empty");
    said.expect(4, &["empty", "was the slow drive of 'v'", "it was 128", "Restore"]);
    assert!(!said.err.contains("sparse"), "{said:?}");
    fs::rename(place.path("v.slow"), place.path("moved.slow")).unwrap();
    place.bimetal(&["serve", "v", "--run", "true"]).expect(4, &["no drive at", "v.slow"]);
    let said = place.bimetal(&["status", "v"]);
    assert!(said.code == 3 && said.out.contains("MISSING"), "{said:?}");
    // Found again by its superblock.
    place.bimetal(&["import", "v", "--dir", ".", "--force"]).expect(0, &[]);
    place.serve_run("v", "true");
}

#[test]
fn a_drive_file_that_cannot_be_written_says_so() {
    if rustix::process::geteuid().is_root() {
        // Root may write anything but what is mounted read-only.
        if !can_attach("a read-only drive file") {
            return;
        }
    }
    let place = volume();
    if rustix::process::geteuid().is_root() {
        fs::create_dir(place.path("ro")).unwrap();
        must(
            tool("mount").args(["--bind", "-o", "ro"]).arg(place.dir.path()).arg(place.path("ro")),
        );
        let mount = Mount { dir: place.path("ro") };
        serve(&place, "ro/v.fast", "v.slow").expect(1, &["ro/v.fast", "ead-only"]);
        mount.unmount();
    } else {
        let mode = fs::Permissions::from_mode(0o400);
        fs::set_permissions(place.path("v.fast"), mode).unwrap();
        serve(&place, "v.fast", "v.slow").expect(1, &["v.fast"]);
    }
}

#[test]
fn a_volume_file_that_makes_no_sense_is_explained() {
    let place = volume();
    let path = place.path("conf/v.toml");
    let good = fs::read_to_string(&path).unwrap();
    for (bad, word) in [
        ("", "missing field"),
        ("nonsense", "v.toml"),
        (&format!("{good}\nmode = 3\n")[..], "unknown field `mode`"),
        (&good.replace("name = \"v\"", "name = \"../v\""), "name"),
    ] {
        fs::write(&path, bad).unwrap();
        let said = place.bimetal(&["serve", "v", "--run", "true"]);
        said.expect(1, &[word]);
        assert_eq!(place.bimetal(&["list"]).code, 1, "{bad:?}");
    }
}

#[test]
fn a_full_host_file_system_stops_the_volume_and_loses_nothing_that_was_flushed() {
    if !can_attach("a full host file system") || !has_tools("a full host file system", &["nbdsh"]) {
        return;
    }
    let place = Place::new();
    let host = Mount::tmpfs("96M", place.path("host"));
    place.bimetal(&["create", "v", "--fast", "host/f:64M", "--slow", "host/s:512M"]).expect(0, &[]);
    let server = place.serve(&["v"]);
    // Whole extents, each flushed, until it fails: then it must say so and keep what it had.
    let script = "import nbd\ndone = 0\n\
        try:\n\
        \x20   while done < 400:\n\
        \x20       h.pwrite(bytes([done % 251]) * 1048576, done * 1048576)\n\
        \x20       h.flush()\n\
        \x20       done += 1\n\
        except nbd.Error as e: why = e.errnum\n\
        print(done, why)";
    let said = must(tool("nbdsh").args(["-u", &server.uri, "-c", script]));
    let (done, why) = said.trim().split_once(' ').unwrap();
    // Clients that wait for space (QEMU with werror=enospc) know it by this number.
    assert_eq!(why, "28", "ENOSPC");
    let done: u64 = done.parse().unwrap();
    assert!((20..400).contains(&done), "{done} MiB were taken");
    let said = place.bimetal(&["status", "v"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.out.contains("DEGRADED") && said.out.contains("No space left"), "{said:?}");
    assert!(said.out.contains("Free space on what") && said.out.contains("host/s"), "{said:?}");
    drop(server);
    must(tool("mount").args(["-o", "remount,size=1G"]).arg(&host.dir));
    let server = place.serve(&["v"]);
    let script = format!(
        "for i in range({done}):\n\
         \x20   assert h.pread(1048576, i * 1048576) == bytes([i % 251]) * 1048576, i"
    );
    must(tool("nbdsh").args(["-u", &server.uri, "-c", &script]));
    assert!(server.stop().success());
    place.bimetal(&["check", "v"]).expect(0, &[]);
    host.unmount();
}

#[test]
fn a_server_says_at_once_that_its_volume_has_stopped_taking_writes() {
    let what = "a log that cannot be written";
    if !can_attach(what) || !has_tools(what, &["nbdsh"]) {
        return;
    }
    let place = Place::new();
    let host = Mount::tmpfs("80M", place.path("host"));
    place.bimetal(&["create", "v", "--fast", "host/f:64M", "--slow", "v.slow:128M"]).expect(0, &[]);
    let server = place.serve_saying(&["v"], "server.err");
    // What is left for the fast drive's file goes to another one.
    let full = fs::write(place.path("host/other"), vec![1; 80 << 20]);
    assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    let script = "for i in range(64):\n\
                  \x20 h.pwrite(bytes([i]) * 4096, i << 20)\n\
                  \x20 h.flush()";
    let written = run(tool("nbdsh").args(["-u", &server.uri, "-c", script]));
    assert!(!written.status.success(), "a log without room was written");
    let said = || fs::read_to_string(place.path("server.err")).unwrap();
    eventually("the server says so", || said().contains("'v' has stopped taking writes"));
    assert!(said().contains("bimetal status v") && said().contains("No space left"), "{}", said());
    // Nothing could be closed in order.
    assert_ne!(server.stop().code(), Some(0));
    host.unmount();
}

#[test]
fn a_damaged_log_is_refused_and_rescued_with_errors_for_what_is_not_certain() {
    if !has_tools("a rescue", &["nbdsh"]) {
        return;
    }
    let place = volume();
    // A run of small writes in the log, each flushed, over what was closed before.
    place.serve_run("v", "nbdsh -u $uri -c 'h.pwrite(b\"a\" * (8 << 20), 0); h.flush()'");
    let server = place.serve(&["v"]);
    let script = "for i in range(8):\n\
                  \x20 h.pwrite(bytes([98 + i]) * 4096, (32 + i) << 20)\n\
                  \x20 h.flush()";
    must(tool("nbdsh").args(["-u", &server.uri, "-c", script]));
    server.kill();
    for at in log_headers(&place, "v.fast").iter().rev().skip(1).take(3) {
        flip(&place, "v.fast", at + 700);
    }
    let before = ["v.fast", "v.slow"].map(|drive| fs::read(place.path(drive)).unwrap());

    serve(&place, "v.fast", "v.slow").expect(1, &["log", "damaged", "--rescue", "bimetal lost v"]);
    let said = place.bimetal(&["check", "v"]);
    assert!(said.code == 3 && said.out.contains("--rescue"), "{said:?}");
    let lost = place.bimetal(&["--json", "lost", "v"]);
    assert_eq!(lost.code, 3, "{lost:?}");
    let lost = lost.json();
    assert!(lost["loss"]["damage"][0].as_str().unwrap().contains("landing log"), "{lost}");
    assert!(!lost["ranges"].as_array().unwrap().is_empty(), "{lost}");

    let server = place.serve(&["v", "--rescue"]);
    let status = place.status("v");
    assert_eq!((&status["state"], &status["loss"]), (&"degraded".into(), &lost["loss"]));
    let script = "good = 0\n\
                  for i in range(8):\n\
                  \x20 try:\n\
                  \x20   assert h.pread(4096, (32 + i) << 20) == bytes([98 + i]) * 4096, i\n\
                  \x20   good += 1\n\
                  \x20 except nbd.Error as e:\n\
                  \x20   assert e.errno == 'EIO', e\n\
                  assert h.is_read_only()\n\
                  print(good)";
    let good = must(tool("nbdsh").args(["-u", &server.uri, "-c", script]));
    assert!((1..8).contains(&good.trim().parse::<u32>().unwrap()), "{good}");
    assert_eq!(server.stop().code(), Some(3));
    let after = ["v.fast", "v.slow"].map(|drive| fs::read(place.path(drive)).unwrap());
    assert!(before == after, "a rescue wrote to the drives");
    // What is well needs no rescue, and is served as it is.
    let place = volume();
    let said = place.bimetal(&["serve", "v", "--rescue", "--run", "true"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.err.contains("damaged"), "{said:?}");
}

/// Where the headers of records in the log lie, in order.
fn log_headers(place: &Place, name: &str) -> Vec<u64> {
    let bytes = fs::read(place.path(name)).unwrap();
    let blocks = (0..).zip(bytes.chunks_exact(4096));
    let mut headers: Vec<(u64, u64)> = blocks
        .filter(|(_, block)| block.starts_with(b"BMlr"))
        .map(|(n, block)| (u64::from_le_bytes(block[8..16].try_into().unwrap()), n * 4096))
        .collect();
    headers.sort_unstable();
    headers.into_iter().map(|(_, at)| at).collect()
}
