//! Drives that refuse one request: whoever depends on it must be told, and what was there before stays.

use engine::Wish;
use io::Durability::Volatile;
use io::units::{KIB, MILLISECOND_NS, SECOND_NS};
use io::{ErrorKind, Volume};
use twin::{Fault, Kind};

use super::{
    Drives, EXTENT, FAST_EXTENTS, Story, idle, insist, lay, lay_and_rest, unless_refused, wish,
};

/// A record of small writes, or one of a large write, cannot be written.
pub(super) fn a_record(drives: &Drives, large: bool) -> Story {
    let (name, bytes) = match large {
        false => ("the fast drive refuses a record", 8192),
        true => ("the fast drive refuses a large record", 96 * KIB),
    };
    drives.story(name).prepare(|stage| async move { lay_and_rest(&stage.volume, 0..2).await }).act(
        move |stage| async move {
            let (volume, fast) = (&stage.volume, stage.machine.drives()[0]);
            // Into holes, which goes to the log.
            volume.write(5 * EXTENT, 4096, Volatile).await?;
            volume.flush().await?;
            stage.machine.fail_next(fast, Kind::Write, 1, ErrorKind::Io);
            for round in 0..3 {
                unless_refused(volume.write((6 + round) * EXTENT, bytes, Volatile).await)?;
                unless_refused(volume.flush().await)?;
            }
            Ok(())
        },
    )
}

/// The data of whole extents cannot be written, on either drive.
pub(super) fn whole_extents(drives: &Drives) -> Story {
    drives
        .story("drives refuse whole extents")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS - 14).await })
        .act(|stage| async move {
            let [fast, slow] = stage.machine.drives()[..] else { unreachable!("two drives") };
            let volume = &stage.volume;
            // As many as leave the fast drive its reserve, and more, which go to the slow one.
            for extent in FAST_EXTENTS - 13..FAST_EXTENTS {
                let drive = if extent < FAST_EXTENTS - 12 { fast } else { slow };
                if extent % 4 == 1 || drive == fast {
                    // No record is on its way that could be struck.
                    volume.flush().await?;
                    stage.machine.fail_next(drive, Kind::Write, 1, ErrorKind::Io);
                }
                unless_refused(volume.write(extent * EXTENT, EXTENT, Volatile).await)?;
                stage.machine.clear_faults();
                volume.read(extent * EXTENT, EXTENT).await?;
            }
            volume.flush().await?;
            insist(&stage, "both drives", |status| {
                status.served.fast_bytes > 0 && status.served.slow_bytes > 0
            })
        })
}

/// The slow drive does not flush whole extents that were written there.
pub(super) fn a_flush_below(drives: &Drives) -> Story {
    drives
        .story("the slow drive refuses to flush")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS).await })
        .act(|stage| async move {
            let (volume, slow) = (&stage.volume, stage.machine.drives()[1]);
            volume.write((FAST_EXTENTS + 20) * EXTENT, EXTENT, Volatile).await?;
            stage.machine.fail_next(slow, Kind::Flush, 1, ErrorKind::Io);
            unless_refused(volume.flush().await)?;
            unless_refused(volume.write(0, 4096, Volatile).await)?;
            unless_refused(volume.flush().await)
        })
}

/// What is to leave the fast drive cannot be read there at first.
pub(super) fn a_read_of_what_moves(drives: &Drives) -> Story {
    drives
        .story("the fast drive refuses to give what moves")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..4).await })
        .act(|stage| async move {
            let (volume, fast) = (&stage.volume, stage.machine.drives()[0]);
            wish(&stage, 0..2, Wish::Cold).await?;
            stage.machine.strike_next(fast, Fault::ReadError, 1);
            idle(volume).await;
            stage.machine.clear_faults();
            wish(&stage, 2..3, Wish::Cold).await?;
            idle(volume).await;
            volume.read(0, 3 * EXTENT).await?;
            insist(&stage, "demoting", |status| status.moves.demoted_bytes > 0)
        })
}

/// Blocks on their way from the log to the slow drive are refused there at first.
pub(super) fn what_is_destaged(drives: &Drives) -> Story {
    drives
        .story("the slow drive refuses what is destaged")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 4).await })
        .act(|stage| async move {
            let (volume, slow) = (&stage.volume, stage.machine.drives()[1]);
            for extent in FAST_EXTENTS..FAST_EXTENTS + 3 {
                volume.write(extent * EXTENT + 8192, 4096, Volatile).await?;
            }
            volume.flush().await?;
            stage.machine.fail_next(slow, Kind::Write, 1, ErrorKind::Io);
            volume.io().sleep(500 * MILLISECOND_NS).await;
            stage.machine.clear_faults();
            volume.read(FAST_EXTENTS * EXTENT, 3 * EXTENT).await?;
            idle(volume).await;
            volume.read(FAST_EXTENTS * EXTENT, 3 * EXTENT).await?;
            insist(&stage, "destaging", |status| status.moves.destaged_bytes > 0)
        })
        .in_strides(3)
}

/// Of a batch on its way to the last free slots one write is refused and others take long, while the batch is
/// tried again and clients take slots, too.
pub(super) fn some_of_what_is_destaged(drives: &Drives) -> Story {
    const LEFT: u64 = 30;
    drives
        .story("the slow drive refuses some of what is destaged")
        .prepare(|stage| async move {
            let extents = stage.volume.volume().info().size_bytes / EXTENT;
            lay_and_rest(&stage.volume, 0..extents - LEFT).await
        })
        .act(|stage| async move {
            let (volume, slow) = (&stage.volume, stage.machine.drives()[1]);
            let first = volume.volume().info().size_bytes / EXTENT - LEFT;
            for extent in first..first + 20 {
                volume.write(extent * EXTENT + 8192, 4096, Volatile).await?;
            }
            volume.flush().await?;
            stage.machine.strike_next(slow, Fault::WriteError, 1);
            stage.machine.strike_next(slow, Fault::Spike, 3);
            for _ in 0..1000 {
                volume.io().sleep(MILLISECOND_NS / 2).await;
                if stage.machine.fault_counts(slow).of(Fault::Spike) > 0 {
                    break;
                }
            }
            lay(volume, first + 20..first + LEFT).await?;
            stage.machine.clear_faults();
            idle(volume).await;
            volume.read(first * EXTENT, LEFT * EXTENT).await?;
            insist(&stage, "destaging", |status| status.moves.destaged_bytes > 0)
        })
        .in_strides(8)
}

/// A page of the map is refused by the slow drive.
pub(super) fn a_page_of_the_map(drives: &Drives) -> Story {
    drives
        .story("the slow drive refuses a page of the map")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 4).await })
        .act(|stage| async move {
            let (volume, slow) = (&stage.volume, stage.machine.drives()[1]);
            // What lives below goes elsewhere, and others get its slots.
            for extent in FAST_EXTENTS..FAST_EXTENTS + 3 {
                volume.write(extent * EXTENT, EXTENT, Volatile).await?;
            }
            volume.trim((FAST_EXTENTS + 3) * EXTENT, EXTENT, Volatile).await?;
            volume.flush().await?;
            volume.io().sleep(SECOND_NS).await;
            stage.machine.fail_next(slow, Kind::Write, 1, ErrorKind::Io);
            idle(volume).await;
            stage.machine.clear_faults();
            unless_refused(volume.write(0, 4096, Volatile).await)?;
            unless_refused(volume.flush().await)
        })
}
