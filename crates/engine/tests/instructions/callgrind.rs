//! What a program's request costs, in instructions: counted by callgrind, so the same in every run and on every
//! machine with the same compiler. A test runs itself under valgrind, with a route and a count.

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
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{route}-{count}"));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .args(left_out.map(|pattern| format!("--toggle-collect={pattern}")))
        // Behind it: a function to toggle at has collection begin with the first of its calls.
        .arg("--collect-atstart=yes")
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
