use twin::{DriveCounters, DriveSpec, Latencies, Simulation};

use super::super::Report;
use super::*;

/// A drive whose reads take 100 µs, writes 50 µs and flushes 1 ms, sixteen at a time.
fn spec() -> DriveSpec {
    let latencies = Latencies {
        read_ns: 100_000,
        write_ns: 50_000,
        flush_ns: 1_000_000,
        kib_ns: 0,
        jitter_percent: 0,
        ..Latencies::flash()
    };
    DriveSpec { latencies, ..DriveSpec::fast("drive", 64 << 20) }
}

fn played(text: &str) -> (Report, Played, DriveCounters) {
    limited(text, Limits::default())
}

fn limited(text: &str, limits: Limits) -> (Report, Played, DriveCounters) {
    let file = JobFile::parse("test.fio", text).unwrap();
    let simulation = Simulation::new(1);
    let drive = simulation.add_drive(spec());
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let played = simulation.run(&io, play(&device, &file, limits)).done();
    (Report::of(&file, &played), played, simulation.counters(drive))
}

fn near(value: f64, wanted: f64) -> bool {
    (value / wanted - 1.0).abs() < 0.01
}

#[test]
fn one_request_at_a_time_gives_the_drives_latency_and_a_depth_multiplies_the_rate() {
    let (report, ..) = played("[a]\nrw=randread\nruntime=2\ntime_based\n");
    let read = &report.jobs[0].read;
    assert!(near(read.iops, 10_000.0), "{read:?}");
    assert!(near(read.clat_ns.mean, 100_000.0) && read.runtime == 2000, "{read:?}");
    let percentiles = read.clat_ns.percentile.as_ref().unwrap();
    assert_eq!(percentiles.0.len(), 17);
    assert_eq!((read.bw_samples, report.jobs[0].latency_us["250"]), (4, 100.0));
    let deep = "ioengine=libaio\nrw=randread\niodepth=8\nruntime=1\ntime_based\n";
    let (report, ..) = played(&format!("[a]\n{deep}"));
    assert!(near(report.jobs[0].read.iops, 80_000.0), "{}", report.jobs[0].read.iops);
    // An engine that waits for each request has no depth, as fio notes when it is asked for one.
    let (report, ..) = played(&format!("[a]\n{deep}ioengine=psync\n"));
    assert!(near(report.jobs[0].read.iops, 10_000.0), "{}", report.jobs[0].read.iops);
}

#[test]
fn copies_work_side_by_side_and_are_told_apart_or_as_one() {
    let text = "[a]\nrw=randread\nnumjobs=4\nio_size=4m\n";
    let (report, played, counters) = played(text);
    assert_eq!((report.jobs.len(), counters.reads), (4, 4096));
    assert!(report.jobs.iter().all(|job| job.read.total_ios == 1024));
    assert!(near((played.ended_ns - played.began_ns) as f64, 102_400_000.0));
    let (report, ..) = limited(&format!("{text}group_reporting\n"), Limits::default());
    assert_eq!(report.jobs.len(), 1);
    let read = &report.jobs[0].read;
    assert!(read.total_ios == 4096 && near(read.iops, 40_000.0), "{read:?}");
}

#[test]
fn a_barrier_waits_for_all_before_it() {
    let text = "[a]\nrw=read\nio_size=4m\n[b]\nrw=read\nio_size=4m\n[c]\nstonewall\nrw=write\n\
                io_size=4m\n[d]\nrw=write\nio_size=4m\n";
    let (report, played, _) = played(text);
    let groups: Vec<u32> = report.jobs.iter().map(|job| job.groupid).collect();
    assert_eq!(groups, [0, 0, 1, 1]);
    // 1024 reads of 100 µs beside each other, then 1024 writes of 50 µs.
    assert!(near((played.ended_ns - played.began_ns) as f64, 153_600_000.0));
}

#[test]
fn rates_thinking_delays_and_ramps_take_their_time() {
    let reads = |text: &str| {
        let (report, ..) = played(&format!("[a]\nrw=randread\nruntime=2\ntime_based\n{text}"));
        report.jobs[0].read.clone()
    };
    assert!(near(reads("rate_iops=500").iops, 500.0));
    assert!(near(reads("rate=4m").bw_bytes as f64, 4_194_304.0));
    // 100 µs of reading, 900 µs of thinking.
    assert!(near(reads("thinktime=900").iops, 1000.0));
    let deep = "ioengine=libaio\niodepth=4\nthinktime=900\nthinktime_blocks=4";
    assert!(near(reads(deep).iops, 4000.0), "{}", reads(deep).iops);
    let ramped = reads("ramp_time=1\nstartdelay=3");
    assert!(near(ramped.iops, 10_000.0) && ramped.runtime == 2000, "{ramped:?}");
}

#[test]
fn flushes_come_after_so_many_writes_and_are_measured() {
    let text = "[a]\nrw=write\nio_size=4m\nfsync=4\nend_fsync\n";
    let (report, _, counters) = played(text);
    assert_eq!((counters.writes, counters.flushes), (1024, 257));
    let job = &report.jobs[0];
    assert_eq!(job.sync.total_ios, 257);
    assert!(near(job.sync.lat_ns.mean, 1_000_000.0));
    assert!(near(job.write.clat_ns.mean, 50_000.0), "a flush is not part of a write's latency");
}

#[test]
fn a_mixture_a_trim_and_block_sizes_reach_the_drive_as_asked() {
    let (report, _, counters) = played("[a]\nrw=randrw\nrwmixread=25\nbs=4k\nio_size=16m\n");
    assert_eq!(counters.reads + counters.writes, 4096);
    assert!((900..1150).contains(&counters.reads), "{counters:?}");
    assert_eq!(report.jobs[0].read.io_bytes, counters.read_bytes);
    let (_, _, counters) = played("[a]\nrw=randtrim\nbs=64k\n");
    assert_eq!(counters.trims, 1024);
    let (_, _, counters) = played("[a]\nrw=randread\nbssplit=4k/50:8k/50\nio_size=8m\n");
    let mean = counters.read_bytes as f64 / counters.reads as f64;
    assert!((5900.0..6400.0).contains(&mean), "{mean}");
}

#[test]
fn a_request_that_fails_ends_its_job_and_no_other() {
    let file = JobFile::parse("x", "[a]\nrw=write\nsize=1m\n[b]\nrw=read\nsize=1m\n").unwrap();
    let simulation = Simulation::new(1);
    let drive = simulation.add_drive(spec());
    simulation.set_read_only(drive, true);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let played = simulation.run(&io, play(&device, &file, Limits::default())).done();
    let report = Report::of(&file, &played);
    assert!(report.jobs[0].error != 0 && report.jobs[0].other["bimetal error"].is_string());
    assert_eq!((report.jobs[1].error, report.jobs[1].read.total_ios), (0, 256));
}

#[test]
fn a_limit_ends_what_would_go_on_and_says_so() {
    let limits = Limits { run_ns: Some(1_000_000_000), requests: None };
    let (report, ..) = limited("[a]\nrw=randread\nloops=1000000\n", limits);
    assert!(near(report.jobs[0].read.iops, 10_000.0));
    assert!(report.jobs[0].other.contains_key("bimetal cut short"));
    let few = Limits { run_ns: None, requests: Some(100) };
    let (report, ..) = limited("[a]\nrw=randread\nloops=1000000\n", few);
    assert_eq!(report.jobs[0].read.total_ios, 100);
    assert!(report.jobs[0].other.contains_key("bimetal cut short"));
    let (report, ..) = limited("[a]\nrw=read\nio_size=1m\n", limits);
    assert!(!report.jobs[0].other.contains_key("bimetal cut short"));
}

#[test]
fn what_happened_over_time_is_kept_as_fio_keeps_it() {
    let (_, played, _) = played("[a]\nrw=randread\nruntime=2\ntime_based\n");
    let log = played.jobs[0].track.iops_log();
    let lines: Vec<&str> = log.lines().collect();
    assert!(
        lines.len() >= 4 && lines[0].starts_with("500, ") && lines[0].ends_with(", 0, 4096, 0, 0")
    );
    assert_eq!(
        played.jobs[0].track.latency_log().lines().next(),
        Some("500, 100000, 0, 4096, 0, 0")
    );
}

#[test]
fn what_takes_no_time_at_all_comes_to_an_end() {
    let file = JobFile::parse("x", "[a]\nrw=randread\niodepth=4\nruntime=1\ntime_based\n").unwrap();
    let latencies = Latencies { read_ns: 0, kib_ns: 0, jitter_percent: 0, ..Latencies::flash() };
    let simulation = Simulation::new(1);
    let drive = simulation.add_drive(DriveSpec { latencies, ..spec() });
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let limits = Limits { run_ns: Some(20_000_000), requests: None };
    let played = simulation.run(&io, play(&device, &file, limits)).done();
    let requests = played.jobs[0].requests(Direction::Read);
    assert!((1000..=30_000).contains(&requests), "{requests} within 20 ms");
}
