use super::*;

fn queue(max_sectors_kb: u64, max_segments: u64) -> Queue {
    Queue {
        max_sectors_kb: Some(max_sectors_kb),
        max_hw_sectors_kb: Some(4096),
        max_segments: Some(max_segments),
        ..Queue::default()
    }
}

/// Reads of growing size on a kernel that cuts at that many KiB.
fn cut_at(limit_kib: u64) -> Vec<Measured> {
    let bounds = Bounds { seconds: 1, bytes: 1 << 30, writes: false };
    let reads = plan(1 << 40, bounds).unwrap().into_iter();
    let reads = reads.filter(|measure| measure.random && measure.depth == 1);
    let measured = reads.map(|measure| {
        let asked_kib = measure.block_bytes / 1024;
        let pieces = asked_kib.div_ceil(limit_kib);
        Measured {
            measure,
            requests: 100,
            seconds: 1.0,
            iops: 100.0,
            mb_s: 1.0,
            latency_us: LatencyPoints { mean: 1.0, deviation: 0.0, p1: 1.0, p50: 1.0, p99: 1.0 },
            arrived_kib: Some(asked_kib as f64 / pieces as f64),
        }
    });
    measured.collect()
}

#[test]
fn where_requests_are_cut_is_found_with_the_limit_that_does_it() {
    let identity = |queue| Identity {
        queue: Some(queue),
        counts_requests: true,
        ..Identity::unknown("/dev/sdx", "block device", 1 << 40)
    };
    let found = split(&identity(queue(512, 168)), &cut_at(512));
    assert_eq!(found.at_kib, Some(512.0));
    assert!(found.why.contains("max_sectors_kb is 512") && found.why.contains("4096"), "{found:?}");
    assert!(!found.why.contains("max_segments"), "{found:?}");
    // The limit of the kernel was raised; the pieces of memory remain.
    let found = split(&identity(queue(1024, 128)), &cut_at(512));
    assert!(found.why.contains("max_segments") && found.why.contains("128"), "{found:?}");
    assert!(!found.why.contains("max_sectors_kb is"), "{found:?}");
    let found = split(&identity(queue(512, 128)), &cut_at(512));
    assert!(found.why.contains("max_sectors_kb is 512") && found.why.contains("128 pieces"));
    let found = split(&identity(queue(8192, 9999)), &cut_at(8192));
    assert_eq!(found.at_kib, None);
    assert!(found.why.contains("4096 KiB arrive whole"), "{found:?}");
    let found = split(&identity(queue(2048, 999)), &cut_at(256));
    assert!(found.why.contains("neither max_sectors_kb (2048)"), "{found:?}");
}

#[test]
fn a_plan_stays_on_the_drive_and_writes_only_when_it_may() {
    for size_bytes in [64 << 20, 100 << 20, 1 << 33, 500_107_862_016, 20 << 40] {
        for writes in [false, true] {
            let bounds = Bounds { seconds: 2, bytes: 1 << 30, writes };
            let list = plan(size_bytes, bounds).unwrap();
            assert_eq!(list.iter().any(|one| one.direction == Direction::Write), writes);
            for measure in &list {
                measure.check(size_bytes).unwrap();
                let file = JobFile::parse("plan", &measure.job()).unwrap();
                assert_eq!(file.changes_target(), measure.direction == Direction::Write);
            }
        }
    }
    let bounds = Bounds { seconds: 2, bytes: 1 << 30, writes: false };
    assert!(plan(1 << 20, bounds).unwrap_err().contains("too few"));
}

#[test]
fn a_file_that_is_no_file_of_measurements_is_refused_by_name() {
    let wrong = |text: &str| Measurements::parse("mine.json", text).unwrap_err();
    assert!(wrong("{}").contains("mine.json"));
    assert!(wrong("no json").contains("mine.json"));
    let measured = cut_at(512);
    let mut good = Measurements {
        schema: 1,
        identity: Identity::unknown("x", "file", 1 << 40),
        split: Split { at_kib: None, why: String::new() },
        measured,
        notes: Vec::new(),
    };
    assert!(Measurements::parse("mine.json", &good.to_json()).is_ok());
    good.measured[0].iops = 0.0;
    assert!(wrong(&good.to_json()).contains("a rate of 0"));
    good.measured[0].iops = 1.0;
    good.measured[0].measure.block_bytes = 1 << 50;
    assert!(wrong(&good.to_json()).contains("cannot have been"));
    good.schema = 9;
    assert!(wrong(&good.to_json()).contains("version 9"));
}
