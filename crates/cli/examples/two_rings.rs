//! What a second ring would bring a volume: the engine asked by its own thread, and by messages from a thread with a ring
//! of its own, which does nothing else. A door on that thread could be no faster than this.
//!
//!     cargo run --release -p bimetal --example two_rings -- DIRECTORY [SECONDS_PER_STEP]
//!
//! Rows are medians of five interleaved repetitions; hits of the fast drive. A message carries all that one thread has for
//! the other at that moment, and places only: no data crosses.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;

use engine::{CreateOptions, Engine, OpenOptions, create};
use io::units::{GIB, KIB, MIB, SECOND_NS};
use io::{Device, Durability, Hands, Io, IoError, Receiver, Sender, Volume, WaitList, mailbox};
use rustix::time::{ClockId, clock_gettime};
use uring::{Access, Kernel, KernelOptions};

const SPAN_BYTES: u64 = GIB;
const BLOCK_BYTES: u64 = 4 * KIB;
const REPETITIONS: usize = 5;
const STEPS: [(&str, bool, u64); 4] = [
    ("4K random read, depth 1", false, 1),
    ("4K random read, depth 32", false, 32),
    ("4K random write, depth 1", true, 1),
    ("4K random write, depth 32", true, 32),
];

/// What is asked of the owner, all in one message: places.
type Asked = Vec<u64>;

#[derive(Clone, Copy)]
struct Rate {
    per_second: f64,
    /// Of the thread that owns the volume, per request.
    owner_us: f64,
    /// Of both.
    all_us: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = PathBuf::from(arguments.first().ok_or("usage: two_rings DIRECTORY [SECONDS]")?);
    let seconds: f64 = arguments.get(1).map_or(Ok(2.0), |text| text.parse())?;
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let fast = open_file(&kernel, &directory.join("two-rings-fast.img"), SPAN_BYTES + 512 * MIB)?;
    let slow = open_file(&kernel, &directory.join("two-rings-slow.img"), 4 * GIB)?;
    let mut rows = STEPS.map(|_| [Vec::new(), Vec::new()]);
    io.block_on(async {
        let options = CreateOptions { landing_bytes: Some(128 * MIB), ..CreateOptions::new("b") };
        create(&io, &fast, &slow, options, &|_, _| ()).await?;
        let engine = Engine::open(&io, &fast, &slow, OpenOptions::default()).await?;
        for at in (0..SPAN_BYTES).step_by(MIB as usize) {
            let mut buf = io.pool().take(MIB as usize);
            buf.fill((at >> 20) as u8 | 1);
            engine.write(at, buf, Durability::Volatile).await.1?;
        }
        engine.flush().await?;
        for _ in 0..REPETITIONS {
            for ((_, writes, depth), row) in STEPS.iter().zip(&mut rows) {
                row[0].push(by_itself(&io, &engine, (*writes, *depth), seconds).await?);
                row[1].push(by_message(&io, &engine, (*writes, *depth), seconds).await?);
            }
        }
        engine.close().await?;
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    for name in ["fast", "slow"] {
        std::fs::remove_file(directory.join(format!("two-rings-{name}.img")))?;
    }
    println!(
        "{:<28} {:>10} {:>12} {:>6}  {:>9} {:>11} {:>9}",
        "", "one ring/s", "two rings/s", "ratio", "owner, µs", "owner of 2", "both, µs"
    );
    for ((name, _, _), [one, two]) in STEPS.iter().zip(&rows) {
        let rate = |rates: &[Rate]| median(rates, |rate| rate.per_second);
        println!(
            "{name:<28} {:>10.0} {:>12.0} {:>6.2}  {:>9.1} {:>11.1} {:>9.1}",
            rate(one),
            rate(two),
            rate(two) / rate(one),
            median(one, |rate| rate.owner_us),
            median(two, |rate| rate.owner_us),
            median(two, |rate| rate.all_us),
        );
    }
    Ok(())
}

fn open_file(kernel: &Kernel, path: &Path, bytes: u64) -> Result<Device, IoError> {
    let file = File::create(path).and_then(|file| file.set_len(bytes));
    file.map_err(|error| IoError::new(io::ErrorKind::Io, format!("{}: {error}", path.display())))?;
    kernel.open_device(path, Access::ReadWrite)
}

/// Notes the clocks at its beginning.
struct Measuring {
    wall_ns: u64,
    owner_ns: u64,
    all_ns: u64,
}

impl Measuring {
    fn begin(io: &Io) -> Measuring {
        let (owner_ns, all_ns) = (cpu_ns(ClockId::ThreadCPUTime), cpu_ns(ClockId::ProcessCPUTime));
        Measuring { wall_ns: io.now_ns(), owner_ns, all_ns }
    }

    fn end(self, io: &Io, count: u64) -> Rate {
        let now = Measuring::begin(io);
        let each_us = |now: u64, then: u64| (now - then) as f64 / 1e3 / count as f64;
        Rate {
            per_second: count as f64 * SECOND_NS as f64 / (now.wall_ns - self.wall_ns) as f64,
            owner_us: each_us(now.owner_ns, self.owner_ns),
            all_us: each_us(now.all_ns, self.all_ns),
        }
    }
}

fn cpu_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}

async fn ask(io: &Io, engine: &Engine, writes: bool, at: u64) {
    let buf = io.pool().take(BLOCK_BYTES as usize);
    let (_, outcome) = match writes {
        true => engine.write(at, buf, Durability::Volatile).await,
        false => engine.read(at, buf).await,
    };
    outcome.expect("files that were just made");
}

/// As many clients as there may be requests, on the owner's thread.
async fn by_itself(
    io: &Io,
    engine: &Engine,
    (writes, depth): (bool, u64),
    seconds: f64,
) -> Result<Rate, IoError> {
    let end_ns = io.now_ns() + (seconds * SECOND_NS as f64) as u64;
    let (count, at_work, ended) =
        (Rc::new(Cell::new(0)), Rc::new(Cell::new(depth)), Rc::new(WaitList::new()));
    let measuring = Measuring::begin(io);
    for client in 0..depth {
        let (io2, engine) = (io.clone(), engine.clone());
        let (count, at_work, ended) = (count.clone(), at_work.clone(), ended.clone());
        io.spawn(async move {
            let mut places = Places(client + 1);
            while io2.now_ns() < end_ns {
                ask(&io2, &engine, writes, places.draw()).await;
                count.set(count.get() + 1);
            }
            at_work.set(at_work.get() - 1);
            ended.wake_all();
        });
    }
    ended.until(|| (at_work.get() == 0).then_some(())).await;
    Ok(measuring.end(io, count.get()))
}

/// The same from another thread, by message there and back.
async fn by_message(
    io: &Io,
    engine: &Engine,
    (writes, depth): (bool, u64),
    seconds: f64,
) -> Result<Rate, IoError> {
    let (requests, mut asked) = mailbox::<Asked>(64);
    let (answers, answered) = mailbox::<u64>(64);
    let measuring = Measuring::begin(io);
    let door = thread::spawn(move || stand_at_the_door(&requests, answered, depth, seconds));
    let (done, more) = (Rc::new(Cell::new(0)), Rc::new(WaitList::new()));
    let hands = {
        let (io, engine, done, more) = (io.clone(), engine.clone(), done.clone(), more.clone());
        Hands::new(&io.clone(), move |at| {
            let (io, engine, done, more) = (io.clone(), engine.clone(), done.clone(), more.clone());
            async move {
                ask(&io, &engine, writes, at).await;
                done.set(done.get() + 1);
                more.wake_all();
            }
        })
    };
    // Woken last in a round, it tells of all that ended in it.
    io.spawn(async move {
        loop {
            let count = more.until(|| Some(done.take()).filter(|count| *count > 0)).await;
            if answers.send(count).is_err() {
                return;
            }
        }
    });
    let (mut batches, mut count) = (VecDeque::new(), 0);
    while asked.receive_all(&mut batches).await {
        for at in batches.drain(..).flatten() {
            count += 1;
            hands.give(at);
        }
    }
    let rate = measuring.end(io, count);
    door.join().expect("the other thread ends");
    Ok(rate)
}

/// Keeps so many requests under way, and ends when the time is over and all have been answered.
fn stand_at_the_door(
    requests: &Sender<Asked>,
    mut answered: Receiver<u64>,
    depth: u64,
    seconds: f64,
) {
    let (io, _kernel) = Kernel::start(KernelOptions::default()).expect("a second ring");
    let end_ns = io.now_ns() + (seconds * SECOND_NS as f64) as u64;
    let mut places = Places(1);
    let mut under_way = 0;
    io.block_on(async {
        let mut batches = VecDeque::new();
        loop {
            if io.now_ns() < end_ns {
                let more: Asked = (under_way..depth).map(|_| places.draw()).collect();
                under_way = depth;
                assert!(requests.send(more).is_ok(), "the owner takes it");
            }
            if under_way == 0 || !answered.receive_all(&mut batches).await {
                return;
            }
            under_way -= batches.drain(..).sum::<u64>();
        }
    });
}

/// Places anywhere in the span (xorshift64).
struct Places(u64);

impl Places {
    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % (SPAN_BYTES / BLOCK_BYTES) * BLOCK_BYTES
    }
}

fn median(rates: &[Rate], of: impl Fn(&Rate) -> f64) -> f64 {
    let mut values: Vec<f64> = rates.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
