//! Deliberately wrong engines, to prove that the checks can fail: each canary makes one place of
//! the engine wrong, on the thread that asked for it. Compiled with the feature `canaries` only;
//! without it, `canary!` is `false` and nothing of this is in the program.

/// Whether this place shall be wrong now.
#[cfg(feature = "canaries")]
macro_rules! canary {
    ($canary:ident) => {
        $crate::canary::sings($crate::canary::Canary::$canary)
    };
}

/// Whether this place shall be wrong: never, in a program that ships.
#[cfg(not(feature = "canaries"))]
macro_rules! canary {
    ($canary:ident) => {
        false
    };
}

pub(crate) use canary;

#[cfg(feature = "canaries")]
mod cage {
    use std::cell::Cell;

    macro_rules! canaries {
        ($($(#[$about:meta])* $canary:ident,)*) => {
            /// A way to be wrong.
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
            pub enum Canary {
                $($(#[$about])* $canary,)*
            }

            impl Canary {
                /// All of them, in order.
                pub const ALL: &[Canary] = &[$(Canary::$canary),*];
            }
        };
    }

    canaries! {
        /// A flush says it is done and is not sent.
        FlushNotSent,
        /// Who comes while a flush runs is told with it, though it began before.
        FlushJoinsRunning,
        /// A flush does not wait for records that are not written yet.
        FlushBeforeWritten,
        /// A flush never reaches the slow drive.
        FlushForgetsSlow,
        /// A write that must be durable on its own is not flushed.
        ForcedNotFlushed,
        /// A slot is used again at once.
        SlotFreedAtOnce,
        /// A slot is used again when its record is durable, though recovery does not know that.
        SlotFreedWhenDurable,
        /// A slot is used again while reads of it are under way.
        SlotFreedUnderReaders,
        /// The ring is used again while reads of it are under way.
        RingFreedUnderReaders,
        /// The ring is used again before the superblock says so.
        RingFreedBeforeSuperblock,
        /// The tail passes changes whose map pages are not written.
        TailPassesDirtyPages,
        /// Map pages are written before their changes are durable.
        PagesBeforeChanges,
        /// A change may share its LSN with a map page that does not have it.
        PageSharesOpenRecord,
        /// Map pages are not flushed before the superblock.
        PagesNotFlushed,
        /// The newer copy of a map page is overwritten.
        PageOverNewerCopy,
        /// Map pages are not written to the slow drive.
        PagesNotOnSlow,
        /// Only one copy of a superblock is written.
        OneSuperblock,
        /// The copies of a superblock are written with one flush.
        SuperblocksAtOnce,
        /// The CRC of a record's data is not looked at when it is replayed.
        RecordUnchecked,
        /// The CRC of a fresh slot is not looked at.
        FreshUnchecked,
        /// The changes of a record are replayed last to first.
        ReplayBackwards,
        /// Replay goes on behind a record whose data is missing.
        ReplayPastTorn,
        /// Records of a lost session are taken for part of the log.
        SessionIgnored,
        /// Sessions have the same number.
        GenerationNotBumped,
        /// What recovery read is not flushed before the session begins.
        RecoveryNotFlushed,
        /// A home is written in place though recovery would verify it.
        YoungIgnored,
        /// Homes are written in place on drives that tear them.
        InPlaceThoughTorn,
        /// A home is written in place though newer data of it is in the log.
        InPlaceUnderLog,
        /// Blocks that are not durable are destaged.
        DestageNotDurable,
        /// Homes are not flushed before the record that says they are filled.
        DestageNotFlushed,
        /// A destaged extent forgets what was written to it meanwhile.
        DestageForgetsNewer,
        /// An extent is destaged though it was replaced meanwhile.
        DestageOverReplaced,
        /// A destaged extent without a home does not begin as zeros.
        DestageOverGarbage,
        /// Zeros in the log are not written to the home.
        DestageSkipsZeros,
        /// The copy of a moved extent is not flushed.
        MoveNotFlushed,
        /// A move is recorded though the extent was replaced meanwhile.
        MoveOverReplaced,
        /// A trim leaves the extent's blocks in the log.
        TrimForgetsLog,
        /// A zeroed part of an extent still reads its home.
        ZeroNotMarked,
        /// A fresh write leaves the extent's older blocks in the log.
        FreshForgetsLog,
        /// A read does not wait for the record that it needs.
        ReadBeforeWritten,
        /// Unaligned writes to the same block do not take turns.
        UnalignedTogether,
        /// A failed flush is reported and forgotten: the next one may well succeed.
        FlushFailureForgotten,
        /// A flush ends well though another one beside it on its drive fails.
        FlushBesideIgnored,
        /// A log write that failed counts as written.
        LogFailureIgnored,
        /// In deferred mode homes are written in place.
        DeferredInPlace,
        /// Deferred mode begins before what was written in place is durable.
        DeferredOverUnflushed,
        /// Deferred mode never flushes, and waits for nothing.
        BoundForgotten,
        /// Strict mode begins before what was only ordered is durable.
        StrictWithoutFlush,
        /// Class cache: a clean copy is written in place, and stays clean.
        CopyWrittenClean,
        /// Class cache: a copy is called clean before what it was made of is durable.
        OriginalNotFlushed,
        /// Write-through: a flush ends when the fast drive has everything.
        ThroughLikeBack,
        /// Write-through: the slow drive is not told what is a hole and what is not.
        HolesNotMirrored,
        /// Write-through begins before everything is at home.
        SwitchedBeforeHome,
        /// Write-through: what only the log has is not kept in memory.
        NothingKept,
        /// The slow drive goes on alone, and does not say so.
        AloneUntold,
        /// The slow drive alone fills a hole in part, over what its slot held before.
        HoleOverGarbage,
        /// The parts of a request in the log do not wait for its parts in fresh slots.
        PartsOutOfOrder,
        /// Changed extents get no mark of doubt.
        DoubtNotMarked,
        /// Marks of doubt are written and not flushed.
        DoubtNotFlushed,
        /// An extent that the map places on the fast drive needs no mark, though the slow drive's
        /// page still says otherwise.
        DoubtSparedTooLong,
        /// An extent that leaves the fast drive with blocks in the log gets no mark.
        DoubtForgottenAtMove,
        /// The slow drive vouches for extents with newer blocks in the log.
        VouchedOverLog,
        /// The slow drive vouches for extents whose map page it does not have.
        VouchedOverDirtyPage,
        /// What is replayed is not marked.
        ReplayNotDoubted,
        /// Without the fast drive the older copy of a torn map page is believed.
        TornPageBelieved,
        /// What the stage has of an extent stays when its home changes.
        StageNotInvalidated,
        /// What was read for the stage while its home changed is kept.
        StageSpoiledKept,
        /// An extent is read whole while its home is being written.
        StageReadUnderWrite,
        /// A drive that is alone is written.
        WrittenAlone,
    }

    thread_local! {
        static SINGING: Cell<Option<Canary>> = const { Cell::new(None) };
    }

    /// From now on engines of this thread are wrong in this way, or right again.
    pub fn release(canary: Option<Canary>) {
        SINGING.with(|singing| singing.set(canary));
    }

    pub(crate) fn sings(canary: Canary) -> bool {
        SINGING.with(|singing| singing.get() == Some(canary))
    }
}

#[cfg(feature = "canaries")]
pub(crate) use cage::sings;
#[cfg(feature = "canaries")]
pub use cage::{Canary, release};
