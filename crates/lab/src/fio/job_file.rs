//! Job files: sections of `option=value` lines, `[global]` for all that follow.

use std::fmt;

use super::job::Job;
use super::options;

/// A job file that can be played.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFile {
    /// Options of `[global]` as they were written.
    pub global: Vec<(String, String)>,
    /// The jobs, in order.
    pub jobs: Vec<Job>,
}

/// Why a job file is not played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The file as it was named.
    pub file: String,
    /// Counted from 1; 0 when it is about the whole file.
    pub line: usize,
    /// What was said there.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { file, line, text, problem } = self;
        match line {
            0 => write!(f, "{file}: {problem}"),
            _ => write!(f, "{file}:{line}: {text}: {problem}"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Sections of a file at most: a bound on what a hostile one makes of memory.
const JOBS_MAX: usize = 4096;

impl JobFile {
    /// Reads `text`; `file` names it in refusals.
    ///
    /// # Errors
    /// The first line that asks for something that cannot be played as fio would.
    pub fn parse(file: &str, text: &str) -> Result<JobFile, Refusal> {
        let mut global = Vec::new();
        let mut template = Job::new("global");
        // The job being read and the line it began at; `None` in [global].
        let mut open: Option<(Job, usize)> = None;
        let mut jobs: Vec<Job> = Vec::new();
        let mut in_section = false;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            let refuse = |problem: &str| Refusal {
                file: file.to_owned(),
                line: index + 1,
                text: line.to_owned(),
                problem: problem.to_owned(),
            };
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let name = rest.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
                let name = name.ok_or_else(|| refuse("it is not a section's name"))?;
                if let Some(done) = open.take() {
                    jobs.push(finished(file, done)?);
                }
                in_section = true;
                if name != "global" {
                    let job = Job { name: name.to_owned(), ..template.clone() };
                    open = Some((job, index + 1));
                }
                if jobs.len() >= JOBS_MAX {
                    return Err(refuse("there are too many jobs"));
                }
                continue;
            }
            let (option, value) = match line.split_once('=') {
                Some((option, value)) => (option.trim(), Some(value.trim())),
                None => (line, None),
            };
            if option == "include" || option.starts_with("include ") {
                return Err(refuse("other files are not included: put their lines here"));
            }
            if !in_section {
                return Err(refuse("it stands before the first [section]"));
            }
            if value.is_some_and(|value| value.contains("${")) {
                return Err(refuse("variables are not replaced: write the value"));
            }
            let job = open.as_mut().map_or(&mut template, |(job, _)| job);
            if option == "name" || option == "group_id" {
                return Err(refuse("a job is named by its [section]"));
            }
            options::set(job, option, value).map_err(|problem| refuse(&problem))?;
            let written = (option.to_owned(), value.unwrap_or("1").to_owned());
            match &mut open {
                Some((job, _)) => job.options.push(written),
                None => global.push(written),
            }
        }
        if let Some(done) = open.take() {
            jobs.push(finished(file, done)?);
        }
        if jobs.is_empty() {
            let problem = "it has no job: a [section] other than [global]".to_owned();
            return Err(Refusal { file: file.to_owned(), line: 0, text: String::new(), problem });
        }
        Ok(JobFile { global, jobs })
    }

    /// Whether any job changes what the target holds.
    pub fn changes_target(&self) -> bool {
        self.jobs.iter().any(Job::changes_target)
    }
}

fn finished(file: &str, (job, line): (Job, usize)) -> Result<Job, Refusal> {
    match job.problem() {
        None => Ok(job),
        Some(problem) => {
            let text = format!("[{}]", job.name);
            Err(Refusal { file: file.to_owned(), line, text, problem })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Amount, Blocks, Direction, Distribution};
    use super::*;

    const EXAMPLE: &str = "
; a comment
[global]
ioengine=libaio
direct=1
bs=4k
runtime=60
time_based

[scan]
rw=read
bs=1m
size=10%

# another
[hot]
stonewall
rw=randrw
rwmixread=70
iodepth=32
numjobs=4
random_distribution=zipf:1.2
rate_iops=100,200
";

    #[test]
    fn a_job_has_the_options_of_its_section_over_the_global_ones() {
        let file = JobFile::parse("x.fio", EXAMPLE).unwrap();
        let [scan, hot] = &file.jobs[..] else { panic!("two jobs") };
        assert_eq!((scan.name.as_str(), scan.size), ("scan", Some(Amount::Percent(10))));
        assert_eq!(scan.blocks.0, [const { Blocks::One(1 << 20) }; 3]);
        assert!(scan.time_based && !scan.barrier && !scan.changes_target());
        assert_eq!((hot.depth, hot.lanes(), hot.copies, hot.read_percent), (32, 32, 4, 70));
        assert_eq!(hot.distribution, Distribution::Zipf { theta: 1.2, center: None });
        assert_eq!(*hot.rate_iops.get(Direction::Write), Some(200));
        assert!(hot.barrier && hot.changes_target());
        assert_eq!(hot.blocks.0, [const { Blocks::One(4096) }; 3]);
        assert_eq!(file.global.len(), 5);
        assert_eq!(scan.options[1], ("bs".to_owned(), "1m".to_owned()));
    }

    #[test]
    fn what_cannot_be_played_is_refused_by_file_line_and_option() {
        let refused = |text: &str| JobFile::parse("bad.fio", text).unwrap_err().to_string();
        let said = refused("[a]\nrw=read\nverify=crc32c\n");
        assert_eq!(said, "bad.fio:3: verify=crc32c: only verify=0 can be played");
        let said = refused("[global]\nfilesize=8g\n[a]\nrw=read\nsize=1g\n");
        assert!(said.starts_with("bad.fio:2: filesize=8g: ") && said.contains("size="), "{said}");
        let said = refused("[a]\nrw=read\nblockalign=8k\n");
        assert_eq!(said, "bad.fio:3: blockalign=8k: it is not of the options that can be played");
        for (text, word) in [
            ("include other.fio\n", "included"),
            ("bs=4k\n[a]\n", "before the first"),
            ("[a\nrw=read", "section's name"),
            ("[a]\nrw=randread:8", "not known"),
            ("[a]\nbs=4k-8k", "not a size"),
            ("[a]\nioengine=rados", "engines"),
            ("[a]\ndirect=0", "page cache"),
            ("[a]\nsize=${SIZE}", "variables"),
            ("[a]\ntime_based", "needs runtime"),
            ("[a]\nrw", "needs a value"),
            ("[global]\nbs=4k", "no job"),
            ("[a]\nrate=1m\nrate_iops=10", "exclude"),
        ] {
            let said = refused(text);
            assert!(said.contains(word) && said.starts_with("bad.fio"), "{said}");
        }
    }

    #[test]
    fn regions_lie_inside_the_target_in_whole_blocks() {
        let job = |text: &str| JobFile::parse("x", text).unwrap().jobs.remove(0);
        assert_eq!(job("[a]\nbs=4k").region(10_000, 0), (0, 8192));
        assert_eq!(job("[a]\nbs=4k\noffset=50%\nsize=1m").region(1 << 20, 0), (1 << 19, 1 << 19));
        let shifted = job("[a]\nbs=1m\nsize=10m\noffset_increment=10m\nnumjobs=2");
        assert_eq!(shifted.region(1 << 30, 1), (10 << 20, 10 << 20));
        assert_eq!(job("[a]\noffset=2g").region(1 << 30, 0), (1 << 30, 0));
    }
}
