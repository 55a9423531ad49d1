//! The engine under power cuts: every story, at every operation, under every rule of loss; a few
//! mixtures; and what else a simulated machine can show.

mod told;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use hunt::{
    Bimetal, Effort, Keeping, Oracle, SECTOR_BYTES, Subject, Watched, Workload, deferred_mixture,
    enumerate, keeping_stories, mixture, stories,
};
use io::units::{GIB, MIB};
use io::{Durability, Volume};
use twin::{CacheLoss, DriveSpec, Random, Simulation};

/// Stories are the same in each run; other seeds are for hunting.
const SEED: u64 = 1;

/// Each so many-th operation is cut here; all of them by `cargo run --example tales` (docs/hunting.md).
const STRIDE: u64 = 23;

/// Stories told to their end, and recoveries compared with the oracle in them.
static TOLD: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// After the last one the run shows what all came to.
fn survives(name: &str) {
    let mut played = 0;
    let mut cases = 0;
    for (atomic_write_bytes, seeds) in [(512, 2), (4096, 1)] {
        // Drives that tear 4 KiB have the most to tear.
        for story in stories(SEED, atomic_write_bytes) {
            if story.name != name {
                continue;
            }
            let effort = Effort {
                stride: STRIDE * story.stride,
                seeds,
                recut_every: 400,
                relive_every: 8,
                rot_every: 20,
                ..Effort::default()
            };
            let report = enumerate(&Bimetal, &story, &effort);
            report.expect_clean();
            cases += report.cases;
            played += 1;
        }
    }
    assert!(played > 0, "there is no story '{name}'");
    let cases = cases + TOLD[1].fetch_add(cases, Ordering::Relaxed);
    if TOLD[0].fetch_add(1, Ordering::Relaxed) + 1 == STORIES.len() as u64 {
        told::tell(&format!("{} stories: {cases} recoveries after power cuts", STORIES.len()));
    }
}

/// One test for each story, so that they run side by side and fail by name.
macro_rules! survives {
    ($($test:ident: $name:literal,)*) => {
        const STORIES: &[&str] = &[$($name),*];

        $(#[test]
        fn $test() {
            survives($name);
        })*

        #[test]
        fn every_story_is_played() {
            let mut names: Vec<&str> = stories(SEED, 512).iter().map(|story| story.name).collect();
            names.dedup();
            assert_eq!(names, STORIES);
        }
    };
}

survives! {
    a_volume_survives_its_creation: "create",
    a_volume_survives_a_clean_close: "clean close",
    a_volume_survives_small_writes_and_flushes: "small writes and flushes",
    a_volume_survives_unaligned_writes: "unaligned writes",
    a_volume_survives_durable_writes: "durable writes",
    a_volume_survives_concurrent_clients_that_flush: "concurrent clients that flush",
    a_volume_survives_allocation_on_the_fast_drive: "allocation on the fast drive",
    a_volume_survives_allocation_on_the_slow_drive: "allocation on the slow drive",
    a_volume_survives_rewriting_whole_extents: "rewriting whole extents",
    a_volume_survives_overwriting_at_home: "overwriting at home",
    a_volume_survives_trims: "trims",
    a_volume_survives_zeroes: "zeroes",
    a_volume_survives_destage: "destage",
    a_volume_survives_destage_while_clients_write: "destage while clients write",
    a_volume_survives_promotion: "promotion",
    a_volume_survives_demotion: "demotion",
    a_volume_survives_a_checkpoint: "checkpoint",
    a_volume_survives_a_checkpoint_while_clients_write: "checkpoint while clients write",
    a_volume_survives_the_wrap_of_its_log: "the log wraps",
    a_volume_survives_a_full_log: "a full log",
    a_volume_survives_being_full: "a full volume",
    a_volume_survives_the_recovery_of_a_recovery: "recovery of a recovery",
    a_volume_survives_drives_that_fail: "failing drives",
    a_deferred_volume_keeps_the_order_of_small_writes: "deferred: small writes and flushes",
    a_deferred_volume_keeps_the_order_of_large_writes: "deferred: large writes and holes",
    a_deferred_volume_keeps_the_order_over_both_drives: "deferred: both drives",
    a_deferred_volume_keeps_the_order_while_it_destages: "deferred: destage, moves and checkpoints",
    a_volume_keeps_its_promises_while_they_change: "deferred: the mode is changed under load",
    a_volume_survives_strict_mode_again_over_whole_extents_below:
        "deferred: strict again over whole extents below",
    a_deferred_volume_keeps_the_order_of_the_parts_of_requests: "deferred: requests of several parts",
    a_deferred_volume_keeps_its_bound_in_bytes: "deferred: more at once than the bound",
    a_volume_keeps_its_promises_while_they_change_over_the_slow_drive:
        "deferred: the mode is changed over the slow drive",
    a_volume_survives_a_change_of_mode_beside_whole_extents_below:
        "deferred: the mode is changed beside whole extents below",
    a_volume_keeps_what_it_promised_when_a_write_began:
        "deferred: the mode is changed beside durable writes",
    a_volume_survives_a_flush_that_fails_beside_another: "a flush fails beside another",
    a_volume_survives_a_slow_drive_that_refuses: "the slow drive refuses",
    a_volume_survives_drives_in_step: "drives in step",
    a_volume_survives_zeros_that_fill_the_index_of_its_log: "zeros fill the index of the log",
    the_slow_drive_vouches_for_the_truth_after_a_rest: "doubts: changes after a rest",
    the_slow_drive_vouches_for_the_truth_after_a_close: "doubts: a close over a full log",
    the_slow_drive_vouches_for_the_truth_after_checkpoints: "doubts: checkpoints that leave a page",
    the_slow_drive_vouches_for_the_truth_of_a_vast_volume: "doubts: a vast volume",
    a_volume_survives_writes_that_are_behind: "behind: writes, reads and flushes",
    a_volume_survives_a_close_over_writes_behind: "behind: a close",
    a_volume_survives_clients_that_write_too_much_behind: "behind: clients that write too much",
    a_volume_survives_writes_behind_into_deferred_mode: "deferred: into the mode and back over writes behind",
    a_volume_survives_a_change_to_what_was_promised_over_writes_behind: "behind: strict once more",
    a_volume_survives_a_drive_that_refuses_what_is_behind:
        "behind: a drive refuses what was acknowledged",
    the_slow_drive_vouches_for_the_truth_of_changes_beside_one_another:
        "doubts: changes beside one another",
    a_volume_survives_that_the_first_slots_of_a_session_are_given_up:
        "slots: from the first of a session",
    a_volume_survives_an_extent_written_again_and_again: "slots: the same extent again and again",
    a_volume_survives_a_flush_that_a_superblock_does_not_know_of: "slots: beside a superblock",
    a_volume_survives_slots_that_change_hands_beside_flushes: "slots: beside flushes",
    a_volume_survives_reads_that_last: "reads that last",
    a_volume_survives_checkpoint_upon_checkpoint: "checkpoint upon checkpoint",
    a_volume_survives_records_that_take_long: "records on their way",
    a_volume_opens_after_a_torn_superblock: "openings: after a torn superblock",
    a_volume_opens_after_a_death_of_the_process: "openings: after a death of the process",
    a_volume_opens_after_a_death_over_the_slow_drive:
        "openings: after a death, over the slow drive",
    a_volume_opens_with_a_page_to_mend: "openings: a page to mend",
    a_volume_opens_over_the_records_of_a_lost_session:
        "openings: over the records of a lost session",
    a_volume_survives_laps_of_its_log_in_step: "laps of the log in step",
    a_record_that_is_refused_is_told: "the fast drive refuses a record",
    a_large_record_that_is_refused_is_told: "the fast drive refuses a large record",
    a_whole_extent_that_is_refused_is_told: "drives refuse whole extents",
    a_flush_that_the_slow_drive_refuses_is_told: "the slow drive refuses to flush",
    what_cannot_be_read_is_not_moved: "the fast drive refuses to give what moves",
    a_volume_survives_writes_to_what_leaves: "cold extents are written as they leave",
    the_slow_drive_vouches_for_the_truth_of_what_has_left: "doubts: closed as extents leave",
    a_volume_survives_reads_of_what_is_destaged: "hot extents are read as they are destaged",
    a_volume_survives_a_destage_of_what_is_written: "hot extents are destaged as they are written",
    a_log_full_of_what_lives_is_emptied: "a log full of what lives",
    a_full_log_leaves_room_for_fresh_extents: "fresh extents over a full log",
    writers_that_never_flush_come_to_an_end: "writers that never flush",
    a_volume_survives_what_is_carried_round_its_log: "carried: round the ring",
    a_volume_survives_writes_to_what_is_carried: "carried: written meanwhile",
    what_has_rotted_is_not_carried: "carried: a block has rotted",
    what_was_carried_is_readable_when_the_log_is_refused: "carried: the log is refused",
    a_block_that_rots_in_the_log_is_an_error_and_nothing_else: "a block of the log rots",
    drives_of_other_moments_are_refused: "drives of other moments of a session",
    a_flush_waits_for_the_one_that_has_taken_its_changes: "flushes that overlap",
    a_flush_in_deferred_mode_survives_the_death_of_the_process:
        "deferred: whole extents and flushes",
    a_volume_keeps_its_promises_while_they_change_beside_homes:
        "deferred: the mode is changed beside homes",
    a_deferred_volume_keeps_its_bound_for_a_write_during_a_flush:
        "deferred: a write during a flush",
    a_deferred_volume_keeps_its_bound_without_a_pause: "deferred: small writes without a pause",
    a_deferred_volume_orders_no_more_than_its_bound:
        "deferred: no more is ordered than the bound",
    what_grows_old_in_a_deferred_volume_is_durable_in_time: "deferred: changes that grow old",
    a_deferred_volume_keeps_its_bound_on_a_drive_that_flushes_slowly:
        "deferred: a drive that flushes slowly",
    a_flush_covers_homes_that_were_written_beside_the_one_before:
        "homes are written beside a flush",
    what_cannot_be_destaged_stays_in_the_log: "the slow drive refuses what is destaged",
    slots_of_what_cannot_be_destaged_are_given_back_late: "the slow drive refuses some of what is destaged",
    a_page_of_the_map_that_is_refused_is_told: "the slow drive refuses a page of the map",
    a_volume_survives_reads_of_what_is_written_anew:
        "hot extents are read again as they are written anew",
    the_slow_drive_vouches_for_the_truth_of_changes_as_its_marks_are_taken_away:
        "doubts: changes as marks are taken away",
    a_stream_reads_what_was_written_ahead_of_it: "writes ahead of a stream",
    a_volume_survives_a_mixture: "mixture",
}

#[test]
fn what_is_kept_below_survives_cuts() {
    let mut cases = 0;
    for atomic_write_bytes in [512, 4096] {
        for story in keeping_stories(SEED, atomic_write_bytes) {
            let effort = Effort {
                stride: STRIDE * story.stride,
                seeds: 1,
                recut_every: 300,
                relive_every: 8,
                alone_every: 3,
                rot_every: 20,
                ..Effort::default()
            };
            let report = enumerate(&Keeping, &story, &effort);
            report.expect_clean();
            cases += report.cases;
        }
    }
    told::tell(&format!("originals kept below: {cases} recoveries after power cuts"));
}

#[test]
fn a_volume_survives_mixtures_of_other_seeds() {
    let effort = Effort { stride: 8, seeds: 1, ..Effort::default() };
    for seed in 10..16 {
        for atomic_write_bytes in [512, 4096] {
            enumerate(&Bimetal, &mixture(seed, atomic_write_bytes), &effort).expect_clean();
        }
    }
}

#[test]
fn a_deferred_volume_keeps_the_order_in_mixtures() {
    let effort = Effort { stride: 8, seeds: 1, ..Effort::default() };
    for seed in 20..26 {
        for atomic_write_bytes in [512, 4096] {
            enumerate(&Bimetal, &deferred_mixture(seed, atomic_write_bytes), &effort)
                .expect_clean();
        }
    }
}

/// Runs several clients on a new volume over these drives; gives the trace and what was found
/// after a cut.
fn lifetime(seed: u64) -> (u64, u64) {
    let simulation = Simulation::new(seed);
    let fast = simulation.add_drive(DriveSpec::fast("fast", 12 * MIB));
    let slow = simulation.add_drive(DriveSpec::slow("slow", 68 * MIB));
    let oracle = Rc::new(RefCell::new(Oracle::new()));
    for round in 0..3 {
        let io = simulation.boot();
        let (fast, slow) = (simulation.device(&io, fast), simulation.device(&io, slow));
        let life = async {
            if round == 0 {
                Bimetal.create(&io, &fast, &slow).await?;
            }
            let volume = Bimetal.open(&io, &fast, &slow).await?;
            let watched = Watched::new(&io, volume, oracle.clone());
            let mut random = Random::new(seed);
            watched.look_after_cut(&mut random).await.map_err(|trouble| trouble.to_string())?;
            let workload = Workload {
                seed: seed + round,
                clients: 6,
                steps: 80,
                span: 0..16 * MIB,
                length_bytes_max: MIB,
                patient: false,
            };
            workload.run(&watched).await.map_err(|trouble| trouble.to_string())
        };
        simulation.run(&io, life).done().unwrap();
        io.drop_tasks();
        simulation.power_cut(CacheLoss::Torn(seed));
        oracle.borrow_mut().cut();
    }
    (simulation.trace(), simulation.now_ns())
}

#[test]
fn the_same_seed_twice_gives_the_same_trace() {
    assert_eq!(lifetime(1), lifetime(1));
    assert_ne!(lifetime(1), lifetime(2));
}

#[test]
fn a_flush_after_random_writes_is_one_flush_of_the_fast_drive_and_none_of_the_slow_one() {
    let simulation = Simulation::new(1);
    let fast = simulation.add_drive(DriveSpec::fast("fast", GIB));
    let slow = simulation.add_drive(DriveSpec::slow("slow", 8 * GIB));
    let io = simulation.boot();
    let devices = (simulation.device(&io, fast), simulation.device(&io, slow));
    let flushes = || (simulation.counters(fast).flushes, simulation.counters(slow).flushes);
    let run = async {
        Bimetal.create(&io, &devices.0, &devices.1).await.unwrap();
        let volume = Bimetal.open(&io, &devices.0, &devices.1).await.unwrap();
        let mut random = Random::new(1);
        let before = flushes();
        for _ in 0..500 {
            let at = random.below(volume.info().size_bytes / 4096) * 4096;
            let buf = io.pool().take_zeroed(8 * SECTOR_BYTES);
            volume.write(at, buf, Durability::Volatile).await.1.unwrap();
        }
        assert_eq!(flushes(), before, "nobody has asked yet");
        volume.flush().await.unwrap();
        assert_eq!(flushes(), (before.0 + 1, before.1));
        volume.flush().await.unwrap();
        assert_eq!(flushes(), (before.0 + 1, before.1), "with nothing dirty nothing is sent");
    };
    simulation.run(&io, run).done();
    io.drop_tasks();
}
