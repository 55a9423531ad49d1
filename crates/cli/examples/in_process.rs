//! The engine called in process, beside raw operations on a file of the same kind: what the
//! engine itself costs. Both go through the same seam and the same ring. fio's own io_uring engine, with registered
//! buffers and files, takes its turns at the same file where it is installed: what the file gives without a line of ours.
//!
//!     cargo run --release -p bimetal --example in_process -- DIRECTORY [SECONDS_PER_STEP] [--json] [--all]
//!
//! `--all` takes more depths, and reads and writes mixed. Rows are medians of three interleaved repetitions. The span (1 GiB) lies on the fast drive and
//! has been written before, so that reads are fast-drive hits and the file system allocates nothing.

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use engine::{CreateOptions, Engine, OpenOptions, create};
use io::units::{GIB, KIB, MIB, SECOND_NS};
use io::{Buf, Device, Durability, Gate, Io, IoError, Volume};
use uring::{Access, Kernel, KernelOptions};

const SPAN_BYTES: u64 = GIB;
const REPETITIONS: usize = 3;

#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    bytes: usize,
    depth: u64,
    writes: Writes,
    random: bool,
    flush: bool,
}

/// Which of the requests are writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    None,
    All,
    /// Three for seven reads.
    Some,
}

const STEPS: [Step; 11] = [
    step("4K random read, depth 1", 4 * KIB, 1, false, true),
    step("4K random read, depth 32", 4 * KIB, 32, false, true),
    step("4K random write, depth 1", 4 * KIB, 1, true, true),
    step("4K random write, depth 32", 4 * KIB, 32, true, true),
    Step { flush: true, ..step("4K write + flush, depth 1", 4 * KIB, 1, true, true) },
    Step { flush: true, ..step("4K write + flush, depth 32", 4 * KIB, 32, true, true) },
    step("128K sequential read, depth 4", 128 * KIB, 4, false, false),
    step("128K sequential write, depth 1", 128 * KIB, 1, true, false),
    step("128K sequential write, depth 4", 128 * KIB, 4, true, false),
    step("1M sequential read, depth 4", MIB, 4, false, false),
    step("1M sequential write, depth 4", MIB, 4, true, false),
];

/// With `--all`.
const MORE_STEPS: [Step; 7] = [
    step("4K random read, depth 8", 4 * KIB, 8, false, true),
    step("4K random read, depth 128", 4 * KIB, 128, false, true),
    step("4K random write, depth 8", 4 * KIB, 8, true, true),
    step("4K random write, depth 128", 4 * KIB, 128, true, true),
    Step { writes: Writes::Some, ..step("4K 70 % reads, depth 1", 4 * KIB, 1, false, true) },
    Step { writes: Writes::Some, ..step("4K 70 % reads, depth 32", 4 * KIB, 32, false, true) },
    Step { flush: true, ..step("4K write + flush, depth 8", 4 * KIB, 8, true, true) },
];

const fn step(name: &'static str, bytes: u64, depth: u64, write: bool, random: bool) -> Step {
    let writes = if write { Writes::All } else { Writes::None };
    Step { name, bytes: bytes as usize, depth, writes, random, flush: false }
}

/// What is measured: the same calls on the engine or on a bare device.
#[derive(Clone)]
enum Target {
    Engine(Engine),
    Raw(Device),
}

impl Target {
    async fn transfer(&self, write: bool, at: u64, buf: Buf) -> (Buf, Result<(), IoError>) {
        match self {
            Target::Engine(engine) if write => engine.write(at, buf, Durability::Volatile).await,
            Target::Engine(engine) => engine.read(at, buf).await,
            Target::Raw(device) if write => device.write(at, buf).await,
            Target::Raw(device) => device.read(at, buf).await,
        }
    }

    async fn flush(&self) -> Result<(), IoError> {
        match self {
            Target::Engine(engine) => engine.flush().await,
            Target::Raw(device) => device.flush().await,
        }
    }
}

/// Operations per second and CPU microseconds per operation.
#[derive(Clone, Copy)]
struct Rate {
    per_second: f64,
    cpu_us: f64,
}

/// Of one row, a turn after the other.
#[derive(Default)]
struct Rates {
    engine: Vec<Rate>,
    raw: Vec<Rate>,
    /// Empty where there is no fio.
    fio: Vec<Rate>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let (json, all) = (has("--json"), has("--all"));
    let mut plain = arguments.iter().filter(|argument| !argument.starts_with("--"));
    let directory = PathBuf::from(plain.next().ok_or("usage: in_process DIRECTORY [SECONDS]")?);
    let seconds: f64 = plain.next().map_or(Ok(3.0), |text| text.parse())?;

    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let fast = open_file(&kernel, &directory.join("in-process-fast.img"), SPAN_BYTES + 512 * MIB)?;
    let slow = open_file(&kernel, &directory.join("in-process-slow.img"), 4 * GIB)?;
    let raw_path = directory.join("in-process-raw.img");
    let raw = open_file(&kernel, &raw_path, SPAN_BYTES)?;
    let with_fio = Command::new("fio").arg("--version").output().is_ok();
    let more: &[Step] = if all { &MORE_STEPS } else { &[] };
    let steps = STEPS.iter().chain(more);
    let mut rows: Vec<(Step, Rates)> = steps.map(|step| (*step, Rates::default())).collect();
    let volume_status = io.block_on(async {
        let options = CreateOptions { landing_bytes: Some(128 * MIB), ..CreateOptions::new("b") };
        create(&io, &fast, &slow, options, &|_, _| ()).await?;
        let engine = Engine::open(&io, &fast, &slow, OpenOptions::default()).await?;
        let targets = [Target::Engine(engine.clone()), Target::Raw(raw)];
        for target in &targets {
            fill(&io, target).await?;
        }
        for repetition in 0..REPETITIONS {
            for (step, rates) in &mut rows {
                for (target, rates) in targets.iter().zip([&mut rates.engine, &mut rates.raw]) {
                    rates.push(measure(&io, target, *step, seconds, repetition as u64).await?);
                }
                if with_fio {
                    rates.fio.push(fio(&raw_path, *step, seconds)?);
                }
            }
        }
        let status = engine.status();
        engine.close().await?;
        Ok::<_, Box<dyn std::error::Error>>(status)
    })?;
    for name in ["fast", "slow", "raw"] {
        std::fs::remove_file(directory.join(format!("in-process-{name}.img")))?;
    }
    print(&rows, json, &kernel.describe(), volume_status.memory_bytes);
    Ok(())
}

fn open_file(kernel: &Kernel, path: &Path, bytes: u64) -> Result<Device, IoError> {
    let file = File::create(path).and_then(|file| file.set_len(bytes));
    file.map_err(|error| IoError::new(io::ErrorKind::Io, format!("{}: {error}", path.display())))?;
    kernel.open_device(path, Access::ReadWrite)
}

async fn fill(io: &Io, target: &Target) -> Result<(), IoError> {
    for at in (0..SPAN_BYTES).step_by(MIB as usize) {
        let mut buf = io.pool().take(MIB as usize);
        buf.fill((at >> 20) as u8 | 1);
        target.transfer(true, at, buf).await.1?;
    }
    target.flush().await
}

async fn measure(
    io: &Io,
    target: &Target,
    step: Step,
    seconds: f64,
    seed: u64,
) -> Result<Rate, IoError> {
    let operations = Rc::new(Cell::new(0u64));
    let end_ns = io.now_ns() + (seconds * SECOND_NS as f64) as u64;
    let gate = Gate::new(step.depth);
    let next = Rc::new(Cell::new(0u64));
    let random = Rc::new(Cell::new(seed.wrapping_mul(0x9e37_79b9) | 1));
    let failed: Rc<Cell<Option<IoError>>> = Rc::default();
    let (started_ns, started_cpu) = (io.now_ns(), cpu_ns());
    for _ in 0..step.depth {
        let (io2, target, pass) = (io.clone(), target.clone(), gate.enter(1).await);
        let (operations, next, random, failed) =
            (operations.clone(), next.clone(), random.clone(), failed.clone());
        io.spawn(async move {
            let slots = SPAN_BYTES / step.bytes as u64;
            let mut buf = io2.pool().take(step.bytes);
            while io2.now_ns() < end_ns {
                let slot = if step.random { draw(&random) } else { next.replace(next.get() + 1) };
                let write = match step.writes {
                    Writes::None => false,
                    Writes::All => true,
                    Writes::Some => draw(&random) % 10 < 3,
                };
                let (back, outcome) =
                    target.transfer(write, slot % slots * step.bytes as u64, buf).await;
                buf = back;
                let outcome = match outcome {
                    Ok(()) if step.flush => target.flush().await,
                    outcome => outcome,
                };
                if let Err(error) = outcome {
                    failed.set(Some(error));
                    break;
                }
                operations.set(operations.get() + 1);
            }
            drop(pass);
        });
    }
    drop(gate.enter(step.depth).await);
    if let Some(error) = failed.take() {
        return Err(error);
    }
    let wall = (io.now_ns() - started_ns) as f64 / SECOND_NS as f64;
    let count = operations.get() as f64;
    Ok(Rate { per_second: count / wall, cpu_us: (cpu_ns() - started_cpu) as f64 / 1e3 / count })
}

/// The same by fio, which has the file for itself meanwhile.
fn fio(path: &Path, step: Step, seconds: f64) -> Result<Rate, Box<dyn std::error::Error>> {
    let kind = match (step.random, step.writes) {
        (true, Writes::None) => "randread",
        (true, Writes::All) => "randwrite",
        (_, Writes::Some) => "randrw",
        (false, Writes::None) => "read",
        (false, Writes::All) => "write",
    };
    // With more than one under way a job's flush does not wait for the write before it: as many jobs as there are
    // clients, as each waits for its own here.
    let (jobs, depth) = if step.flush { (step.depth, 1) } else { (1, step.depth) };
    let output = Command::new("fio")
        .args(["--name=raw", "--ioengine=io_uring", "--direct=1", "--registerfiles", "--fixedbufs"])
        .args(["--norandommap", "--randrepeat=0", "--time_based", "--group_reporting"])
        .args(["--output-format=json", "--thread", "--allow_file_create=0", "--rwmixread=70"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--size={SPAN_BYTES}"))
        .arg(format!("--runtime={}ms", (seconds * 1e3) as u64))
        .args([format!("--rw={kind}"), format!("--bs={}", step.bytes)])
        .args([format!("--iodepth={depth}"), format!("--numjobs={jobs}")])
        .args(step.flush.then_some("--fsync=1"))
        .output()?;
    if !output.status.success() {
        return Err(format!("fio: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let job = &report["jobs"][0];
    let number = |value: &serde_json::Value| value.as_f64().ok_or("fio: a number is missing");
    // What a job does not do counts nothing.
    let both =
        |name: &str| Ok::<f64, &str>(number(&job["read"][name])? + number(&job["write"][name])?);
    let (per_second, count) = (both("iops")?, both("total_ios")?);
    let busy = (number(&job["usr_cpu"])? + number(&job["sys_cpu"])?) / 100.0;
    let wall_s = number(&job["read"]["runtime"])?.max(number(&job["write"]["runtime"])?) / 1e3;
    Ok(Rate { per_second, cpu_us: busy * wall_s * jobs as f64 * 1e6 / count })
}

/// xorshift64: the same places for both targets.
fn draw(state: &Cell<u64>) -> u64 {
    let mut x = state.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    state.set(x);
    x >> 8
}

/// CPU time of this process, user and system.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}

fn median(rates: &[Rate], of: impl Fn(&Rate) -> f64) -> f64 {
    let mut values: Vec<f64> = rates.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print(rows: &[(Step, Rates)], json: bool, backend: &str, memory_bytes: u64) {
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(step, Rates { engine, raw, fio })| {
                let of_fio = |of: fn(&Rate) -> f64| (!fio.is_empty()).then(|| median(fio, of));
                serde_json::json!({
                    "row": step.name,
                    "engine_per_second": median(engine, |rate| rate.per_second),
                    "engine_cpu_us": median(engine, |rate| rate.cpu_us),
                    "raw_per_second": median(raw, |rate| rate.per_second),
                    "raw_cpu_us": median(raw, |rate| rate.cpu_us),
                    "fio_per_second": of_fio(|rate| rate.per_second),
                    "fio_cpu_us": of_fio(|rate| rate.cpu_us),
                })
            })
            .collect();
        let memory = serde_json::json!({ "memory_bytes": memory_bytes, "backend": backend });
        println!("{}", serde_json::json!({ "in_process": rows, "volume": memory }));
        return;
    }
    println!("{backend}");
    println!(
        "{:<32} {:>10} {:>10} {:>6} {:>10} {:>6}  {:>9} {:>9} {:>9}",
        "row", "engine/s", "raw/s", "ratio", "fio/s", "ratio", "engine µs", "raw µs", "fio µs"
    );
    for (step, Rates { engine, raw, fio }) in rows {
        let rate = |rates: &[Rate]| median(rates, |rate| rate.per_second);
        let cpu = |rates: &[Rate]| median(rates, |rate| rate.cpu_us);
        let (fio_rate, fio_ratio, fio_cpu) = match fio.is_empty() {
            true => ("-".to_owned(), "-".to_owned(), "-".to_owned()),
            false => (
                format!("{:.0}", rate(fio)),
                format!("{:.2}", rate(engine) / rate(fio)),
                format!("{:.1}", cpu(fio)),
            ),
        };
        println!(
            "{:<32} {:>10.0} {:>10.0} {:>6.2} {fio_rate:>10} {fio_ratio:>6}  {:>9.1} {:>9.1} {fio_cpu:>9}",
            step.name,
            rate(engine),
            rate(raw),
            rate(engine) / rate(raw),
            cpu(engine),
            cpu(raw)
        );
    }
}
