//! A drive is gone: what `serve`, `status` and `lost` say and do, with real files and clients.

mod support;

use std::fs;

use support::{Mount, Place, can_attach, has_tools, must, pattern, run, tool};

/// Whole extents that fill the fast drive and go on to the slow one.
fn fill(place: &Place) {
    place.create("v", "64M", "256M");
    let script = "nbdsh -u $uri -c '\
        for i in range(160): h.pwrite(bytes([i + 1]) * 1048576, i * 1048576)\n\
        h.flush()'";
    place.serve_run("v", script);
}

#[test]
fn a_missing_drive_is_refused_with_what_could_be_read_and_served_when_asked() {
    if !has_tools("a missing drive", &["nbdsh", "nbdinfo"]) {
        return;
    }
    for (gone, other) in [("fast", "slow"), ("slow", "fast")] {
        let place = Place::new();
        fill(&place);
        let away = format!("v.{gone}");
        fs::rename(place.path(&away), place.path("away")).unwrap();
        let before = fs::read(place.path(&format!("v.{other}"))).unwrap();
        place
            .bimetal(&["serve", "v", "--run", "true"])
            .expect(4, &[gone, "no drive at", "can be read", "--degraded", "bimetal lost v"]);
        let status = place.bimetal(&["status", "v"]);
        assert_eq!(status.code, 3, "{status:?}");
        assert!(status.out.contains("--degraded"), "{status:?}");

        let lost = place.bimetal(&["--json", "lost", "v"]);
        assert_eq!(lost.code, 3, "{lost:?}");
        let lost = lost.json();
        assert!(lost["loss"][format!("{gone}_gone")].is_string(), "{lost}");
        let ranges = lost["ranges"].as_array().unwrap().clone();
        assert!(!ranges.is_empty());

        let server = place.serve(&["v", "--degraded"]);
        let status = place.status("v");
        assert_eq!(status["state"], "degraded");
        assert_eq!(status["drives"][gone]["state"], "missing");
        assert_eq!(status["loss"], lost["loss"]);
        let live = place.bimetal(&["--json", "lost", "v"]).json();
        assert_eq!(live["ranges"], lost["ranges"]);
        // Every megabyte is right or an error, as the list says; writes are refused.
        let script = format!(
            "lost = {}\n\
             good = 0\n\
             for i in range(160):\n\
             \x20   at = i * 1048576\n\
             \x20   listed = any(a < at + 1048576 and at < a + n for a, n in lost)\n\
             \x20   try:\n\
             \x20       assert h.pread(1048576, at) == bytes([i + 1]) * 1048576, i\n\
             \x20       good += 1\n\
             \x20       assert not listed, i\n\
             \x20   except nbd.Error as e:\n\
             \x20       assert e.errno == 'EIO' and listed, (i, e, listed)\n\
             assert h.is_read_only()\n\
             print(good)",
            serde_json::to_string(
                &ranges.iter().map(|r| (r["at"].clone(), r["length"].clone())).collect::<Vec<_>>()
            )
            .unwrap()
        );
        let good: u64 =
            must(tool("nbdsh").args(["-u", &server.uri, "-c", &script])).trim().parse().unwrap();
        assert!((30..150).contains(&good), "{good}");
        let map = must(tool("nbdinfo").args(["--map=bimetal:tier", &server.uri]));
        assert!(map.lines().any(|line| line.split_whitespace().nth(2) == Some("4")), "{map}");
        assert_eq!(server.stop().code(), Some(3));

        // Nothing has diverged: the drive returns and all is there.
        assert!(fs::read(place.path(&format!("v.{other}"))).unwrap() == before, "it was written");
        fs::rename(place.path("away"), place.path(&away)).unwrap();
        let script = "nbdsh -u $uri -c '\
            for i in range(160):\n\
            \x20 assert h.pread(1048576, i * 1048576) == bytes([i + 1]) * 1048576, i'";
        place.serve_run("v", script);
        place.bimetal(&["lost", "v"]).expect(0, &[]);
        place.bimetal(&["check", "v"]).expect(0, &[]);
    }
}

#[test]
fn the_files_of_lost_ranges_are_named_where_mounted_and_on_the_device() {
    if !can_attach("files of lost ranges") || !has_tools("files of lost ranges", &["mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "512M");
    let attachment = place.attach("v");
    must(tool("mkfs.ext4").args(["-q", "-E", "lazy_itable_init=0"]).arg(&attachment.device));
    let mount = Mount::new(&attachment.device, place.path("mnt"));
    for n in 0..60 {
        let bytes = support::pattern(n, 4 << 20);
        fs::write(place.path(&format!("mnt/file{n:02}")), bytes).unwrap();
    }
    mount.unmount();
    drop(attachment);
    fs::rename(place.path("v.slow"), place.path("away")).unwrap();

    let said = place.bimetal(&["attach", "v", "--degraded"]);
    said.expect(0, &[]);
    let device = said.out.trim().to_owned();
    let dir = place.path("mnt");
    must(tool("mount").args(["-o", "ro,noload", &device]).arg(&dir));
    let mount = Mount { dir };
    let said = place.bimetal(&["--json", "lost", "v", "--files", "mnt"]);
    assert_eq!(said.code, 3, "{said:?}");
    let named = |json: &serde_json::Value| -> Vec<String> {
        let hit = json["files"]["hit"].as_array().unwrap().iter();
        let name = |file: &serde_json::Value| {
            let path = file["path"].as_str().unwrap();
            path.rsplit('/').next().unwrap().to_owned()
        };
        let mut names: Vec<String> = hit.map(name).collect();
        names.sort();
        names
    };
    let hit = named(&said.json());
    assert!(!hit.is_empty() && hit.len() < 60, "{hit:?}");
    // The list is right: what it names cannot be read as a whole, the rest is as it was.
    for n in 0..60 {
        let name = format!("file{n:02}");
        match fs::read(place.path(&format!("mnt/{name}"))) {
            Ok(bytes) => {
                assert!(!hit.contains(&name), "{name} can be read");
                assert!(bytes == support::pattern(n, 4 << 20), "{name}");
            }
            Err(_) => assert!(hit.contains(&name), "{name} was not named"),
        }
    }
    mount.unmount();
    let said = place.bimetal(&["--json", "lost", "v", "--files", &device]);
    assert_eq!(named(&said.json()), hit, "{said:?}");
    run(place.command().args(["detach", "v"]));
}

// Not beside tests with Btrfs: its tools refuse every device while a mounted one is dead.
#[test]
fn a_file_whose_server_was_killed_is_told_to_be_on_its_volume() {
    if !can_attach("a killed server") || !has_tools("ext4", &["mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    place.create("v", "256M", "1G");
    let attachment = place.attach("v");
    must(tool("mkfs.ext4").arg("-q").arg(&attachment.device));
    let mount = Mount::new(&attachment.device, place.path("mnt"));
    fs::write(mount.dir.join("film"), pattern(1, 1 << 20)).unwrap();
    must(tool("sync").arg("-f").arg(&mount.dir));
    attachment.kill_server();
    for verb in ["where", "warm"] {
        let words = ["is of volume 'v', whose server is gone", "unmount", "bimetal attach v"];
        place.bimetal(&[verb, "mnt/film"]).expect(1, &words);
    }
    drop(mount);
}
