//! A twin in real time, with a simulation's clock in place of the wall's.

use std::cell::Cell;
use std::rc::Rc;

use io::{Durability, Volume, ZeroMode};
use twin::{Bench, Kind, Load, Paced, Pattern, Profile, Random, Simulation};

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn a_paced_twin_is_as_fast_as_one_on_the_bench() {
    for (choice, kind, clients) in [
        ("wd5002abys", Kind::Read, 1),
        ("wd5002abys", Kind::Write, 4),
        ("wd5002abys,cache=off", Kind::Write, 1),
        ("raid5-4x-hus156060vl", Kind::Read, 16),
        ("ssdsa2m160g2gc,cache=off", Kind::Write, 1),
    ] {
        let profile = Profile::named(choice).unwrap();
        let load = Load {
            kind,
            pattern: Pattern::Random,
            block_bytes: 4096,
            range: 0..profile.size_bytes() / 4096 * 4096,
            clients,
            flushes: 0,
        };
        let mut bench = Bench::new(profile.model(Random::new(1)), Random::new(2));
        let expected = bench.run(&load, 30 * SECOND_NS, 3_000).per_second();

        let simulation = Simulation::new(1);
        let io = simulation.boot();
        let paced = Rc::new(Paced::new(&io, &profile, false));
        let (done, begun_ns) = (Rc::new(Cell::new(0u64)), io.now_ns());
        let (gate, blocks) = (io::Gate::new(clients), profile.size_bytes() / 4096);
        for client in 0..clients {
            let (paced, done, gate, io) = (paced.clone(), done.clone(), gate.clone(), io.clone());
            io.clone().spawn(async move {
                let _pass = gate.enter(1).await;
                let mut random = Random::new(client);
                let mut buf = io.pool().take_zeroed(4096);
                while done.get() < 3_000 {
                    let at = random.below(blocks) * 4096;
                    let outcome;
                    (buf, outcome) = match kind {
                        Kind::Read => paced.read(at, buf).await,
                        _ => paced.write(at, buf, Durability::Volatile).await,
                    };
                    outcome.unwrap();
                    done.set(done.get() + 1);
                }
            });
        }
        simulation
            .run(&io, async {
                io.yield_now().await;
                gate.enter(clients).await;
            })
            .done();
        let found = done.get() as f64 * 1e9 / (io.now_ns() - begun_ns) as f64;
        assert!((found / expected - 1.0).abs() < 0.05, "{choice}: {found} against {expected}");
    }
}

#[test]
fn a_paced_twin_keeps_what_it_is_given_and_refuses_what_lies_outside() {
    let simulation = Simulation::new(1);
    let io = simulation.boot();
    let profile = Profile::named("wd5002abys").unwrap().shrunk(64).unwrap();
    assert_eq!(profile.size_bytes() >> 20, (500_107_862_016_u64 / 64) >> 20);
    let paced = Paced::new(&io, &profile, true);
    let run = async {
        let mut buf = io.pool().take_zeroed(8192);
        buf.fill(7);
        paced.write(4096, buf, Durability::Durable).await.1.unwrap();
        paced.trim(4096, 512, Durability::Volatile).await.unwrap();
        paced.write_zeroes(8192, 4096, ZeroMode::Allocate, Durability::Volatile).await.unwrap();
        let (buf, outcome) = paced.read(4096, io.pool().take(8192)).await;
        outcome.unwrap();
        let sevens = buf.iter().filter(|byte| **byte == 7).count();
        let end = paced.info().size_bytes;
        let outside = paced.read(end - 4096, io.pool().take(8192)).await.1;
        (sevens, buf[0], outside.is_err())
    };
    assert_eq!(simulation.run(&io, run).done(), (4096 - 512, 0, true));
}
