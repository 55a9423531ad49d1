//! Each way in which a drive goes wrong: what it does to the request, to the drive, and to the
//! requests beside and after it.

use std::cell::RefCell;
use std::rc::Rc;

use io::{Device, ErrorKind, Io, IoError};
use twin::{
    ALWAYS_PPM, CacheLoss, CutPoint, DriveId, DriveSpec, Fault, FaultCounts, Faults, Moment,
    Outcome, ReorderBound, Simulation,
};

const SECOND_NS: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

struct Rig {
    simulation: Simulation,
    drive: DriveId,
    io: Io,
    device: Device,
}

impl Rig {
    fn new(seed: u64) -> Rig {
        let simulation = Simulation::new(seed);
        let drive = simulation.add_drive(DriveSpec::fast("fast", 64 * MIB));
        simulation.set_faults(drive, Faults::none().seeded(seed));
        let io = simulation.boot();
        let device = simulation.device(&io, drive);
        Rig { simulation, drive, io, device }
    }

    /// The same machine with another process.
    fn boot_again(self) -> Rig {
        let Rig { simulation, drive, .. } = self;
        let io = simulation.boot();
        let device = simulation.device(&io, drive);
        Rig { simulation, drive, io, device }
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.simulation.run(&self.io, future).done()
    }

    fn write(&self, at: u64, value: u8, length: usize) -> Result<(), IoError> {
        self.run(put(&self.device, at, value, length))
    }

    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, IoError> {
        let (buf, outcome) = self.run(self.device.read(at, self.io.pool().take(length)));
        outcome.map(|()| buf.to_vec())
    }

    fn flush(&self) -> Result<(), IoError> {
        self.run(self.device.flush())
    }

    fn strike(&self, fault: Fault) {
        self.simulation.strike_next(self.drive, fault, 1);
    }

    fn counts(&self) -> FaultCounts {
        self.simulation.fault_counts(self.drive)
    }

    /// Sectors of the range that hold `value` throughout.
    fn sectors_of(&self, at: u64, length: usize, value: u8) -> usize {
        let bytes = self.simulation.peek(self.drive, at, length);
        bytes.chunks(512).filter(|sector| sector.iter().all(|byte| *byte == value)).count()
    }
}

async fn put(device: &Device, at: u64, value: u8, length: usize) -> Result<(), IoError> {
    let mut buf = device.io().pool().take(length);
    buf.fill(value);
    device.write(at, buf).await.1
}

#[test]
fn a_spike_costs_time_and_nothing_else() {
    let rig = Rig::new(1);
    rig.simulation.set_faults(rig.drive, Faults::none().with(Fault::Spike, ALWAYS_PPM));
    let before_ns = rig.simulation.now_ns();
    rig.write(0, 1, 4096).unwrap();
    let took_ns = rig.simulation.now_ns() - before_ns;
    assert!((20_000_000..2_100_000_000).contains(&took_ns), "{took_ns}");
    assert_eq!(rig.read(0, 512).unwrap(), [1; 512]);
    assert_eq!(rig.counts().of(Fault::Spike), 2);
}

#[test]
fn a_hang_stops_the_whole_drive_for_a_while_and_loses_nothing() {
    let rig = Rig::new(1);
    let mut buf = rig.io.pool().take(4096);
    buf.fill(1);
    let under_way = rig.device.write(0, buf);
    rig.strike(Fault::Hang);
    let before_ns = rig.simulation.now_ns();
    rig.write(4096, 2, 4096).unwrap();
    let took_ns = rig.simulation.now_ns() - before_ns;
    assert!((2 * SECOND_NS..121 * SECOND_NS).contains(&took_ns), "{took_ns}");
    rig.run(under_way).1.unwrap();
    assert_eq!((rig.read(0, 512).unwrap()[0], rig.read(4096, 512).unwrap()[0]), (1, 2));
    let after_ns = rig.simulation.now_ns();
    assert!(after_ns - before_ns - took_ns < 2_000_000, "it is over");
}

#[test]
fn what_a_hanging_drive_was_given_waits_with_it() {
    let rig = Rig::new(1);
    rig.simulation.hang(rig.drive, Some(5 * SECOND_NS));
    let before_ns = rig.simulation.now_ns();
    rig.write(0, 1, 512).unwrap();
    assert!(rig.simulation.now_ns() - before_ns >= 5 * SECOND_NS);
    rig.simulation.hang(rig.drive, None);
    let write = rig.device.write(512, rig.io.pool().take_zeroed(512));
    rig.run(rig.io.sleep(3600 * SECOND_NS));
    rig.simulation.hang(rig.drive, Some(0));
    let before_ns = rig.simulation.now_ns();
    rig.run(write).1.unwrap();
    assert!(rig.simulation.now_ns() - before_ns < SECOND_NS, "let go on, it goes on at once");
}

#[test]
fn a_hang_without_end_is_ended_by_somebody_who_pulls_the_plug() {
    let rig = Rig::new(1);
    rig.write(0, 1, 512).unwrap();
    rig.flush().unwrap();
    rig.strike(Fault::EndlessHang);
    let work = put(&rig.device, 0, 2, 512);
    assert!(matches!(rig.simulation.run(&rig.io, work), Outcome::PowerCut));
    assert!(rig.simulation.now_ns() > 500 * SECOND_NS);
    assert_eq!(rig.simulation.at_stake(), 1, "the write is still in flight");
    rig.simulation.power_cut(CacheLoss::LoseAll);
    let rig = rig.boot_again();
    assert_eq!(rig.read(0, 512).unwrap(), [1; 512], "and it answers again");
}

#[test]
fn a_process_that_dies_before_a_hanging_drive_leaves_its_write_open() {
    let mut seen = [0; 2];
    for seed in 0..40 {
        let rig = Rig::new(seed);
        rig.simulation.hang(rig.drive, None);
        let mut buf = rig.io.pool().take(512);
        buf.fill(1);
        drop(rig.device.write(0, buf));
        rig.simulation.process_dies();
        let rig = rig.boot_again();
        seen[rig.read(0, 512).unwrap()[0] as usize] += 1;
        assert!(rig.simulation.now_ns() < SECOND_NS, "time is not what it waited for");
    }
    assert!(seen[0] > 5 && seen[1] > 5, "{seen:?}");
}

#[test]
fn a_read_error_passes_and_leaves_rubbish_in_the_buffer() {
    let rig = Rig::new(1);
    rig.write(0, 1, 4096).unwrap();
    rig.strike(Fault::ReadError);
    let (buf, outcome) = rig.run(rig.device.read(0, rig.io.pool().take_zeroed(4096)));
    let error = outcome.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    assert!(error.message.contains("Read of 4096 bytes at 0 on fast"), "{error}");
    assert!(buf[0] != 0 && buf[0] != 1, "who uses it anyhow shall be seen");
    assert_eq!(rig.read(0, 4096).unwrap(), [1; 4096]);
}

#[test]
fn a_bad_sector_stays_bad_until_it_is_written() {
    let rig = Rig::new(1);
    rig.write(0, 1, 8192).unwrap();
    rig.strike(Fault::BadSector);
    assert_eq!(rig.read(0, 8192).unwrap_err().kind, ErrorKind::Io);
    assert_eq!(rig.read(0, 8192).unwrap_err().kind, ErrorKind::Io);
    let bad: Vec<u64> = (0..16).filter(|n| rig.read(n * 512, 512).is_err()).collect();
    assert_eq!(bad.len(), 1, "one sector, the others can be read: {bad:?}");
    let rig = rig.boot_again();
    assert!(rig.read(bad[0] * 512, 512).is_err(), "a new process does not help");
    rig.write(bad[0] * 512, 2, 512).unwrap();
    assert_eq!(rig.read(bad[0] * 512, 512).unwrap(), [2; 512]);
    rig.read(0, 8192).unwrap();
}

#[test]
fn a_write_error_changes_nothing_whatever_kind_of_write() {
    let rig = Rig::new(1);
    rig.write(0, 1, 4096).unwrap();
    rig.simulation.strike_next(rig.drive, Fault::WriteError, 3);
    assert_eq!(rig.write(0, 2, 4096).unwrap_err().kind, ErrorKind::Io);
    assert!(rig.run(rig.device.trim(0, 4096)).is_err());
    assert!(rig.run(rig.device.write_zeroes(0, 4096)).is_err());
    assert_eq!(rig.read(0, 4096).unwrap(), [1; 4096]);
    rig.write(0, 2, 4096).unwrap();
}

#[test]
fn a_partial_write_fails_and_has_changed_whole_units_only() {
    let mut partial = 0;
    for seed in 0..30 {
        let rig = Rig::new(seed);
        rig.write(0, 1, 8192).unwrap();
        rig.strike(Fault::PartialWrite);
        assert_eq!(rig.write(0, 2, 8192).unwrap_err().kind, ErrorKind::Io);
        let (old, new) = (rig.sectors_of(0, 8192, 1), rig.sectors_of(0, 8192, 2));
        assert_eq!(old + new, 16, "seed {seed}: a sector is neither old nor new");
        partial += usize::from(old > 0 && new > 0);
    }
    assert!(partial > 15, "{partial} of 30 were partial");
}

#[test]
fn a_drive_without_space_keeps_the_front_of_what_it_was_given() {
    let rig = Rig::new(1);
    rig.simulation.set_full(rig.drive, Some(8 * 4096));
    rig.write(0, 1, 6 * 4096).unwrap();
    let error = rig.write(6 * 4096, 1, 4 * 4096).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSpace);
    assert_eq!(rig.sectors_of(6 * 4096, 4 * 4096, 1), 16, "two blocks of four found room");
    rig.write(0, 2, 6 * 4096).unwrap();
    assert_eq!(rig.counts().of(Fault::NoSpace), 1);
    // By the profile it happens wherever it likes.
    let rig = Rig::new(1);
    rig.strike(Fault::NoSpace);
    assert_eq!(rig.write(0, 1, 16 * 4096).unwrap_err().kind, ErrorKind::NoSpace);
    let done = rig.sectors_of(0, 16 * 4096, 1) / 8;
    assert!((1..=16).contains(&done), "{done} blocks");
    assert_eq!(rig.sectors_of(0, done * 4096, 1), done * 8, "the front, without holes");
}

#[test]
fn after_a_failed_flush_later_ones_say_nothing_until_the_power_is_cycled() {
    let rig = Rig::new(1);
    rig.write(0, 1, 512).unwrap();
    rig.strike(Fault::FailedFlush);
    assert_eq!(rig.flush().unwrap_err().kind, ErrorKind::Io);
    rig.flush().unwrap();
    rig.simulation.power_cut(CacheLoss::LoseAll);
    let rig = rig.boot_again();
    assert_eq!(rig.read(0, 512).unwrap(), [0; 512], "who retries a flush loses");
    rig.write(0, 2, 512).unwrap();
    rig.flush().unwrap();
    rig.simulation.power_cut(CacheLoss::LoseAll);
    assert_eq!(rig.boot_again().read(0, 512).unwrap(), [2; 512]);
}

#[test]
fn a_drive_that_dies_takes_what_is_in_flight_with_it() {
    let mut seen = [0; 2];
    for seed in 0..40 {
        let rig = Rig::new(seed);
        let outcomes = Rc::new(RefCell::new(Vec::new()));
        for number in 0..4u64 {
            let (device, outcomes) = (rig.device.clone(), outcomes.clone());
            rig.io.spawn(async move {
                let outcome = put(&device, number * 4096, 1, 4096).await;
                outcomes.borrow_mut().push(outcome.unwrap_err());
            });
        }
        rig.run(rig.io.sleep(1000));
        let before_ns = rig.simulation.now_ns();
        rig.strike(Fault::Death);
        assert_eq!(rig.flush().unwrap_err().kind, ErrorKind::Disconnected);
        rig.run(rig.io.sleep(1000));
        assert!(outcomes.borrow().iter().all(|error| error.kind == ErrorKind::Disconnected));
        assert_eq!(outcomes.borrow().len(), 4);
        assert!(rig.simulation.now_ns() - before_ns < SECOND_NS);
        assert_eq!(rig.read(0, 512).unwrap_err().kind, ErrorKind::Disconnected);
        for number in 0..4 {
            seen[usize::from(rig.sectors_of(number * 4096, 4096, 1) > 0)] += 1;
        }
        assert_eq!(rig.counts().of(Fault::Death), 1);
        rig.simulation.power_cut(CacheLoss::KeepAll);
        let rig = rig.boot_again();
        assert!(rig.read(0, 512).is_err(), "a power cycle brings no drive back");
        rig.simulation.set_dead(rig.drive, false);
        rig.read(0, 512).unwrap();
    }
    assert!(seen[0] > 20 && seen[1] > 20, "done and not done both happen: {seen:?}");
}

#[test]
fn an_old_drive_comes_back_without_what_was_in_flight() {
    let rig = Rig::new(1);
    rig.write(0, 1, 512).unwrap();
    let old = rig.simulation.copy_drive(rig.drive);
    rig.write(0, 2, 512).unwrap();
    rig.flush().unwrap();
    let write = rig.device.write(512, rig.io.pool().take_zeroed(512));
    rig.simulation.return_old_drive(rig.drive, &old);
    assert_eq!(rig.run(write).1.unwrap_err().kind, ErrorKind::Disconnected);
    assert_eq!(rig.read(0, 512).unwrap(), [1; 512]);
    rig.simulation.power_cut(CacheLoss::LoseAll);
    assert_eq!(rig.simulation.peek(rig.drive, 0, 1), [1], "its content is durable");
    assert_eq!(rig.counts().of(Fault::OldDrive), 1);
}

#[test]
fn a_flush_may_lie_now_and_then() {
    let rig = Rig::new(1);
    let faults = Faults::none().seeded(5).with(Fault::LyingFlush, 500_000);
    rig.simulation.set_faults(rig.drive, faults);
    for _ in 0..100 {
        let lies = rig.counts().of(Fault::LyingFlush);
        rig.write(0, 1, 512).unwrap();
        rig.flush().unwrap();
        let lied = rig.counts().of(Fault::LyingFlush) > lies;
        assert_eq!(rig.simulation.volatile_changes(rig.drive) > 0, lied);
    }
    let lies = rig.counts().of(Fault::LyingFlush);
    assert!((30..70).contains(&lies), "{lies} of 100");
    rig.simulation.set_faults(rig.drive, Faults::none());
    rig.flush().unwrap();
    assert_eq!(rig.simulation.volatile_changes(rig.drive), 0);
}

#[test]
fn a_lost_write_is_acknowledged_and_never_seen() {
    let rig = Rig::new(1);
    rig.write(0, 1, 4096).unwrap();
    rig.strike(Fault::LostWrite);
    rig.write(0, 2, 4096).unwrap();
    assert_eq!(rig.read(0, 4096).unwrap(), [1; 4096]);
}

#[test]
fn a_misdirected_write_lands_aligned_in_another_place() {
    for seed in 0..40 {
        let rig = Rig::new(seed);
        rig.strike(Fault::MisdirectedWrite);
        rig.write(8 * MIB, 7, 8192).unwrap();
        let blocks: Vec<u64> =
            (0..64 * MIB / 4096).filter(|n| rig.sectors_of(n * 4096, 4096, 7) == 8).collect();
        assert_eq!(blocks.len(), 2, "seed {seed}: whole, elsewhere: {blocks:?}");
        assert_eq!(blocks[0] + 1, blocks[1]);
        let off = (blocks[0] * 4096) ^ (8 * MIB);
        assert!(off.is_power_of_two(), "seed {seed}: one bit of the address is wrong: {off:x}");
    }
}

#[test]
fn a_rotten_bit_is_one_bit_and_stays_until_written_over() {
    for seed in 0..20 {
        let rig = Rig::new(seed);
        rig.write(4096, 0, 4096).unwrap();
        rig.flush().unwrap();
        rig.strike(Fault::BitRot);
        let seen = rig.read(4096, 4096).unwrap();
        let ones: u32 = seen.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(ones, 1);
        assert_eq!(rig.read(4096, 4096).unwrap(), seen);
        rig.simulation.power_cut(CacheLoss::LoseAll);
        let rig = rig.boot_again();
        assert_eq!(rig.read(4096, 4096).unwrap(), seen);
        rig.write(4096, 0, 4096).unwrap();
        assert_eq!(rig.read(4096, 4096).unwrap(), [0; 4096]);
    }
}

#[test]
fn a_profile_strikes_as_often_as_it_says_and_the_same_each_time() {
    let live = |seed| {
        let rig = Rig::new(9);
        let faults = Fault::ALL
            .into_iter()
            .filter(|fault| !matches!(fault, Fault::EndlessHang | Fault::Death | Fault::OldDrive))
            .fold(Faults::none().seeded(seed), |faults, fault| faults.with(fault, 20_000));
        rig.simulation.set_faults(rig.drive, faults);
        for step in 0..2000 {
            let at = step % 64 * 4096;
            let _ = (rig.write(at, 1, 4096), rig.read(at, 4096), rig.flush());
        }
        (rig.simulation.trace(), rig.counts())
    };
    let (trace, counts) = live(3);
    assert_eq!((trace, counts), live(3));
    assert_ne!(trace, live(4).0);
    for (fault, count) in counts.iter() {
        // Each can strike 2000 requests, spikes and hangs 6000; bad sectors count on each read.
        assert!((15..300).contains(&count), "{fault} struck {count} times");
    }
    assert_eq!(counts.iter().count(), 12, "{counts:?}");
}

#[test]
fn a_drive_whose_order_is_bounded_keeps_a_front_of_what_it_was_given() {
    let rig = Rig::new(1);
    for number in 0..100 {
        rig.write(number * 4096, 1, 4096).unwrap();
    }
    rig.simulation.fail_power();
    let snapshot = rig.simulation.snapshot();
    let mut strayed = 0;
    for seed in 0..50 {
        let machine = Simulation::wake(&snapshot);
        machine.power_cut(CacheLoss::Bounded(seed, ReorderBound::Changes(8)));
        let held = |number: &u64| machine.peek(rig.drive, number * 4096, 4096) == [1; 4096];
        let first_lost = (0..100).find(|number| !held(number)).unwrap_or(100);
        let last_kept = (0..100).rev().find(held).unwrap_or(0);
        assert!(last_kept < first_lost + 8, "seed {seed}: {first_lost} lost, {last_kept} kept");
        strayed += usize::from(last_kept > first_lost);
    }
    assert!(strayed > 10, "{strayed} of 50");
}

#[test]
fn a_planned_cut_and_faults_go_together() {
    let rig = Rig::new(1);
    rig.strike(Fault::PartialWrite);
    rig.simulation.arm_cut(CutPoint { operation: 0, moment: Moment::Submitted });
    let outcome = rig.simulation.run(&rig.io, put(&rig.device, 0, 1, 8192));
    assert!(matches!(outcome, Outcome::PowerCut));
    rig.simulation.power_cut(CacheLoss::KeepAll);
    let (old, new) = (rig.sectors_of(0, 8192, 0), rig.sectors_of(0, 8192, 1));
    assert!(old + new == 16 && old > 0, "{old} old, {new} new");
}
