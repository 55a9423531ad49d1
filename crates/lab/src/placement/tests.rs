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

fn busy_s(events: &[Event], setup: &Setup, policy: &mut dyn Policy) -> f64 {
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
    let hits_after = |policy: &mut dyn Policy, again: &mut dyn Policy| {
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
