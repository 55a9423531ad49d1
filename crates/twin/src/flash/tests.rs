//! The drive by itself: each number has the effect that physics gives it.

use crate::{Bench, Kind, Load, Pattern, Profile, Random};

const SECOND_NS: u64 = 1_000_000_000;

fn profile(choice: &str, numbers: &[(&str, f64)]) -> Profile {
    let profile = Profile::named(choice).unwrap();
    let change =
        |profile: Profile, (name, value): &(&str, f64)| profile.with_number(name, *value).unwrap();
    numbers.iter().fold(profile, change)
}

fn load(kind: Kind, pattern: Pattern, block_bytes: u64, clients: u64) -> Load {
    let range = 0..150_000_000_000 / block_bytes * block_bytes;
    Load { kind, pattern, block_bytes, range, clients, flushes: 0 }
}

fn rate(profile: &Profile, load: &Load) -> f64 {
    let mut bench = Bench::new(profile.model(Random::new(1)), Random::new(2));
    bench.run(load, 60 * SECOND_NS, 40_000).per_second()
}

fn close(found: f64, expected: f64, percent: f64) {
    let error = (found / expected - 1.0) * 100.0;
    assert!(error.abs() <= percent, "{found:.3} against {expected:.3}: {error:+.1} %");
}

#[test]
fn more_spare_space_speeds_a_used_drive_up_and_a_fresh_one_not_at_all() {
    let large = load(Kind::Write, Pattern::Random, 1 << 20, 1);
    let of = |condition: &str, spare: f64| {
        let choice = format!("ssdsa2m160g2gc,cache=off,{condition}");
        rate(&profile(&choice, &[("spare_percent", spare)]), &large)
    };
    // Greedy cleaning writes about (1 + s) / (2 s) pages for one.
    close(of("used", 28.0) / of("used", 7.35), 7.3 / 2.3, 20.0);
    assert!(of("used", 7.35) * 5.0 < of("fresh", 7.35));
    close(of("fresh", 28.0), of("fresh", 7.35), 0.1);
}

#[test]
fn a_cleaner_that_reads_whole_segments_pays_for_what_is_stale() {
    // A small part is written over and over: all that is cleaned is stale.
    let small = Load { range: 0..5_000_000_000, ..load(Kind::Write, Pattern::Random, 1 << 20, 4) };
    let of = |reads: f64| {
        let numbers = [("reads_stale", reads), ("idle_free_percent", 0.0)];
        let model = profile("fusion-io-iodrive,fresh", &numbers).model(Random::new(1));
        let mut bench = Bench::new(model, Random::new(2));
        // What was never written is used up first.
        bench.run(&small, 600 * SECOND_NS, u64::MAX);
        bench.run(&small, 60 * SECOND_NS, 40_000).per_second()
    };
    // A page is programmed in 39.5 µs of a lane, and read in 26.
    close(of(0.0) / of(1.0), (39.5 + 26.0) / 39.5, 5.0);
}

#[test]
fn twice_the_lanes_program_twice_as_fast_until_the_link_is_full() {
    let large = load(Kind::Write, Pattern::Sequential, 1 << 20, 1);
    let of = |lanes: f64| {
        let numbers = [("program_lanes", lanes)];
        rate(&profile("ssdsa2m160g2gc,cache=on,fresh", &numbers), &large)
    };
    close(of(20.0) / of(10.0), 2.0, 3.0);
    close(of(400.0) / of(200.0), 1.0, 3.0);
}

#[test]
fn a_costlier_flush_costs_flushed_writes_and_nothing_else() {
    let write = load(Kind::Write, Pattern::Random, 4096, 1);
    let flushed = Load { flushes: 1, ..write.clone() };
    let of = |us: f64, load: &Load| rate(&profile("apple-ans-m1", &[("flush_us", us)]), load);
    let gap_s = 1.0 / of(17_150.0, &flushed) - 1.0 / of(1_000.0, &flushed);
    close(gap_s, 0.016_15, 2.0);
    close(of(17_150.0, &write), of(1_000.0, &write), 0.1);
}

#[test]
fn clients_share_lanes_and_get_more_together() {
    let of = |clients| {
        rate(&profile("fusion-io-iodrive", &[]), &load(Kind::Read, Pattern::Random, 4096, clients))
    };
    let [one, four, many] = [1, 4, 64].map(of);
    assert!(one * 2.5 < four && four * 1.5 < many, "{one} {four} {many}");
    // Five lanes, 60 us for each page.
    assert!(many < 5.0 / 60e-6, "{many}");
}

#[test]
fn a_page_nobody_has_written_is_read_without_a_chip() {
    let read = load(Kind::Read, Pattern::Random, 4096, 1);
    let of = |condition: &str| {
        let choice = format!("ssdsa2m160g2gc,{condition}");
        1e6 / rate(&profile(&choice, &[]), &read)
    };
    close(of("used") - of("fresh"), 138.0, 2.0);
}

#[test]
fn a_small_write_takes_a_whole_unit_unless_it_goes_on() {
    let of = |kib: f64, pattern| {
        let numbers = [("unit_kib", kib)];
        rate(
            &profile("ssdsa2m160g2gc,cache=on,fresh", &numbers),
            &load(Kind::Write, pattern, 4096, 4),
        )
    };
    close(of(8.0, Pattern::Random) / of(32.0, Pattern::Random), 4.0, 5.0);
}

#[test]
fn after_a_rest_a_used_drive_writes_as_a_fresh_one_for_a_while() {
    let large = load(Kind::Write, Pattern::Random, 1 << 20, 64);
    let mut bench =
        Bench::new(profile("fusion-io-iodrive", &[]).model(Random::new(1)), Random::new(2));
    let mut minute = || bench.run(&large, 60 * SECOND_NS, u64::MAX).mib_per_second();
    let worn = [minute(), minute(), minute()][2];
    bench.rest(600 * SECOND_NS);
    let rested = bench.run(&large, 30 * SECOND_NS, u64::MAX).mib_per_second();
    assert!(worn * 2.0 < rested, "{worn} {rested}");
}
