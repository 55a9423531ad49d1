//! Quiet: the slow drive may sleep. What can wait, waits until it is awake anyway, or the landing log
//! is half full; each wake-up is counted with its cause.
//!
//! Whether a drive really spins down is for its own timer to say; here it counts as asleep when
//! nothing was asked of it for a while.

use std::fmt;
use std::rc::Rc;

use io::WaitList;
use io::units::{MILLISECOND_NS, SECOND_NS};

/// Nothing was asked of the slow drive for so long: it may be asleep. Drives that go to sleep wait
/// for minutes; this long after its last use work that has waited is done.
const AWAKE_NS: u64 = 30 * SECOND_NS;
/// A client asked for it so recently: it is in use. Work on it would meet the next request.
const IN_USE_NS: u64 = 50 * MILLISECOND_NS;

/// What woke the slow drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeCause {
    /// A client read what only it has.
    Read,
    /// A client wrote what goes there at once.
    Write,
    /// A client changed what was unchanged below since the slow drive was last brought up to date, and that drive has to know
    /// before a flush ends (`doubts.rs`).
    Mark,
    /// The landing log was half full.
    LogFull,
    /// Something else of the volume's own: a checkpoint that must be, a change of a setting.
    Upkeep,
}

impl fmt::Display for WakeCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WakeCause::Read => "a client read what only it has",
            WakeCause::Write => "a client wrote what goes there at once",
            WakeCause::Mark => "it was told what a client has changed since it went to sleep",
            WakeCause::LogFull => "the landing log is half full",
            WakeCause::Upkeep => "the volume's own upkeep could not wait",
        })
    }
}

/// How often the slow drive was woken, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wakes {
    /// See [`WakeCause::Read`].
    pub reads: u64,
    /// See [`WakeCause::Write`].
    pub writes: u64,
    /// See [`WakeCause::Mark`].
    pub marks: u64,
    /// See [`WakeCause::LogFull`].
    pub log_full: u64,
    /// See [`WakeCause::Upkeep`].
    pub upkeep: u64,
}

/// Whether the slow drive is left alone, and when it was last used.
pub(crate) struct Quiet {
    wanted: bool,
    used_ns: u64,
    /// By a client.
    asked_ns: u64,
    /// What the background works for.
    work: WakeCause,
    wakes: Wakes,
    /// The last wake-up that nobody was told of.
    news: Option<WakeCause>,
    /// Who wants to be told waits here.
    told: Rc<WaitList>,
}

impl Quiet {
    pub fn new(wanted: bool, now_ns: u64) -> Quiet {
        Quiet {
            wanted,
            used_ns: now_ns,
            asked_ns: 0,
            work: WakeCause::Upkeep,
            wakes: Wakes::default(),
            news: None,
            told: Rc::default(),
        }
    }

    pub fn set(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    /// The slow drive is used now, because of this.
    pub fn used(&mut self, cause: WakeCause, now_ns: u64) {
        let slept = now_ns > self.used_ns + AWAKE_NS;
        self.used_ns = now_ns;
        if matches!(cause, WakeCause::Read | WakeCause::Write) {
            self.asked_ns = now_ns;
        }
        if !self.wanted || !slept {
            return;
        }
        *match cause {
            WakeCause::Read => &mut self.wakes.reads,
            WakeCause::Write => &mut self.wakes.writes,
            WakeCause::Mark => &mut self.wakes.marks,
            WakeCause::LogFull => &mut self.wakes.log_full,
            WakeCause::Upkeep => &mut self.wakes.upkeep,
        } += 1;
        self.news = Some(cause);
        self.told.wake_all();
    }

    /// What the background does from here on is for this.
    pub fn begin_work(&mut self, cause: WakeCause) {
        self.work = cause;
    }

    /// The background uses the slow drive now.
    pub fn used_by_work(&mut self, now_ns: u64) {
        self.used(self.work, now_ns);
    }

    /// Whether clients want the slow drive just now.
    pub fn is_in_use(&self, now_ns: u64) -> bool {
        now_ns < self.asked_ns + IN_USE_NS
    }

    /// Whether work that can wait must, now: the slow drive may be asleep.
    pub fn waits(&self, now_ns: u64) -> bool {
        self.wanted && now_ns > self.used_ns + AWAKE_NS
    }

    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    pub fn wakes(&self) -> Wakes {
        self.wakes
    }

    /// Woken when there is news.
    pub fn told(&self) -> Rc<WaitList> {
        self.told.clone()
    }

    /// A wake-up that nobody was told of yet.
    pub fn take_news(&mut self) -> Option<WakeCause> {
        self.news.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_woken_once_and_by_what_came_first() {
        let mut quiet = Quiet::new(true, 0);
        quiet.used(WakeCause::Read, AWAKE_NS);
        assert_eq!(quiet.wakes(), Wakes::default(), "it was awake");
        assert!(!quiet.waits(2 * AWAKE_NS) && quiet.waits(2 * AWAKE_NS + 1));
        quiet.used(WakeCause::LogFull, 3 * AWAKE_NS);
        quiet.used(WakeCause::Read, 3 * AWAKE_NS);
        assert_eq!(quiet.wakes(), Wakes { log_full: 1, ..Wakes::default() });
        assert_eq!((quiet.take_news(), quiet.take_news()), (Some(WakeCause::LogFull), None));
        quiet.set(false);
        assert!(!quiet.waits(99 * AWAKE_NS));
    }
}
