use super::*;
use crate::bench::TwinBench;
use crate::probe::{Bounds, plan, probe};

/// A twin is probed like any drive, in virtual time, and fitted.
fn again(choice: &str, writes: bool) -> (Profile, Fit) {
    probed(choice, writes, 5)
}

/// The same, measured for so many seconds each.
fn probed(choice: &str, writes: bool, seconds: u64) -> (Profile, Fit) {
    let original = Profile::named(choice).unwrap();
    let identity = Identity::of_twin(choice, &original);
    assert_eq!(identity.rpm, None, "what it turns at has to be found");
    let bounds = Bounds { seconds, bytes: 1 << 30, writes };
    let measures = plan(identity.size_bytes, bounds).unwrap();
    let mut bench = TwinBench::new(choice, 7).unwrap();
    let found = probe(&mut bench, identity, &measures, &|_, _| ()).unwrap();
    // As it is read from its file.
    let found = Measurements::parse("kept", &found.to_json()).unwrap();
    let fit = fit(&found, "again", original.setting().condition).unwrap();
    (original, fit)
}

#[test]
fn short_measurements_do_not_give_a_disk_without_a_cache_a_queue() {
    for seconds in [1, 3, 6] {
        let (_, fit) = probed("wd5002abys,cache=off", true, seconds);
        let depth = fit.profile.part().numbers["queue_depth"].value;
        assert_eq!(depth, 1.0, "measured for {seconds} s");
        let worst = fit.worst().unwrap();
        assert!(worst.error.abs() < 0.1, "measured for {seconds} s: {worst:?}");
    }
}

/// What neither was fitted to: requests of other sizes, over other parts, by other numbers of clients.
fn held_out(size_bytes: u64, writes: bool) -> Vec<Load> {
    let load = |kind, pattern, block_bytes: u64, from: u64, to: u64, clients| Load {
        kind,
        pattern,
        block_bytes,
        range: from / block_bytes * block_bytes..to / block_bytes * block_bytes,
        clients,
        flushes: 0,
    };
    let mut list = vec![
        load(Kind::Read, Pattern::Random, 8 << 10, 0, size_bytes / 3, 1),
        load(Kind::Read, Pattern::Random, 16 << 10, size_bytes / 2, size_bytes, 2),
        load(Kind::Read, Pattern::Sequential, 256 << 10, size_bytes / 3, size_bytes / 2, 1),
        load(Kind::Read, Pattern::Random, 64 << 10, 0, size_bytes, 16),
    ];
    if writes {
        list.push(load(Kind::Write, Pattern::Random, 8 << 10, 0, size_bytes / 4, 1));
        list.push(load(Kind::Write, Pattern::Sequential, 256 << 10, 0, size_bytes / 4, 1));
    }
    list
}

#[track_caller]
fn alike(original: &Profile, fit: &Fit, writes: bool, tolerance: f64) {
    for load in held_out(original.size_bytes(), writes) {
        let rate = |profile: &Profile| {
            let mut bench = Bench::new(profile.model(Random::new(3)), Random::new(4));
            bench.run(&load, 20_000_000_000, 20_000).per_second()
        };
        let (published, twin) = (rate(original), rate(&fit.profile));
        let error = twin / published - 1.0;
        assert!(error.abs() < tolerance, "{load:?}: {published} and {twin}, {error:+.3}");
    }
    let check = fit.check_error().unwrap();
    assert!(check < tolerance, "{check} of {:#?}", fit.lines);
}

#[test]
fn a_disk_that_was_probed_has_a_twin_that_does_what_it_does() {
    let (original, fit) = again("wd5002abys,cache=off", true);
    let number = |profile: &Profile, name: &str| profile.part().numbers[name].value;
    assert_eq!(number(&fit.profile, "rpm"), 7200.0);
    for name in ["outer_mib_s", "inner_mib_s", "seek_base_ms", "seek_stroke_ms", "read_command_us"]
    {
        let (was, is) = (number(&original, name), number(&fit.profile, name));
        assert!((is / was - 1.0).abs() < 0.12, "{name}: {was} and {is}");
        assert!(!fit.profile.part().numbers[name].rows.is_empty(), "{name}");
    }
    assert!(!fit.profile.setting().write_cache);
    alike(&original, &fit, true, 0.05);
}

#[test]
fn disks_of_other_speeds_are_told_from_reads_alone() {
    for (choice, rpm) in [("al13seb900", 10_500.0), ("mq01abd100h-disk", 5_400.0)] {
        let (original, fit) = again(choice, false);
        let found = fit.profile.part().numbers["rpm"].value;
        assert_eq!(found, original.part().numbers["rpm"].value, "{choice}, {rpm}");
        assert!(fit.lines.iter().all(|line| line.id.contains("read")));
        alike(&original, &fit, false, 0.06);
    }
}

#[test]
fn a_disk_with_a_write_cache_is_fitted_with_its_pool() {
    let (original, fit) = again("wd5002abys,cache=on", true);
    alike(&original, &fit, true, 0.10);
}

#[test]
fn a_flash_drive_that_was_probed_has_a_twin_that_does_what_it_does() {
    for choice in ["samsung-860-evo-500", "mz7lm1t9", "wd-sn550-1tb"] {
        let (original, fit) = again(choice, true);
        let flush = |profile: &Profile| profile.part().numbers["flush_us"].value;
        let (was, is) = (flush(&original), flush(&fit.profile));
        assert!((is / was - 1.0).abs() < 0.10, "{choice}: a flush of {was} and {is} µs");
        alike(&original, &fit, true, 0.15);
    }
}

#[test]
fn a_fitted_twin_is_a_profile_like_any_other() {
    let (_, fit) = again("seagate-600-pro", false);
    let text = fit.profile.file().to_toml();
    let read = Profile::parse("again.toml", &text).unwrap();
    assert_eq!(read.name(), "again");
    assert_eq!(read.size_bytes(), fit.profile.size_bytes());
    let number = &read.part().numbers["read_page_us"];
    assert_eq!(number.rows, ["rand-read-4k-over-100-percent"]);
    // What was not measured says so.
    assert!(read.part().numbers["program_us"].rows.is_empty());
}
