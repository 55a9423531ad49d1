//! The second boot on a hybrid drive: a machine is started again and again from a drive that may have
//! learnt what a start needs.
//!
//! The load is generated, and the same each time: a kernel read in one go, services that each read some of the
//! files of one package and work in between, a desktop that reads more at once, and a log that is written.
//! Processor time is part of a start on every drive; how much is an assumption, told in the notes.

use super::{
    Bound, Chart, Experiment, Figure, FigureRecord, Measure, RunRecord, Series, Stage, Step,
};
use crate::bench::{Moment, Outcome};

/// What is installed: a system, and behind it what its owner keeps.
const INSTALLED: &str = "20g";

/// Between two starts somebody works, or not: the drive rests.
const SESSION_S: u64 = 300;

/// Services, so many at a time: so many reads each, and so much work behind each read (µs).
const SERVICES: u64 = 20;
const SERVICES_AT_ONCE: u64 = 4;
const SERVICE_READS: u64 = 50;
const SERVICE_WORK_US: u64 = 15_000;
/// What a service reads of lies together, as the files of a package do.
const SERVICE_SPAN: &str = "6m";
/// Parts of the desktop, two at a time: so many reads each, four at a time, and work behind each four (µs).
const PARTS: u64 = 8;
const PARTS_AT_ONCE: u64 = 2;
const PART_READS: u64 = 100;
const PART_WORK_US: u64 = 10_000;
const PART_SPAN: &str = "12m";
/// Of a read on average.
const READ_BYTES: u64 = 48 << 10;

/// See the head of the file.
pub struct Boot;

/// One start.
fn start() -> String {
    let random = "rw=randread\nbssplit=4k/25:16k/25:32k/20:64k/15:160k/15\nnorandommap\n";
    let mut text = "[global]\nioengine=libaio\ndirect=1\n\n\
         [kernel]\nrw=read\nbs=128k\nsize=60m\n\n\
         [log]\nrw=write\nbs=4k\noffset=19g\nio_size=80k\nsize=1m\nrate_iops=40\n"
        .to_owned();
    let waits = |number: u64, at_once| {
        if number.is_multiple_of(at_once) { "stonewall\n" } else { "" }
    };
    for number in 0..SERVICES {
        let waits = waits(number, SERVICES_AT_ONCE);
        text += &format!(
            "\n[service-{number}]\n{waits}{random}offset={}m\nsize={SERVICE_SPAN}\nio_size={}\n\
             randrepeat=0\nrandseed={number}\nthinktime={SERVICE_WORK_US}\n",
            1000 * (number * 7 % SERVICES),
            SERVICE_READS * READ_BYTES,
        );
    }
    for number in 0..PARTS {
        let waits = waits(number, PARTS_AT_ONCE);
        text += &format!(
            "\n[desktop-{number}]\n{waits}{random}offset={}m\nsize={PART_SPAN}\nio_size={}\niodepth=4\n\
             randrepeat=0\nrandseed={number}\nthinktime={PART_WORK_US}\nthinktime_blocks=4\n",
            500 + 2000 * (number * 3 % PARTS),
            PART_READS * READ_BYTES,
        );
    }
    text
}

impl Experiment for Boot {
    fn name(&self) -> &str {
        "boot"
    }

    fn question(&self) -> &str {
        "Does a machine start sooner from a hybrid drive that has seen it start before?"
    }

    fn source(&self) -> &str {
        "ADMIN magazine 22/2014, The Benefit of Hybrid Drives"
    }

    fn stage(&self) -> Stage {
        Stage::Drive
    }

    fn steps(&self, _: &str, _: u64) -> Vec<Step> {
        let step = |name: &str, job: String, rest_s, restart, figures| Step {
            name: name.to_owned(),
            renew: false,
            rest_s,
            restart,
            cut: None,
            memory: None,
            job,
            figures,
            bound: Bound::default(),
        };
        let install = "rw=write\nbs=1m\niodepth=4\nioengine=libaio\ndirect=1\nend_fsync=1\n";
        let mut system = step(
            "install",
            format!("[install]\n{install}size={INSTALLED}\n"),
            0,
            false,
            Vec::new(),
        );
        system.renew = true;
        // Newer than the system, as files of its owner are.
        let owner = step(
            "files-of-the-owner",
            format!("[files]\n{install}offset={INSTALLED}\nsize=20g\n"),
            0,
            false,
            Vec::new(),
        );
        let boot = |number: u64| {
            let row = format!("start {number}");
            let figure = |column: &str, unit, measure: Measure| Figure {
                id: None,
                row: row.clone(),
                column: column.to_owned(),
                unit,
                measure,
            };
            let figures = vec![
                figure("time", "s", seconds),
                figure("read from the first drive", "MB", first_mb),
                figure("read from the second drive", "MB", second_mb),
            ];
            step(&format!("start-{number}"), start(), SESSION_S, true, figures)
        };
        vec![system, owner, boot(1), boot(2), boot(3)]
    }

    fn derived(&self, record: &RunRecord) -> Vec<FigureRecord> {
        let time = |name: &str| record.step(name).map(|step| step.outcome.seconds);
        let ratio = |name: &str| Some(time(name)? / time("start-1")?);
        let id = published_as(&record.on);
        let row = "time against that of the first start";
        vec![
            FigureRecord::of(id, row, "second start", "", ratio("start-2")),
            FigureRecord::of(None, row, "third start", "", ratio("start-3")),
        ]
    }

    fn charts(&self, record: &RunRecord) -> Vec<Chart> {
        let bars = record.steps.iter().filter(|step| step.name.starts_with("start-"));
        let bars = bars.map(|step| (step.name.replace('-', " "), step.outcome.seconds));
        let mut chart = Chart::new("boot", "Time that each start takes", "", "s");
        chart.series.push(Series::bars(record.on.clone(), false, bars.collect()));
        vec![chart]
    }

    fn notes(&self, bench: &str) -> Vec<String> {
        let (services, parts) = (SERVICES * SERVICE_READS, PARTS * PART_READS);
        let work_s = (services / SERVICES_AT_ONCE * SERVICE_WORK_US
            + parts / PARTS_AT_ONCE / 4 * PART_WORK_US) as f64
            / 1e6;
        let mut notes = vec![format!(
            "The load is generated: 60 MB in order, about {} reads of 4 to 160 KiB in {} places of {INSTALLED}, and {work_s} s of \
             processor time, as starts of that time took on an SSD. The source tells none of this.",
            services + parts,
            SERVICES + PARTS
        )];
        if !bench.contains(':') || bench.starts_with("nbd") {
            notes.push(
                "A real machine is not started again: its page cache is passed by, and a volume goes on being served."
                    .to_owned(),
            );
        }
        notes
    }
}

fn seconds(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    Some(outcome.seconds)
}

fn read_mb(outcome: &Outcome, drive: usize) -> Option<f64> {
    let known = outcome.moments.iter().any(|moment| moment.drives.len() > drive);
    known.then(|| outcome.total(drive).read_bytes as f64 / 1e6)
}

fn first_mb(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    read_mb(outcome, 0)
}

fn second_mb(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    read_mb(outcome, 1)
}

fn published_as(bench: &str) -> Option<&'static str> {
    let (_, drives) = bench.split_once(':')?;
    match drives.split([',', '+']).next()? {
        "st2000dx001-flash" => Some("ah-boot-hybrid"),
        "wd3200bekt" => Some("ah-boot-hdd"),
        "seagate-600-pro" => Some("ah-boot-ssd"),
        _ => None,
    }
}
