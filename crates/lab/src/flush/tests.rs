use twin::{DriveSpec, Latencies, Simulation};

use super::*;

fn measured(spec: DriveSpec, flushed: bool) -> (Case, Vec<u8>) {
    let simulation = Simulation::new(1);
    let drive = simulation.add_drive(spec);
    simulation.poke(drive, 8192, &[7; 4096]);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let budget_ns = 5_000_000_000;
    let case = raw_rewrite(&device, 8192, 4096, flushed, budget_ns);
    (simulation.run(&io, case).done().unwrap(), simulation.peek(drive, 8192, 4096))
}

fn exact(latencies: Latencies) -> Latencies {
    Latencies { jitter_percent: 0, ..latencies }
}

#[test]
fn a_drive_with_a_slow_flush_shows_it_and_keeps_its_content() {
    // The published case: a flush of 17.5 ms, 46 to 58 flushed writes a second.
    let latencies = Latencies { flush_ns: 17_500_000, ..exact(Latencies::flash()) };
    let spec = || DriveSpec { latencies: latencies.clone(), ..DriveSpec::fast("x", 1 << 26) };
    let (flushed, content) = measured(spec(), true);
    assert!((46.0..58.0).contains(&flushed.rate_per_s), "{flushed:?}");
    let flush_ns = flushed.flush_ns.unwrap();
    assert!((17_300_000..17_800_000).contains(&flush_ns.p50), "{flush_ns:?}");
    assert_eq!(content, [7; 4096]);
    let (plain, _) = measured(spec(), false);
    assert!(plain.rate_per_s > 10_000.0 && plain.flush_ns.is_none(), "{plain:?}");
    assert!(plain.operations <= OPERATIONS_MAX);
}

#[test]
fn a_disk_whose_flush_costs_nothing_is_not_believed() {
    let facts =
        DriveFacts { rotational: Some(true), volatile_cache: Some(true), ..DriveFacts::default() };
    let opinion = |latencies: Latencies| {
        let spec = DriveSpec { latencies, ..DriveSpec::slow("x", 1 << 26) };
        Opinion::of(&facts, &[measured(spec, true).0]).unwrap()
    };
    let honest = opinion(exact(Latencies::disk()));
    assert_eq!(honest.plausibility, Plausibility::Plausible, "{honest:?}");
    let quick = Latencies { write_ns: 100_000, flush_ns: 50_000, ..exact(Latencies::disk()) };
    let liar = opinion(quick);
    assert_eq!(liar.plausibility, Plausibility::NotPlausible, "{liar:?}");
    assert!(liar.reason.contains("not plausible for its kind"), "{liar:?}");
    assert_eq!(Opinion::of(&facts, &[]), None);
}

#[test]
fn sizes_below_a_sector_are_left_out() {
    let simulation = Simulation::new(1);
    let spec = DriveSpec { sector_bytes: 4096, ..DriveSpec::fast("x", 1 << 26) };
    let drive = simulation.add_drive(spec);
    let io = simulation.boot();
    assert_eq!(block_sizes(&simulation.device(&io, drive)), [4096, 16384, 65536]);
}
