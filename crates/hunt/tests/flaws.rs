//! Volumes made wrong on purpose: the hunt must notice each, and find nothing in the right one.

mod plain;

use hunt::{Effort, Report, enumerate};
use plain::{Flaw, Plain, scenario};

/// A flaw that needs a race of two small writes shows with one seed in several.
const SEEDS_MAX: u64 = 32;

fn attack(flaw: Flaw, seed: u64) -> Report {
    let effort = Effort { stride: 3, seeds: 1, ..Effort::default() };
    enumerate(&Plain(flaw), &scenario("canary", seed, 4096), &effort)
}

/// The volume with this flaw is found out with one of the first seeds; gives the words.
fn found(flaw: Flaw) -> String {
    for seed in 0..SEEDS_MAX {
        if let Some(failure) = attack(flaw, seed).failures.first() {
            return failure.to_string();
        }
    }
    panic!("{flaw:?} was not noticed");
}

#[test]
fn a_plain_volume_is_found_right() {
    for seed in 0..8 {
        let report = attack(Flaw::None, seed);
        report.expect_clean();
        assert!(report.operations > 20 && report.cases > 50, "{report:?}");
    }
}

#[test]
fn a_plain_volume_stays_right_when_its_recovery_is_cut() {
    let effort = Effort { recut_every: 5, stride: 2, ..Effort::default() };
    enumerate(&Plain(Flaw::None), &scenario("recut", 1, 4096), &effort).expect_clean();
}

#[test]
fn a_flush_that_is_not_sent_is_noticed() {
    let words = found(Flaw::FlushNotSent);
    assert!(
        words.contains("must survive") && words.contains("power cut with operation"),
        "{words}"
    );
}

#[test]
fn a_durable_write_that_is_not_is_noticed() {
    assert!(found(Flaw::DurableNotHonoured).contains("asked to be durable"));
}

#[test]
fn a_stale_read_after_a_trim_is_noticed() {
    assert!(found(Flaw::TrimIgnored).contains("Trim of bytes"));
    assert!(found(Flaw::TrimTrusted).contains("Trim of bytes"));
}

#[test]
fn a_write_reported_too_early_is_noticed() {
    found(Flaw::EarlyWrite);
}

#[test]
fn misplaced_data_is_named_as_such() {
    assert!(found(Flaw::Misplaced).contains("misplaced"));
}

#[test]
fn a_block_forgotten_by_opening_is_noticed() {
    let words = found(Flaw::ForgetfulOpen);
    assert!(words.contains("block 16"), "{words}");
}

#[test]
fn what_was_seen_after_the_death_of_a_process_and_then_lost_is_noticed() {
    assert!(found(Flaw::HastyOpen).contains("death of the process"));
}

#[test]
fn a_neighbour_overwritten_with_its_past_is_noticed() {
    found(Flaw::LostNeighbour);
}

#[test]
fn a_block_torn_by_the_drive_is_noticed() {
    let effort = Effort::default();
    let torn = (0..4).find_map(|seed| {
        let report = enumerate(&Plain(Flaw::None), &scenario("torn", seed, 512), &effort);
        report.failures.first().map(ToString::to_string)
    });
    let words = torn.expect("a drive that tears 4 KiB must be noticed");
    assert!(words.contains("lost, stale or torn"), "{words}");
}

#[test]
fn the_same_seed_finds_the_same() {
    let words = |_| attack(Flaw::FlushNotSent, 1).failures.first().map(ToString::to_string);
    let report = attack(Flaw::None, 3);
    let again = attack(Flaw::None, 3);
    assert_eq!((report.operations, report.cases), (again.operations, again.cases));
    assert_eq!(words(0), words(1));
}
