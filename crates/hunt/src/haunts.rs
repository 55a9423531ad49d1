//! Which stories are about the place that a canary makes wrong: it is hunted there first.

use engine::canary::Canary;

const CHECKPOINT: &str = "checkpoint";
const RECOVERY: &str = "recovery of a recovery";
const DOUBTS: &str = "doubts: changes after a rest";
const DOUBTS_CLOSED: &str = "doubts: a close over a full log";
const DOUBTS_LEFT: &str = "doubts: checkpoints that leave a page";
const DOUBTS_VAST: &str = "doubts: a vast volume";
const BESIDE: &str = "a flush fails beside another";
const REFUSES: &str = "the slow drive refuses";
const IN_STEP: &str = "drives in step";
const ZEROS: &str = "zeros fill the index of the log";
const PARTS: &str = "deferred: requests of several parts";
const SWITCHES: &str = "deferred: the mode is changed over the slow drive";
const BOUND: &str = "deferred: more at once than the bound";
const THROUGH: &str = "through: data, holes and copies";
const BACK: &str = "back: clean copies are written";
const AT_REST: &str = "back: copies go home at rest, and are given up";
const CACHE_DESTAGE: &str = "the mode of the cache changes during a destage";
const KEPT: &str = "kept: up, changed, and down again";
const KEPT_CHANGED: &str = "kept: changes after a rest";
const PARTS_GROWN: &str = "parts: grown and replaced";
const PARTS_HOME: &str = "parts: written as they go home";
const BEHIND: &str = "behind: writes, reads and flushes";
const BEHIND_DEFERRED: &str = "deferred: into the mode and back over writes behind";
const BEHIND_REFUSED: &str = "behind: a drive refuses what was acknowledged";

/// Canaries that nobody has caught yet within what a test may take: holes in the hunt, until they are.
/// They are hunted when asked for by name.
pub const FREE: &[Canary] = &[
    Canary::PageSharesOpenRecord,
    Canary::DestageUnderWriter,
    Canary::KeptTakenLate,
    Canary::AloneOverPages,
    Canary::ClaimNotDurable,
    Canary::NotesTakenWhenWritten,
    Canary::FreshNotAwaited,
    // Found, but its engine hangs, and to see that takes a minute.
    Canary::TailPassesMarks,
];

/// Names of stories, the likeliest first.
pub(crate) fn haunts(canary: Canary) -> &'static [&'static str] {
    match canary {
        Canary::SlotFreedAtOnce
        | Canary::SlotFreedWhenDurable
        | Canary::FreshUnchecked
        | Canary::ClaimsForgotten
        | Canary::ClaimTooWide => &["slots: the same extent again and again"],
        Canary::ClaimNotDurable => &["slots: beside flushes"],
        Canary::RecordedTooWide => &["slots: from the first of a session"],
        Canary::RecordedTooFar => &["slots: beside a superblock"],
        Canary::SlotFreedUnderReaders | Canary::EpochTooWide | Canary::RingFreedUnderReaders => {
            &["reads that last"]
        }
        Canary::FlushForgetsBehind | Canary::BehindNotSeen => &[BEHIND],
        Canary::BehindOvertaken => &[BEHIND, "behind: clients that write too much"],
        Canary::BehindInDeferred | Canary::BehindIntoDeferred => &[BEHIND_DEFERRED],
        Canary::BehindStrictAgain => &["behind: strict once more"],
        Canary::BehindFailureIgnored | Canary::BehindLossForgotten => &[BEHIND_REFUSED],
        Canary::PageSharesOpenRecord
        | Canary::PagesBeforeChanges
        | Canary::ReadBeforeWritten
        | Canary::UnalignedIgnoresWriters => &["records on their way", ZEROS, IN_STEP],
        Canary::PageOverNewerCopy | Canary::SameCopyAgain => &["checkpoint upon checkpoint"],
        Canary::PagesNotFlushed | Canary::LonePageLeft | Canary::OlderPageTaken => {
            &[CHECKPOINT, DOUBTS]
        }
        Canary::StaleCopyLast => &["openings: after a torn superblock"],
        Canary::RecoveryNotFlushed => &["openings: after a death of the process"],
        Canary::ReplayNotDoubted => &["openings: after a death, over the slow drive", SWITCHES],
        Canary::RepairedTogether => &["openings: a page to mend"],
        Canary::SessionIgnored | Canary::SessionBeginsLate => {
            &["openings: over the records of a lost session", RECOVERY]
        }
        Canary::OlderLapAccepted => &["laps of the log in step"],
        Canary::ReplayBeginsLate => &[CHECKPOINT, RECOVERY],
        Canary::LogFailureIgnored => &["the fast drive refuses a record"],
        Canary::LargeFailureIgnored => &["the fast drive refuses a large record"],
        Canary::FreshFailureIgnored => &["drives refuse whole extents"],
        Canary::SlowFailureIgnored => &["the slow drive refuses to flush"],
        Canary::MoveOfUnreadable => &["the fast drive refuses to give what moves"],
        Canary::InPlaceWhileMoving => &["cold extents are written as they leave"],
        Canary::DoubtForgottenAtMove => &["doubts: closed as extents leave"],
        Canary::StageReadUnderWrite => &["hot extents are read as they are destaged"],
        Canary::DestageUnderWriter => &["hot extents are destaged as they are written"],
        Canary::ReserveTaken => &[BEHIND_DEFERRED, "a log full of what lives"],
        Canary::TurnEndsInsideRecord => &["writers that never flush"],
        Canary::RoomNotPromised => &["fresh extents over a full log"],
        Canary::ReadUnchecked | Canary::DestageUnchecked => &["a block of the log rots"],
        Canary::CarriedUnchecked => &["carried: a block has rotted"],
        Canary::CarriedNotPutBack => &["carried: the log is refused"],
        Canary::CarriedOverNewer => &["carried: written meanwhile"],
        Canary::PageAheadAccepted | Canary::ProgressUncompared => {
            &["drives of other moments of a session"]
        }
        Canary::RunningFlushIgnored => &["flushes that overlap"],
        Canary::InPlaceTooEarly | Canary::DeferredOverWriters => {
            &["deferred: the mode is changed beside homes", SWITCHES]
        }
        Canary::ExposureForgotten => &["deferred: a write during a flush"],
        Canary::ExposureRejuvenated => &["deferred: small writes without a pause"],
        Canary::BytesUnbound => &["deferred: no more is ordered than the bound"],
        Canary::DoubtSettledTooWide => &["doubts: changes beside one another"],
        Canary::MirroredTooEarly | Canary::AloneOverPages | Canary::ThroughUnderLog => {
            &["through: clients beside one another"]
        }
        Canary::OtherCopiesTogether => &["through: extents far apart"],
        Canary::GivenBackNotYoung => &["kept: written as they are given back"],
        Canary::ReadOfBothMerged => &["through: copies beside homes"],
        Canary::DestageEndsAtFirst => &["the slow drive refuses some of what is destaged"],
        Canary::OrderKeptLate => &["deferred: the mode is changed beside whole extents below"],
        Canary::PromiseOfTheEnd => &["deferred: the mode is changed beside durable writes"],
        Canary::CleanBeforeMap => &["clean close"],
        Canary::AheadKeptOverWrite | Canary::AheadBegunUnderWrite => &["writes ahead of a stream"],
        Canary::CleanedNotFlushed => &[AT_REST],
        Canary::CopyLeftBehind => &["around: data, holes and copies"],
        Canary::KeptSlotReused | Canary::DirtyKeepsBelow => &[KEPT],
        Canary::PartReadAsWhole | Canary::PartForgotten => &[PARTS_GROWN],
        Canary::PartWrittenInPlace => &[PARTS_GROWN, PARTS_HOME],
        Canary::PartGivenUp | Canary::PartNotFlushed => &[PARTS_HOME],
        Canary::PartFilledOver => &["parts: filled as they are hot"],
        Canary::PartStaysAbove => &["parts: into write-through and back"],
        Canary::KeptOverReserve => &["kept: a full volume"],
        Canary::KeptNotMarked => &[KEPT_CHANGED],
        Canary::OriginalNotFlushed => &["through: what is copied at once"],
        Canary::SwitchedBeforeHome => &["back: into write-through over dirty copies"],
        Canary::SwitchedUnderWriters => {
            &["the mode of the cache changes while extents are written"]
        }
        Canary::DirtyCopyGivenUp | Canary::DirtyReadFromOriginal => {
            &["back: dirty copies leave, and cannot be read"]
        }
        Canary::AloneCopiesTogether => &["alone: holes"],
        Canary::AttachKeepsCopies | Canary::AttachUntold => {
            &["a new fast drive: data, holes and copies"]
        }
        Canary::RingFreedBeforeSuperblock => &["a full log"],
        Canary::FlushBesideIgnored => &[BESIDE],
        Canary::DoubtFailureIgnored => &[REFUSES],
        Canary::PartsOutOfOrder => &[PARTS],
        Canary::ToldBeyondBound => &[BOUND],
        Canary::DeferredOverUnflushed => &[SWITCHES, "deferred: the mode is changed under load"],
        Canary::StrictWithoutFlush => &["deferred: strict again over whole extents below"],
        Canary::DoubtNotMarked
        | Canary::DoubtNotFlushed
        | Canary::DoubtsUnheard
        | Canary::TornPageBelieved => &[DOUBTS],
        Canary::VouchedOverLog => &[DOUBTS_CLOSED],
        Canary::VouchedOverDirtyPage => &[DOUBTS_LEFT, DOUBTS],
        Canary::RegionVouchedForOne => &[DOUBTS_VAST],
        Canary::CopyWrittenClean => &[BACK],
        Canary::KeptTakenLate => &[CACHE_DESTAGE],
        Canary::ThroughLikeBack
        | Canary::HolesNotMirrored
        | Canary::NothingKept
        | Canary::AloneUntold
        | Canary::HoleOverGarbage
        | Canary::KeptLeftBehind
        | Canary::AloneNotFlushed
        | Canary::AloneUnmirrored
        | Canary::OtherCopiesNotWritten
        | Canary::OriginalNotDestaged => &[THROUGH],
        Canary::NotesTakenLate | Canary::NotesTakenWhenWritten => {
            &["homes are written beside a flush"]
        }
        Canary::LeavingMarkTrusted => &["doubts: changes as marks are taken away"],
        Canary::StageComingForgotten => &["hot extents are read again as they are written anew"],
        Canary::DestageFailureIgnored => &["the slow drive refuses what is destaged"],
        Canary::SlowPageIgnored => &["checkpoint upon checkpoint"],
        Canary::PageFailureIgnored => &["the slow drive refuses a page of the map"],
        Canary::FlushesStayAbove | Canary::BackBeforeTold => {
            &["the mode of the cache changes beside flushes"]
        }
        Canary::ToldTooLate => &["deferred: a drive that flushes slowly"],
        Canary::FlushedTooLate | Canary::TrimsNotExposed => &["deferred: changes that grow old"],
        Canary::FlushForgetsSlow | Canary::FreshOnSlowNotNoted => &["allocation on the slow drive"],
        Canary::DestageForgetsSlow => &["destage", DOUBTS],
        Canary::ForcedTrimNotFlushed => &["durable writes"],
        Canary::ReplayedFreshKeepsLog | Canary::ReplayedTrimKeepsLog => {
            &["trims", "rewriting whole extents"]
        }
        Canary::ReplayedDestageForgetsNewer => &["destage", "destage while clients write"],
        Canary::ReplayedDestageKeepsOlder => &["destage while clients write", "destage"],
        Canary::TailPassesLive | Canary::TailPassesMarks => {
            &[ZEROS, "checkpoint while clients write"]
        }
        _ => &[],
    }
}

/// The seed of a story and what its drives do not tear that are known to show it soon; the others come behind.
pub(crate) fn soonest(canary: Canary) -> Option<(u64, u32)> {
    Some(match canary {
        Canary::BehindInDeferred
        | Canary::CleanBeforeMap
        | Canary::PageOverNewerCopy
        | Canary::SameCopyAgain => (2, 512),
        Canary::InPlaceTooEarly | Canary::GivenBackNotYoung => (2, 4096),
        Canary::ReplayedDestageForgetsNewer => (3, 512),
        Canary::ReplayedDestageKeepsOlder => (3, 4096),
        Canary::OtherCopiesTogether => (5, 512),
        Canary::DeferredOverWriters
        | Canary::BackBeforeTold
        | Canary::OrderKeptLate
        | Canary::MirroredTooEarly => (1, 4096),
        _ => return None,
    })
}

/// Seeds of runs ([`crate::run::run`]) that are known to show it: they may do so no longer when the engine has
/// changed, or the stories.
pub(crate) fn runs(canary: Canary) -> &'static [u64] {
    match canary {
        Canary::MoveNotFlushed => &[10],
        Canary::MoveOverReplaced => &[12],
        Canary::DestageNotDurable => &[34],
        Canary::BoundForgotten => &[8],
        Canary::ReplayBeginsLate => &[19],
        Canary::DeferredInPlace => &[25],
        Canary::StageSpoiledKept => &[30],
        Canary::DestageTrustsHome => &[84],
        Canary::HomeNotNoted => &[20],
        _ => &[],
    }
}

/// As [`runs`], seeds of the swarm.
pub(crate) fn swarm_runs(canary: Canary) -> &'static [u64] {
    match canary {
        Canary::OneSuperblock => &[19],
        Canary::FlushFailureForgotten => &[36],
        Canary::ReplayBeginsLate => &[4],
        Canary::ReplayedFreshKeepsLog => &[1],
        Canary::GenerationsUncompared => &[14],
        _ => &[],
    }
}
