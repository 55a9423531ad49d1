//! The ADMIN magazine's lottery: 100 tickets, each the name of one of ten files of 100 MB; the file is
//! read whole and timed. The files with many tickets seem fast and the others slow, on every drive,
//! because after its first draw a file is in the page cache.
//!
//! The drive is read for real, once for each file, or at each ticket for the run without a cache;
//! what comes from memory takes the time that was published for a run from memory alone.

use twin::Random;

use super::{Bound, Chart, Experiment, Figure, Measure, Published, RunRecord, Series, Stage, Step};
use crate::bench::Outcome;

const FILE_BYTES: u64 = 100_000_000;
/// Tickets of each file, a to j: those of a, d, f and j are published, the others share what is left.
const TICKETS: [(char, usize); 10] = [
    ('a', 4),
    ('b', 10),
    ('c', 10),
    ('d', 10),
    ('e', 10),
    ('f', 24),
    ('g', 10),
    ('h', 10),
    ('i', 10),
    ('j', 2),
];
/// Decides the order of the draw.
const SEED: u64 = 22;

/// See the head of the file.
pub struct Lottery;

/// The tickets in the order they are drawn.
fn drawn() -> Vec<char> {
    let mut tickets: Vec<char> =
        TICKETS.iter().flat_map(|(file, count)| std::iter::repeat_n(*file, *count)).collect();
    let mut random = Random::new(SEED);
    for last in (1..tickets.len()).rev() {
        tickets.swap(last, random.below(last as u64 + 1) as usize);
    }
    tickets
}

/// The jobs that read a file at each of these tickets.
fn jobs(tickets: impl Iterator<Item = (usize, char)>) -> String {
    let mut text = "[global]\nioengine=psync\ndirect=1\nrw=read\nbs=100k\n".to_owned();
    for (number, file) in tickets {
        let index = u64::from(file as u32 - 'a' as u32);
        let start = index * FILE_BYTES / 4096 * 4096;
        text += &format!("\n[{number:03}-{file}]\nstonewall\noffset={start}\nsize={FILE_BYTES}\n");
    }
    text
}

impl Experiment for Lottery {
    fn name(&self) -> &str {
        "lottery"
    }

    fn question(&self) -> &str {
        "Does a hybrid drive learn which files are read often, or is it the page cache that does?"
    }

    fn source(&self) -> &str {
        "ADMIN magazine 22/2014, The Benefit of Hybrid Drives"
    }

    fn stage(&self) -> Stage {
        Stage::Drive
    }

    fn steps(&self, bench: &str, _: u64) -> Vec<Step> {
        let tickets = drawn();
        let firsts = tickets.iter().enumerate().filter(|(at, file)| !tickets[..*at].contains(file));
        let published = bench.starts_with("twin:");
        let figure = |id: &str, column: &str, unit, measure: Measure| Figure {
            id: (published && !id.is_empty()).then(|| id.to_owned()),
            row: String::new(),
            column: column.to_owned(),
            unit,
            measure,
        };
        let row = |name: &str, figures: Vec<Figure>| {
            let named = figures.into_iter().map(|figure| Figure { row: name.to_owned(), ..figure });
            named.collect::<Vec<_>>()
        };
        let step = |name: &str, job: String, figures| Step {
            name: name.to_owned(),
            renew: true,
            rest_s: 0,
            job,
            figures,
            bound: Bound::default(),
        };
        vec![
            step(
                "first-run",
                jobs(firsts.map(|(at, file)| (at, *file))),
                row(
                    "first run, empty page cache",
                    vec![
                        figure("ah-rate-f", "file f, 24 tickets", "MB/s", |o, _| {
                            cached_rate(o, 'f')
                        }),
                        figure("ah-rate-j", "file j, 2 tickets", "MB/s", |o, _| {
                            cached_rate(o, 'j')
                        }),
                        figure("ah-faults-first", "reads of the drive", "", |o, _| {
                            Some(o.report.jobs.len() as f64)
                        }),
                    ],
                ),
            ),
            step(
                "without-cache",
                jobs(tickets.iter().copied().enumerate()),
                row(
                    "every ticket from the drive",
                    vec![
                        figure("", "file f, 24 tickets", "MB/s", |o, _| drive_rate(o, 'f')),
                        figure("", "file j, 2 tickets", "MB/s", |o, _| drive_rate(o, 'j')),
                        figure("", "reads of the drive", "", |o, _| {
                            Some(o.report.jobs.len() as f64)
                        }),
                    ],
                ),
            ),
        ]
    }

    fn charts(&self, record: &RunRecord) -> Vec<Chart> {
        let mut chart = Chart::new(
            "lottery",
            "Read speed of a file over its tickets: the page cache makes it, on every drive",
            "tickets of the file",
            "MB/s",
        );
        for (step, kind) in [("first-run", ""), ("without-cache", ", no page cache")] {
            let Some(step) = record.step(step) else { continue };
            let mut points: Vec<(f64, f64)> = TICKETS
                .iter()
                .filter_map(|(file, count)| {
                    let rate = match kind {
                        "" => cached_rate(&step.outcome, *file),
                        _ => drive_rate(&step.outcome, *file),
                    };
                    Some((*count as f64, rate?))
                })
                .collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            chart.series.push(Series::line(format!("{}{kind}", record.on), points));
        }
        let published = [("ah-rate-j", 2.0), ("ah-rate-f", 24.0)];
        let points = published
            .iter()
            .filter_map(|(id, tickets)| Some((*tickets, Published::row(id)?.value())));
        chart.series.push(Series::published("published, drive not named", points.collect()));
        vec![chart]
    }

    fn notes(&self, _: &str) -> Vec<String> {
        vec![
            "Rates are bytes over time: the mean of the published rates would need a drive slower than any \
             (the source does not say which it took)."
                .to_owned(),
            "What comes from memory takes the published 206.5 MB/s; the drive is the twin's or the real one. \
             The source counted 15 page faults for ten files, its program's own among them."
                .to_owned(),
        ]
    }
}

/// Seconds that reading a file from memory takes.
fn memory_s() -> Option<f64> {
    Some(FILE_BYTES as f64 / (Published::row("ah-rate-cached")?.value() * 1e6))
}

/// Seconds of each read of a file from the drive. Reading it from memory has to be done as well, and is
/// what limits a fast drive.
fn drive_times(outcome: &Outcome, file: char) -> Option<Vec<f64>> {
    let memory_s = memory_s()?;
    let of_file = outcome.report.jobs.iter().filter(|job| job.jobname.ends_with(file));
    let seconds = of_file.map(|job| {
        let report = &job.read;
        (report.io_bytes as f64 / report.bw_bytes.max(1) as f64).max(memory_s)
    });
    Some(seconds.collect::<Vec<f64>>()).filter(|times| !times.is_empty())
}

fn drive_rate(outcome: &Outcome, file: char) -> Option<f64> {
    let times = drive_times(outcome, file)?;
    Some(times.len() as f64 * FILE_BYTES as f64 / 1e6 / times.iter().sum::<f64>())
}

fn cached_rate(outcome: &Outcome, file: char) -> Option<f64> {
    let tickets = TICKETS.iter().find(|(name, _)| *name == file)?.1 as f64;
    let times = drive_times(outcome, file)?;
    let seconds = times[0] + (tickets - 1.0) * memory_s()?;
    Some(tickets * FILE_BYTES as f64 / 1e6 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::JobFile;

    #[test]
    fn a_hundred_tickets_are_drawn_and_ten_of_them_read_the_drive() {
        let tickets = drawn();
        assert_eq!(tickets.len(), 100);
        assert_eq!(tickets.iter().filter(|file| **file == 'f').count(), 24);
        assert!(tickets.windows(2).any(|pair| pair[0] != pair[1]));
        let steps = Lottery.steps("twin:x", 1 << 40);
        let jobs = |index: usize| JobFile::parse("x", &steps[index].job).unwrap().jobs.len();
        assert_eq!((jobs(0), jobs(1)), (10, 100));
    }
}
