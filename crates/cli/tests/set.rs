//! `bimetal set`: at rest, while served, and what it refuses.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use support::Place;

fn durability(place: &Place) -> serde_json::Value {
    place.status("v")["durability"].clone()
}

#[test]
fn durability_is_changed_at_rest_and_while_served_and_is_kept() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    assert_eq!(durability(&place)["mode"], "strict");
    let said = place.bimetal(&["--json", "set", "v", "durability=deferred=250,8M"]);
    said.expect(0, &[]);
    assert_eq!(said.json()["live"], false);
    let kept = durability(&place);
    assert_eq!((&kept["mode"], &kept["bound_ms"]), (&"deferred".into(), &250.into()), "{kept}");
    assert_eq!(kept["bound_bytes"], 8 << 20, "{kept}");

    let server = place.serve(&["v"]);
    assert_eq!(durability(&place), kept, "a server begins with what was set");
    let said = place.bimetal(&["--json", "set", "v", "durability=strict"]);
    said.expect(0, &[]);
    assert_eq!(said.json()["live"], true);
    let strict = durability(&place);
    assert_eq!((&strict["mode"], &strict["exposed_bytes"]), (&"strict".into(), &0.into()));
    assert!(strict["bound_ms"].is_null(), "{strict}");
    assert!(server.stop().success());
    assert_eq!(durability(&place)["mode"], "strict");
}

#[test]
fn what_is_no_setting_or_cannot_be_set_is_refused_and_changes_nothing() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    place.bimetal(&["set", "v", "colour=blue"]).expect(2, &["colour", "durability=strict"]);
    place.bimetal(&["set", "v", "durability=sometimes"]).expect(2, &["durability"]);
    place.bimetal(&["set", "w", "durability=strict"]).expect(1, &["no volume 'w'", "v"]);
    let server = place.serve(&["v", "--read-only"]);
    place.bimetal(&["set", "v", "durability=deferred=1s"]).expect(1, &["read-only"]);
    assert!(server.stop().success());
    assert_eq!(durability(&place)["mode"], "strict");
}

#[test]
fn write_behind_is_set_at_rest_and_while_served_and_is_told() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    place.bimetal(&["set", "v", "write_behind=1K"]).expect(2, &["1M to 1G"]);
    place.bimetal(&["set", "v", "write_behind=2M"]).expect(0, &[]);
    let server = place.serve(&["v"]);
    assert_eq!(durability(&place)["behind_bytes_max"], 2 << 20);
    let said = place.bimetal(&["status", "v"]);
    assert!(said.out.contains("up to 2M acknowledged before they are written"), "{said:#?}");
    assert!(said.out.contains("on the fast drive alone"), "{said:#?}");
    place.bimetal(&["set", "v", "write_behind=off"]).expect(0, &[]);
    assert_eq!(durability(&place)["behind_bytes_max"], 0);
    assert!(server.stop().success());
}

#[test]
fn write_behind_and_doors_that_outlive_their_server_exclude_each_other() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    place.bimetal(&["set", "v", "write_behind=2M"]).expect(0, &[]);
    let words = ["write_behind=2M", "never learn", "set v write_behind=off"];
    for doors in [&["--vhost-user", "v.vhost"][..], &["--ublk"]] {
        place.bimetal(&[&["serve", "v"][..], doors].concat()).expect(4, &words);
    }
    place.bimetal(&["set", "v", "write_behind=off"]).expect(0, &[]);
    let server = place.serve(&["v", "--vhost-user", "v.vhost"]);
    place.bimetal(&["set", "v", "write_behind=2M"]).expect(4, &["no write_behind", "vhost-user"]);
    place.bimetal(&["set", "v", "write_behind=off"]).expect(0, &[]);
    assert_eq!(durability(&place)["behind_bytes_max"], 0);
    assert!(server.stop().success());
}

#[test]
fn a_stage_that_the_machine_has_no_memory_for_is_refused() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    // The largest that can be said at all.
    place.bimetal(&["set", "v", "stage=1024G"]).expect(2, &["half of this machine's memory"]);
    let said = place.bimetal(&["set", "v", "stage=67108864"]);
    assert_eq!(said.expect(0, &[]).out, "volume 'v': stage 64M\n");
}

#[test]
fn a_server_refuses_such_a_stage_whoever_asks_it() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    place.bimetal(&["set", "v", "stage=32M"]).expect(0, &[]);
    let server = place.serve(&["v"]);
    let most = || place.status("v")["policy"]["stage_bytes_max"].clone();
    // Not our command, which looks at the machine's memory itself.
    let mut control = UnixStream::connect(place.path("conf/run/v.ctl")).unwrap();
    let mut said = BufReader::new(control.try_clone().unwrap());
    let mut ask = |stage: &str| {
        writeln!(control, "{}", serde_json::json!({"command": "set", "stage": stage})).unwrap();
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()
    };
    let refused = ask("1024G");
    let (error, text) = (&refused["error"], refused.to_string());
    assert_eq!((&refused["ok"], &error["code"]), (&false.into(), &"bad_setting".into()), "{text}");
    assert!(text.contains("stage=1024G is more than half of this machine's memory"), "{text}");
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("at most")), "{text}");
    assert_eq!(most(), 32 << 20);
    assert_eq!(ask("64M")["ok"], true);
    assert_eq!(most(), 64 << 20);
    assert!(server.stop().success());
}
