//! What placement promises, in virtual time on the twins of a real disk and a real flash drive: a small
//! volume of the same proportions as a Fusion Drive.

mod rig;

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use engine::{
    CacheMode, Class, CreateOptions, Engine, Error, Status, Tuning, TuningChange, WakeCause, Wish,
    create,
};
use io::units::{GIB, KIB, MIB, MILLISECOND_NS, SECOND_NS};
use io::{Buf, Device, Durability, Io, Place, Volume};
use rig::{EXTENT, put};
use twin::{DriveSpec, Profile, Random, Simulation};

const BYTES: u64 = EXTENT as u64;
const FAST_BYTES: u64 = 96 * MIB;
const SLOW_BYTES: u64 = GIB;

fn spec(profile: &str, size_bytes: u64) -> DriveSpec {
    let twin = Profile::named(profile).unwrap().spec(profile);
    DriveSpec { size_bytes, atomic_write_bytes: 4096, cache_bytes: 0, ..twin }
}

/// Makes a volume with these settings, fills it, rests, and plays.
fn play<T, F: Future<Output = T>>(tuning: Tuning, act: impl FnOnce(Io, Engine) -> F) -> T {
    play_on(FAST_BYTES, CreateOptions { tuning, ..CreateOptions::new("test") }, act)
}

fn play_on<T, F: Future<Output = T>>(
    fast_bytes: u64,
    options: CreateOptions,
    act: impl FnOnce(Io, Engine) -> F,
) -> T {
    let simulation = Simulation::new(7);
    let fast = simulation.add_drive(spec("imac-fusion-ssd", fast_bytes));
    let slow = simulation.add_drive(spec("imac-fusion-disk", SLOW_BYTES));
    let io = simulation.boot();
    let [fast, slow] = [fast, slow].map(|drive| simulation.device(&io, drive));
    let value = simulation.run(&io, async {
        let engine = filled(&io, &fast, &slow, options).await.unwrap();
        let value = act(io.clone(), engine.clone()).await;
        engine.close().await.unwrap();
        assert_eq!(engine.verify(), Vec::<String>::new());
        value
    });
    let value = value.done();
    io.drop_tasks();
    io.drain();
    value
}

async fn filled(
    io: &Io,
    fast: &Device,
    slow: &Device,
    options: CreateOptions,
) -> Result<Engine, Error> {
    create(io, fast, slow, options, &|_, _| ()).await?;
    let engine = rig::open(io, fast, slow).await;
    for at in (0..SLOW_BYTES * 8 / 10).step_by(MIB as usize) {
        let buf = io.pool().take_zeroed(MIB as usize);
        engine.write(at, buf, Durability::Volatile).await.1?;
    }
    engine.flush().await?;
    io.sleep(60 * SECOND_NS).await;
    Ok(engine)
}

/// A block somewhere among `count` extents from `first` on, half of which are not touched at all, so
/// that nothing is a sequence.
fn somewhere(random: &mut Random, first: u64, count: u64) -> u64 {
    (first + 2 * random.below(count)) * BYTES + random.below(32) * 4096
}

async fn read(io: &Io, engine: &Engine, at: u64, length: u64) -> Buf {
    let (buf, outcome) = engine.read(at, io.pool().take(length as usize)).await;
    outcome.unwrap();
    buf
}

/// Reads of 4 KiB, one after the other; the share that did not need the slow drive.
async fn hit_ratio(
    io: &Io,
    engine: &Engine,
    random: &mut Random,
    (first, count): (u64, u64),
    reads: u64,
) -> f64 {
    let before = engine.status().served.slow_bytes;
    for _ in 0..reads {
        read(io, engine, somewhere(random, first, count), 4096).await;
    }
    1.0 - (engine.status().served.slow_bytes - before) as f64 / (reads * 4096) as f64
}

/// Two sets of 40 MiB that live on the slow drive.
const HOT: (u64, u64) = (2000, 320);
const OTHER: (u64, u64) = (4000, 320);

fn on_fast(engine: &Engine, (first, count): (u64, u64)) -> f64 {
    let fast = |n: &u64| engine.places((first + 2 * n) * BYTES, 4096, 1)[0].place == Place::Fast;
    (0..count).filter(fast).count() as f64 / count as f64
}

#[test]
fn a_hot_set_that_jumps_is_followed_within_one_budget() {
    play(Tuning::default(), |io, engine| async move {
        let mut random = Random::new(1);
        hit_ratio(&io, &engine, &mut random, HOT, 30_000).await;
        let before = hit_ratio(&io, &engine, &mut random, HOT, 2000).await;
        assert!(before > 0.9, "{before} {:?}", engine.status().policy);
        // The budget is a byte for two of clients: for a set of 40 MiB, 80 MiB of reads.
        let reads = 2 * OTHER.1 * BYTES / 4096;
        hit_ratio(&io, &engine, &mut random, OTHER, reads).await;
        let after = hit_ratio(&io, &engine, &mut random, OTHER, 2000).await;
        assert!(after >= 0.9 * before, "{after} of {before}: {:?}", engine.status().policy);
    });
}

#[test]
fn a_film_ten_times_the_fast_drive_leaves_a_hot_set_where_it_is() {
    play(Tuning::default(), |io, engine| async move {
        let mut random = Random::new(2);
        hit_ratio(&io, &engine, &mut random, HOT, 30_000).await;
        io.sleep(10 * SECOND_NS).await;
        let before = hit_ratio(&io, &engine, &mut random, HOT, 2000).await;
        let place = on_fast(&engine, HOT);
        // 960 MiB: what is there more than once, while the hot set is used now and then.
        let begin = 5200 * BYTES;
        let mut at = begin;
        for piece in 0..10 * FAST_BYTES / (256 * KIB) {
            read(&io, &engine, at, 256 * KIB).await;
            at = if at + 512 * KIB > 6500 * BYTES { begin } else { at + 256 * KIB };
            if piece % 16 == 0 {
                read(&io, &engine, somewhere(&mut random, HOT.0, HOT.1), 4096).await;
            }
        }
        io.sleep(10 * SECOND_NS).await;
        let after = hit_ratio(&io, &engine, &mut random, HOT, 2000).await;
        assert!(after > before - 0.02, "{before} became {after}: {:?}", engine.status().policy);
        assert!(on_fast(&engine, HOT) > place - 0.02);
    });
}

/// Time within which 99 of 100 reads end: three in ten of a new hot set, the others anywhere. And what
/// moved meanwhile.
fn p99_ns(tuning: Tuning, depth: u64) -> (u64, Status) {
    play(tuning, |io, engine| async move {
        let mut random = Random::new(3);
        hit_ratio(&io, &engine, &mut random, HOT, 5000).await;
        let times = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let running = std::rc::Rc::new(std::cell::Cell::new(depth));
        for client in 0..depth {
            let (times, running) = (times.clone(), running.clone());
            let (io, engine) = (io.clone(), engine.clone());
            let mut random = Random::new(100 + client);
            io.clone().spawn(async move {
                for _ in 0..8000 / depth {
                    let at = match random.below(10) {
                        0..3 => somewhere(&mut random, OTHER.0, OTHER.1),
                        _ => somewhere(&mut random, 0, 3200),
                    };
                    let begun_ns = io.now_ns();
                    read(&io, &engine, at, 4096).await;
                    times.borrow_mut().push(io.now_ns() - begun_ns);
                }
                running.set(running.get() - 1);
            });
        }
        while running.get() > 0 {
            io.sleep(100 * MILLISECOND_NS).await;
        }
        let mut times = times.borrow().clone();
        times.sort_unstable();
        (times[times.len() * 99 / 100], engine.status())
    })
}

#[test]
fn migration_under_full_load_lengthens_the_slowest_hundredth_by_a_tenth_at_most() {
    for depth in [1, 4] {
        // So little may be written that nothing moves.
        let still = Tuning { wear_bytes_per_day: Some(1), ..Tuning::default() };
        let (still_ns, status) = p99_ns(still, depth);
        assert_eq!(status.moves.promoted_bytes, 0);
        let (moving_ns, status) = p99_ns(Tuning::default(), depth);
        let ratio = moving_ns as f64 / still_ns as f64;
        println!("depth {depth}: {still_ns} ns, {moving_ns} ns with {:?}", status.moves);
        assert!(status.moves.promoted_bytes > 20 * BYTES, "{:?}", status.moves);
        assert!(ratio <= 1.1, "depth {depth}: {still_ns} ns became {moving_ns} ns");
    }
}

#[test]
fn what_a_day_may_wear_is_never_exceeded() {
    let limit = 200 * MIB;
    let tuning = Tuning { wear_bytes_per_day: Some(limit), ..Tuning::default() };
    play(tuning, |io, engine| async move {
        let mut random = Random::new(4);
        let written = |engine: &Engine| engine.status().drives[0].traffic.write_bytes;
        let mut sets = [HOT, OTHER, (5200, 320)].into_iter().cycle();
        let begun = written(&engine);
        for hour in 0..24 {
            hit_ratio(&io, &engine, &mut random, sets.next().unwrap(), 2000).await;
            io.sleep(3600 * SECOND_NS).await;
            let worn = written(&engine) - begun;
            // What the volume writes of its own, records of moves and the like, is not refused.
            assert!(worn <= limit * (hour + 2) / 24 + MIB, "hour {hour}: {worn}");
        }
        let status = engine.status();
        assert!(status.moves.promoted_bytes > 40 * MIB, "{:?}", status.moves);
        assert!(status.policy.decisions.stays_wear > 0);
    });
}

#[test]
fn a_quiet_volume_lets_its_slow_drive_sleep_until_somebody_needs_it() {
    let tuning = Tuning { quiet: true, ..Tuning::default() };
    play(tuning, |io, engine| async move {
        let below = |engine: &Engine| {
            let traffic = engine.status().drives[1].traffic;
            traffic.reads + traffic.writes + traffic.flushes
        };
        io.sleep(120 * SECOND_NS).await;
        // The first changes mark their regions on the slow drive; then it is left alone.
        for n in 0..50 {
            put(&io, &engine, n * 40 * BYTES, 4096, 2).await;
            engine.flush().await.unwrap();
        }
        io.sleep(120 * SECOND_NS).await;
        let (before, wakes) = (below(&engine), engine.status().policy.wakes);
        for n in 0..50 {
            put(&io, &engine, n * 40 * BYTES + 8192, 4096, 2).await;
            engine.flush().await.unwrap();
            io.sleep(60 * SECOND_NS).await;
        }
        assert_eq!(below(&engine), before, "fifty minutes of sleep");
        assert_eq!(engine.status().policy.wakes, wakes);
        assert!(engine.status().log.dirty_bytes >= 25 * 4096, "what lives below waits");
        let heard = Rc::new(RefCell::new(Vec::new()));
        let (listening, told) = (engine.clone(), heard.clone());
        io.spawn(async move {
            loop {
                let cause = listening.woken().await;
                told.borrow_mut().push(cause);
            }
        });
        // What woke it before anybody listened is told at once.
        io.sleep(SECOND_NS).await;
        heard.borrow_mut().clear();
        read(&io, &engine, 4001 * BYTES, 4096).await;
        io.sleep(60 * SECOND_NS).await;
        assert_eq!(*heard.borrow(), [WakeCause::Read]);
        assert_eq!(engine.status().policy.wakes.reads, wakes.reads + 1);
        // It was awake: what waited is home now.
        assert_eq!(engine.status().log.dirty_bytes, 0);
        // Once all is in order below, the next change has to be told there, once.
        engine.tune(TuningChange::Quiet(false)).await.unwrap();
        io.sleep(120 * SECOND_NS).await;
        engine.tune(TuningChange::Quiet(true)).await.unwrap();
        heard.borrow_mut().clear();
        for n in 0..2 {
            io.sleep(120 * SECOND_NS).await;
            put(&io, &engine, 3000 * BYTES + n * 8192, 4096, 3).await;
            engine.flush().await.unwrap();
        }
        io.sleep(SECOND_NS).await;
        assert_eq!(*heard.borrow(), [WakeCause::Mark]);
        assert_eq!(engine.status().policy.wakes.marks, wakes.marks + 1);
    });
}

#[test]
fn what_is_pinned_goes_up_and_stays_and_what_is_cold_never_comes() {
    play(Tuning::default(), |io, engine| async move {
        let (first, count) = HOT;
        let pinned = (first * BYTES, 160 * BYTES);
        engine.wish(&[pinned], Some(Wish::Pinned)).await.unwrap();
        engine.wish(&[(OTHER.0 * BYTES, 2 * OTHER.1 * BYTES)], Some(Wish::Cold)).await.unwrap();
        io.sleep(60 * SECOND_NS).await;
        let granted = (first..first + 160)
            .filter(|extent| {
                let opinion = engine.opinions(extent * BYTES, 1).remove(0);
                opinion.verdict.is_some_and(|(words, _)| words.contains("pinned"))
            })
            .count();
        assert!(granted >= 150, "why they are up is told of {granted}");
        let above = |engine: &Engine| {
            (first..first + 160)
                .filter(|n| engine.places(n * BYTES, 4096, 1)[0].place == Place::Fast)
                .count()
        };
        assert_eq!(above(&engine), 160, "{:?}", engine.status().policy);
        // Others are hot, what is pinned is not used at all, and what is cold is used most.
        let mut random = Random::new(5);
        for _ in 0..10 {
            hit_ratio(&io, &engine, &mut random, (first + 320, count), 2000).await;
            hit_ratio(&io, &engine, &mut random, OTHER, 4000).await;
        }
        io.sleep(60 * SECOND_NS).await;
        assert_eq!((above(&engine), on_fast(&engine, OTHER)), (160, 0.0));
        let decisions = engine.status().policy.decisions;
        assert!(decisions.up_wished >= 150, "{decisions:?}");
        // More than fits is refused, and nothing changes by that.
        let before = engine.wishes();
        let why = |extent: u64| engine.opinions(extent * BYTES, 1).remove(0);
        let told = |extent: u64| why(extent).verdict.map(|(words, _)| words);
        assert_eq!((why(first).wish, why(OTHER.0).wish), (Some(Wish::Pinned), Some(Wish::Cold)));
        assert!(
            told(OTHER.0 + 4).is_some_and(|words| words.contains("cold")),
            "{:?}",
            told(OTHER.0 + 4)
        );
        assert!(decisions.stays_wished > 0 && decisions.down_displaced > 0, "{decisions:?}");
        let refused = engine.wish(&[(0, SLOW_BYTES / 2)], Some(Wish::Pinned)).await;
        assert!(matches!(refused, Err(Error::Unsuitable(_))), "{refused:?}");
        assert_eq!(engine.wishes(), before);
        engine.wish(&[pinned], None).await.unwrap();
        assert_eq!(engine.wishes().ranges().len(), 1);
    });
}

#[test]
fn what_is_pinned_goes_up_again_when_it_was_written_anew_below() {
    play(Tuning::default(), |io, engine| async move {
        // Holes behind what the volume is filled with; new extents go to the slow drive by now.
        let (first, count) = (7000, 32);
        engine.wish(&[(first * BYTES, count * BYTES)], Some(Wish::Pinned)).await.unwrap();
        io.sleep(60 * SECOND_NS).await;
        for at in (first * BYTES..(first + count) * BYTES).step_by(MIB as usize) {
            let buf = io.pool().take_zeroed(MIB as usize);
            engine.write(at, buf, Durability::Volatile).await.1.unwrap();
        }
        engine.flush().await.unwrap();
        let above = |engine: &Engine| {
            let is_above = |n: &u64| engine.places(n * BYTES, 4096, 1)[0].place == Place::Fast;
            (first..first + count).filter(is_above).count() as u64
        };
        let before = above(&engine);
        io.sleep(60 * SECOND_NS).await;
        assert_eq!(above(&engine), count, "{before} before the rest");
    });
}

#[test]
fn a_volume_that_is_full_to_the_last_extent_still_moves_what_is_hot() {
    let simulation = Simulation::new(7);
    // Far more is kept free above, when there is room, than a full volume has slots to spare.
    let fast = simulation.add_drive(spec("imac-fusion-ssd", 4 * FAST_BYTES));
    let slow = simulation.add_drive(spec("imac-fusion-disk", SLOW_BYTES));
    let io = simulation.boot();
    let [fast, slow] = [fast, slow].map(|drive| simulation.device(&io, drive));
    let work = async {
        create(&io, &fast, &slow, CreateOptions::new("test"), &|_, _| ()).await.unwrap();
        let engine = rig::open(&io, &fast, &slow).await;
        let size = engine.info().size_bytes;
        for at in (0..size).step_by(MIB as usize) {
            let buf = io.pool().take_zeroed(MIB.min(size - at) as usize);
            engine.write(at, buf, Durability::Volatile).await.1.unwrap();
        }
        engine.flush().await.unwrap();
        io.sleep(60 * SECOND_NS).await;
        let mut random = Random::new(5);
        let hot = (size / BYTES / 2, 400);
        assert!(on_fast(&engine, hot) < 0.1);
        for _ in 0..4 {
            hit_ratio(&io, &engine, &mut random, hot, 2000).await;
            io.sleep(60 * SECOND_NS).await;
        }
        let share = on_fast(&engine, hot);
        // It has eight slots to move with, and nothing moved when it insisted on more.
        assert!(share > 0.2, "{share}, {:?}", engine.status().moves);
        engine.close().await.unwrap();
        assert_eq!(engine.verify(), Vec::<String>::new());
    };
    simulation.run(&io, work).done();
    io.drop_tasks();
    io.drain();
}

/// What is written at random.
const SPAN_BYTES: u64 = 64 * MIB;

/// Random 4 KiB writes within the span, so many by each of eight clients at once; how many a second.
async fn random_writes<F, W>(io: &Io, seed: u64, count: u64, write: F) -> f64
where
    F: Fn(u64, Buf) -> W + Clone + 'static,
    W: Future<Output = ()> + 'static,
{
    const CLIENTS: u64 = 8;
    let (begun_ns, left) = (io.now_ns(), Rc::new(std::cell::Cell::new(CLIENTS)));
    for client in 0..CLIENTS {
        let (io, write, left) = (io.clone(), write.clone(), left.clone());
        let mut random = Random::new(seed * 100 + client);
        io.clone().spawn(async move {
            for _ in 0..count {
                write(random.below(SPAN_BYTES / 4096) * 4096, io.pool().take_zeroed(4096)).await;
            }
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        io.sleep(MILLISECOND_NS).await;
    }
    (CLIENTS * count) as f64 * 1e9 / (io.now_ns() - begun_ns) as f64
}

/// What one drive does alone of that.
fn alone(profile: &str, size_bytes: u64, count: u64) -> f64 {
    let simulation = Simulation::new(7);
    let drive = simulation.add_drive(spec(profile, size_bytes));
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let first = (size_bytes - SPAN_BYTES) / 2;
    let rate = simulation.run(
        &io,
        random_writes(&io, 3, count, move |at, buf| {
            let device = device.clone();
            async move { device.write(first + at, buf).await.1.unwrap() }
        }),
    );
    rate.done()
}

/// Writes to a span that lives on the slow drive.
fn writes_below(
    engine: &Engine,
) -> impl Fn(u64, Buf) -> std::pin::Pin<Box<dyn Future<Output = ()>>> + Clone + 'static {
    let engine = engine.clone();
    move |at, buf| {
        let engine = engine.clone();
        Box::pin(async move {
            engine.write(4000 * BYTES + at, buf, Durability::Volatile).await.1.unwrap();
        })
    }
}

#[test]
fn random_writes_run_at_the_fast_drive_s_rate_and_over_a_full_log_no_slower_than_the_disk() {
    let fast_alone = alone("imac-fusion-ssd", GIB, 200);
    let slow_alone = alone("imac-fusion-disk", SLOW_BYTES, 200);
    // As on a Fusion Drive: 8 GB are written over a log of 4 GB; nothing of it lives on the fast drive.
    let options = CreateOptions { landing_bytes: Some(32 * MIB), ..CreateOptions::new("test") };
    play_on(FAST_BYTES + 32 * MIB, options, |io, engine| async move {
        let write = writes_below(&engine);
        // Less than what the log has below the fill from which writers are slowed.
        let log_blocks = engine.status().log.size_bytes / 4096;
        let landing = random_writes(&io, 1, log_blocks / 3 / 8, write.clone()).await;
        assert_eq!(engine.status().log.full_waits, 0);
        // What is left of it is filled, and then twice as much is written.
        random_writes(&io, 2, log_blocks / 8, write.clone()).await;
        let sustained = random_writes(&io, 3, 2 * log_blocks / 8, write).await;
        println!(
            "writes a second: {fast_alone:.0} fast alone, {landing:.0} landing; {slow_alone:.0} slow \
             alone, {sustained:.0} sustained"
        );
        assert!(landing >= fast_alone, "{landing} of {fast_alone}");
        assert!(sustained >= slow_alone, "{sustained} of {slow_alone}");
    });
}

/// Random reads of the upper half of the volume, which nobody writes, for so long; their mean time (ms).
async fn reads_for(io: &Io, engine: &Engine, seed: u64, duration_ns: u64) -> f64 {
    let (mut random, begun_ns, mut reads) = (Random::new(seed), io.now_ns(), 0u64);
    while io.now_ns() < begun_ns + duration_ns {
        read(io, engine, somewhere(&mut random, 1500, 1200), 4096).await;
        reads += 1;
    }
    (io.now_ns() - begun_ns) as f64 / 1e6 / reads as f64
}

#[test]
fn who_reads_behind_a_burst_of_writes_hardly_waits_for_its_way_down() {
    let options = CreateOptions { landing_bytes: Some(32 * MIB), ..CreateOptions::new("test") };
    play_on(FAST_BYTES + 32 * MIB, options, |io, engine| async move {
        let write = writes_below(&engine);
        let undisturbed = reads_for(&io, &engine, 1, 4 * SECOND_NS).await;
        let log = engine.status().log;
        random_writes(&io, 1, log.size_bytes / 4096 * 2 / 3 / 8, write.clone()).await;
        let owed = engine.status().log.used_bytes;
        assert!(owed > log.size_bytes * 6 / 10, "{owed} of {} are owed", log.size_bytes);
        // So long more writes could still come.
        reads_for(&io, &engine, 2, SECOND_NS).await;
        let behind = reads_for(&io, &engine, 3, 4 * SECOND_NS).await;
        let still = engine.status().log.used_bytes;
        println!(
            "a read takes {undisturbed:.2} ms, {behind:.2} behind a burst; owed {owed}, then {still}"
        );
        assert!(behind < undisturbed * 1.2, "{behind} ms, and {undisturbed} without a burst");
        assert!(still < owed, "nothing went down meanwhile");
    });
}

#[test]
fn what_leaves_at_once_does_not_wait_behind_what_has_to_be_written_below() {
    let options = CreateOptions {
        class: Class::Cache,
        cache_mode: CacheMode::WriteBack,
        ..CreateOptions::new("test")
    };
    play_on(FAST_BYTES, options, |io, engine| async move {
        let resident = |n: &u64| engine.places(n * BYTES, 4096, 1)[0].place == Place::Fast;
        let residents: Vec<u64> = (0..6000).filter(resident).collect();
        // The coldest are dirty, and all others are clean.
        let (dirty, clean) = residents.split_at(200);
        for extent in dirty {
            let buf = io.pool().take_zeroed(4096);
            engine.write(extent * BYTES, buf, Durability::Volatile).await.1.unwrap();
        }
        for extent in clean {
            read(&io, &engine, extent * BYTES, 4096).await;
        }
        // Clients who never rest, each with a set of its own that becomes hot.
        let left = Rc::new(std::cell::Cell::new(4));
        for client in 0..4u64 {
            let (io, engine, left) = (io.clone(), engine.clone(), left.clone());
            io.clone().spawn(async move {
                let mut random = Random::new(client);
                for _ in 0..4000 {
                    read(&io, &engine, somewhere(&mut random, 2000 + 500 * client, 80), 4096).await;
                }
                left.set(left.get() - 1);
            });
        }
        while left.get() > 0 {
            io.sleep(MILLISECOND_NS).await;
        }
        let up =
            (0..4).map(|client| on_fast(&engine, (2000 + 500 * client, 80))).sum::<f64>() / 4.0;
        let decisions = engine.status().policy.decisions;
        println!("{up:.2} of the hot sets went up; {decisions:?}");
        // A quarter of them are in RAM.
        assert!(up > 0.7, "{up} of the hot sets went up");
        assert!(decisions.stays_no_slot < 100, "{decisions:?}");
        assert!(
            decisions.read_around < 1000,
            "320 extents were read again and again: {decisions:?}"
        );
    });
}
