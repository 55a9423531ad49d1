//! `create` looks before it writes: what it makes, what it refuses, and what it leaves alone.

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::process::Stdio;

use support::*;

#[test]
fn a_dry_run_shows_the_plan_and_touches_nothing() {
    let place = Place::new();
    let said = place.bimetal(&[
        "--json",
        "create",
        "vol0",
        "--fast",
        "f:256M",
        "--slow",
        "s:1G",
        "--dry-run",
    ]);
    said.expect(0, &[]);
    let plan = said.json();
    assert_eq!(plan["output_version"]["command"], "create");
    assert_eq!(plan["output_version"]["major"], 1);
    assert_eq!(plan["dry_run"], true);
    assert!(plan["volume"].is_null());
    assert!(plan["size_bytes"].as_u64().unwrap() > 1 << 30);
    assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 0, "not even a directory");
}

#[test]
fn a_created_volume_is_known_by_name_and_by_its_drives() {
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    let by_name = place.status("vol0");
    assert_eq!(by_name["name"], "vol0");
    assert_eq!(by_name["state"], "offline");
    assert_eq!(by_name["class"], "span");
    let said = place.bimetal(&["--json", "status", "--fast", "vol0.fast", "--slow", "vol0.slow"]);
    assert_eq!(said.expect(0, &[]).json()["volumes"][0]["volume"], by_name["volume"]);
    let list = place.bimetal(&["list"]);
    assert!(list.out.contains("vol0") && list.out.contains("OFFLINE"), "{list:?}");
    let scan = place.bimetal(&["scan", "."]);
    assert_eq!(scan.out.matches("vol0.").count(), 2, "{scan:?}");
    place.bimetal(&["check", "vol0"]).expect(0, &[]);
}

#[test]
fn one_drive_cannot_be_both_under_any_name() {
    let place = Place::new();
    fs::File::create(place.path("a")).unwrap().set_len(1 << 30).unwrap();
    fs::hard_link(place.path("a"), place.path("hard")).unwrap();
    symlink(place.path("a"), place.path("soft")).unwrap();
    for other in ["a", "hard", "soft", "./a"] {
        let said = place.bimetal(&["create", "v", "--fast", "a", "--slow", other, "--force"]);
        said.expect(4, &["drive"]);
    }
    place.bimetal(&["create", "v", "--fast", "new:1G", "--slow", "new:1G"]).expect(4, &["both"]);
    assert!(!place.path("new").exists());
}

#[test]
fn what_a_drive_holds_is_named_and_only_overwritten_by_force() {
    let place = Place::new();
    let make = || {
        let file = fs::File::create(place.path("f")).unwrap();
        file.set_len(256 << 20).unwrap();
        file
    };
    let create = |extra: &[&str]| {
        let mut words = vec!["create", "v", "--fast", "f", "--slow", "s:1G"];
        words.extend(extra);
        place.bimetal(&words)
    };
    make().write_all_at(b"\x53\xef", 1080).unwrap();
    create(&[]).expect(4, &["ext2/3/4", "--force"]);
    make().write_all_at(b"EFI PART", 512).unwrap();
    create(&[]).expect(4, &["GPT"]);
    make().write_all_at(b"LABELONE", 512).unwrap();
    create(&[]).expect(4, &["LVM"]);
    assert!(!place.path("s").exists(), "a refusal makes no files");
    create(&["--force"]).expect(0, &[]);
    // A drive of a volume is refused as well, whatever the new name.
    let said = place.bimetal(&["create", "w", "--fast", "f", "--slow", "t:1G"]);
    said.expect(4, &["bimetal volume 'v'", "--force"]);
    // So is a name that is taken.
    let said = place.bimetal(&["create", "v", "--fast", "g:256M", "--slow", "t:1G"]);
    said.expect(4, &["exists", "--force"]);
}

#[test]
fn a_file_to_be_made_is_refused_when_it_is_there_with_content_or_another_size() {
    let place = Place::new();
    fs::write(place.path("f"), "precious").unwrap();
    let create = |fast: &str, extra: &[&str]| {
        let mut words = vec!["create", "v", "--fast", fast, "--slow", "s:1G"];
        words.extend(extra);
        place.bimetal(&words)
    };
    create("f:256M", &[]).expect(4, &["8 bytes", "--force"]);
    assert_eq!(fs::read_to_string(place.path("f")).unwrap(), "precious");
    let file = fs::File::create(place.path("f")).unwrap();
    file.set_len(256 << 20).unwrap();
    file.write_all_at(b"x", 100 << 20).unwrap();
    create("f:256M", &[]).expect(4, &["data", "--force"]);
    create("f:256M", &["--force"]).expect(0, &[]);
    let mut byte = [7];
    fs::File::open(place.path("f")).unwrap().read_exact_at(&mut byte, 100 << 20).unwrap();
    assert_eq!(byte, [0], "an emptied file is empty");
}

#[test]
fn an_empty_file_of_the_right_size_is_welcome() {
    let place = Place::new();
    fs::File::create(place.path("f")).unwrap().set_len(256 << 20).unwrap();
    fs::File::create(place.path("s")).unwrap();
    place.bimetal(&["create", "v", "--fast", "f:256M", "--slow", "s:1G"]).expect(0, &[]);
}

#[test]
fn absurd_sizes_and_options_are_refused_in_words() {
    let place = Place::new();
    let create = |fast: &str, slow: &str, extra: &[&str]| {
        let mut words = vec!["create", "v", "--fast", fast, "--slow", slow];
        words.extend(extra);
        place.bimetal(&words)
    };
    create("f:0", "s:1G", &[]).expect(2, &["no bytes"]);
    create("f:1Q", "s:1G", &[]).expect(2, &["unit"]);
    create("f:1M", "s:1G", &[]).expect(2, &["too small for the fast drive: it has 1M"]);
    let here = place.dir.path().file_name().unwrap().to_str().unwrap();
    create("f:64M", &format!("../{here}/f:128M"), &[])
        .expect(4, &["are both", "two different drives"]);
    let long = "x".repeat(120);
    let said = place.bimetal(&[
        "--config-dir",
        &long,
        "create",
        "v",
        "--fast",
        "f:64M",
        "--slow",
        "s:128M",
    ]);
    said.expect(1, &["107", "shorter --config-dir"]);
    create("f:256M", "s:1M", &[]).expect(2, &["too small"]);
    create("f:256M", "s:7000P", &[]).expect(2, &["too small"]);
    create("f:256M", "s:1G", &["--extent", "3K"]).expect(2, &["power of two"]);
    create("f:256M", "s:1G", &["--landing", "1"]).expect(2, &["landing"]);
    create("f:256M", "s:1G", &["--landing", "255M"]).expect(2, &["too small"]);
    create("missing", "s:1G", &[]).expect(1, &["no drive at missing", "missing:1G"]);
    create("/dev/null", "s:1G", &[]).expect(1, &["special file"]);
    create(".", "s:1G", &[]).expect(1, &["directory"]);
    place.bimetal(&["create", "../v", "--fast", "f:1G", "--slow", "s:1G"]).expect(2, &["name"]);
    fs::write(place.path("empty"), "").unwrap();
    create("empty", "s:1G", &[]).expect(1, &["empty", "say how big"]);
    assert!(!place.path("f").exists() && !place.path("s").exists());
}

#[test]
fn a_failure_halfway_takes_back_what_was_made() {
    let place = Place::new();
    let said = place.bimetal(&["create", "v", "--fast", "f:256M", "--slow", "nodir/s:1G"]);
    said.expect(1, &["nodir/s"]);
    assert!(!place.path("f").exists(), "the fast drive's file was made in vain");
    // A configuration directory that cannot be made is noticed before the drives are touched.
    fs::write(place.path("file"), "").unwrap();
    let config = place.path("file/conf");
    let said = place.bimetal(&[
        "--config-dir",
        config.to_str().unwrap(),
        "create",
        "v",
        "--fast",
        "f:256M",
        "--slow",
        "s:1G",
    ]);
    said.expect(1, &["file/conf"]);
    assert!(!place.path("f").exists());
}

#[test]
fn unwise_but_possible_choices_are_warned_about() {
    let place = Place::new();
    let said = place.bimetal(&[
        "--json",
        "create",
        "v",
        "--fast",
        "f:1G",
        "--slow",
        "s:256M",
        "--dry-run",
    ]);
    let warnings = said.expect(0, &[]).json()["warnings"].to_string();
    assert!(warnings.contains("swapped"), "{warnings}");
}

#[test]
fn a_mounted_drive_is_refused_even_by_force() {
    if !can_attach("create on a mounted drive")
        || !has_tools("create on a mounted drive", &["mkfs.ext4"])
    {
        return;
    }
    let place = Place::new();
    fs::File::create(place.path("image")).unwrap().set_len(64 << 20).unwrap();
    must(tool("mkfs.ext4").args(["-q", "-F"]).arg(place.path("image")));
    let mount = {
        fs::create_dir(place.path("mnt")).unwrap();
        must(tool("mount").args(["-o", "loop"]).arg(place.path("image")).arg(place.path("mnt")));
        Mount { dir: place.path("mnt") }
    };
    let words = ["create", "v", "--fast", "image", "--slow", "s:1G", "--force"];
    place.bimetal(&words).expect(4, &["in use", "mounted at", "no flag overrides"]);
    mount.unmount();
    place.bimetal(&words[..6]).expect(4, &["ext2/3/4"]);
}

#[test]
fn of_several_that_create_at_once_one_wins_and_the_others_are_refused() {
    let place = Place::new();
    for name in ["f", "s"] {
        fs::File::create(place.path(name)).unwrap().set_len(256 << 20).unwrap();
    }
    let start = |config: String, name: String| {
        let mut command = place.command();
        command.args(["--config-dir", place.path(&config).to_str().unwrap(), "create", &name]);
        command.args(["--fast", "f", "--slow", "s"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // In one directory, and each in its own, where nothing but the drives can keep them apart.
    let directories: [fn(usize) -> String; 2] = [|_| "conf".into(), |n| format!("conf{n}")];
    for directory in directories {
        let children: Vec<_> = (0..6).map(|n| start(directory(n), format!("v{}", n % 3))).collect();
        let ends: Vec<_> = children.into_iter().map(|c| c.wait_with_output().unwrap()).collect();
        let won = ends.iter().filter(|end| end.status.success()).count();
        assert_eq!(won, 1, "{ends:#?}");
        for end in ends.iter().filter(|end| !end.status.success()) {
            assert_eq!(end.status.code(), Some(4), "{end:#?}");
        }
        place.bimetal(&["check", "--fast", "f", "--slow", "s"]).expect(0, &[]);
        place.bimetal(&["destroy", "--yes", "--fast", "f", "--slow", "s"]).expect(0, &[]);
        for name in ["v0", "v1", "v2"] {
            let _ = fs::remove_file(place.path("conf").join(format!("{name}.toml")));
        }
    }
}

#[test]
fn drives_that_are_served_from_elsewhere_are_refused_even_by_force() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    let server = place.serve(&["v"]);
    let before = fs::read(place.path("v.slow")).unwrap();
    // Another configuration directory knows nothing of that server.
    let create = |fast: &str| {
        let words = ["create", "w", "--fast", fast, "--slow", "v.slow", "--force"];
        place.bimetal(&[&["--config-dir", "elsewhere"], &words[..]].concat())
    };
    create("v.fast").expect(4, &["in use"]);
    // Nor is the other drive emptied before that is known.
    fs::write(place.path("a.img"), "precious").unwrap();
    create("a.img:1G").expect(4, &["v.slow is in use", "no flag overrides"]);
    assert_eq!(fs::read_to_string(place.path("a.img")).unwrap(), "precious");
    if can_attach("drives served elsewhere, through a loop device") {
        let device = must(tool("losetup").args(["-f", "--show"]).arg(place.path("v.fast")));
        let said = create(device.trim());
        must(tool("losetup").args(["-d", device.trim()]));
        said.expect(4, &["in use"]);
    }
    assert!(fs::read(place.path("v.slow")).unwrap() == before, "it was written");
    assert!(server.stop().success());
    place.bimetal(&["check", "v"]).expect(0, &[]);
}
