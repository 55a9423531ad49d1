//! Published and measured side by side, in virtual time.
//!
//! * Each figure has a role: *calibrated* (the twin was fitted to it), *predicted* (it was not),
//!   *unexplained* (with the reason), *not run* (it needs more than a drive), or *no measurement* (a
//!   price, a specification, a count).
//! * A figure is within when its error is at most its tolerance. What misses is told as missed.

pub mod drives;
pub mod thomas_krenn;
pub mod volumes;

mod tolerance;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use serde::{Deserialize, Serialize};
use twin::Profile;

use crate::reference::{self, Row};

const UNEXPLAINED: &str = include_str!("../reference/unexplained.toml");

/// What a figure says about its twin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The twin was fitted to it.
    Calibrated,
    /// The twin was not.
    Predicted,
    /// The twin is not expected to give it.
    Unexplained,
    /// It needs more than a drive.
    NotRun,
    /// It is not a figure that a drive can give.
    NoMeasurement,
}

impl Role {
    /// As JSON spells it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Calibrated => "calibrated",
            Role::Predicted => "predicted",
            Role::Unexplained => "unexplained",
            Role::NotRun => "not-run",
            Role::NoMeasurement => "no-measurement",
        }
    }
}

/// One published figure and ours.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// The row of the reference.
    pub id: String,
    /// The publication.
    pub source: String,
    /// The twin and its condition.
    pub twin: Option<String>,
    /// What was printed; of a range its middle.
    pub published: Option<f64>,
    /// The range, where one was printed.
    pub published_range: Option<(f64, f64)>,
    /// What the twin gave.
    pub measured: Option<f64>,
    /// Of both.
    pub unit: String,
    /// Of the measured figure, as a share of the published one; 0 inside a range.
    pub error: Option<f64>,
    /// The greatest error that is within.
    pub tolerance: Option<f64>,
    /// Whether it is.
    pub within: Option<bool>,
    /// What it says about the twin.
    pub role: Role,
    /// Why it is unexplained or was not run.
    pub reason: Option<String>,
}

/// How many figures of a group there are, and how many are within their tolerances.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    /// A publication or a twin.
    pub name: String,
    /// Fitted, and of them within.
    pub calibrated: usize,
    /// See there.
    pub calibrated_within: usize,
    /// Not fitted, and of them within.
    pub predicted: usize,
    /// See there.
    pub predicted_within: usize,
    /// With a reason.
    pub unexplained: usize,
    /// Needs more than a drive.
    pub not_run: usize,
    /// Of the predicted ones: the mean of the errors without their signs.
    pub mean_error: Option<f64>,
    /// The middle one.
    pub median_error: Option<f64>,
}

/// Plays rows on a twin: a figure for each that it can answer.
type PlayOnTwin = fn(&Profile, &[&Row]) -> Vec<(String, f64)>;

/// How rows are played.
#[derive(Clone, Copy)]
enum Play {
    /// On a twin alone.
    Twin(PlayOnTwin),
    /// By the experiment of that name.
    Experiment(&'static str),
}

/// A part of the work: rows that are played on one drive without a break.
struct Work<'a> {
    /// The twin and its condition, or the place of an experiment.
    choice: &'static str,
    rows: Vec<&'a Row>,
    play: Play,
}

/// Compares the rows of one publication, or of all with `None`. `done` hears how many parts are
/// done, of how many.
pub fn compare(source: Option<&str>, done: &(dyn Fn(usize, usize) + Sync)) -> Vec<Figure> {
    let rows = reference::rows();
    let wanted: Vec<&Row> =
        rows.iter().filter(|row| source.is_none_or(|source| row.publication == source)).collect();
    let works = works(&wanted);
    let measured = Mutex::new(BTreeMap::new());
    let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(works.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(work) = works.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = match work.play {
                        Play::Twin(play) => {
                            let profile = Profile::named(work.choice);
                            play(&profile.expect("a test names every twin"), &work.rows)
                        }
                        Play::Experiment(name) => volumes::play(name, work.choice, &work.rows),
                    };
                    let mut measured = measured.lock().expect("no worker panics");
                    let with_twin =
                        found.into_iter().map(|(id, figure)| (id, (work.choice, figure)));
                    measured.extend(with_twin);
                    drop(measured);
                    done(ended.fetch_add(1, Ordering::Relaxed) + 1, works.len());
                }
            });
        }
    });
    let measured = measured.into_inner().expect("no worker panics");
    let judge = Judge::new(&rows);
    wanted.iter().map(|row| judge.figure(row, measured.get(&row.id))).collect()
}

/// The parts, the longest first, so that the workers end together.
fn works<'a>(rows: &[&'a Row]) -> Vec<Work<'a>> {
    let mut works = Vec::new();
    for (table, choice) in thomas_krenn::TABLES {
        let own = rows.iter().filter(|row| row.config.as_deref() == Some(table));
        let own: Vec<&Row> = own.copied().collect();
        if !own.is_empty() {
            works.push(Work { choice, rows: own, play: Play::Twin(thomas_krenn::play) });
        }
    }
    for (device, choice) in drives::DEVICES {
        let own = rows.iter().filter(|row| drives::device(row) == Some(*device));
        let own: Vec<&Row> = own.copied().collect();
        if !own.is_empty() {
            works.push(Work { choice, rows: own, play: Play::Twin(drives::play) });
        }
    }
    for (name, place, ids) in volumes::EXPERIMENTS {
        let own = rows.iter().filter(|row| ids.contains(&row.id.as_str()));
        let own: Vec<&Row> = own.copied().collect();
        if !own.is_empty() {
            works.push(Work { choice: place, rows: own, play: Play::Experiment(name) });
        }
    }
    let is_fusion = |work: &Work<'_>| matches!(work.play, Play::Experiment("fusion"));
    let long = ["fusion-io-iodrive", "raid5-4x-atp-velocity-sii", "raid5-4x-hus156060vl"];
    works.sort_by_key(|work| {
        if is_fusion(work) {
            return 0;
        }
        long.iter().position(|name| work.choice == *name).unwrap_or(long.len()) + 1
    });
    works
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unexplained {
    #[serde(rename = "schema")]
    _schema: u32,
    reason: Vec<Reason>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    rows: Vec<String>,
    except: Vec<String>,
    reason: String,
}

/// Whether `pattern`, in which a `*` stands for any text, fits the whole of `text`.
pub fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((front, rest)) => text.strip_prefix(front).is_some_and(|text| {
            text.char_indices()
                .map(|(index, _)| index)
                .chain([text.len()])
                .any(|index| fits(rest, &text[index..]))
        }),
    }
}

/// What it means how near a twin comes to a published row, wherever it is asked.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Whether a twin was fitted to it, or it is told why none explains it.
    pub role: Role,
    /// The greatest error that is within, as a share.
    pub tolerance: f64,
    /// Why it is unexplained.
    pub reason: Option<String>,
}

/// The standing of the row of that id, if there is one.
pub fn standing(id: &str) -> Option<&'static Standing> {
    static STANDINGS: OnceLock<BTreeMap<String, Standing>> = OnceLock::new();
    let standings = STANDINGS.get_or_init(|| {
        let rows = reference::rows();
        let judge = Judge::new(&rows);
        let each = rows.iter().map(|row| {
            let (role, reason) = judge.role(row, true);
            (row.id.clone(), Standing { role, tolerance: tolerance::of(row, &rows), reason })
        });
        each.collect()
    });
    standings.get(id)
}

struct Judge<'a> {
    rows: &'a [Row],
    fitted: BTreeSet<String>,
    unexplained: Vec<Reason>,
}

impl<'a> Judge<'a> {
    fn new(rows: &'a [Row]) -> Judge<'a> {
        let profiles = Profile::list();
        let numbers = profiles.iter().flat_map(|profile| profile.part().chain());
        let fitted = numbers.flat_map(|part| part.numbers.values()).flat_map(|n| n.rows.clone());
        let unexplained: Unexplained = match toml::from_str(UNEXPLAINED) {
            Ok(unexplained) => unexplained,
            Err(error) => panic!("a test reads every file of the program: {error}"),
        };
        let fitted = fitted.chain(volumes::FITTED.iter().map(|id| (*id).to_owned()));
        Judge { rows, fitted: fitted.collect(), unexplained: unexplained.reason }
    }

    /// What a row says about its twin, and why it does not.
    fn role(&self, row: &Row, is_measured: bool) -> (Role, Option<String>) {
        let why = self.unexplained.iter().find(|reason| {
            let any = |patterns: &[String]| patterns.iter().any(|pattern| fits(pattern, &row.id));
            any(&reason.rows) && !any(&reason.except)
        });
        match why {
            _ if self.fitted.contains(&row.id) && is_measured => (Role::Calibrated, None),
            Some(why) => (Role::Unexplained, Some(why.reason.clone())),
            None if is_measured => (Role::Predicted, None),
            None => drives::why_not(row),
        }
    }

    fn figure(&self, row: &Row, measured: Option<&(&'static str, f64)>) -> Figure {
        let range = row.published();
        let error = match (range, measured) {
            (Some(range), Some((_, measured))) => Some(error_of(row, range, *measured)),
            _ => None,
        };
        let (role, reason) = self.role(row, measured.is_some());
        let tolerance = error.map(|_| tolerance::of(row, self.rows));
        Figure {
            id: row.id.clone(),
            source: row.publication.clone(),
            twin: measured.map(|(choice, _)| (*choice).to_owned()),
            published: range.map(|(min, max)| (min + max) / 2.0),
            published_range: range.filter(|(min, max)| min < max),
            measured: measured.map(|(_, figure)| *figure),
            unit: if row.unit.is_empty() { row.metric.clone() } else { row.unit.clone() },
            error,
            tolerance,
            within: error.zip(tolerance).map(|(error, tolerance)| error.abs() <= tolerance),
            role,
            reason,
        }
    }
}

/// How far off as a share of what was published; a bound is kept or missed by so much.
fn error_of(row: &Row, (min, max): (f64, f64), measured: f64) -> f64 {
    let min = if row.bound.as_deref() == Some("upper") { f64::NEG_INFINITY } else { min };
    let max = if row.bound.as_deref() == Some("lower") { f64::INFINITY } else { max };
    if max == 0.0 {
        // Of nothing there is no share: the figure itself.
        measured
    } else if measured < min {
        measured / min - 1.0
    } else if measured > max {
        measured / max - 1.0
    } else {
        0.0
    }
}

/// Sums up by `group`: a publication, a twin.
pub fn summaries(figures: &[Figure], group: impl Fn(&Figure) -> Option<String>) -> Vec<Summary> {
    let mut groups: BTreeMap<String, Vec<&Figure>> = BTreeMap::new();
    for figure in figures {
        if let Some(name) = group(figure) {
            groups.entry(name).or_default().push(figure);
        }
    }
    groups.into_iter().map(|(name, figures)| summary(name, &figures)).collect()
}

/// Sums up some figures.
pub fn summary(name: String, figures: &[&Figure]) -> Summary {
    let mut summary = Summary { name, ..Summary::default() };
    let mut errors = Vec::new();
    for figure in figures {
        let within = usize::from(figure.within == Some(true));
        match figure.role {
            Role::Calibrated => {
                summary.calibrated += 1;
                summary.calibrated_within += within;
            }
            Role::Predicted => {
                summary.predicted += 1;
                summary.predicted_within += within;
                errors.extend(figure.error.map(f64::abs));
            }
            Role::Unexplained => summary.unexplained += 1,
            Role::NotRun => summary.not_run += 1,
            Role::NoMeasurement => {}
        }
    }
    if !errors.is_empty() {
        errors.sort_by(f64::total_cmp);
        summary.mean_error = Some(errors.iter().sum::<f64>() / errors.len() as f64);
        summary.median_error = Some(errors[errors.len() / 2]);
    }
    summary
}

#[cfg(test)]
mod tests;
