//! The disk by itself: each number has the effect that physics gives it, and no other.

use crate::{Bench, Kind, Load, Pattern, Profile, Random};

const GB: u64 = 1_000_000_000;

fn profile() -> Profile {
    Profile::named("wd5002abys").unwrap()
}

fn with(numbers: &[(&str, f64)]) -> Profile {
    let change =
        |profile: Profile, (name, value): &(&str, f64)| profile.with_number(name, *value).unwrap();
    numbers.iter().fold(profile(), change)
}

fn load(kind: Kind, pattern: Pattern, block_bytes: u64) -> Load {
    let range = 0..profile().size_bytes() / block_bytes * block_bytes;
    Load { kind, pattern, block_bytes, range, clients: 1, flushes: 0 }
}

fn rate(profile: &Profile, cached: bool, load: &Load) -> f64 {
    let setting = crate::Setting { write_cache: cached, ..profile.setting() };
    let model = profile.with_setting(setting).model(Random::new(1));
    Bench::new(model, Random::new(2)).run(load, 120 * GB, 40_000).per_second()
}

fn close(found: f64, expected: f64, percent: f64) {
    let error = (found / expected - 1.0) * 100.0;
    assert!(error.abs() <= percent, "{found:.3} against {expected:.3}: {error:+.1} %");
}

#[test]
fn doubling_the_revolutions_halves_the_wait_for_the_sector() {
    let still = [("seek_base_ms", 0.0), ("seek_stroke_ms", 0.0), ("read_command_us", 0.0)];
    let random = load(Kind::Read, Pattern::Random, 4096);
    let slow = rate(&with(&still), true, &random);
    let fast = rate(&with(&[&still[..], &[("rpm", 14_400.0)]].concat()), true, &random);
    close(1e3 / slow, 60e3 / 7200.0 / 2.0, 3.0);
    close(fast / slow, 2.0, 3.0);
}

#[test]
fn doubling_the_revolutions_takes_half_a_turn_off_a_random_read() {
    let random = load(Kind::Read, Pattern::Random, 4096);
    let slow_ms = 1e3 / rate(&profile(), true, &random);
    let fast_ms = 1e3 / rate(&with(&[("rpm", 14_400.0)]), true, &random);
    close(slow_ms - fast_ms, 60e3 / 7200.0 / 4.0, 5.0);
}

#[test]
fn without_a_cache_each_command_of_a_stream_waits_for_a_revolution() {
    let turn_ms = 60e3 / 7200.0;
    close(
        1e3 / rate(&profile(), false, &load(Kind::Write, Pattern::Sequential, 4096)),
        turn_ms,
        1.0,
    );
    let large = load(Kind::Write, Pattern::Sequential, 1 << 20);
    let split = |kib: f64| 1e3 / rate(&with(&[("command_kib", kib)]), false, &large);
    // Two, four, one revolutions for each MiB beside the transfer of it.
    close(split(256.0) - split(512.0), 2.0 * turn_ms, 1.0);
    close(split(512.0) - split(1024.0), turn_ms, 1.0);
    let cached = |kib: f64| rate(&with(&[("command_kib", kib)]), true, &large);
    close(cached(256.0), cached(512.0), 1.0);
}

#[test]
fn a_larger_pool_brings_random_writes_and_nothing_else() {
    let write = load(Kind::Write, Pattern::Random, 4096);
    let pools = [8.0, 32.0, 128.0].map(|runs| rate(&with(&[("pool_runs", runs)]), true, &write));
    assert!(pools[0] * 1.15 < pools[1] && pools[1] * 1.15 < pools[2], "{pools:?}");
    let read = load(Kind::Read, Pattern::Random, 4096);
    close(rate(&with(&[("pool_runs", 8.0)]), true, &read), rate(&profile(), true, &read), 0.1);
    let small = with(&[("pool_runs", 8.0)]);
    close(rate(&small, false, &write), rate(&profile(), false, &write), 0.1);
}

#[test]
fn a_shorter_span_needs_shorter_seeks() {
    let whole = load(Kind::Read, Pattern::Random, 4096);
    let tenth = Load { range: 0..profile().size_bytes() / 10 / 4096 * 4096, ..whole.clone() };
    let point = Load { range: 0..40 << 20, ..whole.clone() };
    let [whole, tenth, point] = [whole, tenth, point].map(|load| rate(&profile(), true, &load));
    assert!(whole * 1.3 < tenth && tenth * 1.1 < point, "{whole} {tenth} {point}");
}

#[test]
fn the_outside_streams_faster_than_the_inside_by_what_the_rates_say() {
    for kind in [Kind::Read, Kind::Write] {
        let outside = Load { range: 0..5 * GB, ..load(kind, Pattern::Sequential, 1 << 20) };
        let size = profile().size_bytes();
        let inside = Load { range: size - 5 * GB..size, ..outside.clone() };
        let share = rate(&profile(), true, &outside) / rate(&profile(), true, &inside);
        close(share, 109.2 / 59.6, 2.0);
    }
}

#[test]
fn a_deeper_queue_brings_random_reads_because_the_order_is_free() {
    let many = Load { clients: 32, ..load(Kind::Read, Pattern::Random, 4096) };
    let depths = [1.0, 4.0, 32.0].map(|depth| rate(&with(&[("queue_depth", depth)]), true, &many));
    assert!(depths[0] * 1.2 < depths[1] && depths[1] * 1.3 < depths[2], "{depths:?}");
    let one = Load { clients: 1, ..many };
    close(rate(&with(&[("queue_depth", 32.0)]), true, &one), depths[0], 2.0);
}

#[test]
fn a_flush_waits_for_the_platters() {
    let rewrite = Load { range: 0..4096, flushes: 1, ..load(Kind::Write, Pattern::Random, 4096) };
    let per_second = rate(&profile(), true, &rewrite);
    // The same sector comes round once in a turn.
    close(per_second, 7200.0 / 60.0, 2.0);
    let unflushed = rate(&profile(), true, &Load { flushes: 0, ..rewrite });
    assert!(unflushed > 5_000.0, "{unflushed}");
}

#[test]
fn who_must_read_on_takes_that_much_longer_for_large_random_reads_and_no_longer_for_others() {
    let far = Load { range: 0..5 * GB, ..load(Kind::Read, Pattern::Random, 256 << 10) };
    let ms = |times, load: &Load| 1e3 / rate(&with(&[("read_on_times", times)]), true, load);
    // 768 KiB at the outer rate.
    close(ms(3.0, &far) - ms(0.0, &far), 3.0 * 256.0 / 1024.0 / 109.2 * 1e3, 5.0);
    for other in [
        load(Kind::Read, Pattern::Sequential, 256 << 10),
        load(Kind::Write, Pattern::Random, 256 << 10),
        load(Kind::Read, Pattern::Random, 4096),
    ] {
        close(ms(3.0, &other), ms(0.0, &other), 2.0);
    }
}

#[test]
fn who_waits_for_room_in_the_pool_gets_it_in_turn() {
    let mut profile = with(&[("queue_depth", 32.0)]);
    profile = profile.with_setting(crate::Setting { write_cache: true, ..profile.setting() });
    let mut disk = profile.model(Random::new(1));
    let mut random = Random::new(2);
    let mut under_way = std::collections::BTreeMap::new();
    let mut finished = Vec::new();
    let (mut now_ns, mut tag, mut longest_ns) = (0, 0, 0);
    while tag < 3000 {
        while under_way.len() < 16 {
            let at = random.below(profile.size_bytes() / 4096) * 4096;
            under_way.insert(tag, now_ns);
            disk.submit(now_ns, tag, &crate::Request { kind: Kind::Write, at, length: 4096 });
            tag += 1;
        }
        now_ns = disk.next_ns().unwrap();
        disk.advance(now_ns, &mut finished);
        for done in finished.drain(..) {
            under_way.remove(&done.tag).unwrap();
        }
        // Those that wait for ever never finish.
        let oldest = under_way.values().min().copied().unwrap_or(now_ns);
        longest_ns = longest_ns.max(now_ns - oldest);
    }
    // Sixteen take turns, and each place of the pool takes 6 ms to come free.
    assert!(longest_ns < GB, "{longest_ns}");
}

#[test]
fn the_same_loads_give_the_same_times() {
    let mixed = Load { clients: 4, ..load(Kind::Write, Pattern::Random, 4096) };
    assert_eq!(rate(&profile(), true, &mixed), rate(&profile(), true, &mixed));
}
