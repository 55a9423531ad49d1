//! What a request costs, in instructions: counted by callgrind, so the same in every run and on every
//! machine with the same compiler, and kept below a budget for each route.
//!
//! Counted is the engine with its executor: the drives' share, which is the simulation's, is counted
//! without the engine and taken away. `docs/performance.md` has the table. The program runs itself under
//! valgrind, with a route and a count.

mod routes;

use std::fs;
use std::path::Path;
use std::process::Command;

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

/// Requests of the two runs that are compared.
const COUNTS: [u64; 2] = [100, 600];

fn instructions(route: &str, count: u64, directory: &Path) -> i64 {
    let out = directory.join(format!("{route}-{count}"));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().expect("a test has a program"))
        .args([route, &count.to_string()])
        .output()
        .expect("valgrind runs");
    assert!(output.status.success(), "{route}: {}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&out).expect("callgrind writes what it counted");
    let total = text.lines().find_map(|line| line.strip_prefix("summary: "));
    total.and_then(|total| total.trim().parse().ok()).expect("callgrind sums up")
}

fn per_request(route: &str, directory: &Path) -> i64 {
    let [few, many] = COUNTS.map(|count| instructions(route, count, directory));
    (many - few) / (COUNTS[1] - COUNTS[0]) as i64
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [route, count] = &words[..]
        && let Ok(count) = count.parse()
    {
        return routes::send(route, count);
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        let why = "'valgrind' is missing (scripts/setup installs it)";
        eprintln!("SKIPPED: instructions per request: {why}");
        return;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut over = Vec::new();
    for (route, under, budget) in BUDGETS {
        let below = if under.is_empty() { 0 } else { per_request(under, directory) };
        let net = per_request(route, directory) - below;
        println!("{route:<14} {net:>6} instructions per request, budget {budget}");
        if net > budget {
            over.push(format!("{route}: {net} instead of {budget}"));
        }
    }
    assert!(over.is_empty(), "more instructions per request than allowed: {over:?}");
}
