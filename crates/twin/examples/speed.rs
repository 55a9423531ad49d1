//! How many simulated operations a second of this machine's time carries out: 32 clients, 4 KiB
//! random reads and writes half and half, each client flushing after 64 of them.
//!
//! `speed` takes a plain drive with content, over 256 MiB; `speed NAME` the twin of that name
//! without content, over all of it.

use std::time::Instant;

use twin::{DriveSpec, Profile, Random, Simulation};

const CLIENTS: u64 = 32;
const BLOCKS: u64 = 65_536;

fn main() {
    let simulation = Simulation::new(1);
    let (spec, blocks, operations) = match std::env::args().nth(1) {
        Some(name) => {
            let profile = Profile::named(&name).expect("a name of 'bimetal twin list'");
            let spec = DriveSpec { keeps_content: false, ..profile.spec(name) };
            (spec, profile.size_bytes() / 4096, 30_000)
        }
        None => (DriveSpec::fast("fast", 1 << 40), BLOCKS, 60_000),
    };
    let drive = simulation.add_drive(spec);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let begun = Instant::now();
    let done = io::Gate::new(CLIENTS);
    for client in 0..CLIENTS {
        let (device, done) = (device.clone(), done.clone());
        io.spawn(async move {
            let _pass = done.enter(1).await;
            let mut random = Random::new(client);
            let mut buf = device.io().pool().take_zeroed(4096);
            for step in 0..operations {
                let at = random.below(blocks) * 4096;
                let transfer = match step % 2 {
                    0 => device.write(at, buf),
                    _ => device.read(at, buf),
                };
                let outcome;
                (buf, outcome) = transfer.await;
                outcome.expect("no faults are set");
                if step % 64 == 63 {
                    device.flush().await.expect("no faults are set");
                }
            }
        });
    }
    let waiting = async {
        io.yield_now().await;
        done.enter(CLIENTS).await;
    };
    simulation.run(&io, waiting).done();
    let seconds = begun.elapsed().as_secs_f64();
    let counters = simulation.counters(drive);
    let operations = counters.reads + counters.writes + counters.flushes;
    println!(
        "{operations} operations in {seconds:.2} s: {:.0} per second; virtual time {:.1} s",
        operations as f64 / seconds,
        simulation.now_ns() as f64 / 1e9
    );
}
