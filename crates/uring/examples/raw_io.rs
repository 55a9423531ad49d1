//! What the seam costs: random reads and writes of 4 KiB (or of KIB) through [`io::Device`], to be held
//! against fio on the same file.
//!
//! ```text
//! raw_io PATH [SECONDS [auto|ring|threads [KIB [MIB [read|write]]]]]
//! ```
//!
//! Anywhere on the drive, or in its first MIB.
//!
//! PATH is a file (made and filled, 256 MiB, if it is not there) or a block device, whose content
//! is destroyed. One line a run: access, queue depth, operations per second, and CPU microseconds
//! (user and system) per operation, of the executor's thread (what fio counts as its own) and of
//! the whole process (with the threads that the kernel or the pool add). No flushes. The numbers
//! are seeded, the same offsets come every time. The same with fio:
//!
//! ```text
//! fio --name=x --filename=PATH --ioengine=io_uring --direct=1 --bs=4k --rw=randread --iodepth=32
//!     --runtime=5 --time_based
//! ```

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use io::{Device, Io, IoError, WaitList};
use uring::{Access, Backend, Kernel, KernelOptions};

const USAGE: &str = "usage: raw_io PATH [SECONDS [auto|ring|threads [KIB [MIB [read|write]]]]]";
const FILE_BYTES: u64 = 256 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or(USAGE)?;
    let seconds: f64 = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let backend = match arguments.next().as_deref() {
        None | Some("auto") => Backend::Auto,
        Some("ring") => Backend::Ring,
        Some("threads") => Backend::Threads,
        Some(other) => return Err(format!("no backend is called '{other}'").into()),
    };
    let kib: u64 = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let mib: u64 = arguments.next().map_or(Ok(u64::MAX >> 20), |text| text.parse())?;
    let only = arguments.next();
    let path = Path::new(&path);
    let fresh = !path.exists();
    if fresh {
        std::fs::File::create(path)?.set_len(FILE_BYTES)?;
    }
    let (io, kernel) = Kernel::start(KernelOptions { backend, ..KernelOptions::default() })?;
    let device = kernel.open_device(path, Access::ReadWrite)?;
    println!("{}; {:?}", kernel.describe(), device.info());
    if fresh {
        io.block_on(fill(&io, &device))?;
    }
    let blocks = device.info().size_bytes.min(mib << 20) / (kib << 10);
    for access in ["read", "write"] {
        if only.as_ref().is_some_and(|only| only != access) {
            continue;
        }
        for depth in [1, 32] {
            let load = Load { writes: access == "write", depth, seconds, bytes: kib << 10, blocks };
            let run = measure(&io, &device, load)?;
            println!(
                "rand{access} {kib}k qd{depth}: {:.0} IOPS, CPU {:.2} us/op (process {:.2})",
                run.iops, run.thread_us, run.process_us
            );
        }
    }
    Ok(())
}

async fn fill(io: &Io, device: &Device) -> Result<(), IoError> {
    let step = 1 << 20;
    for at in (0..device.info().size_bytes).step_by(step) {
        let mut buf = io.pool().take(step.min((device.info().size_bytes - at) as usize));
        buf.fill(0xa5);
        device.write(at, buf).await.1?;
    }
    device.flush().await
}

/// What to do.
#[derive(Clone, Copy)]
struct Load {
    writes: bool,
    depth: usize,
    seconds: f64,
    bytes: u64,
    blocks: u64,
}

/// What came out: operations per second, and CPU microseconds per operation.
struct Run {
    iops: f64,
    thread_us: f64,
    process_us: f64,
}

fn measure(io: &Io, device: &Device, load: Load) -> Result<Run, IoError> {
    let Load { writes, depth, seconds, bytes, blocks } = load;
    let count = Rc::new(Cell::new(0u64));
    let running = Rc::new(Cell::new(depth));
    let ended = Rc::new(WaitList::new());
    let failed = Rc::new(RefCell::new(None));
    let started = Instant::now();
    let (thread_before_us, process_before_us) = cpu_us();
    let end_ns = io.now_ns() + (seconds * 1e9) as u64;
    for lane in 0..depth {
        let (io, device) = (io.clone(), device.clone());
        let (count, running) = (count.clone(), running.clone());
        let (ended, failed) = (ended.clone(), failed.clone());
        io.clone().spawn(async move {
            let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(lane as u64 + 1);
            let mut buf = io.pool().take(bytes as usize);
            while io.now_ns() < end_ns {
                // xorshift64: cheap, and good enough to spread addresses.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let at = state % blocks * bytes;
                let transfer = if writes { device.write(at, buf) } else { device.read(at, buf) };
                let (back, outcome) = transfer.await;
                buf = back;
                if let Err(error) = outcome {
                    *failed.borrow_mut() = Some(error);
                    break;
                }
                count.set(count.get() + 1);
            }
            running.set(running.get() - 1);
            ended.wake_all();
        });
    }
    io.block_on(ended.until(|| (running.get() == 0).then_some(())));
    if let Some(error) = failed.borrow_mut().take() {
        return Err(error);
    }
    let (thread_us, process_us) = cpu_us();
    let count = count.get() as f64;
    Ok(Run {
        iops: count / started.elapsed().as_secs_f64(),
        thread_us: (thread_us - thread_before_us) / count,
        process_us: (process_us - process_before_us) / count,
    })
}

/// CPU time so far, user and system, in microseconds: of this thread, and of the process.
fn cpu_us() -> (f64, f64) {
    let us = |clock| {
        let time = rustix::time::clock_gettime(clock);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    };
    (us(rustix::time::ClockId::ThreadCPUTime), us(rustix::time::ClockId::ProcessCPUTime))
}
