//! The account of a failure, for an engineer: what the volume was, what clients asked and were
//! told, where it fell and what survived of it on the drives, what was expected and what was
//! seen, and what drives and engine were at.

use std::fmt::Write as _;

use engine::Geometry;
use twin::DriveSpec;

use crate::journal::{Journal, Note};
use crate::player::{Player, Wrong};
use crate::trace::{is_fate, last_marks, place};
use crate::trial::{End, Life, Trial};

/// Lines of the drives' trace that are shown.
const TRACE_MAX: usize = 40;
/// Requests of a life that are shown; of more, the last.
const NOTES_MAX: usize = 120;

/// Plays the trial once more and writes down what happens.
pub fn account(trial: &Trial, wrong: &Wrong) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "wrong while {}: {}\n", wrong.stage, wrong.message);
    let mut player = Player::new(&trial.setting);
    describe_setting(&mut text, trial, &player.geometry);
    player.journal = Some(Journal::default());
    let journal = player.journal.clone().expect("just set");
    let Ok(mut rest) = player.make(trial.seed) else { return text };
    for (number, life) in trial.lives.iter().enumerate() {
        let last = number + 1 == trial.lives.len();
        player.tracing = last || number + 2 == trial.lives.len();
        let lived = player.live(&rest, life);
        describe_life(&mut text, number + 1, life, &player, &journal.take());
        let left = match lived {
            Ok(stopped) => {
                let before = player.trace.len();
                let left = player.fall(&stopped, life.end);
                let fates = player.trace.split_off(before.min(player.trace.len()));
                let _ = writeln!(text, "    {}", life.end);
                for line in fates.iter().filter(|line| is_fate(line)) {
                    let _ = writeln!(text, "      {}", place(&player.geometry, line));
                }
                Some(left)
            }
            Err(again) => {
                let same = again == *wrong;
                let _ = writeln!(
                    text,
                    "    and here it is wrong{}, while {}",
                    if same { "" } else { " (in other words than above)" },
                    again.stage
                );
                None
            }
        };
        if player.tracing {
            describe_trace(&mut text, &player);
        }
        match left {
            Some(left) => rest = left,
            None => break,
        }
    }
    text
}

fn describe_setting(text: &mut String, trial: &Trial, geometry: &Geometry) {
    let _ = writeln!(
        text,
        "volume{} of {} bytes in extents of {}, landing log of {} blocks; fast drive with {} slots, slow \
         drive with {}; {} map pages; drives' seed {}",
        trial.setting.cache.map(|mode| format!(" of class cache, {mode},")).unwrap_or_default(),
        geometry.volume_bytes,
        geometry.extent_bytes,
        geometry.ring_blocks(),
        geometry.layouts[0].slots,
        geometry.layouts[1].slots,
        geometry.map_pages(),
        trial.seed,
    );
    for drive in [&trial.setting.fast, &trial.setting.slow] {
        let DriveSpec { path, size_bytes, sector_bytes, atomic_write_bytes, cache_bytes, .. } =
            drive;
        let latencies = &drive.latencies;
        let _ = writeln!(
            text,
            "{path} drive: {size_bytes} bytes, sectors of {sector_bytes}, not torn: \
             {atomic_write_bytes}, volatile cache {cache_bytes}, {} channels, {} of 1000 requests stall",
            latencies.channels, latencies.stall_permille,
        );
    }
}

fn describe_life(
    text: &mut String,
    number: usize,
    life: &Life,
    player: &Player<'_>,
    notes: &[Note],
) {
    let _ = writeln!(text, "\nlife {number}");
    for damage in &life.damage {
        let _ = writeln!(text, "    before: {damage}");
    }
    for mischief in &life.mischief {
        let _ = writeln!(text, "    {mischief}");
    }
    match &player.recovery {
        Some(found) => {
            let _ = writeln!(
                text,
                "    opened{}: {} records replayed, {} map pages repaired, {} log blocks damaged",
                if found.unclean { " after a fall" } else { "" },
                found.records,
                found.pages_repaired,
                found.blocks_damaged
            );
        }
        None => {
            let _ = writeln!(text, "    was not opened to its end");
        }
    }
    let left_out = notes.len().saturating_sub(NOTES_MAX);
    if left_out > 0 {
        let _ = writeln!(text, "    ({left_out} earlier requests are left out)");
    }
    for note in &notes[left_out..] {
        let _ = writeln!(text, "    {}", note.tell(player.geometry.extent_bytes));
    }
    if let (End::Falls { .. }, 0) = (life.end, notes.len()) {
        let _ = writeln!(text, "    no client had asked for anything");
    }
}

fn describe_trace(text: &mut String, player: &Player<'_>) {
    let trace = &player.trace;
    let left_out = trace.len().saturating_sub(TRACE_MAX);
    let _ = writeln!(text, "    the drives' last operations:");
    for line in &trace[left_out..] {
        let _ = writeln!(text, "      | {}", place(&player.geometry, line));
    }
    let _ = writeln!(text, "    {}", last_marks(&player.marks));
}
