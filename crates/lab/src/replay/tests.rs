use super::*;
use crate::trace::{Deed, Event};

fn event(at_us: u64, deed: Deed, offset: u64, length: u64) -> Event {
    Event { at_us, deed, offset, length }
}

/// Small reads of a hot set of 64 extents all over 256 MiB, at 50 a second, with some writes and flushes.
fn skewed(requests: u64) -> Vec<Event> {
    (0..requests)
        .map(|n| {
            let chance = twin::mix(n);
            let cold = chance.is_multiple_of(10);
            let extent = if cold { (chance >> 8) % 2048 } else { (chance >> 8) % 64 * 32 };
            let offset = extent * (128 << 10) + (chance >> 32) % 32 * 4096;
            let deed = match chance % 50 {
                1..=4 => Deed::Write,
                5 => Deed::Flush,
                _ => Deed::Read,
            };
            let length = if deed == Deed::Flush { 0 } else { 4096 };
            event(n * 20_000, deed, if length == 0 { 0 } else { offset }, length)
        })
        .collect()
}

fn pair() -> PairSpec {
    PairSpec::named("samsung-860-evo-500", "wd5002abys", PairClass::Fusion, 1).unwrap()
}

fn nobody(_: u64) {}

#[test]
fn gaps_are_left_out_only_when_they_must_be() {
    let far = 1 << 40;
    let events = [
        event(0, Deed::Read, 100, 1000),
        event(1, Deed::Write, far, 4096),
        event(2, Deed::Flush, 0, 0),
    ];
    let wide = Ground::new(&events, 2 << 40).unwrap();
    assert!(!wide.is_packed);
    assert_eq!((wide.events[0].offset, wide.events[0].length), (0, 1536));
    assert_eq!(wide.runs, [(0, 128 << 10), (far, 128 << 10)]);
    let narrow = Ground::new(&events, 1 << 30).unwrap();
    assert!(narrow.is_packed);
    assert_eq!(narrow.events[1].offset, 128 << 10);
    assert_eq!(narrow.runs, [(0, 256 << 10)]);
    assert!(Ground::new(&events, 128 << 10).is_err());
}

#[test]
fn a_discard_covers_what_is_left_of_its_range() {
    let mib = 1 << 20;
    let events = [
        event(0, Deed::Write, 0, 4096),
        event(0, Deed::Write, 3 * mib, 4096),
        event(0, Deed::Write, 100 << 30, 4096),
        event(1, Deed::Discard, 4096, 4 * mib),
        event(2, Deed::Discard, 50 << 30, mib),
    ];
    let ground = Ground::new(&events, 1 << 30).unwrap();
    assert!(ground.is_packed);
    assert_eq!(ground.events.len(), 4);
    assert_eq!((ground.events[3].offset, ground.events[3].length), (4096, (256 << 10) - 4096));
}

#[test]
fn a_trace_keeps_its_pace_on_a_drive_that_can() {
    let events: Vec<Event> =
        (0..100).map(|n| event(n * 50_000, Deed::Read, n * 4096, 4096)).collect();
    let ground = Ground::new(&events, 1 << 40).unwrap();
    let outcome = alone("wd5002abys", &ground, 0, Speed::Original, 1, &nobody).unwrap();
    assert_eq!((outcome.reads, outcome.requests), (100, 100));
    assert!((4.95..5.1).contains(&outcome.seconds), "{}", outcome.seconds);
    let quick = alone("wd5002abys", &ground, 0, Speed::Max(1), 1, &nobody).unwrap();
    assert!(quick.seconds < 1.0, "{}", quick.seconds);
    let late = alone("wd5002abys", &ground, 90, Speed::Original, 1, &nobody).unwrap();
    assert_eq!(late.reads, 10);
}

#[test]
fn everything_lies_on_the_slow_drive_at_first() {
    let events: Vec<Event> =
        (0..64).map(|n| event(n, Deed::Read, n * (128 << 10), 128 << 10)).collect();
    let ground = Ground::new(&events, 1 << 40).unwrap();
    let spec = pair().with_fast_room(64 << 20, &ground).unwrap();
    let pair = Pair::new(&spec, &ground).unwrap();
    let status = pair.engine().status();
    assert!(status.drives[0].slots_free + 2 >= status.drives[0].slots, "{status:?}");
    assert_eq!(status.extents_mapped, 64);
    let outcome = pair.play(&ground, 0, Speed::Max(1), &nobody).unwrap();
    let volume = outcome.volume.unwrap();
    assert_eq!((outcome.read_bytes, volume.read_hit), (8 << 20, 0.0));
    assert!(volume.slow_busy_s > 0.0 && volume.slow_busy_share <= 1.0);
}

#[test]
fn a_slow_drive_that_never_idles_was_busy_all_the_time() {
    // A thousand a second, all over: more than ten times what a disk does.
    let events: Vec<Event> = (0..1_000)
        .map(|n| event(n * 1_000, Deed::Read, (twin::mix(n) % 2048) << 17, 4096))
        .collect();
    let ground = Ground::new(&events, 1 << 40).unwrap();
    let spec = pair().with_fast_room(32 << 20, &ground).unwrap();
    let pair = Pair::new(&spec, &ground).unwrap();
    let (whole, parts) = pair.play_in_parts(&ground, 100, 3, Speed::Original, &nobody).unwrap();
    for outcome in parts.iter().chain([&whole]) {
        let share = outcome.volume.as_ref().unwrap().slow_busy_share;
        assert!((0.9..=1.0).contains(&share), "{share} of {} s", outcome.seconds);
    }
    let alone = alone("wd5002abys", &ground, 100, Speed::Original, 1, &nobody).unwrap();
    let drive = alone.drive.unwrap();
    assert!((0.9..=1.0).contains(&drive.busy_share), "{drive:?}");
    assert!(alone.volume.is_none() && whole.drive.is_none());
}

#[test]
fn what_the_fast_drive_receives_is_more_than_what_moves_up() {
    let write = |n| event(n * 20_000, Deed::Write, (twin::mix(n) % 64) << 17, 4096);
    let events: Vec<Event> = (0..500).map(write).collect();
    let ground = Ground::new(&events, 1 << 40).unwrap();
    let spec = pair().with_fast_room(64 << 20, &ground).unwrap();
    let volume = Pair::new(&spec, &ground).unwrap().play(&ground, 0, Speed::Original, &nobody);
    let volume = volume.unwrap().volume.unwrap();
    // Every write lands there, in the log or in place.
    assert!(volume.fast_received_per_byte >= 1.0, "{volume:?}");
    assert!(volume.fast_received_per_byte > volume.fast_written_per_byte, "{volume:?}");
}

/// What the planner says without a goal when the slow drive was busy for so long with each size, and the
/// place of the size that it takes.
fn worthwhile(busy_s: &[f64]) -> (Option<usize>, String) {
    let sized = |(place, busy_s): (usize, &f64)| {
        let volume = VolumeOutcome { slow_busy_s: *busy_s, ..VolumeOutcome::default() };
        let nothing = Ground { events: Vec::new(), runs: Vec::new(), is_packed: false };
        let outcome = alone("wd5002abys", &nothing, 0, Speed::Max(1), 1, &nobody).unwrap();
        Try::Tried(Box::new(Size {
            room_bytes: place as u64,
            percent: 10.0 * (place + 1) as f64,
            outcome: Outcome { volume: Some(volume), ..outcome },
            parts_reached: 0,
            parts: 0,
            flash_years: None,
        }))
    };
    let tries: Vec<Try> = busy_s.iter().enumerate().map(sized).collect();
    let sizing = Sizing {
        pair: pair(),
        rooms: Vec::new(),
        warm_up: 0,
        speed: Speed::Original,
        goal: Goal::Worthwhile,
        full_writes: 550.0,
    };
    let Advice { room_bytes, why } = sizing.advice(&tries);
    (room_bytes.map(|place| place as usize), why)
}

#[test]
fn the_size_that_is_taken_leaves_no_larger_one_a_tenth_to_save() {
    let (place, why) = worthwhile(&[100.0, 60.0, 40.0, 39.0, 38.0]);
    assert_eq!(place, Some(2));
    assert!(why.contains("no larger size") && why.contains("each smaller one"), "{why}");
    // Steps that save less than a tenth each save more together.
    assert_eq!(worthwhile(&[100.0, 95.0, 90.0, 85.0, 80.0, 75.0]).0, Some(4));
    let (place, why) = worthwhile(&[100.0, 80.0, 60.0]);
    assert_eq!(place, Some(2));
    assert!(why.contains("try larger ones"), "{why}");
    let (place, why) = worthwhile(&[100.0, 99.0, 98.0]);
    assert_eq!(place, Some(0));
    assert!(why.contains("smaller ones may be enough"), "{why}");
    let all: Vec<f64> = (0..10).map(|n| 100.0 - 10.0 * f64::from(n)).collect();
    let (place, why) = worthwhile(&all);
    assert_eq!(place, Some(9));
    assert!(!why.contains("try larger ones"), "it holds all that is touched: {why}");
    assert_eq!(worthwhile(&[100.0]).0, Some(0));
    assert_eq!(worthwhile(&[]).0, None);
    // With nothing to do there is nothing to save.
    assert_eq!(worthwhile(&[0.0, 0.0]).0, Some(0));
}

#[test]
fn a_step_back_to_what_a_smaller_size_does_is_no_reason_to_take_a_larger_one() {
    let (place, why) = worthwhile(&[100.0, 79.0, 99.0, 77.0, 98.0, 78.0]);
    assert_eq!(place, Some(1));
    assert!(why.contains("does not fall with every larger size"), "{why}");
    // And when the last is the best of all, that is what is said of it: not that each step saves.
    let (place, why) = worthwhile(&[99.8, 79.2, 99.4, 76.8, 187.1, 195.2, 13.0]);
    assert_eq!(place, Some(6));
    assert!(why.contains("at each smaller size") && why.contains("does not fall"), "{why}");
    assert!(!worthwhile(&[100.0, 50.0, 50.5]).1.contains("does not fall"), "that is chance");
}

#[test]
fn larger_fast_drives_hit_more_and_the_goal_says_which_is_enough() {
    let events = skewed(20_000);
    let ground = Ground::new(&events, 1 << 40).unwrap();
    let sizing = Sizing {
        pair: pair(),
        rooms: vec![1 << 20, 7 << 20, 64 << 20],
        warm_up: 10_000,
        speed: Speed::Original,
        goal: Goal::Hit(0.80),
        full_writes: 550.0,
    };
    let tries = sizing.run(&ground, &nobody);
    assert!(
        matches!(&tries[0], Try::Refused { why, .. } if why.contains("too small")),
        "{tries:?}"
    );
    let hits: Vec<f64> = tries[1..]
        .iter()
        .map(|tried| match tried {
            Try::Tried(size) => size.outcome.volume.as_ref().unwrap().read_hit,
            Try::Refused { why, .. } => panic!("{why}"),
        })
        .collect();
    assert!(hits[0] < hits[1] && hits[1] > 0.85, "{hits:?}");
    assert_eq!(sizing.advice(&tries).room_bytes, Some(64 << 20));
    let hopeless = Sizing { goal: Goal::Hit(0.9999), ..sizing };
    assert_eq!(hopeless.advice(&tries).room_bytes, None);
}
