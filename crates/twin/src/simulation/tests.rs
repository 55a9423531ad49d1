use super::*;
use crate::model::Latencies;
use crate::state::Moment;

fn machine(seed: u64) -> (Simulation, DriveId) {
    let simulation = Simulation::new(seed);
    let drive = simulation.add_drive(DriveSpec::fast("fast", 64 << 40));
    (simulation, drive)
}

async fn write(device: &Device, at: u64, value: u8, length: usize) {
    let mut buf = device.io().pool().take(length);
    buf.fill(value);
    device.write(at, buf).await.1.unwrap();
}

async fn read(device: &Device, at: u64) -> u8 {
    let (buf, outcome) = device.read(at, device.io().pool().take(512)).await;
    outcome.unwrap();
    buf[0]
}

#[test]
fn what_was_written_is_read_over_64_tib() {
    let (simulation, drive) = machine(1);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let far = (64 << 40) - 4096;
    let seen = simulation.run(&io, async {
        write(&device, far, 3, 4096).await;
        (read(&device, far).await, read(&device, 0).await)
    });
    assert_eq!(seen, Outcome::Done((3, 0)));
    let counters = simulation.counters(drive);
    assert_eq!((counters.reads, counters.writes, counters.write_bytes), (2, 1, 4096));
    assert!(simulation.now_ns() > 180_000, "time has passed: {} ns", simulation.now_ns());
}

#[test]
fn operations_in_flight_complete_out_of_order() {
    let (simulation, drive) = machine(1);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let order = Rc::new(RefCell::new(Vec::new()));
    for number in 0..8 {
        let (device, order) = (device.clone(), order.clone());
        io.spawn(async move {
            write(&device, number * 4096, 1, 4096).await;
            order.borrow_mut().push(number);
        });
    }
    simulation.run(&io, io.sleep(10_000_000)).done();
    let order = order.borrow();
    assert!(order.len() == 8 && !order.is_sorted(), "{order:?}");
}

/// Writes 1, flushes, writes 2, flushes; says what the drive holds after the cut.
fn cut(operation: u64, moment: Moment, loss: CacheLoss) -> u8 {
    let (simulation, drive) = machine(1);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    simulation.arm_cut(CutPoint { operation, moment });
    let outcome = simulation.run(&io, async {
        for value in [1, 2] {
            write(&device, 0, value, 512).await;
            device.flush().await.unwrap();
        }
    });
    assert_eq!(outcome, Outcome::PowerCut);
    simulation.power_cut(loss);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    simulation.run(&io, read(&device, 0)).done()
}

#[test]
fn a_cut_happens_at_its_operation_and_moment() {
    use CacheLoss::{KeepAll, LoseAll};
    assert_eq!(cut(0, Moment::Before, KeepAll), 0);
    assert_eq!(cut(0, Moment::Submitted, KeepAll), 1);
    assert_eq!(cut(0, Moment::Submitted, LoseAll), 0);
    assert_eq!(cut(0, Moment::Completed, KeepAll), 1);
    assert_eq!(cut(0, Moment::Completed, LoseAll), 0);
    assert_eq!(cut(1, Moment::Submitted, LoseAll), 0);
    assert_eq!(cut(1, Moment::Completed, LoseAll), 1);
    assert_eq!(cut(2, Moment::Submitted, LoseAll), 1);
    assert_eq!(cut(3, Moment::Before, LoseAll), 1);
    assert_eq!(cut(3, Moment::Before, KeepAll), 2);
    assert_eq!(cut(3, Moment::Completed, LoseAll), 2);
}

#[test]
fn an_unreached_cut_does_not_happen_and_points_are_counted() {
    let (simulation, drive) = machine(1);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    simulation.arm_cut(CutPoint { operation: 9, moment: Moment::Before });
    let outcome = simulation.run(&io, async {
        write(&device, 0, 1, 512).await;
        read(&device, 0).await;
        device.trim(0, 512).await.unwrap();
        device.write_zeroes(0, 512).await.unwrap();
        device.flush().await.unwrap();
    });
    assert_eq!(outcome, Outcome::Done(()));
    assert_eq!(simulation.operations(), 4);
}

#[test]
fn a_process_that_dies_loses_nothing_of_what_it_submitted() {
    let (simulation, drive) = machine(1);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let mut buf = io.pool().take(512);
    buf.fill(7);
    drop(device.write(0, buf));
    let again = simulation.boot();
    assert_eq!(simulation.peek(drive, 0, 1), [7]);
    // The dead executor reaches nothing any more.
    assert_eq!(simulation.run(&io, async { device.flush().await.is_ok() }), Outcome::PowerCut);
    let device = simulation.device(&again, drive);
    assert_eq!(simulation.run(&again, read(&device, 0)), Outcome::Done(7));
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    let run = |seed| {
        let (simulation, drive) = machine(seed);
        let io = simulation.boot();
        let device = simulation.device(&io, drive);
        let work = async {
            for _ in 0..50 {
                let at = io.random() % 64 * 4096;
                write(&device, at, at as u8, 4096).await;
                device.trim(4096 * (io.random() % 64), 4096).await.unwrap();
            }
        };
        simulation.run(&io, work).done();
        simulation.power_cut(CacheLoss::Torn(seed));
        let held = simulation.peek(drive, 0, 64 * 4096);
        (simulation.trace(), crate::trace::digest(&held))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_trace_can_be_read() {
    let (simulation, drive) = machine(1);
    let io = simulation.boot();
    simulation.keep_trace_text();
    let device = simulation.device(&io, drive);
    simulation.run(&io, async { device.flush().await.unwrap() }).done();
    let text = simulation.trace_text();
    assert!(text[0].contains("operation 0: drive 0 Flush"), "{text:?}");
    assert!(text[1].contains("request 0 ends"), "{text:?}");
}

#[test]
fn a_snapshot_after_the_cut_meets_each_loss_anew() {
    let (simulation, drive) = machine(1);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    simulation.run(&io, write(&device, 0, 5, 512)).done();
    assert_eq!(simulation.volatile_changes(drive), 1);
    drop(device.write(4096, io.pool().take_zeroed(512)));
    simulation.fail_power();
    assert_eq!(simulation.at_stake(), 2);
    let snapshot = simulation.snapshot();
    let after = |loss| {
        let copy = Simulation::wake(&snapshot);
        copy.power_cut(loss);
        copy.peek(drive, 0, 1)[0]
    };
    assert_eq!((after(CacheLoss::LoseAll), after(CacheLoss::KeepAll)), (0, 5));
}

#[test]
fn snapshots_travel_between_threads() {
    let (simulation, drive) = machine(1);
    simulation.poke(drive, 0, &[4]);
    let snapshot = simulation.snapshot();
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| Simulation::wake(&snapshot).peek(drive, 0, 1)).join().unwrap()
    });
    assert_eq!(seen, [4]);
}

#[test]
fn drives_can_be_damaged_copied_swapped_and_cut_short() {
    let simulation = Simulation::new(1);
    let small = simulation.add_drive(DriveSpec::fast("small", 1 << 20));
    let large = simulation.add_drive(DriveSpec::slow("large", 4 << 20));
    simulation.poke(small, 4096, b"small");
    let old = simulation.copy_drive(small);
    simulation.poke(small, 4096, b"SMALL");
    simulation.restore_drive(small, &old);
    simulation.swap_drives(small, large);
    assert_eq!(simulation.peek(large, 4096, 5), b"small");
    let io = simulation.boot();
    assert_eq!(simulation.device(&io, small).info().size_bytes, 4 << 20);
    simulation.truncate(large, 4098);
    simulation.truncate(large, 8192);
    assert_eq!(simulation.peek(large, 4096, 5), b"sm\0\0\0");
}

#[test]
fn faults_strike_as_told_and_name_the_drive() {
    let (simulation, drive) = machine(1);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let attempt = |at: u64, length: usize| {
        let error = simulation
            .run(&io, async { device.write(at, io.pool().take_zeroed(length)).await.1 })
            .done();
        error.map_err(|error| {
            assert!(error.message.contains("fast"), "{error}");
            error.kind
        })
    };
    simulation.fail_next(drive, Kind::Write, 2, ErrorKind::Io);
    assert_eq!(attempt(0, 512), Err(ErrorKind::Io));
    assert_eq!(attempt(0, 512), Err(ErrorKind::Io));
    assert_eq!(attempt(0, 512), Ok(()));
    assert_eq!(attempt(100, 512), Err(ErrorKind::Range));
    assert_eq!(attempt(64 << 40, 512), Err(ErrorKind::Range));
    simulation.set_full(drive, Some(8192));
    assert_eq!(attempt(0, 8192), Ok(()));
    assert_eq!(attempt(8192, 512), Err(ErrorKind::NoSpace));
    assert_eq!(attempt(0, 8192), Ok(()), "what is stored can be written again");
    simulation.set_read_only(drive, true);
    assert_eq!(attempt(0, 512), Err(ErrorKind::ReadOnly));
    simulation.set_read_only(drive, false);
    simulation.set_dead(drive, true);
    assert_eq!(attempt(0, 512), Err(ErrorKind::Disconnected));
    assert_eq!(simulation.counters(drive).errors, 7);
}

#[test]
fn an_unreadable_range_heals_when_it_is_written() {
    let (simulation, drive) = machine(1);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    simulation.set_unreadable(drive, 512..1024);
    let read_kind = || {
        let outcome = simulation.run(&io, async { device.read(0, io.pool().take(4096)).await.1 });
        outcome.done().map_err(|error| error.kind)
    };
    assert_eq!(read_kind(), Err(ErrorKind::Io));
    simulation.run(&io, write(&device, 512, 1, 512)).done();
    assert_eq!(read_kind(), Ok(()));
}

#[test]
fn a_lying_flush_loses_what_it_promised() {
    let (simulation, drive) = machine(1);
    simulation.set_lying_flush(drive, true);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let work = async {
        write(&device, 0, 1, 512).await;
        device.flush().await
    };
    simulation.run(&io, work).done().unwrap();
    simulation.power_cut(CacheLoss::LoseAll);
    assert_eq!(simulation.peek(drive, 0, 1), [0]);
}

#[test]
fn a_model_of_ones_own_decides_the_time() {
    #[derive(Clone)]
    struct Slowpoke;
    impl Model for Slowpoke {
        fn submit(&mut self, now_ns: u64, _: u64, request: &crate::Request) -> Option<u64> {
            Some(now_ns + request.length * 1000)
        }
        fn duplicate(&self) -> Box<dyn Model> {
            Box::new(self.clone())
        }
        fn reset(&mut self) {}
    }
    let (simulation, drive) = machine(1);
    simulation.set_model(drive, Box::new(Slowpoke));
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let before_ns = simulation.now_ns();
    simulation.run(&io, write(&device, 0, 1, 512)).done();
    let took_ns = simulation.now_ns() - before_ns;
    assert!((512_000..513_000).contains(&took_ns), "{took_ns}");
}

#[test]
fn a_clock_watcher_does_not_stop_time() {
    let (simulation, _) = machine(1);
    let io = simulation.boot();
    let watch = async {
        while io.now_ns() < 1_000_000 {
            io.yield_now().await;
        }
    };
    assert_eq!(simulation.run(&io, watch), Outcome::Done(()));
}

#[test]
fn a_cut_during_concurrent_work_strands_only_what_was_in_flight() {
    let simulation = Simulation::new(1);
    let latencies = Latencies { channels: 4, ..Latencies::flash() };
    let spec = DriveSpec { cache_bytes: 0, latencies, ..DriveSpec::fast("fast", 1 << 30) };
    let drive = simulation.add_drive(spec);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    simulation.arm_cut(CutPoint { operation: 40, moment: Moment::Submitted });
    let done = Rc::new(RefCell::new(Vec::new()));
    for client in 0..4u64 {
        let (device, done) = (device.clone(), done.clone());
        io.spawn(async move {
            for step in 0..100 {
                let block = client * 100 + step;
                write(&device, block * 4096, 1, 4096).await;
                done.borrow_mut().push(block);
            }
        });
    }
    assert_eq!(simulation.run(&io, io.sleep(1 << 40)), Outcome::PowerCut);
    simulation.power_cut(CacheLoss::LoseAll);
    for block in done.borrow().iter() {
        assert_eq!(simulation.peek(drive, block * 4096, 1), [1], "no cache: done is durable");
    }
    let held = (0..400).filter(|b| simulation.peek(drive, b * 4096, 1) == [1]).count();
    assert!((36..=40).contains(&held) && held >= done.borrow().len(), "{held}");
}

#[test]
fn a_process_that_dies_at_a_planned_point_leaves_the_cache_volatile() {
    let (simulation, drive) = machine(1);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    simulation.arm_cut(CutPoint { operation: 1, moment: Moment::Submitted });
    let work = async {
        write(&device, 0, 1, 512).await;
        write(&device, 4096, 2, 512).await;
    };
    assert_eq!(simulation.run(&io, work), Outcome::PowerCut);
    simulation.process_dies();
    let held = || (simulation.peek(drive, 0, 1)[0], simulation.peek(drive, 4096, 1)[0]);
    assert_eq!(held(), (1, 2), "what was in flight is finished");
    simulation.power_cut(CacheLoss::LoseAll);
    assert_eq!(held(), (0, 0), "and was never made durable");
}

#[test]
fn faults_can_be_taken_back() {
    let (simulation, drive) = machine(1);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    simulation.set_dead(drive, true);
    simulation.fail_next(drive, Kind::Write, 9, ErrorKind::Io);
    simulation.clear_faults();
    simulation.run(&io, write(&device, 0, 1, 512)).done();
}

#[test]
fn a_drive_that_never_idles_is_busy_all_the_time() {
    let latencies = Latencies { channels: 4, ..Latencies::flash() };
    let simulation = Simulation::new(1);
    let drive = simulation.add_drive(DriveSpec { latencies, ..DriveSpec::fast("fast", 1 << 30) });
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    for client in 0..4u64 {
        let device = device.clone();
        io.spawn(async move {
            // None of them ends when another one does.
            device.io().sleep(client * 10_000).await;
            loop {
                write(&device, client << 20, 1, 4096).await;
            }
        });
    }
    let seen = simulation.run(&io, async {
        io.sleep(1_000_000).await;
        let before = simulation.counters(drive).busy_ns;
        io.sleep(5_000_000).await;
        simulation.counters(drive).busy_ns - before
    });
    assert_eq!(seen, Outcome::Done(5_000_000));
    // What was under way when power failed had been so until then, and is not any more.
    let busy_ns = simulation.now_ns();
    simulation.power_cut(CacheLoss::LoseAll);
    let io = simulation.boot();
    simulation.run(&io, io.sleep(1_000_000)).done();
    assert_eq!(simulation.counters(drive).busy_ns, busy_ns);
}
