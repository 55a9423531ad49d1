//! Prints how often per second 4 KiB can be rewritten and flushed, in virtual time, over a drive
//! whose flush takes 17.5 ms (the published case of an Apple SSD): strict and deferred, by one client
//! and by many.

mod measure;

use measure::{DRIVE_FLUSHES_PER_S, rate};

fn main() {
    println!("a drive that flushes {DRIVE_FLUSHES_PER_S:.1} times per second");
    println!("{:<14} {:>8} {:>14}", "durability", "clients", "rewrites/s");
    for mode in ["strict", "deferred=50", "deferred=1s"] {
        for clients in [1, 32] {
            println!("{mode:<14} {clients:>8} {:>14.0}", rate(mode, clients));
        }
    }
}
