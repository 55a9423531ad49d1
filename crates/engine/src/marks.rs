//! Coverage marks: the branches of the engine that are rarely taken and easily wrong, each with a
//! name and a count, so that a test can say that it really went there.
//!
//! * Always compiled: a hit is one addition to a number of its thread, and none lies on the path
//!   that every request takes.
//! * Counts belong to the thread, as an engine does. The last hits are kept in order: they tell
//!   what the engine was at when something went wrong.

use std::cell::Cell;

/// Hits that are kept in order.
const RECENT_MAX: usize = 64;

macro_rules! marks {
    ($($(#[$about:meta])* $mark:ident,)*) => {
        /// A branch worth knowing that it was taken.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mark {
            $($(#[$about])* $mark,)*
        }

        impl Mark {
            /// All of them, in order.
            pub const ALL: &[Mark] = &[$(Mark::$mark),*];
        }
    };
}

marks! {
    /// A record ended at, or the next began behind, the end of the ring.
    LogWrapped,
    /// The last block of the ring was filled with a record without data.
    LogPadded,
    /// A client was given what had been read ahead of it.
    ReadForeseen,
    /// A client's read went into memory that a driver had lent.
    ReadLent,
    /// What had been read ahead was written before anybody asked for it.
    ForeseenOverwritten,
    /// Destage wrote into a clean copy and what it was made of.
    DestagedToBoth,
    /// Destage wrote some blocks into a slot of the fast drive, and the others stayed below.
    DestagedInPart,
    /// A home was overwritten in place of which the log has other blocks.
    HomeOverwrittenBesideLog,
    /// A block that was in the way of the log's tail was written again at its end.
    Carried,
    /// One that was to be was written by a client, or went home, meanwhile.
    CarryOvertaken,
    /// What a copy in part has was overwritten in place.
    PartOverwritten,
    /// Destage wrote into a copy in part.
    PartGrown,
    /// The same, and the copy had all then.
    PartMadeWhole,
    /// Destage wrote into the original of a copy in part.
    PartDestagedBelow,
    /// A copy in part was written where the others are, and given up.
    PartWentBelow,
    /// What was missing of a copy in part was copied up.
    PartFilled,
    /// What only the fast drive had was written to its home, and stayed as a clean copy.
    Cleaned,
    /// A clean copy was given up, without a copy of it being made.
    CopyGivenUp,
    /// Class span: an extent went up, and its original was kept below.
    KeptBelow,
    /// Class span: an original was given back, because slots were short or it was not wanted.
    OriginalGivenBack,
    /// The fast drive was gone, and the slow one went on alone.
    WentAlone,
    /// Write-through became write-back, or the other way round.
    CacheModeChanged,
    /// A copy could not be read, and the slow drive's own was.
    ReadFromOriginal,
    /// A client's write met a log without room, and waited.
    LogFull,
    /// What was acknowledged before it is written was at its bound.
    BehindFull,
    /// A request waited for what was acknowledged before it is written.
    BehindWaitedFor,
    /// A write failed that had been acknowledged.
    BehindFailed,
    /// A write was held up because the log fills faster than it empties.
    WritePaced,
    /// A request became a log record of its own.
    RecordOfOneRequest,
    /// A write went to the log because recovery would verify the home's data.
    YoungHomeSpared,
    /// A write went to the log because the extent's home was in motion.
    MovingHomeSpared,
    /// Whole extents went to a fresh slot of the fast drive.
    FreshOnFast,
    /// Whole extents went to a fresh slot of the slow drive.
    FreshOnSlow,
    /// A whole extent of the slow drive was overwritten in place.
    SlowHomeOverwritten,
    /// The data of a fresh slot did not arrive: the slot went back.
    FreshFailed,
    /// Slots ran out while a request took them; the rest went to the log.
    SlotsRanOut,
    /// The fast drive had nothing but its reserve left: new data went to the slow one.
    ReserveReached,
    /// Neither drive had a free slot.
    VolumeFull,
    /// An unaligned write waited for others on its extents.
    UnalignedWaited,
    /// A read waited for a record that was not yet written.
    ReadWaitedForRecord,
    /// A trim, or a fresh write, met an extent in motion.
    MovingExtentReplaced,
    /// A caller shared the flush of another.
    FlushShared,
    /// A flush went to both drives.
    FlushOfBoth,
    /// A client's flush found nothing unflushed, but one under way, and waited for it.
    FlushJoinedRunning,
    /// A record was written for nothing but to say what is durable.
    DurablePoint,
    /// Destage wrote blocks into the home they belong to.
    DestagedInPlace,
    /// Destage gave an extent without a home its first.
    DestagedToNewHome,
    /// Destage moved a hot extent up on the way.
    DestagedUp,
    /// Destage made a hole.
    DestagedToHole,
    /// Destage met a home that recovery would verify, and ended that first.
    DestageMetYoung,
    /// Destage found no slot.
    DestageStarved,
    /// A block was written anew while its extent was destaged.
    DestageOvertaken,
    /// An extent was replaced while it was destaged: the work was dropped.
    DestageDropped,
    /// A read brought its whole extent from the slow drive.
    ReadAround,
    /// An extent could not be read whole, and only what was asked for was read.
    AroundFailed,
    /// An extent's home changed while it was read for the stage.
    StageSpoiled,
    /// A read was answered by the stage.
    ReadStaged,
    /// An extent moved up from the stage.
    PromotedFromStage,
    /// An extent moved while clients were busy, which needed the slow drive.
    MovedBelowWhileBusy,
    /// Work that needs the slow drive was put off because it may be asleep.
    SlowDriveSpared,
    /// An extent moved up.
    Promoted,
    /// An extent moved down.
    Demoted,
    /// An extent was replaced while it moved: the copy was dropped.
    MoveDropped,
    /// A block was written to the log while its extent moved.
    MoveOvertaken,
    /// A checkpoint moved the tail.
    TailMoved,
    /// A checkpoint wrote map pages.
    MapPagesWritten,
    /// A checkpoint waited for readers of the log.
    TailWaitedForReaders,
    /// A slot that had been given up was freed.
    SlotReleased,
    /// A slot waited for an access to end.
    SlotWaitedForAccess,
    /// A slot waited for a record that says what is durable.
    SlotWaitedForRecord,
    /// A block of the log was found damaged while the volume ran.
    LogBlockLost,
    /// The mark of a lost block was renewed, so that the tail could pass.
    LostMarkRenewed,
    /// The volume stopped taking writes.
    Poisoned,
    /// The volume was closed in order.
    Closed,
    /// The volume came up after it had not been closed in order.
    UncleanOpened,
    /// Records were replayed.
    RecordsReplayed,
    /// Records of more than one session were replayed.
    SessionsReplayed,
    /// The replayed log went over the end of the ring.
    ReplayWrapped,
    /// The log ended at a record whose data had not arrived.
    TornRecordAtTail,
    /// A fresh slot was verified by its data, and its data had arrived.
    FreshVerified,
    /// A fresh slot's data had not arrived: the log ended before its record.
    FreshDropped,
    /// A change that a map page has already was passed over.
    ChangeInPage,
    /// A copy of a map page was damaged and the other took its place.
    MapCopyRepaired,
    /// A map page was taken from the slow drive.
    MapPageFromSlow,
    /// A map page was damaged, but every change in it is in the log.
    MapPageFromLog,
    /// Power had failed between a checkpoint's map pages and its superblock.
    CheckpointWasCut,
    /// Power had failed while the volume was being opened.
    OpeningWasCut,
    /// A superblock copy was damaged and the other was used.
    SuperblockRepaired,
    /// The copies of a superblock were of different moments.
    SuperblockCopiesDiffered,
    /// A block of the log was damaged and known to be durable.
    DurableBlockDamaged,
    /// The drives were flushed to keep the bound of deferred mode.
    BoundFlushed,
    /// A client waited because as much was exposed as the bound of deferred mode allows.
    BoundReached,
    /// The flush mode was changed while the volume was in use.
    FlushModeChanged,
}

thread_local! {
    static COUNTS: [Cell<u64>; Mark::ALL.len()] = const { [const { Cell::new(0) }; Mark::ALL.len()] };
    static RECENT: [Cell<Option<Mark>>; RECENT_MAX] = const { [const { Cell::new(None) }; RECENT_MAX] };
    static HITS: Cell<usize> = const { Cell::new(0) };
}

/// The engine was here.
pub(crate) fn hit(mark: Mark) {
    COUNTS.with(|counts| {
        let count = &counts[mark as usize];
        count.set(count.get() + 1);
    });
    HITS.with(|hits| {
        RECENT.with(|recent| recent[hits.get() % RECENT_MAX].set(Some(mark)));
        hits.set(hits.get() + 1);
    });
}

/// What was hit on one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    counts: [u64; Mark::ALL.len()],
    /// The last hits, oldest first.
    pub recent: Vec<Mark>,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks { counts: [0; Mark::ALL.len()], recent: Vec::new() }
    }
}

impl Marks {
    /// What this thread has hit since it last took; counting begins anew.
    pub fn take() -> Marks {
        let counts = COUNTS.with(|counts| std::array::from_fn(|n| counts[n].replace(0)));
        let hits = HITS.with(|hits| hits.replace(0));
        let recent = RECENT.with(|recent| {
            (hits.saturating_sub(RECENT_MAX)..hits)
                .filter_map(|n| recent[n % RECENT_MAX].get())
                .collect()
        });
        Marks { counts, recent }
    }

    /// How often.
    pub fn count(&self, mark: Mark) -> u64 {
        self.counts[mark as usize]
    }

    /// Adds the counts of another thread or run.
    pub fn add(&mut self, other: &Marks) {
        for (sum, more) in self.counts.iter_mut().zip(other.counts) {
            *sum += more;
        }
        self.recent.clone_from(&other.recent);
    }

    /// Marks that were never hit.
    pub fn missing(&self) -> Vec<Mark> {
        Mark::ALL.iter().copied().filter(|mark| self.count(*mark) == 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_and_the_last_are_kept_in_order() {
        Marks::take();
        hit(Mark::LogFull);
        for _ in 0..RECENT_MAX {
            hit(Mark::Promoted);
        }
        hit(Mark::Demoted);
        let marks = Marks::take();
        assert_eq!(marks.count(Mark::LogFull), 1);
        assert_eq!(marks.count(Mark::Promoted), RECENT_MAX as u64);
        assert_eq!(marks.recent.len(), RECENT_MAX);
        assert_eq!(marks.recent[RECENT_MAX - 2..], [Mark::Promoted, Mark::Demoted]);
        assert!(!marks.missing().contains(&Mark::LogFull));
        assert_eq!(Marks::take(), Marks::default());
    }
}
