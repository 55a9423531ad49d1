//! What a program's request costs, in instructions: counted by callgrind, so the same in every run and on every
//! machine with the same compiler. A test runs itself under valgrind, with a route and a count.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Requests of the two runs that are compared.
const COUNTS: [u64; 2] = [100, 600];

/// The route and the number of requests that this process was started for, if it was.
pub fn asked() -> Option<(String, u64)> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [route, count] = &words[..] else { return None };
    Some((route.clone(), count.parse().ok()?))
}

/// Whether valgrind is here; says so if it is not.
pub fn is_here() -> bool {
    let here = Command::new("valgrind").arg("--version").output().is_ok();
    if !here {
        let why = "'valgrind' is missing (scripts/setup installs it)";
        eprintln!("SKIPPED: instructions per request: {why}");
    }
    here
}

/// Instructions per request of a route, without those of functions whose names match a pattern, if one is
/// given.
pub fn per_request(route: &str, left_out: Option<&str>) -> i64 {
    let [few, many] = COUNTS.map(|count| instructions(route, count, left_out));
    (many - few) / (COUNTS[1] - COUNTS[0]) as i64
}

fn instructions(route: &str, count: u64, left_out: Option<&str>) -> i64 {
    events(route, count, left_out, &[])["Ir"]
}

/// A last-level cache of 2 MiB: what a processor has for one of its cores.
const CACHE: [&str; 2] = ["--cache-sim=yes", "--LL=2097152,16,64"];

/// Data that a request of a route finds in no cache: lines read or written that are not in a simulated one of 2 MiB.
#[allow(dead_code)]
pub fn misses_per_request(route: &str) -> f64 {
    let [few, many] = COUNTS.map(|count| {
        let events = events(route, count, None, &CACHE);
        events["DLmr"] + events["DLmw"]
    });
    (many - few) as f64 / (COUNTS[1] - COUNTS[0]) as f64
}

/// What callgrind counts of a run, by the names it has for it.
fn events(route: &str, count: u64, left_out: Option<&str>, more: &[&str]) -> HashMap<String, i64> {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{route}-{count}"));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .args(left_out.map(|pattern| format!("--toggle-collect={pattern}")))
        // Behind it: a function to toggle at has collection begin with the first of its calls.
        .arg("--collect-atstart=yes")
        .args(more)
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().expect("a test has a program"))
        .args([route, &count.to_string()])
        .output()
        .expect("valgrind runs");
    assert!(output.status.success(), "{route}: {}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&out).expect("callgrind writes what it counted");
    let words = |prefix: &str| -> Vec<&str> {
        let line = text.lines().find_map(|line| line.strip_prefix(prefix));
        line.expect("callgrind sums up").split_whitespace().collect()
    };
    let numbers = words("summary: ").into_iter().map(|word| word.parse().expect("a number"));
    words("events: ").into_iter().map(str::to_owned).zip(numbers).collect()
}
