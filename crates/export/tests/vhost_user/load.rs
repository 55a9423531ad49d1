//! A load on any vhost-user-blk back-end, for comparisons by hand.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::guest::*;

/// What is read and written, in bytes from the start of the disk.
const SPAN_BYTES: u64 = 256 << 20;

/// Requests under way: what one queue of the tests' guest holds.
const DEPTH: usize = 16;

const MEASURED: Duration = Duration::from_secs(3);

/// 4 KiB at random places of the back-end at `BIMETAL_VHOST_SOCKET`, at depth 1 and 16. Prints
/// requests per second; asserts nothing.
///
/// ```text
/// BIMETAL_VHOST_SOCKET=/run/vol0.vhost cargo test --release -p bimetal-export --test vhost_user \\
///     -- --ignored --nocapture load
/// ```
#[test]
#[ignore = "measures a back-end that somebody else has started"]
fn load() {
    let socket = std::env::var("BIMETAL_VHOST_SOCKET").expect("BIMETAL_VHOST_SOCKET is a path");
    let mut guest = Guest::connect_to_any(Path::new(&socket));
    let mut seed = 0x0dd_ba11_u64;
    let data = [0x5a; 4096];
    for (name, kind, depth) in [
        ("write", OUT, DEPTH),
        ("read", IN, 1),
        ("read", IN, DEPTH),
        ("write", OUT, 1),
        ("write", OUT, DEPTH),
    ] {
        let (mut under_way, mut done) = (0, 0_u64);
        let begun = Instant::now();
        while begun.elapsed() < MEASURED {
            while under_way < depth {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let sector = (seed >> 20) % (SPAN_BYTES / 4096) * 8;
                match kind {
                    OUT => guest.put(0, (OUT, sector), &data, 0, 4096),
                    _ => guest.put(0, (IN, sector), &[], 4096, 4096),
                };
                under_way += 1;
            }
            guest.kick(0);
            // A guest with a processor of its own: sleeping would be what is measured.
            let answers = loop {
                match guest.answers(0) {
                    none if none.is_empty() => std::thread::yield_now(),
                    answers => break answers,
                }
            };
            assert!(answers.iter().all(|answer| answer.status == 0));
            under_way -= answers.len();
            done += answers.len() as u64;
        }
        let rate = done as f64 / begun.elapsed().as_secs_f64();
        println!("{name} 4 KiB, depth {depth}: {rate:.0} per second");
        guest.await_answers(0, under_way);
    }
}
