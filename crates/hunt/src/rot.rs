//! Map pages that rot while nobody looks, on one drive, where something else has what they hold: then
//! the volume must open as if nothing had happened.

use engine::format::map_page::{PAGE_BYTES, PageCopy, examine};
use engine::format::superblock::{COPY_POSITIONS, SUPERBLOCK_BYTES};
use engine::{Geometry, Superblock, Tier};
use twin::{DriveId, Simulation};

/// What happens to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rot {
    /// Bytes of it change.
    Bytes,
    /// A sector of it cannot be read.
    Sector,
}

/// Spoils both copies of a page on one drive, if the other drive or the log has what they hold. Says
/// whether it did. A trial spoils pages of one drive only.
pub(crate) fn spoil_page(
    simulation: &Simulation,
    geometry: &Geometry,
    (tier, page): (Tier, u64),
    rot: Rot,
) -> bool {
    if !is_elsewhere(simulation, geometry, tier.other(), page) {
        return false;
    }
    let id = drive(simulation, tier);
    for copy in [0, 1] {
        let at = geometry.map_page_position(tier, page, copy);
        match rot {
            Rot::Bytes => simulation.poke(id, at + 70, &[0xee; 8]),
            Rot::Sector => simulation.set_unreadable(id, at + 512..at + 1024),
        }
    }
    true
}

/// Spoils every page that was ever written to one drive and may be spoilt. Says whether there was one.
pub(crate) fn spoil_map(simulation: &Simulation, tier: Tier) -> bool {
    let Some(superblock) = newest_superblock(simulation) else { return false };
    let geometry = &superblock.geometry;
    let mut spoilt = false;
    for page in 0..geometry.map_pages() {
        let written = copies(simulation, &superblock, tier, page) != [PageCopy::Blank; 2];
        spoilt |= written && spoil_page(simulation, geometry, (tier, page), Rot::Bytes);
    }
    spoilt
}

/// Spoils the newer copy of every page on one drive that has two. Says whether there was one. In
/// write-through only when the volume was closed, after which both are the same: a cut may leave one good
/// copy, and that one must do.
pub(crate) fn spoil_newer_copies(simulation: &Simulation, tier: Tier, closed: bool) -> bool {
    let Some(superblock) = newest_superblock(simulation) else { return false };
    if superblock.brings_home() && !closed {
        return false;
    }
    let mut spoilt = false;
    for page in 0..superblock.geometry.map_pages() {
        if let [PageCopy::Valid(one), PageCopy::Valid(other)] =
            copies(simulation, &superblock, tier, page)
        {
            let at = superblock.geometry.map_page_position(tier, page, u64::from(other > one));
            simulation.poke(drive(simulation, tier), at + 70, &[0xee; 8]);
            spoilt = true;
        }
    }
    spoilt
}

/// Whether what a page holds is also on this drive or wholly in the log. A page that a cut has torn
/// when it was first written, after the tail had moved for other pages, is neither.
fn is_elsewhere(simulation: &Simulation, geometry: &Geometry, tier: Tier, page: u64) -> bool {
    let Some(newest) = newest_superblock(simulation) else { return true };
    debug_assert_eq!(&newest.geometry, geometry);
    let found = copies(simulation, &newest, tier, page);
    newest.log_is_whole()
        || found == [PageCopy::Blank; 2]
        || found.iter().any(|copy| matches!(copy, PageCopy::Valid(_)))
}

fn copies(
    simulation: &Simulation,
    superblock: &Superblock,
    tier: Tier,
    page: u64,
) -> [PageCopy; 2] {
    [0, 1].map(|copy| {
        let at = superblock.geometry.map_page_position(tier, page, copy);
        let bytes = simulation.peek(drive(simulation, tier), at, PAGE_BYTES);
        examine(&bytes, superblock.volume_tag(), page)
    })
}

/// Whether what a drive says of the cache's mode is write-through.
pub(crate) fn is_through(simulation: &Simulation, tier: Tier) -> bool {
    superblock_of(simulation, tier).is_some_and(|it| it.brings_home())
}

/// The fast drive's.
pub(crate) fn newest_superblock(simulation: &Simulation) -> Option<Superblock> {
    superblock_of(simulation, Tier::Fast)
}

fn superblock_of(simulation: &Simulation, tier: Tier) -> Option<Superblock> {
    let id = drive(simulation, tier);
    let copies = COPY_POSITIONS.into_iter().enumerate().filter_map(|(copy, at)| {
        Superblock::decode(&simulation.peek(id, at, SUPERBLOCK_BYTES), copy).ok()
    });
    copies.max_by_key(|superblock| superblock.sequence)
}

fn drive(simulation: &Simulation, tier: Tier) -> DriveId {
    simulation.drives()[tier.index()]
}
