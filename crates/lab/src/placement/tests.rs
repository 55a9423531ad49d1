use super::*;
use crate::trace::Deed;

fn read(offset: u64) -> Event {
    Event { at_us: 0, deed: Deed::Read, offset, length: 4096 }
}

fn write(offset: u64) -> Event {
    Event { deed: Deed::Write, ..read(offset) }
}

/// Scattered places, so that none continues another.
fn place(n: u64) -> u64 {
    (n * 7919 % 1000) << 20
}

fn busy_s(events: &[Event], setup: &Setup, policy: &mut dyn Contender) -> f64 {
    replay(events, &Ground::of(events, EXTENT_BYTES), setup, policy).slow_busy_s
}

fn setup(slots: usize, stage: usize) -> Setup {
    Setup { slots, log_bytes: 64 << 10, stage }
}

#[test]
fn a_scattered_read_costs_a_positioning_and_a_continued_one_does_not() {
    let mut slow = SlowDrive::default();
    assert!((slow.read(1 << 30, 4096) - 8.027e-3).abs() < 1e-5);
    assert!((slow.read((1 << 30) + 4096, 4096) - 0.027e-3).abs() < 1e-5);
    for n in 0..4 {
        slow.read(n << 35, 4096);
    }
    assert!(slow.read((1 << 30) + 8192, 4096) > 8e-3, "four others came between");
}

#[test]
fn a_small_hot_set_moves_up_and_stays() {
    let events: Vec<Event> = (0..10_000).map(|n| read(place(n % 20))).collect();
    let ground = Ground::of(&events, EXTENT_BYTES);
    let setup = setup(20, 4);
    let outcome = replay(&events, &ground, &setup, &mut heat(&ground, &setup));
    assert!(outcome.read_hits > 9_900, "{}", outcome.read_hits);
    // Four of them may stay in the stage; none goes up twice.
    assert!((16..=20).contains(&(outcome.promoted_bytes / EXTENT_BYTES)));
}

#[test]
fn a_scan_changes_nothing_for_heat_and_everything_for_lru() {
    let hot = |n: u64| read(place(n % 20));
    let mut events: Vec<Event> = (0..2_000).map(hot).collect();
    let before = events.len();
    events.extend((0..4_000).map(|n| read((2000 << 20) + n * EXTENT_BYTES * 2)));
    events.extend((0..200).map(hot));
    let ground = Ground::of(&events, EXTENT_BYTES);
    let hits_after = |policy: &mut dyn Contender, again: &mut dyn Contender| {
        let all = replay(&events, &ground, &setup(20, 4), policy).read_hits;
        all - replay(&events[..before + 4_000], &ground, &setup(20, 4), again).read_hits
    };
    let heat = || heat(&ground, &setup(20, 4));
    let lru = || policies::Lru::new(&ground, 20);
    assert_eq!(hits_after(&mut heat(), &mut heat()), 200);
    assert!(hits_after(&mut lru(), &mut lru()) <= 180);
}

#[test]
fn the_log_absorbs_rewrites_and_its_debts_are_paid() {
    let events: Vec<Event> = (0..1_000).map(|n| write(place(n % 10))).collect();
    let bare_s = busy_s(&events, &Setup::bare(), &mut policies::Nothing);
    let logged_s = busy_s(&events, &setup(0, 0), &mut policies::Nothing);
    assert!((bare_s - 1_000.0 * 5.527e-3).abs() < 0.01, "{bare_s}");
    assert!((logged_s - 10.0 * 5.527e-3).abs() < 0.001, "{logged_s}");
}

#[test]
fn offline_policies_are_not_beaten_by_lru() {
    let events: Vec<Event> =
        (0..20_000u64).map(|n| read(place(n.wrapping_mul(n / 7 + 3) % 300))).collect();
    let ground = Ground::of(&events, EXTENT_BYTES);
    let setup = setup(60, 0);
    let lru_s = busy_s(&events, &setup, &mut policies::Lru::new(&ground, 60));
    let best_s = busy_s(&events, &setup, &mut policies::Clairvoyant::new(&events, &ground, 60));
    assert!(best_s < lru_s, "{best_s} {lru_s}");
}

#[test]
fn a_fusion_drive_brings_up_what_was_used_once_at_the_next_rest_and_not_before() {
    let at = |event: Event, at_us| Event { at_us, ..event };
    // Ten places, one of them written; a rest of two seconds; the same again.
    let day = |from_us: u64| {
        (0..10).map(move |n| at(if n == 3 { write(place(n)) } else { read(place(n)) }, from_us + n))
    };
    let events: Vec<Event> = day(0).chain(day(2_000_000)).chain(day(2_000_100)).collect();
    let ground = Ground::of(&events, EXTENT_BYTES);
    let play = |slots| {
        let mut fusion = policies::Fusion::new(&ground, slots);
        replay(&events, &ground, &setup(slots, 4), &mut fusion)
    };
    let outcome = play(20);
    // No log takes the first write, no stage the first reads; behind the rest all is up.
    assert_eq!((outcome.reads, outcome.read_hits), (27, 18));
    assert_eq!(outcome.promoted_bytes, 10 * EXTENT_BYTES);
    assert_eq!(outcome.decisions.up_at_rest, 10);
    assert_eq!(outcome.demoted_bytes, 0);
    let least_s = 10.0 * (5.5e-3 + 8e-3);
    assert!(outcome.slow_busy_s > least_s, "{}", outcome.slow_busy_s);
    // With fewer slots what is no hotter than what is there stays below.
    let outcome = play(5);
    assert_eq!(outcome.promoted_bytes, 5 * EXTENT_BYTES);
    // In a rest of two moves' time two extents move.
    let hurried: Vec<Event> = day(0).chain(day(100_009 + 25_000)).collect();
    let mut fusion = policies::Fusion::new(&ground, 20);
    let outcome = replay(&hurried, &ground, &setup(20, 4), &mut fusion);
    assert_eq!(outcome.promoted_bytes, 2 * EXTENT_BYTES);
}

#[test]
fn a_fusion_drive_leaves_streams_where_they_are() {
    let film = |n: u64| Event { at_us: n, ..read(n * EXTENT_BYTES) };
    let events: Vec<Event> = (0..1_000)
        .map(|n| Event { length: EXTENT_BYTES, ..film(n) })
        .chain([Event { at_us: 9_000_000, ..film(0) }])
        .collect();
    let ground = Ground::of(&events, EXTENT_BYTES);
    let mut fusion = policies::Fusion::new(&ground, 1_000);
    let outcome = replay(&events, &ground, &setup(1_000, 4), &mut fusion);
    // Only its front, before it is known for one.
    assert!(outcome.promoted_bytes < 20 * EXTENT_BYTES, "{}", outcome.promoted_bytes);
}

#[test]
fn every_policy_plays_a_mixed_trace_through() {
    let mixed = |n: u64| {
        let at = place(n * n % 977);
        match n % 5 {
            0 => write(at),
            1 => Event { length: 1 << 20, ..read((n % 400) << 20) },
            _ => read(at),
        }
    };
    let events: Vec<Event> = (0..5_000).map(mixed).collect();
    let mut names = Vec::new();
    let rows = compare("mixed", &events, 10.0, |name| names.push(name.to_owned()));
    assert_eq!(names.len(), rows.len());
    for row in &rows {
        assert!(row.slow_busy_s > 0.0 && row.p99_us >= 100.0, "{row:?}");
        assert!((0.0..=1.0).contains(&row.read_hit), "{row:?}");
        assert!(row.p50_us <= row.p99_us && row.p99_us <= row.p999_us, "{row:?}");
    }
    let of = |name: &str| rows.iter().find(|row| row.policy == name).unwrap();
    // What passes once is refused, and says why.
    let heat = &of("heat").decisions;
    assert!(heat["stays_stream"] + heat["not_around_stream"] > 0, "{heat:?}");
    assert!(heat["stays_no_evidence"] > 0 && heat["read_around"] > 0, "{heat:?}");
    // Without a policy nothing goes up, and that is counted, too.
    let none = &of("log only").decisions;
    let ups: u64 = none.iter().filter(|(name, _)| name.starts_with("up_")).map(|it| it.1).sum();
    assert!(ups == 0 && none["stays_no_evidence"] > 0, "{none:?}");
}
