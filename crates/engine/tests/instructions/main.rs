//! What a request costs the engine, in instructions, kept below a budget for each route.
//!
//! Counted is the engine with its executor: the drives' share, which is the simulation's, is counted
//! without the engine and taken away. `docs/performance.md` has the table.

mod callgrind;
mod routes;

use callgrind::per_request;

/// Route, what it is net of, and the budget: what was measured and a quarter, twice that where checksums
/// are computed, for which processors differ in their instructions.
const BUDGETS: [(&str, &str, i64); 6] = [
    ("read-fast", "device-read", 4_900),
    ("read-hole", "", 11_000),
    ("write-home", "device-write", 8_300),
    ("write-behind", "device-write", 1_000),
    ("write-log", "device-write", 60_000),
    ("write-flush", "device-write", 36_000),
];

fn main() {
    if let Some((route, count)) = callgrind::asked() {
        return routes::send(&route, count);
    }
    if !callgrind::is_here() {
        return;
    }
    let mut over = Vec::new();
    for (route, under, budget) in BUDGETS {
        let below = if under.is_empty() { 0 } else { per_request(under, None) };
        let net = per_request(route, None) - below;
        println!("{route:<14} {net:>6} instructions per request, budget {budget}");
        if net > budget {
            over.push(format!("{route}: {net} instead of {budget}"));
        }
    }
    assert!(over.is_empty(), "more instructions per request than allowed: {over:?}");
}
