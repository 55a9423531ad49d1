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
