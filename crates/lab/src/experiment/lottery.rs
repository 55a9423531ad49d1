//! The ADMIN magazine's lottery: 100 tickets, each the name of one of ten files of 100 MB; the file is
//! read whole and timed. The files with many tickets seem fast and the others slow, on every drive,
//! because after its first draw a file is in the page cache.
//!
//! On real drives that is the page cache of the system; in virtual time one that keeps what was read
//! last, and gives it as fast as was published for a run from memory alone. The third run passes it by.

use twin::Random;

use super::{
    Bound, Chart, Experiment, Figure, FigureRecord, Measure, Published, RunRecord, Series, Stage,
    Step,
};
use crate::bench::{Memory, Moment, Outcome};

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
/// More than all files together.
const MEMORY_BYTES: u64 = 2 << 30;
/// Forgetting what is cached reads a block, which shall be none of a file's. The job covers all behind
/// it, so files lie behind this place.
const FORGOTTEN_AT: u64 = 0;
const FILES_AT: u64 = 1 << 20;
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

/// How the files are read: what was cached of them before is forgotten first, if it is to be.
fn jobs(forget: bool) -> String {
    let mut text =
        "[global]\nioengine=psync\ndirect=1\nrw=read\nbs=100k\ninvalidate=0\n".to_owned();
    if forget {
        text += &format!("\n[forget]\nbs=4k\noffset={FORGOTTEN_AT}\nio_size=4k\ninvalidate=1\n");
    }
    for (number, file) in drawn().into_iter().enumerate() {
        let index = u64::from(file as u32 - 'a' as u32);
        let start = FILES_AT + index * FILE_BYTES / 4096 * 4096;
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
        let memory = Published::row("ah-rate-cached")
            .map(|rate| Memory { bytes: MEMORY_BYTES, bytes_per_s: rate.value() * 1e6 });
        let step = |name: &str, renew, memory, job: String, figures| Step {
            name: name.to_owned(),
            renew,
            rest_s: 0,
            restart: false,
            cut: None,
            memory,
            job,
            figures,
            bound: Bound::default(),
        };
        vec![
            step(
                "first-run",
                true,
                memory,
                jobs(true),
                row(
                    "first run, empty page cache",
                    vec![
                        figure("ah-rate-f", "file f, 24 tickets", "MB/s", |o, _| rate(o, 'f')),
                        figure("ah-rate-j", "file j, 2 tickets", "MB/s", |o, _| rate(o, 'j')),
                        figure("ah-faults-first", "reads of the drive", "", drive_reads),
                    ],
                ),
            ),
            step(
                "second-run",
                false,
                memory,
                jobs(false),
                row(
                    "second run",
                    vec![
                        figure("ah-rate-cached", "file f, 24 tickets", "MB/s", |o, _| rate(o, 'f')),
                        figure("", "file j, 2 tickets", "MB/s", |o, _| rate(o, 'j')),
                        figure("ah-faults-second", "reads of the drive", "", drive_reads),
                    ],
                ),
            ),
            step(
                "without-cache",
                true,
                None,
                jobs(true),
                row(
                    "every ticket from the drive",
                    vec![
                        figure("", "file f, 24 tickets", "MB/s", |o, _| rate(o, 'f')),
                        figure("", "file j, 2 tickets", "MB/s", |o, _| rate(o, 'j')),
                        figure("", "reads of the drive", "", drive_reads),
                    ],
                ),
            ),
        ]
    }

    fn derived(&self, record: &RunRecord) -> Vec<FigureRecord> {
        let of = |step: &str, file| rate(&record.step(step)?.outcome, file);
        let factor = || Some(of("second-run", 'j')? / of("first-run", 'j')?);
        let id = record.virtual_time.then_some("ah-rate-factor");
        vec![FigureRecord::of(id, "second run", "against the first, rarest file", "", factor())]
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
                    let rate = rate(&step.outcome, *file);
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
            "In virtual time what comes from memory takes the published 206.5 MB/s, and what comes from the drive no \
             less; on a real drive it is the system's own page cache (a volume behind NBD has none here). The \
             source counted 15 page faults for ten files, its program's own among them."
                .to_owned(),
        ]
    }
}

/// Bytes a second of all reads of a file together (MB/s).
fn rate(outcome: &Outcome, file: char) -> Option<f64> {
    let of_file = || outcome.report.jobs.iter().filter(|job| job.jobname.ends_with(file));
    let bytes: u64 = of_file().map(|job| job.read.io_bytes).sum();
    let seconds: f64 =
        of_file().map(|job| job.read.io_bytes as f64 / job.read.bw_bytes.max(1) as f64).sum();
    (bytes > 0).then(|| bytes as f64 / 1e6 / seconds)
}

/// How often a file came from the drives, where they can be seen.
fn drive_reads(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    let drives = outcome.moments.iter().map(|moment| moment.drives.len()).max()?;
    let bytes: u64 = (0..drives).map(|drive| outcome.total(drive).read_bytes).sum();
    Some((bytes as f64 / FILE_BYTES as f64).round())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::JobFile;

    #[test]
    fn a_hundred_tickets_are_drawn_in_some_order() {
        let tickets = drawn();
        assert_eq!(tickets.len(), 100);
        assert_eq!(tickets.iter().filter(|file| **file == 'f').count(), 24);
        assert!(tickets.windows(2).any(|pair| pair[0] != pair[1]));
        let steps = Lottery.steps("twin:x", 1 << 40);
        for step in &steps {
            let jobs = JobFile::parse("x", &step.job).unwrap().jobs;
            assert_eq!(jobs.iter().filter(|job| job.name != "forget").count(), 100);
        }
        assert!(steps[0].memory.is_some() && steps[2].memory.is_none());
    }
}
