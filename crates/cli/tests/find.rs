//! Finding, moving and ending volumes: scan, import, export, destroy, list.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;

use support::*;

#[test]
fn a_volume_moves_by_export_and_import() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    let identity = place.status("v")["volume"].clone();
    place.bimetal(&["export", "v"]).expect(0, &[]);
    place.bimetal(&["status", "v"]).expect(1, &["no volume 'v'"]);
    fs::create_dir(place.path("moved")).unwrap();
    fs::rename(place.path("v.fast"), place.path("moved/a")).unwrap();
    fs::rename(place.path("v.slow"), place.path("moved/b")).unwrap();
    place.bimetal(&["import", "v", "--dir", "moved"]).expect(0, &[]);
    assert_eq!(place.status("v")["volume"], identity);
    place.serve_run("v", "true");
    place.bimetal(&["import", "v", "--dir", "moved"]).expect(4, &["known here", "--force"]);
}

#[test]
fn an_import_says_what_is_missing_double_or_ambiguous() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    let import =
        |words: &[&str]| place.bimetal(&[&["--config-dir", "other", "import"], words].concat());
    import(&["x", "--dir", "."]).expect(1, &["no drive of a volume 'x'"]);
    import(&["--dir", "v.fast"]).expect(1, &["slow drive", "not found"]);
    fs::copy(place.path("v.slow"), place.path("copy.slow")).unwrap();
    import(&["--dir", "."]).expect(1, &["two drives", "copy.slow"]);
    fs::remove_file(place.path("copy.slow")).unwrap();
    place.create("w", "64M", "128M");
    import(&["--dir", "."]).expect(1, &["several volumes"]);
    import(&["w", "--dir", "."]).expect(0, &[]);
    let identity = place.status("v")["volume"].as_str().unwrap().to_owned();
    import(&[&identity, "--dir", "."]).expect(0, &[]);
    let list = place.bimetal(&["--json", "--config-dir", "other", "list"]).json();
    assert_eq!(list["volumes"].as_array().unwrap().len(), 2);
}

#[test]
fn destroying_asks_first_and_then_nothing_can_be_found() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    place.bimetal(&["destroy", "v"]).expect(4, &["--yes"]);
    assert_eq!(place.status("v")["state"], "offline");
    place.bimetal(&["destroy", "v", "--yes"]).expect(0, &[]);
    place.bimetal(&["status", "v"]).expect(1, &["no volume"]);
    let scan = place.bimetal(&["--json", "scan", "."]).json();
    assert_eq!(scan["members"].as_array().unwrap().len(), 0);
    assert!(place.path("v.fast").exists(), "files are their owner's");
    // And the drives can be used again at once.
    place.bimetal(&["create", "w", "--fast", "v.fast", "--slow", "v.slow"]).expect(0, &[]);
}

#[test]
fn destroying_leaves_a_drive_of_another_volume_alone() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    place.create("w", "64M", "128M");
    fs::copy(place.path("w.slow"), place.path("v.slow")).unwrap();
    let said = place.bimetal(&["destroy", "v", "--yes"]);
    assert!(said.out.contains("belongs to another volume, 'w'"), "{said:?}");
    let scan = place.bimetal(&["scan", "."]);
    assert_eq!(scan.out.matches(" slow ").count(), 2, "{scan:?}");
}

#[test]
fn destroying_takes_the_drives_of_one_volume_and_only_its_own_file() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    place.create("w", "64M", "128M");
    let destroy = |fast: &str, slow: &str| {
        place.bimetal(&["destroy", "--yes", "--fast", fast, "--slow", slow])
    };
    destroy("v.fast", "w.slow").expect(4, &["v.fast is a drive of 'v'", "w.slow of 'w'"]);
    for name in ["v", "w"] {
        place.bimetal(&["check", name]).expect(0, &[]);
    }
    // A copy has the name and the identity, but the file leads to what it is a copy of.
    place.copy_drives("v", "copy");
    let said = destroy("copy.fast", "copy.slow");
    assert!(said.code == 0 && said.out.contains("v.toml leads to another drive"), "{said:?}");
    place.bimetal(&["check", "v"]).expect(0, &[]);
    // And another volume of the name was never in it.
    let words = ["--config-dir", "other", "create", "v", "--fast", "copy.fast"];
    place.bimetal(&[&words[..], &["--slow", "copy.slow"]].concat()).expect(0, &[]);
    let said = destroy("copy.fast", "copy.slow");
    assert!(said.code == 0 && said.out.contains("v.toml is of another volume"), "{said:?}");
    place.bimetal(&["check", "v"]).expect(0, &[]);
    destroy("v.fast", "v.slow").expect(0, &[]);
    assert!(!place.path("conf/v.toml").exists());
}

#[test]
fn destroying_what_cannot_be_wiped_is_a_failure_and_keeps_the_file() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    let destroy = || place.bimetal(&["destroy", "v", "--yes"]);
    for drive in ["fast", "slow"] {
        fs::rename(place.path(&format!("v.{drive}")), place.path(drive)).unwrap();
    }
    destroy().expect(1, &["nothing of volume 'v' was wiped", "no drive at", "bimetal export v"]);
    assert!(place.path("conf/v.toml").exists());
    for drive in ["fast", "slow"] {
        fs::rename(place.path(drive), place.path(&format!("v.{drive}"))).unwrap();
    }
    // One that is there but cannot be read: whose it is is not known.
    let slow = fs::read(place.path("v.slow")).unwrap();
    let file = fs::OpenOptions::new().write(true).open(place.path("v.slow")).unwrap();
    for copy in [4096, 512 << 10] {
        file.write_all_at(&[0xff; 16], copy + 100).unwrap();
    }
    destroy().expect(1, &["only", "v.fast was wiped", "v.slow is damaged"]);
    assert!(place.path("conf/v.toml").exists());
    fs::write(place.path("v.slow"), slow).unwrap();
    destroy().expect(0, &[]);
    assert!(!place.path("conf/v.toml").exists());
}

#[test]
fn a_copy_of_a_served_volume_is_not_taken_for_it() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    place.copy_drives("v", "copy");
    let server = place.serve(&["v"]);
    let copy = ["--fast", "copy.fast", "--slow", "copy.slow"];
    for verb in [&["status"][..], &["lost"], &["check"], &["detach"], &["destroy", "--yes"]] {
        let said = place.bimetal(&[verb, &copy].concat());
        said.expect(4, &["from other drives", "v.fast", "copy.fast"]);
    }
    // One of the two is enough.
    let mixed = ["status", "--fast", "v.fast", "--slow", "copy.slow"];
    place.bimetal(&mixed).expect(4, &["from other drives"]);
    // The same drives by another way are the same.
    std::os::unix::fs::symlink(place.path("v.fast"), place.path("link")).unwrap();
    place.bimetal(&["status", "--fast", "link", "--slow", "./v.slow"]).expect(0, &[]);
    assert!(server.stop().success());
    place.bimetal(&[&["check"][..], &copy].concat()).expect(0, &[]);
}

#[test]
fn errors_are_json_too_when_json_is_asked_for() {
    let place = Place::new();
    let said = place.bimetal(&["--json", "status", "nothing"]);
    assert_eq!(said.code, 1);
    let json = said.json();
    assert_eq!(json["output_version"]["command"], "status");
    assert_eq!(json["error"]["exit_code"], 1);
    assert!(json["error"]["message"].as_str().unwrap().contains("'nothing'"));
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    let place = Place::new();
    for words in [
        &["fly"][..],
        &["create"],
        &["serve"],
        &["serve", "v", "--fast", "x"],
        &["status", "--fast", "x"],
        &["serve", "v", "--tls-optional"],
    ] {
        let said = place.bimetal(words);
        assert_eq!(said.code, 2, "{said:?}");
        let said = place.bimetal(&[&["--json"], words].concat());
        assert_eq!((said.code, &said.json()["error"]["exit_code"]), (2, &2.into()), "{said:?}");
    }
    assert!(place.bimetal(&["--help"]).out.contains("Exit codes"));
    assert!(place.bimetal(&["create", "--help"]).out.contains("bimetal create"));
}

#[test]
fn no_volumes_is_not_an_error() {
    let place = Place::new();
    let said = place.bimetal(&["list"]);
    assert!(said.code == 0 && said.out.contains("no volumes"), "{said:?}");
    assert!(place.bimetal(&["status"]).code == 0);
    assert!(place.bimetal(&["iostat"]).out.contains("no volume"));
}
