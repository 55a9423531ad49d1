//! What goes wrong besides the cut of the story: an earlier cut, and drives that fail.

use io::Durability::Volatile;
use io::ErrorKind;
use io::units::{KIB, MILLISECOND_NS};
use twin::{CacheLoss, Kind, Random, mix};

use super::{Drives, EXTENT, Story, lay, scatter};
use crate::workload::Workload;

pub(super) fn recovery(drives: &Drives, loss: CacheLoss) -> Story {
    let seed = drives.seed;
    drives
        .story("recovery of a recovery")
        .after_cut(loss)
        .prepare(move |stage| async move {
            let volume = &stage.volume;
            lay(volume, 0..2).await?;
            scatter(volume, seed, 10, 4).await?;
            volume.flush().await?;
            scatter(volume, seed + 1, 6, 4).await?;
            volume.write(5 * EXTENT, EXTENT, Volatile).await?;
            volume.trim(0, EXTENT, Volatile).await?;
            volume.write(512, 512, Volatile).await
        })
        .act(move |stage| async move {
            scatter(&stage.volume, seed + 2, 3, 4).await?;
            stage.volume.flush().await
        })
}

/// Drives that fail now and then while several clients work. Requests may be refused, but what
/// was acknowledged stays true.
pub(super) fn failing_drives(drives: &Drives) -> Story {
    let seed = drives.seed;
    let work = move |salt: u64, patient| {
        let seed = mix(seed ^ salt);
        let span = 0..12 * EXTENT;
        Workload { seed, clients: 4, steps: 20, span, length_bytes_max: 256 * KIB, patient }
    };
    drives
        .story("failing drives")
        .prepare(move |stage| async move { work(1, false).run(&stage.volume).await })
        .act(move |stage| async move {
            let (machine, io) = (stage.machine.clone(), stage.volume.io().clone());
            io.clone().spawn(async move {
                let mut random = Random::new(seed);
                for _ in 0..6 {
                    io.sleep(random.below(60 * MILLISECOND_NS)).await;
                    let drive = machine.drives()[random.below(2) as usize];
                    let kind = match random.below(8) {
                        0..=3 => Kind::Read,
                        4..=6 => Kind::Write,
                        _ => Kind::Flush,
                    };
                    machine.fail_next(drive, kind, 1 + random.below(2), ErrorKind::Io);
                }
            });
            work(2, true).run(&stage.volume).await
        })
}
