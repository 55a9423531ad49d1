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
        /// A flush does not wait for what was acknowledged before it is written.
        FlushForgetsBehind,
        /// What was acknowledged before it is written is not seen until it is.
        BehindNotSeen,
        /// A write may overtake one of the same blocks that was acknowledged before it is written.
        BehindOvertaken,
        /// Writes are acknowledged before they are ordered, though order is promised.
        BehindInDeferred,
        /// What was acknowledged before is ordered after the change into deferred mode.
        BehindIntoDeferred,
        /// Strict is asked for once more, and what is behind is not waited for.
        BehindStrictAgain,
        /// That an acknowledged write failed stops nothing.
        BehindFailureIgnored,
        /// What was acknowledged and lost is read as it was before.
        BehindLossForgotten,
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
        /// Class cache: a copy is called clean before its home is durable.
        CleanedNotFlushed,
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
        /// The tail passes what only the log has.
        TailPassesLive,
        /// Write-through: a page counts as known to the slow drive though it changed again since.
        MirroredTooEarly,
        /// The copy of a map page that was written last is written again.
        SameCopyAgain,
        /// Write-through: the slow drive's other copies of map pages stay as they were.
        OtherCopiesNotWritten,
        /// A superblock counts as saying more than was durable when it was encoded.
        RecordedTooFar,
        /// An extent is destaged while a request writes its home in place.
        DestageUnderWriter,
        /// Blocks that are newer than what is durable are destaged too.
        DestageTakesNewer,
        /// What destage reads from the log is not compared with its CRC.
        DestageUnchecked,
        /// Nor what is carried.
        CarriedUnchecked,
        /// When the log cannot be written any more, what was carried stays where it has not arrived.
        CarriedNotPutBack,
        /// What a client wrote, or trimmed, while a block was carried is not looked at.
        CarriedOverNewer,
        /// Homes on the slow drive are not flushed before the record that says they are filled.
        DestageForgetsSlow,
        /// Write-around: a copy stays, and counts as clean, though only its home was written.
        CopyLeftBehind,
        /// Class cache: of an extent with a clean copy only the copy is destaged.
        OriginalNotDestaged,
        /// An extent that still has the home that destage planned with counts as unchanged.
        DestageTrustsHome,
        /// A destage claims what was written to the log while it ran.
        DestagedUntilEnd,
        /// An extent with newer blocks in the log loses its mark when it is destaged.
        DestageUnmarksNewer,
        /// Class cache: what is in memory is taken when it is needed, and the mode may change before.
        KeptTakenLate,
        /// Write-through begins while requests that chose other routes are under way.
        SwitchedUnderWriters,
        /// A flush sends nothing when all is written, durable or not.
        WrittenIsEnough,
        /// A flush does not wait for the one under way that has taken its changes.
        RunningFlushIgnored,
        /// Who joins the next flush is told when the one before it ends.
        TurnTooEarly,
        /// A failed flush of the slow drive is not told.
        SlowFailureIgnored,
        /// Marks of doubt that could not be written count as written.
        DoubtFailureIgnored,
        /// A flush covers what was written while it ran.
        FlushCoversLater,
        /// A home written in place is not noted for the next flush.
        HomeNotNoted,
        /// A fresh slot of the slow drive is not noted for the next flush.
        FreshOnSlowNotNoted,
        /// A failed write of a fresh slot counts as done.
        FreshFailureIgnored,
        /// Requests do not wait for an unaligned write that holds their extent.
        WriterIgnoresAlone,
        /// An unaligned write does not wait for requests that are writing its extent.
        UnalignedIgnoresWriters,
        /// A home is written in place while it is being copied.
        InPlaceWhileMoving,
        /// No room is kept in the log for the records of fresh slots.
        RoomNotPromised,
        /// Homes that are not neighbours are written as one.
        RunsJoined,
        /// Write-through: a home is written in place though newer data of it is in the log.
        ThroughUnderLog,
        /// A large log write that failed counts as written.
        LargeFailureIgnored,
        /// Of the extents of a request only the first is marked as having blocks in the log.
        OnlyFirstMarked,
        /// Clients fill the part of the log that is kept for the volume's own records.
        ReserveTaken,
        /// The first record of a session is taken for one of the session before.
        SessionBeginsLate,
        /// What records say to be durable is not heard when they are replayed.
        ClaimsForgotten,
        /// A record that says what is durable before it counts as durable itself.
        ClaimTooWide,
        /// A change at the very LSN of its map page is taken for contained in it.
        ReplayBeginsLate,
        /// Replaying a fresh slot leaves the extent's older blocks in the log.
        ReplayedFreshKeepsLog,
        /// Replaying a trim leaves the extent's blocks in the log.
        ReplayedTrimKeepsLog,
        /// Replaying a destage forgets what was written to the extent meanwhile.
        ReplayedDestageForgetsNewer,
        /// Replaying a destage leaves what was destaged in the log.
        ReplayedDestageKeepsOlder,
        /// Extents with replayed blocks are not marked as having blocks in the log.
        ReplayNotMarked,
        /// Of two copies of a map page the older is taken.
        OlderPageTaken,
        /// A map page that a cut has kept from one drive is not written there when the volume is opened.
        LonePageLeft,
        /// Without the fast drive marks of doubt are not heard.
        DoubtsUnheard,
        /// A map page that knows more than the log is accepted.
        PageAheadAccepted,
        /// A slot is used again when the record that gave it up is the next to be recorded as durable.
        RecordedTooWide,
        /// A slot is used again in the epoch in which it was given up.
        EpochTooWide,
        /// An extent that could not be read is moved all the same.
        MoveOfUnreadable,
        /// Class cache: a dirty copy is given up as if it were clean.
        DirtyCopyGivenUp,
        /// Marks of doubt that are wanted count as durable when others are.
        DoubtSettledTooWide,
        /// The slow drive vouches for a region when it knows one extent of it.
        RegionVouchedForOne,
        /// On the way to strict mode homes are written in place before what is ordered is durable.
        InPlaceTooEarly,
        /// Deferred mode begins while homes are being written in place.
        DeferredOverWriters,
        /// In deferred mode every flush counts for all changes so far.
        ExposureForgotten,
        /// In deferred mode changes that come together are as old as the youngest.
        ExposureRejuvenated,
        /// The slow drive goes on alone while map pages are on their way to it.
        AloneOverPages,
        /// The slow drive goes on alone without what only the log and the memory have.
        KeptLeftBehind,
        /// The slow drive alone writes map pages before the data they speak of is durable.
        AloneNotFlushed,
        /// The slow drive alone writes both copies of a map page at once.
        AloneCopiesTogether,
        /// The slow drive alone does not write what is a hole and what is not.
        AloneUnmirrored,
        /// A trim that must be durable on its own is not flushed.
        ForcedTrimNotFlushed,
        /// What is read from the log is not compared with its CRC.
        ReadUnchecked,
        /// Class cache: a dirty copy that cannot be read is replaced by what it was made of.
        DirtyReadFromOriginal,
        /// Zeros in the log read what the home holds.
        ZerosReadHome,
        /// A record counts as written though one before it is not.
        GapsCountAsWritten,
        /// What a record says to be durable counts as recorded before the record is durable.
        ClaimNotDurable,
        /// The tail passes zeros that only the log has.
        TailPassesMarks,
        /// A large record may cross the end of the ring.
        RecordCrossesEnd,
        /// A record says that what is written is durable.
        WrittenClaimedDurable,
        /// Records of an older lap of the ring are taken for part of the log.
        OlderLapAccepted,
        /// The newer copy of a superblock is overwritten first.
        StaleCopyLast,
        /// A drive that is a step behind the other is accepted.
        ProgressUncompared,
        /// A drive of an earlier opening is accepted.
        GenerationsUncompared,
        /// All copies of a map page are repaired at once.
        RepairedTogether,
        /// An opening is on the fast drive before it is on the slow one.
        FastOpensFirst,
        /// A superblock does not say where the log of its session begins.
        SessionStartForgotten,
        /// A new fast drive: the map goes on naming copies that only the lost one had.
        AttachKeepsCopies,
        /// A slot that is kept below counts as given up when its extent goes up.
        KeptSlotReused,
        /// What is kept below is not given back, however short slots are.
        KeptOverReserve,
        /// Destage changes a clean copy and leaves it clean.
        DirtyKeepsBelow,
        /// Of a copy in part all is read above.
        PartReadAsWhole,
        /// A copy in part is written in place, and what it has is not said anew.
        PartWrittenInPlace,
        /// A copy in part that grows is said to have the new blocks alone.
        PartForgotten,
        /// A copy in part is given up without being copied.
        PartGivenUp,
        /// What is copied up to fill a copy in part goes over what it has.
        PartFilledOver,
        /// Blocks of a copy in part go home, and are said to be above still.
        PartStaysAbove,
        /// A copy in part that goes home is given up before what was written there is durable.
        PartNotFlushed,
        /// Changes of clean copies get no mark of doubt.
        KeptNotMarked,
        /// In deferred mode more bytes are ordered than the bound allows.
        BytesUnbound,
        /// In deferred mode requests end while more bytes are exposed than the bound allows.
        ToldBeyondBound,
        /// A flush takes away the notes of homes that were written while it ran.
        NotesTakenLate,
        /// A flush takes away the notes of homes that were written while it waited for the log.
        NotesTakenWhenWritten,
        /// A mark of doubt that is being taken away counts as standing.
        LeavingMarkTrusted,
        /// A read for the stage whose home changed is forgotten, and passes for the next one.
        StageComingForgotten,
        /// A failed write of a destage counts as done.
        DestageFailureIgnored,
        /// Of a map page that both drives have the fast one's is taken, newer or not.
        SlowPageIgnored,
        /// A map page that a drive refuses counts as written.
        PageFailureIgnored,
        /// Into write-through: a flush during the change leaves what it covers on the fast drive.
        FlushesStayAbove,
        /// Write-back begins before the superblocks say so.
        BackBeforeTold,
        /// In deferred mode requests end while something is exposed for up to twice the bound.
        ToldTooLate,
        /// In deferred mode a flush begins when the bound is reached.
        FlushedTooLate,
        /// In deferred mode trims count as no change.
        TrimsNotExposed,
        /// In write-through both copies of a page are under way on the slow drive at once.
        OtherCopiesTogether,
        /// A copy whose original was just given up is written in place.
        GivenBackNotYoung,
        /// Parts of a read that follow one another on different drives are read as one.
        ReadOfBothMerged,
        /// A batch that meets an error gives slots back to which writes are under way.
        DestageEndsAtFirst,
        /// Order is kept only when the deferred mode has begun.
        OrderKeptLate,
        /// What a request owes is decided when it ends, by what the volume promises then.
        PromiseOfTheEnd,
        /// A flush's turn ends inside the record that is open, which goes on growing.
        TurnEndsInsideRecord,
        /// A write to a fresh slot ends before the record that maps it is written.
        FreshNotAwaited,
        /// A new fast drive is made before the slow drive says that it goes on without the old one.
        AttachUntold,
        /// A close calls the volume clean before its map is written.
        CleanBeforeMap,
        /// What was read ahead is kept when its place is written.
        AheadKeptOverWrite,
        /// A place is read ahead while it is being written.
        AheadBegunUnderWrite,
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
