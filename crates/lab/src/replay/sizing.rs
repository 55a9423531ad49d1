//! How large the fast drive of a volume should be: the trace played on volumes with fast drives of
//! several sizes, by the engine that ships.
//!
//! The first part of the trace warms up, the rest counts, in parts, so that it can be said whether a size
//! keeps its promise all the time or only on average.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::Serialize;

use super::{Ground, Outcome, Pair, PairSpec, Speed};

/// Parts in which what counts is looked at.
const PARTS: usize = 5;
/// Without a goal: a larger drive must save at least this share of the slow drive's time.
const WORTHWHILE: f64 = 0.10;
/// A larger drive with which the slow one takes longer by this share is worth a word. Less comes of what
/// happens to be moved when.
const RISE: f64 = 0.02;
/// Seconds in a year.
const YEAR_S: f64 = 365.25 * 86_400.0;

/// What the fast drive shall achieve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// 99 of 100 reads and writes take at most so many milliseconds.
    P99Ms(f64),
    /// At least this share of the read bytes comes without the slow drive, 0 to 1.
    Hit(f64),
    /// No larger one would save the slow drive more than a tenth of its time any more.
    Worthwhile,
}

/// What is tried.
#[derive(Debug, Clone)]
pub struct Sizing {
    /// The drives; of the fast one, only its kind.
    pub pair: PairSpec,
    /// Room on the fast drive for data and log, in bytes, in rising order.
    pub rooms: Vec<u64>,
    /// Requests that warm up.
    pub warm_up: usize,
    /// How fast.
    pub speed: Speed,
    /// What is wanted.
    pub goal: Goal,
    /// How often the flash may be written fully.
    pub full_writes: f64,
}

/// One size.
#[derive(Debug, Clone, Serialize)]
pub struct Size {
    /// Room for data and log, in bytes.
    pub room_bytes: u64,
    /// That, in percent of what the trace touches.
    pub percent: f64,
    /// What came of it.
    pub outcome: Outcome,
    /// In how many parts of the trace the goal was reached.
    pub parts_reached: usize,
    /// Parts that were looked at.
    pub parts: usize,
    /// Years until the flash has been written as often as it may be, if the trace has times.
    pub flash_years: Option<f64>,
}

/// A size that was tried, or why it could not be.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Try {
    /// It was.
    Tried(Box<Size>),
    /// It could not be.
    Refused {
        /// Room for data and log, in bytes.
        room_bytes: u64,
        /// Why not.
        why: String,
    },
}

/// Which size to take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// Room for data and log, in bytes; `None`: no size that was tried does it.
    pub room_bytes: Option<u64>,
    /// Why, and how sure that is.
    pub why: String,
}

impl Sizing {
    /// Plays the trace once for each size, on all cores. `progress` is told how many requests more
    /// have been played.
    pub fn run(&self, ground: &Ground, progress: &(dyn Fn(u64) + Sync)) -> Vec<Try> {
        let next = AtomicUsize::new(0);
        let tries: Mutex<Vec<(usize, Try)>> = Mutex::default();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..cores.min(self.rooms.len()) {
                scope.spawn(|| {
                    // The largest take longest: they begin first.
                    while let Some(index) =
                        self.rooms.len().checked_sub(1 + next.fetch_add(1, Ordering::Relaxed))
                    {
                        let tried = self.one(self.rooms[index], ground, progress);
                        tries.lock().expect("no thread panics with it").push((index, tried));
                    }
                });
            }
        });
        let mut tries = tries.into_inner().expect("no thread panics with it");
        tries.sort_unstable_by_key(|(index, _)| *index);
        tries.into_iter().map(|(_, tried)| tried).collect()
    }

    fn one(&self, room_bytes: u64, ground: &Ground, progress: &dyn Fn(u64)) -> Try {
        let played = self.pair.with_fast_room(room_bytes, ground).and_then(|pair| {
            let pair = Pair::new(&pair, ground)?;
            pair.play_in_parts(ground, self.warm_up, PARTS, self.speed, progress)
        });
        match played {
            Err(why) => Try::Refused { room_bytes, why },
            Ok((outcome, parts)) => {
                let judged = parts.iter().filter(|part| self.goal.is_judged_by(part));
                let parts = judged.clone().count();
                let reached = judged.filter(|part| self.goal.is_reached_by(part)).count();
                let written = outcome.volume.as_ref().map_or(0, |volume| volume.fast_written_bytes);
                let years = room_bytes as f64 * self.full_writes / written.max(1) as f64
                    * outcome.seconds
                    / YEAR_S;
                Try::Tried(Box::new(Size {
                    room_bytes,
                    percent: room_bytes as f64 * 100.0 / ground.touched_bytes().max(1) as f64,
                    parts_reached: reached,
                    parts,
                    flash_years: (self.speed == Speed::Original).then_some(years),
                    outcome,
                }))
            }
        }
    }

    /// The smallest of these sizes that reaches the goal. Sizes are those of [`Sizing::run`], in rising order.
    pub fn advice(&self, tries: &[Try]) -> Advice {
        let sizes: Vec<&Size> = tries
            .iter()
            .filter_map(|tried| match tried {
                Try::Tried(size) => Some(&**size),
                Try::Refused { .. } => None,
            })
            .collect();
        if self.goal == Goal::Worthwhile {
            return worthwhile(&sizes);
        }
        if !sizes.iter().any(|size| self.goal.is_judged_by(&size.outcome)) {
            let why = "the trace has nothing behind its warm-up by which the goal could be judged";
            return Advice { room_bytes: None, why: why.to_owned() };
        }
        let Some(place) = sizes.iter().position(|size| self.goal.is_reached_by(&size.outcome))
        else {
            let why = "no size that was tried reaches the goal: what is missed is read for the first \
                       time, or more is written than the slow drive takes";
            return Advice { room_bytes: None, why: why.to_owned() };
        };
        let size = sizes[place];
        let mut why = format!(
            "the goal is reached over all, and in {} of {} parts of the trace",
            size.parts_reached, size.parts
        );
        if let Some(smaller) = place.checked_sub(1).map(|place| sizes[place]) {
            why += &format!("; the next smaller size reaches it in {}", smaller.parts_reached);
        }
        let later = sizes[place..].iter().filter(|size| !self.goal.is_reached_by(&size.outcome));
        if later.count() > 0 {
            why += "; not every larger size reaches it, so it is a close thing";
        }
        Advice { room_bytes: Some(size.room_bytes), why }
    }
}

/// The smallest size at which no larger one saves the slow drive more than a tenth of its time. All larger
/// ones are asked, and not the next alone: by how much one step saves depends on which sizes were tried,
/// and a larger drive may do worse than a smaller one, by chance or because more was moved.
fn worthwhile(sizes: &[&Size]) -> Advice {
    let busy_s =
        |size: &Size| size.outcome.volume.as_ref().map_or(0.0, |volume| volume.slow_busy_s);
    let saves = |larger: &Size, size: &Size| busy_s(larger) < busy_s(size) * (1.0 - WORTHWHILE);
    let is_enough =
        |place: &usize| sizes[*place..].iter().all(|larger| !saves(larger, sizes[*place]));
    // Nothing is larger than the last.
    let Some(place) = (0..sizes.len()).find(is_enough) else {
        return Advice { room_bytes: None, why: "no size could be tried".to_owned() };
    };
    let (is_first, is_last) = (place == 0, place + 1 == sizes.len());
    let mut why = match (is_first, is_last) {
        (true, true) => "it is the only size that was tried",
        // Each smaller one leaves that to a larger one, and so to the last in the end.
        (false, true) => {
            "it saves more than a tenth of the slow drive's time at each smaller size that was tried"
        }
        (true, false) => {
            "no larger size that was tried saves more than a tenth of the slow drive's time; smaller \
             ones may be enough, too"
        }
        (false, false) => {
            "no larger size that was tried saves more than a tenth of the slow drive's time, and at \
             each smaller one some larger one does"
        }
    }
    .to_owned();
    // Beyond all that is touched there is nothing to win.
    if is_last && sizes[place].percent < 100.0 {
        why += "; try larger ones";
    }
    if sizes.windows(2).any(|pair| busy_s(pair[1]) > busy_s(pair[0]) * (1.0 + RISE)) {
        why += "; that time does not fall with every larger size";
    }
    Advice { room_bytes: Some(sizes[place].room_bytes), why }
}

impl Goal {
    /// Whether something was measured that it speaks of.
    fn is_judged_by(self, outcome: &Outcome) -> bool {
        match self {
            Goal::P99Ms(_) => outcome.reads + outcome.writes > 0,
            Goal::Hit(_) => outcome.reads > 0,
            Goal::Worthwhile => true,
        }
    }

    /// Whether that is good enough.
    pub fn is_reached_by(self, outcome: &Outcome) -> bool {
        if !self.is_judged_by(outcome) {
            return false;
        }
        match self {
            Goal::P99Ms(ms) => outcome.latency.p99_us <= ms * 1e3,
            Goal::Hit(share) => {
                outcome.volume.as_ref().is_some_and(|volume| volume.read_hit >= share)
            }
            Goal::Worthwhile => true,
        }
    }
}
