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
const VOLATILE: &str = "through: copies of what is volatile";
const BACK: &str = "back: clean copies are written";
const CACHE_MODE: &str = "the mode of the cache changes under load";
const CACHE_DESTAGE: &str = "the mode of the cache changes during a destage";
const BEHIND: &str = "behind: writes, reads and flushes";
const BEHIND_DEFERRED: &str = "behind: into deferred mode and back";
const BEHIND_REFUSED: &str = "behind: a drive refuses what was acknowledged";

/// Canaries that nobody has caught yet within what a test may take: holes in the hunt, until they are.
/// They are hunted when asked for by name.
pub const FREE: &[Canary] = &[
    Canary::SlotFreedWhenDurable,
    Canary::SlotFreedUnderReaders,
    Canary::RingFreedUnderReaders,
    Canary::RingFreedBeforeSuperblock,
    Canary::PagesBeforeChanges,
    Canary::PageSharesOpenRecord,
    Canary::PageOverNewerCopy,
    Canary::FreshUnchecked,
    Canary::RecoveryNotFlushed,
    Canary::ReadBeforeWritten,
    Canary::FlushBesideIgnored,
    Canary::LogFailureIgnored,
    Canary::OriginalNotFlushed,
    Canary::ThroughLikeBack,
    Canary::HolesNotMirrored,
    Canary::SwitchedBeforeHome,
    Canary::NothingKept,
    Canary::DoubtForgottenAtMove,
    Canary::ReplayNotDoubted,
    Canary::MirroredTooEarly,
    Canary::SameCopyAgain,
    Canary::OtherCopiesNotWritten,
    Canary::RecordedTooFar,
    Canary::WritingCountsAsWritten,
    Canary::DestageUnderWriter,
    Canary::DestageUnchecked,
    Canary::KeptTakenLate,
    Canary::SwitchedUnderWriters,
    Canary::RunningFlushIgnored,
    Canary::SlowFailureIgnored,
    Canary::FreshFailureIgnored,
    Canary::UnalignedIgnoresWriters,
    Canary::InPlaceWhileMoving,
    Canary::RoomNotPromised,
    Canary::LargeFailureIgnored,
    Canary::ReserveTaken,
    Canary::ClaimTooWide,
    Canary::PageAheadAccepted,
    Canary::RecordedTooWide,
    Canary::EpochTooWide,
    Canary::MoveUnderWriter,
    Canary::MoveOfUnreadable,
    Canary::DirtyCopyGivenUp,
    Canary::DoubtSettledTooWide,
    Canary::LaterDoubtCopyWins,
    Canary::OrderNotWritten,
    Canary::InPlaceTooEarly,
    Canary::DeferredOverWriters,
    Canary::ExposureForgotten,
    Canary::ExposureRejuvenated,
    Canary::AloneOverWriters,
    Canary::AloneOverPages,
    Canary::KeptLeftBehind,
    Canary::AloneNotFlushed,
    Canary::AloneCopiesTogether,
    Canary::ReadUnchecked,
    Canary::DirtyReadFromOriginal,
    Canary::ClaimNotDurable,
    Canary::OlderLapAccepted,
    Canary::StaleCopyLast,
    Canary::ProgressUncompared,
    Canary::RepairedTogether,
    Canary::BytesUnbound,
    Canary::SessionIgnored,
    Canary::StageReadUnderWrite,
    Canary::ThroughUnderLog,
    Canary::ClaimsForgotten,
    Canary::VouchedOverDirtyPage,
];

/// Names of stories, the likeliest first.
pub(crate) fn haunts(canary: Canary) -> &'static [&'static str] {
    match canary {
        Canary::RingFreedBeforeSuperblock => &["a full log"],
        Canary::PageSharesOpenRecord => &[ZEROS, IN_STEP],
        Canary::PagesNotFlushed
        | Canary::PageOverNewerCopy
        | Canary::SameCopyAgain
        | Canary::LonePageLeft
        | Canary::OlderPageTaken => &[CHECKPOINT, DOUBTS],
        Canary::RepairedTogether | Canary::StaleCopyLast | Canary::ReplayBeginsLate => {
            &[CHECKPOINT, RECOVERY]
        }
        Canary::FlushForgetsBehind | Canary::BehindNotSeen => &[BEHIND],
        Canary::BehindOvertaken => &[BEHIND, "behind: clients that write too much"],
        Canary::BehindInDeferred | Canary::BehindIntoDeferred => &[BEHIND_DEFERRED],
        Canary::BehindFailureIgnored | Canary::BehindLossForgotten => &[BEHIND_REFUSED],
        Canary::FlushBesideIgnored => &[BESIDE],
        Canary::DoubtFailureIgnored | Canary::SlowFailureIgnored => &[REFUSES],
        Canary::PartsOutOfOrder => &[PARTS],
        Canary::BytesUnbound | Canary::ToldBeyondBound => &[BOUND],
        Canary::DeferredOverUnflushed
        | Canary::StrictWithoutFlush
        | Canary::InPlaceTooEarly
        | Canary::DeferredOverWriters => &[SWITCHES, "deferred: the mode is changed under load"],
        Canary::DoubtNotMarked
        | Canary::DoubtNotFlushed
        | Canary::DoubtSettledTooWide
        | Canary::DoubtsUnheard
        | Canary::LaterDoubtCopyWins
        | Canary::WritingCountsAsWritten
        | Canary::ReplayNotDoubted
        | Canary::TornPageBelieved => &[DOUBTS],
        Canary::VouchedOverLog => &[DOUBTS_CLOSED],
        Canary::VouchedOverDirtyPage => &[DOUBTS_LEFT, DOUBTS],
        Canary::DoubtForgottenAtMove | Canary::RegionVouchedForOne => &[DOUBTS_VAST],
        Canary::CopyWrittenClean | Canary::DirtyCopyGivenUp => &[BACK],
        Canary::OriginalNotFlushed => &[VOLATILE],
        Canary::SwitchedBeforeHome | Canary::SwitchedUnderWriters => &[CACHE_MODE, CACHE_DESTAGE],
        Canary::KeptTakenLate => &[CACHE_DESTAGE],
        Canary::ThroughLikeBack
        | Canary::HolesNotMirrored
        | Canary::NothingKept
        | Canary::AloneUntold
        | Canary::HoleOverGarbage
        | Canary::AloneOverWriters
        | Canary::AloneOverPages
        | Canary::KeptLeftBehind
        | Canary::AloneNotFlushed
        | Canary::AloneCopiesTogether
        | Canary::AloneUnmirrored
        | Canary::MirroredTooEarly
        | Canary::OtherCopiesNotWritten
        | Canary::OriginalNotDestaged
        | Canary::ThroughUnderLog => &[THROUGH],
        Canary::DirtyReadFromOriginal => &[BACK, THROUGH],
        Canary::FlushForgetsSlow | Canary::FreshOnSlowNotNoted => &["allocation on the slow drive"],
        Canary::FreshUnchecked | Canary::ClaimsForgotten => {
            &["allocation on the fast drive", "allocation on the slow drive"]
        }
        Canary::SessionIgnored | Canary::RecoveryNotFlushed | Canary::SessionBeginsLate => {
            &[RECOVERY, "small writes and flushes"]
        }
        Canary::DestageForgetsSlow => &["destage", DOUBTS],
        Canary::ForcedTrimNotFlushed => &["durable writes"],
        Canary::ReplayedFreshKeepsLog | Canary::ReplayedTrimKeepsLog => {
            &["trims", "rewriting whole extents"]
        }
        Canary::ReplayedDestageForgetsNewer | Canary::ReplayedDestageKeepsOlder => {
            &["destage while clients write", "destage"]
        }
        Canary::OrderNotWritten => &["deferred: small writes and flushes"],
        Canary::TailPassesLive | Canary::TailPassesMarks => {
            &["checkpoint while clients write", ZEROS]
        }
        _ => &[],
    }
}

/// Seeds of the swarm that are known to show it: they may do so no longer when the engine has changed.
pub(crate) fn runs(canary: Canary) -> &'static [u64] {
    match canary {
        Canary::OneSuperblock => &[19],
        _ => &[],
    }
}
