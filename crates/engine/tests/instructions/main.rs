//! What a request costs the engine, in instructions and allocations, kept below a budget for each route.
//!
//! Counted is the engine with its executor: the drives' share, which is the simulation's, is counted
//! without the engine and taken away. `docs/performance.md` has the table.

mod allocations;
mod callgrind;
mod routes;

/// Route, what it is net of, and the budgets: of instructions what was measured and a quarter, twice that where
/// checksums are computed, for which processors differ in their instructions; of allocations what a run of many scatters, and for records what
/// was measured and a quarter (some are the simulated drive's, which keeps what it has never had).
const BUDGETS: [(&str, &str, i64, f64); 6] = [
    ("read-fast", "device-read", 6_300, 0.1),
    ("read-hole", "", 11_000, 0.1),
    ("write-home", "device-write", 8_300, 0.1),
    ("write-behind", "device-write", 1_000, 0.1),
    ("write-log", "device-write", 60_000, 3.3),
    ("write-flush", "device-write", 36_000, 0.1),
];

/// Lines that are in no cache of a core's when a place of a large volume is looked up that nobody has asked for lately.
const MISSES_BUDGET: f64 = 8.0;

fn main() {
    if let Some((route, count)) = callgrind::asked() {
        return routes::send(&route, count);
    }
    let counts = callgrind::is_here();
    let mut over = Vec::new();
    for (route, under, budget, allocations_budget) in BUDGETS {
        let net =
            |of: &dyn Fn(&str) -> f64| of(route) - if under.is_empty() { 0.0 } else { of(under) };
        let allocations =
            net(&|route| allocations::per_request(|count| routes::send(route, count)));
        let instructions = match counts {
            true => net(&|route| callgrind::per_request(route, None) as f64),
            false => 0.0,
        };
        println!(
            "{route:<14} {instructions:>6} instructions per request, budget {budget}; {allocations:.3} allocations, budget \
             {allocations_budget}"
        );
        if instructions > budget as f64 || allocations > allocations_budget {
            over.push(format!(
                "{route}: {instructions} instructions, {allocations:.3} allocations"
            ));
        }
    }
    if counts {
        let [near, far] = ["large-near", "large-far"].map(callgrind::misses_per_request);
        println!(
            "lookups anywhere in a large volume: {:.2} cache misses, budget {MISSES_BUDGET}",
            far - near
        );
        if far - near > MISSES_BUDGET {
            over.push(format!("lookups: {:.2} cache misses", far - near));
        }
    }
    assert!(over.is_empty(), "more per request than allowed: {over:?}");
}
