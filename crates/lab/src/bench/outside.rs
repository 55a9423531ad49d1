//! Real drives and served volumes, measured by fio itself.

use std::fs::{self, File, TryLockError};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::measurer::Measurer;
use super::{Bench, Memory, Moment, Outcome, Traffic};
use crate::fio::{JobFile, Limits, Report};

/// What fio is pointed at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FioTarget {
    /// A block device or a file.
    Path(PathBuf),
    /// A volume behind the NBD door.
    Nbd(String),
}

/// Others look for moments at who has a drive.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Options of a job file that say what it works on, and how: the bench says that.
const REPLACED: &[&str] = &[
    "filename",
    "directory",
    "uri",
    "direct",
    "buffered",
    "write_bw_log",
    "write_lat_log",
    "write_iops_log",
];

/// fio at work on a real target.
pub struct FioBench {
    name: String,
    target: FioTarget,
    size_bytes: u64,
    /// The kernel caches nothing of it: device or file system take O_DIRECT.
    direct: bool,
    measurer: Measurer,
}

impl FioBench {
    /// fio on that target, which has so many bytes. Signals that ask the process to end are listened for from now
    /// on: they end fio first.
    ///
    /// # Errors
    /// When there is no fio.
    pub fn new(target: FioTarget, size_bytes: u64) -> Result<FioBench, String> {
        let measurer = Measurer::new()?;
        let name = match &target {
            FioTarget::Path(path) => path.display().to_string(),
            FioTarget::Nbd(uri) => uri.clone(),
        };
        let direct = match &target {
            FioTarget::Path(path) => takes_direct(path),
            FioTarget::Nbd(_) => false,
        };
        Ok(FioBench { name, target, size_bytes, direct, measurer })
    }

    /// The job file as fio gets it: with this target, and nothing else of its own.
    /// With `cached` it goes through the page cache, where there is one, which keeps what it holds.
    pub fn job_text(&self, text: &str, limits: Limits, cached: bool) -> String {
        let mut out = String::from("[global]\n");
        match &self.target {
            FioTarget::Path(path) => {
                out += &format!("filename={}\n", path.display().to_string().replace(':', "\\:"));
                let direct = u8::from(self.direct && !cached);
                out += &format!("direct={direct}\nallow_mounted_write=0\n");
            }
            FioTarget::Nbd(uri) => out += &format!("ioengine=nbd\nuri={uri}\n"),
        }
        let most_s = limits.run_ns.map(|ns| ns.div_ceil(1_000_000_000));
        if let Some(most_s) = most_s {
            // For jobs that name no time of their own; a shorter one comes later and wins.
            out += &format!("runtime={most_s}\n");
        }
        let nbd = matches!(self.target, FioTarget::Nbd(_));
        for line in text.lines() {
            let option = line.split('=').next().unwrap_or_default().trim();
            let longer = option == "runtime"
                && most_s
                    .zip(seconds_of(line))
                    .is_some_and(|(most_s, own_s)| own_s > most_s as f64);
            if REPLACED.contains(&option) || longer || nbd && option == "ioengine" {
                continue;
            }
            out += line;
            out.push('\n');
        }
        out
    }
}

/// The seconds that an option names; fio counts in seconds unless a unit follows.
fn seconds_of(line: &str) -> Option<f64> {
    let value = line.split_once('=')?.1.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let unit_s = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Some(number * unit_s)
}

fn takes_direct(path: &std::path::Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    // O_DIRECT as Linux on x86 and most others has it; a file system without it says EINVAL.
    const O_DIRECT: i32 = 0o40000;
    fs::OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path).is_ok()
}

/// Locks a drive for as long as fio works on it, as a server of a volume does: neither begins beside the
/// other. One that is only read may be somebody's: the caller has been told, and wants it.
fn lock(target: &FioTarget, changes: bool) -> Result<Option<File>, String> {
    let FioTarget::Path(path) = target else { return Ok(None) };
    let problem = |what: &str| format!("{} {what}", path.display());
    let file = File::open(path).map_err(|error| problem(&format!("cannot be opened: {error}")))?;
    for _ in 0..LOCK_ATTEMPTS {
        let locked = if changes { file.try_lock() } else { file.try_lock_shared() };
        match locked {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if changes => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Ok(None),
            // Some network file systems have no locks.
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
    Err(problem("is in use by another program, such as a server of its volume: end that first"))
}

/// What the kernel has sent to a block device so far.
fn sent(target: &FioTarget) -> Option<Traffic> {
    let FioTarget::Path(path) = target else { return None };
    let name = fs::canonicalize(path).ok()?.file_name()?.to_owned();
    let text =
        fs::read_to_string(PathBuf::from("/sys/class/block").join(name).join("stat")).ok()?;
    let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // Documentation/block/stat.rst: requests, merges, sectors of 512 bytes, time; reads, then writes.
    let [reads, _, read_sectors, _, writes, _, write_sectors, ..] = fields[..] else { return None };
    Some(Traffic {
        reads,
        writes,
        read_bytes: read_sectors * 512,
        write_bytes: write_sectors * 512,
    })
}

impl Bench for FioBench {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_virtual(&self) -> bool {
        false
    }

    fn is_file(&self) -> bool {
        matches!(&self.target, FioTarget::Path(path) if path.is_file())
    }

    fn drives(&self) -> Vec<String> {
        if sent(&self.target).is_some() { vec![self.name.clone()] } else { Vec::new() }
    }

    fn renew(&mut self) -> Result<(), String> {
        // A real drive is as it is.
        Ok(())
    }

    fn play(
        &mut self,
        file: &JobFile,
        text: &str,
        limits: Limits,
        memory: Option<Memory>,
    ) -> Result<Outcome, String> {
        let dir =
            tempfile::tempdir().map_err(|error| format!("no room for a job file: {error}"))?;
        let job = dir.path().join("job.fio");
        let text = self.job_text(text, limits, memory.is_some());
        fs::write(&job, text)
            .map_err(|error| format!("cannot write {}: {error}", job.display()))?;
        let (began, before) = (Instant::now(), sent(&self.target));
        let changes = file.changes_target();
        let _lock = lock(&self.target, changes)?;
        let run = self.measurer.run(&job, !changes)?;
        let printed = String::from_utf8_lossy(&run.stdout);
        let said = String::from_utf8_lossy(&run.stderr);
        let problem = || format!("fio failed on {}: {}", self.name, said.trim());
        // Notes may stand before the document.
        let document = printed.find('{').map(|at| &printed[at..]).ok_or_else(problem)?;
        let report: Report = serde_json::from_str(document)
            .map_err(|error| format!("fio's report is not understood: {error}; {}", said.trim()))?;
        if !run.status.success() || report.jobs.iter().any(|job| job.error != 0) {
            return Err(problem());
        }
        let seconds = began.elapsed().as_secs_f64();
        // One moment for the whole step: while fio measures, nothing else shall run.
        let moments = before.zip(sent(&self.target)).map(|(before, now)| Moment {
            at_s: seconds.ceil() as u64,
            drives: vec![Traffic {
                reads: now.reads - before.reads,
                writes: now.writes - before.writes,
                read_bytes: now.read_bytes - before.read_bytes,
                write_bytes: now.write_bytes - before.write_bytes,
            }],
        });
        let (moments, logs) = (moments.into_iter().collect(), Vec::new());
        Ok(Outcome { report, moments, logs, seconds, verdict: None })
    }

    fn rest(&mut self, duration_ns: u64) -> Result<Vec<Moment>, String> {
        self.measurer.rest(Duration::from_nanos(duration_ns))?;
        Ok(Vec::new())
    }

    fn restart(&mut self) -> Result<(), String> {
        // Jobs pass by the page cache; whether the machine is started again is its owner's affair.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn fio_that_only_reads_does_not_replace_a_file_that_is_too_short() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        let Ok(mut bench) = FioBench::new(FioTarget::Path(path.clone()), 1 << 20) else {
            println!("SKIPPED: fio is not installed");
            return;
        };
        let text = "[r]\nrw=read\nsize=2m\n";
        let file = JobFile::parse("r.fio", text).unwrap();
        let limits = Limits { run_ns: None, requests: None };
        let refusal = bench.play(&file, text, limits, None).unwrap_err();
        assert!(refusal.contains("fio failed on"), "{refusal}");
        assert_eq!(fs::metadata(&path).unwrap().ino(), before, "it was replaced");
        assert!(fs::read(&path).unwrap() == vec![7; 1 << 20]);
    }
}
