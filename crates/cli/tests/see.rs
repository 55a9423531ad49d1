//! `map`, `where`, `trace`, and what can be done with a trace.

mod support;

use std::fs;
use std::io::{Read, Seek, SeekFrom};

use support::*;

const BIMETAL: &str = env!("CARGO_BIN_EXE_bimetal");

#[test]
fn the_map_shows_what_is_where_served_or_not() {
    if !has_tools("a map of data written over NBD", &["nbdcopy"]) {
        return;
    }
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    let empty = place.bimetal(&["map", "vol0"]);
    empty.expect(0, &[]);
    assert!(empty.out.contains("\nno data\n") && !empty.out.contains("##"), "{empty:#?}");
    fs::write(place.path("data"), pattern(1, 64 << 20)).unwrap();
    place.serve_run(
        "vol0",
        &format!(
            "nbdcopy --flush data \"$uri\" && {BIMETAL} --config-dir conf --json map vol0 > live.json"
        ),
    );
    let live: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(place.path("live.json")).unwrap()).unwrap();
    let rest = place.bimetal(&["--json", "map", "vol0"]).json();
    for map in [&live, &rest] {
        let total = &map["total"];
        let data: u64 = ["fast_bytes", "log_bytes", "slow_bytes", "lost_bytes"]
            .iter()
            .map(|name| total[name].as_u64().unwrap())
            .sum();
        assert_eq!(data, 64 << 20, "{total}");
        let cells = map["cells"].as_array().unwrap();
        let size = map["cell_bytes"].as_u64().unwrap();
        assert!(cells.len() as u64 * size >= map["length"].as_u64().unwrap());
    }
    let drawn = place.bimetal(&["map", "vol0", "--length", "128M", "--cells", "64"]);
    assert!(drawn.out.contains("################################................"), "{drawn:#?}");
    place.bimetal(&["map", "vol0", "--at", "9T"]).expect(2, &["the volume ends at"]);
}

#[test]
fn the_map_shows_what_was_read_most_served_or_not() {
    if !has_tools("heat of what was read over NBD", &["nbdsh"]) {
        return;
    }
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    let cold = place.bimetal(&["map", "vol0", "--heat"]);
    assert!(cold.expect(0, &[]).out.contains("nothing of it was read lately"), "{cold:#?}");
    // The third of 64 parts is read most, the fifth less, and nothing else.
    fs::write(
        place.path("ask.py"),
        "for n in range(16):\n    h.pwrite(b'x' * 1048576, n * 1048576)\nh.flush()\n\
         for n in range(200):\n    h.pread(4096, 33 * 1048576 // 16 + n % 16 * 4096)\n\
         for n in range(20):\n    h.pread(4096, 4 * 1048576 + n % 16 * 4096)\n",
    )
    .unwrap();
    place.serve_run(
        "vol0",
        &format!(
            "nbdsh -u \"$uri\" -c \"exec(open('ask.py').read())\" && {BIMETAL} --config-dir conf --json map vol0 --heat --length 64M > live.json"
        ),
    );
    let live = serde_json::from_str(&fs::read_to_string(place.path("live.json")).unwrap()).unwrap();
    let closer = ["map", "vol0", "--heat", "--length", "64M", "--cells", "64"];
    let rest = place.bimetal(&[&["--json"][..], &closer].concat()).json();
    for map in [&live, &rest] {
        let map: &serde_json::Value = map;
        let cells = map["cells"].as_array().unwrap();
        let bytes = map["cell_bytes"].as_u64().unwrap();
        let cell = |at: u64| &cells[(at / bytes) as usize];
        let (hot, warm, cold) = (cell(2 << 20), cell(4 << 20), cell(40 << 20));
        assert_eq!(hot["heat_level"], 9, "{hot}");
        let level = warm["heat_level"].as_u64().unwrap();
        assert!((1..9).contains(&level), "{warm}");
        assert_eq!((&cold["heat_level"], &cold["reads"]), (&0.into(), &0.0.into()), "{cold}");
        assert!(hot["reads"].as_f64() > warm["reads"].as_f64(), "{hot} {warm}");
        let total = map["total"]["reads"].as_f64().unwrap();
        let sum: f64 = cells.iter().map(|cell| cell["reads"].as_f64().unwrap()).sum();
        assert!((total - sum).abs() < 1e-6 * total, "{total} {sum}");
    }
    // In a pipe: digits below the characters, and the drive as without heat.
    let drawn = place.bimetal(&closer);
    let lines: Vec<&str> = drawn.expect(0, &[]).out.lines().collect();
    assert_eq!(&lines[1][11..28], "################.", "{drawn:#?}");
    assert_eq!(lines[2].chars().nth(11 + 2), Some('9'), "{drawn:#?}");
    assert!(drawn.out.contains("most of it at 2M") && !drawn.out.contains('\x1b'), "{drawn:#?}");
    // Who does not ask is told nothing of it.
    assert!(place.bimetal(&["--json", "map", "vol0"]).json()["total"]["reads"].is_null());
}

/// What `where` says of a file's ranges is what lies there.
fn file_is_where_it_is_said_to_be(mkfs: &[&str]) {
    if !can_attach(mkfs[0]) || !has_tools(mkfs[0], &mkfs[..1]) {
        return;
    }
    let place = Place::new();
    place.create("v", "256M", "1G");
    let attachment = place.attach("v");
    must(tool(mkfs[0]).args(&mkfs[1..]).arg(&attachment.device));
    let mount = Mount::new(&attachment.device, place.path("mnt"));
    let content = pattern(7, 5 << 20);
    fs::write(mount.dir.join("film"), &content).unwrap();
    must(tool("sync").arg("-f").arg(&mount.dir));
    let said = place.bimetal(&["--json", "where", "mnt/film", "--ranges"]);
    said.expect(0, &[]);
    let file = &said.json()["files"][0];
    assert_eq!((file["volume"].as_str(), file["size_bytes"].as_u64()), (Some("v"), Some(5 << 20)));
    let mut device = fs::File::open(&attachment.device).unwrap();
    let mut seen = 0;
    for range in file["ranges"].as_array().unwrap() {
        let number = |name: &str| range[name].as_u64().unwrap();
        let (from, length) = (number("file_offset") as usize, number("length") as usize);
        let mut there = vec![0; length];
        device.seek(SeekFrom::Start(number("volume_offset"))).unwrap();
        device.read_exact(&mut there).unwrap();
        assert!(content[from..from + length] == there[..], "{range}");
        seen += length;
    }
    assert_eq!(seen, 5 << 20);
    assert_eq!(file["fast_bytes"].as_u64().unwrap() + file["log_bytes"].as_u64().unwrap(), 5 << 20);
    let tree = place.bimetal(&["where", "mnt"]);
    tree.expect(0, &[]);
    assert!(tree.out.contains("film") && tree.out.contains("5M"), "{tree:#?}");
    place.bimetal(&["where", "conf"]).expect(0, &[]);
    let stranger = place.bimetal(&["where", "conf/volumes/v.toml"]);
    assert!(stranger.code == 1, "{stranger:#?}");

    // The directory stands for the file, and the file for where it lies: whole extents of it.
    let pinned = place.bimetal(&["--json", "pin", "v", "mnt"]);
    pinned.expect(0, &[]);
    let wished = pinned.json()["ranges"].as_array().unwrap().clone();
    for range in file["ranges"].as_array().unwrap() {
        let first = range["volume_offset"].as_u64().unwrap();
        let end = first + range["length"].as_u64().unwrap();
        let covers = |wish: &serde_json::Value| {
            let at = wish["at"].as_u64().unwrap();
            wish["wish"] == "pinned" && at <= first && end <= at + wish["length"].as_u64().unwrap()
        };
        assert!(wished.iter().any(covers), "{first}..{end} in {wished:?}");
    }
    let advised = place.bimetal(&["advise", "v", "stream", "mnt/film"]);
    assert!(advised.expect(0, &[]).out.contains("stream"), "{advised:#?}");
    let unpinned = place.bimetal(&["unpin", "v", "mnt/film"]);
    assert!(unpinned.expect(0, &[]).out.contains("nothing is wished"), "{unpinned:#?}");
    place.bimetal(&["pin", "v", "conf"]).expect(1, &[]);
    place.bimetal(&["pin", "v", "mnt/nothing"]).expect(2, &["no such file"]);
    mount.unmount();
}

#[test]
fn a_file_on_ext4_is_where_it_is_said_to_be() {
    file_is_where_it_is_said_to_be(&["mkfs.ext4", "-q"]);
}

#[test]
fn a_file_on_xfs_is_where_it_is_said_to_be() {
    file_is_where_it_is_said_to_be(&["mkfs.xfs", "-q"]);
}

#[test]
fn a_file_on_btrfs_is_where_it_is_said_to_be() {
    if can_check_mounts("btrfs") {
        file_is_where_it_is_said_to_be(&["mkfs.btrfs", "-q"]);
    }
}

/// Attached, with a file system made and mounted at `mnt`.
fn on_file_system(place: &Place, mkfs: &[&str], options: &str, test: impl FnOnce(&Attachment<'_>)) {
    place.create("v", "256M", "1G");
    let attachment = place.attach("v");
    must(tool(mkfs[0]).args(&mkfs[1..]).arg(&attachment.device));
    let mount = Mount::with(&attachment.device, place.path("mnt"), options);
    test(&attachment);
    mount.unmount();
}

#[test]
fn what_has_no_place_is_neither_called_warm_nor_pinned() {
    if !can_attach("files without a place") || !has_tools("ext4", &["mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    // No place is given to what was written before it is asked for.
    on_file_system(&place, &["mkfs.ext4", "-q"], "commit=600", |_| {
        fs::write(place.path("mnt/new"), [7; 5000]).unwrap();
        let warm = place.bimetal(&["warm", "mnt/new"]);
        warm.expect(1, &[]);
        assert!(warm.out.contains("not warmed: 8K has no place yet ('sync -f"), "{warm:#?}");
        place.bimetal(&["pin", "v", "mnt/new"]).expect(1, &["8K has no place yet", "sync -f"]);
        let wher = place.bimetal(&["where", "mnt/new"]);
        assert!(wher.expect(0, &[]).out.contains("PENDING"), "{wher:#?}");
        must(tool("sync").arg("-f").arg(place.path("mnt/new")));
        let warm = place.bimetal(&["warm", "mnt/new"]);
        assert!(warm.expect(0, &[]).out.contains("warm (0 moved)"), "{warm:#?}");
        let wher = place.bimetal(&["where", "mnt/new"]);
        assert!(!wher.expect(0, &[]).out.contains("PENDING"), "{wher:#?}");

        fs::write(place.path("mnt/empty"), "").unwrap();
        fs::File::create(place.path("mnt/hole")).unwrap().set_len(1 << 20).unwrap();
        for file in ["mnt/empty", "mnt/hole"] {
            let warm = place.bimetal(&["warm", file]);
            assert!(warm.expect(0, &[]).out.contains("nothing to warm"), "{warm:#?}");
            place.bimetal(&["pin", "v", file]).expect(1, &["nothing but holes and empty files"]);
        }
        let json = place.bimetal(&["--json", "warm", "mnt/new", "mnt/hole"]).json();
        assert_eq!(json["files"][0]["data_bytes"], 8192, "{json}");
        assert_eq!(json["files"][1]["data_bytes"], 0, "{json}");
    });
}

#[test]
fn what_btrfs_has_compressed_is_called_so() {
    let tools = has_tools("compressed files", &["mkfs.btrfs"]);
    if !can_attach("compressed files") || !tools || !can_check_mounts("compressed files") {
        return;
    }
    let place = Place::new();
    on_file_system(&place, &["mkfs.btrfs", "-q"], "compress-force=zstd", |_| {
        fs::write(place.path("mnt/film"), vec![7; 1 << 20]).unwrap();
        must(tool("sync").arg("-f").arg(place.path("mnt")));
        let wher = place.bimetal(&["where", "mnt/film"]);
        assert!(wher.expect(0, &[]).out.contains("COMPRESSED"), "{wher:#?}");
        assert!(wher.out.contains("1M is compressed, and its place is not told"), "{wher:#?}");
        let json = place.bimetal(&["--json", "where", "mnt/film"]).json();
        let file = &json["files"][0];
        assert_eq!(
            (&file["compressed_bytes"], &file["pending_bytes"]),
            (&(1 << 20).into(), &0.into())
        );
        let warm = place.bimetal(&["warm", "mnt/film"]);
        assert!(warm.expect(1, &[]).out.contains("not warmed: 1M is compressed"), "{warm:#?}");
        let pin = place.bimetal(&["pin", "v", "mnt"]);
        assert!(!pin.expect(1, &["is compressed"]).err.contains("sync"), "{pin:#?}");
    });
}

#[test]
fn what_clones_share_is_counted_once_in_the_total() {
    if !can_attach("clones") || !has_tools("clones", &["mkfs.xfs"]) {
        return;
    }
    let place = Place::new();
    on_file_system(&place, &["mkfs.xfs", "-q"], "defaults", |_| {
        fs::write(place.path("mnt/film"), pattern(3, 3 << 20)).unwrap();
        must(tool("sync").arg("-f").arg(place.path("mnt")));
        let (film, clone) = (place.path("mnt/film"), place.path("mnt/clone"));
        must(tool("cp").arg("--reflink=always").arg(film).arg(clone));
        must(tool("sync").arg("-f").arg(place.path("mnt")));
        let json = place.bimetal(&["--json", "where", "mnt"]).json();
        let data = |tally: &serde_json::Value| {
            ["fast_bytes", "log_bytes", "slow_bytes"].map(|name| tally[name].as_u64().unwrap())
        };
        assert_eq!(json["shared_bytes"], 3 << 20, "{json}");
        assert_eq!(data(&json["total"]).iter().sum::<u64>(), 3 << 20, "{json}");
        assert_eq!(data(&json["files"][1]).iter().sum::<u64>(), 3 << 20, "{json}");
        let wher = place.bimetal(&["where", "mnt"]);
        assert!(wher.expect(0, &[]).out.contains("3M that files share"), "{wher:#?}");
    });
}

#[test]
fn what_is_pinned_is_listed_as_it_is_given() {
    let place = Place::new();
    place.create("v", "256M", "1G");
    let pin = place.bimetal(&["pin", "v", "20M+512K", "896K+128K"]);
    assert!(pin.expect(0, &[]).out.contains("20M+512K"), "{pin:#?}");
    place.bimetal(&["advise", "v", "cold", "33M+2G"]).expect(1, &[]);
    place.bimetal(&["advise", "v", "cold", "33M+128M"]).expect(0, &[]);
    let listed = place.bimetal(&["pin", "v"]);
    let ranges: Vec<&str> =
        listed.expect(0, &[]).out.split_whitespace().filter(|word| word.contains('+')).collect();
    assert_eq!(ranges, ["896K+128K", "20M+512K", "33M+128M"], "{listed:#?}");
    place.bimetal(&["unpin", "v", ranges[0]]).expect(0, &[]);
    let listed = place.bimetal(&["pin", "v"]);
    assert!(!listed.out.contains("896K") && listed.out.contains("20M+512K"), "{listed:#?}");
    place.bimetal(&["unpin", "v", "--all", "0+1M"]).expect(2, &[]);
    let left = place.bimetal(&["unpin", "v", "--all"]);
    assert!(left.expect(0, &[]).out.contains("nothing is wished"), "{left:#?}");
}

#[test]
fn what_clients_ask_is_recorded_and_can_be_played_again() {
    if !has_tools("a recording", &["nbdsh"]) {
        return;
    }
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    place.bimetal(&["trace", "record", "vol0", "a"]).expect(1, &["not served"]);
    place.bimetal(&["why", "vol0"]).expect(2, &["an offset such as 10G, or a file"]);
    place.bimetal(&["why", "vol0", "12x"]).expect(2, &["'12x' is no offset"]);
    fs::write(
        place.path("ask.py"),
        "for n in range(300):\n    h.pwrite(b'x' * 4096, n * 131072)\n    h.pread(512, n * 131072)\nh.flush()\n\
         h.pwrite(b'y' * 4096, 0, nbd.CMD_FLAG_FUA)\nh.trim(1048576, 1048576)\n",
    )
    .unwrap();
    // 300 writes and reads, a flush, a durable write (two requests) and a trim.
    place.serve_run(
        "vol0",
        &format!(
            "{BIMETAL} --config-dir conf trace record vol0 a.trace --requests 604 --seconds 60 > said & \
             recorder=$!; sleep 1; \
             {BIMETAL} --config-dir conf trace record vol0 b.trace 2> busy; \
             nbdsh -u \"$uri\" -c \"exec(open('ask.py').read())\" && wait $recorder"
        ),
    );
    assert!(fs::read_to_string(place.path("busy")).unwrap().contains("somebody records"));
    assert!(fs::read_to_string(place.path("said")).unwrap().contains("604 requests"));
    place.bimetal(&["trace", "convert", "a.trace", "a.csv", "--format", "csv"]).expect(0, &[]);
    let csv = fs::read_to_string(place.path("a.csv")).unwrap();
    let count = |word: &str| csv.lines().filter(|line| line.contains(word)).count();
    assert_eq!((count(",R,"), count(",W,"), count(",F,"), count(",D,")), (300, 301, 2, 1), "{csv}");
    assert!(csv.contains(",R,131072,512\n") && csv.contains(",D,1048576,1048576\n"));
    place.bimetal(&["trace", "convert", "a.csv", "a.iolog", "--format", "iolog"]).expect(0, &[]);
    place.bimetal(&["trace", "convert", "a.csv", "a.csv"]).expect(4, &["a.csv exists"]);

    let on = "fusion:samsung-860-evo-500+wd5002abys";
    let words = ["--json", "lab", "replay", "a.iolog", "--on", on, "--fast-size", "16M"];
    let played = place.bimetal(&words);
    played.expect(0, &[]);
    assert_eq!(played.json()["requests"], 604, "{played:#?}");
    assert_eq!(played.json()["volume"]["fast_bytes"], 16 << 20);
    let text =
        place.bimetal(&["lab", "replay", "a.trace", "--on", "twin:wd5002abys", "--speed", "max"]);
    assert!(text.out.contains("300 reads") && text.out.contains("flushes"), "{text:#?}");
    // On the real volume: what writes is refused, and then done.
    let real = ["lab", "replay", "a.trace", "--on", "vol0", "--speed", "max"];
    place.bimetal(&real).expect(4, &["may hold data", "--force"]);
    let forced = place.bimetal(&[&real[..], &["--force"]].concat());
    assert!(forced.code == 0 && forced.out.contains("real time"), "{forced:#?}");
    place.bimetal(&["check", "vol0"]).expect(0, &[]);
    place
        .bimetal(&["lab", "replay", "a.trace", "--on", "nowhere"])
        .expect(1, &["no volume 'nowhere'", "fusion:FAST+SLOW"]);
}

#[test]
fn the_planner_says_which_size_is_enough_and_how_sure_that_is() {
    let place = Place::new();
    let mut csv = String::new();
    // Nine of ten reads from 8 MiB, the tenth from all over 64 MiB.
    for n in 0..4000u64 {
        let chance = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let extent = if chance % 10 == 0 { chance / 10 % 512 } else { chance / 10 % 64 };
        csv += &format!("{},R,{},4096\n", n * 500_000, extent * 131_072);
    }
    fs::write(place.path("t.csv"), csv).unwrap();
    let size = ["lab", "size", "t.csv", "--fast", "samsung-860-evo-500", "--slow", "wd5002abys"];
    let hit = [&["--json"], &size[..], &["--sizes", "12,50,100", "--target-hit", "85%"]].concat();
    let said = place.bimetal(&hit);
    said.expect(0, &[]);
    let report = said.json();
    assert_eq!(report["rows"].as_array().unwrap().len(), 3, "{report}");
    assert!(report["advice"]["room_bytes"].is_u64() && report["advice"]["why"].is_string());
    let text = place.bimetal(&[&size[..], &["--sizes", "50", "--fast-price", "0.1"]].concat());
    assert!(text.out.contains("FLASH LIFE") && text.out.contains("take "), "{text:#?}");
    let never = [&size[..], &["--sizes", "50", "--target-p99", "1us"]].concat();
    place.bimetal(&never).expect(1, &[]);
    place.bimetal(&["lab", "size", "t.csv", "--fast", "x", "--slow", "y"]).expect(2, &["x"]);
}

#[test]
fn a_file_is_brought_to_the_fast_drive_when_asked_for() {
    if !can_attach("warm") || !has_tools("warm", &["mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "1G");
    let attachment = place.attach("v");
    must(tool("mkfs.ext4").arg("-q").arg(&attachment.device));
    let mount = Mount::new(&attachment.device, place.path("mnt"));
    fs::write(mount.dir.join("old"), pattern(1, 120 << 20)).unwrap();
    must(tool("sync").arg("-f").arg(&mount.dir));
    fs::write(mount.dir.join("film"), pattern(2, 5 << 20)).unwrap();
    must(tool("sync").arg("-f").arg(&mount.dir));
    let slow = || {
        let said = place.bimetal(&["--json", "where", "mnt/film"]);
        said.expect(0, &[]);
        said.json()["total"]["slow_bytes"].as_u64().unwrap()
    };
    eventually("the film has left the log", || slow() > 4 << 20);
    let why = place.bimetal(&["why", "mnt/film"]);
    why.expect(0, &[]);
    assert!(why.out.contains("slow") && why.out.contains("LAST DECISION"), "{why:#?}");
    let warm = place.bimetal(&["warm", "mnt/film"]);
    assert!(warm.code == 0 && warm.out.contains("film: warm"), "{warm:#?}");
    assert_eq!(slow(), 0);
    let why = place.bimetal(&["--json", "why", "mnt/film"]).json();
    let extents = why["extents"].as_array().unwrap();
    assert!(extents.len() >= 40 && extents.iter().all(|extent| extent["home"] == "fast"), "{why}");
    assert!(extents.iter().any(|extent| extent["verdict"].is_string()), "{why}");
    place.bimetal(&["why", "v", "0"]).expect(0, &[]);
    place.bimetal(&["pin", "v", "mnt/film"]).expect(0, &[]);
    let why = place.bimetal(&["why", "mnt/film"]);
    assert!(why.code == 0 && why.out.contains("WISHED") && why.out.contains("pinned"), "{why:#?}");
    place.bimetal(&["unpin", "v", "mnt/film"]).expect(0, &[]);
    fs::write(mount.dir.join("empty"), "").unwrap();
    place.bimetal(&["why", "mnt/empty"]).expect(1, &["nothing of mnt/empty has a place"]);
    place.bimetal(&["why", "v", "9T"]).expect(2, &["ends before"]);
    place.bimetal(&["warm", "conf"]).expect(1, &["no regular file"]);
    mount.unmount();
    let status = place.status("v");
    assert_eq!(status["state"], "online", "{status}");
}

#[test]
fn a_hunt_for_nothing_is_refused_and_a_short_one_says_what_it_did() {
    let place = Place::new();
    place.bimetal(&["hunt", "--runs", "0"]).expect(2, &["--runs", "at least 1"]);
    let words = ["--json", "hunt", "--seed", "1", "--runs", "2", "--jobs", "1"];
    let hunt = place.bimetal(&words).expect(0, &[]).json();
    assert_eq!(hunt["runs"], 2, "{hunt}");
    assert!(hunt["power_cuts"].as_u64().unwrap() > 0 && hunt["failures"] == serde_json::json!([]));
}
