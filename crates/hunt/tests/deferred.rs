//! What deferred mode is for, in virtual time: rewriting 4 KiB and flushing, over a drive whose flush
//! takes 17.5 ms. `docs/durability.md` has the table.

#[path = "../examples/deferred/measure.rs"]
mod measure;

use measure::{DRIVE_FLUSHES_PER_S, rate};

#[test]
fn one_client_is_bound_by_the_drive_in_strict_mode_and_by_its_writes_in_deferred_mode() {
    let strict = rate("strict", 1);
    assert!((46.0..=58.0).contains(&strict), "{strict} per second");
    let deferred = rate("deferred=1s", 1);
    assert!(deferred >= 10_000.0, "{deferred} per second");
}

#[test]
fn many_clients_share_a_flush_in_strict_mode() {
    let strict = rate("strict", 32);
    assert!(strict >= 20.0 * DRIVE_FLUSHES_PER_S, "{strict} per second");
}
