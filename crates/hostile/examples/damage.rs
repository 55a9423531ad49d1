//! All damage to two small volumes, on all cores.
//!
//!     cargo run --release -p bimetal-hostile --example damage            # everything
//!     cargo run --release -p bimetal-hostile --example damage 10         # each tenth case
//!
//! Ends with 1 when something wrong was returned, or lost, that could have been kept.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hostile::damage::{Outcome, Rescued, Verdict, cases, images, judge};

/// Failures printed; beyond them only their number is.
const FAILURES_SHOWN: usize = 30;
/// Cases between two signs of life.
const PROGRESS_CASES: usize = 20_000;

fn main() -> ExitCode {
    let stride = std::env::args().nth(1).map_or(1, |text| text.parse().expect("a number"));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut failed = 0;
    for image in images() {
        let cases: Vec<_> = cases(&image).into_iter().step_by(stride).collect();
        let next = AtomicUsize::new(0);
        let outcomes = Mutex::new(BTreeMap::new());
        let failures = Mutex::new(Vec::new());
        let rescues = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(damage) = cases.get(number) else { break };
                        match judge(&image, damage) {
                            Ok(Verdict { outcome, rescued }) => {
                                *outcomes.lock().unwrap().entry(outcome).or_insert(0u64) += 1;
                                if outcome == Outcome::Refused
                                    && let Some(Rescued { right, all }) = rescued
                                {
                                    rescues.lock().unwrap().push(right * 100 / all);
                                }
                            }
                            Err(why) => failures.lock().unwrap().push(format!("{damage:?}: {why}")),
                        }
                        if number % PROGRESS_CASES == PROGRESS_CASES - 1 {
                            eprintln!("{} volume: {} of {}", image.name, number + 1, cases.len());
                        }
                    }
                });
            }
        });
        let failures = failures.into_inner().unwrap();
        println!("{} volume, {} cases: {:?}", image.name, cases.len(), outcomes.lock().unwrap());
        let mut rescues = rescues.into_inner().unwrap();
        rescues.sort_unstable();
        if let [least, .., most] = rescues[..] {
            let median = rescues[rescues.len() / 2];
            println!(
                "  of refused volumes a rescue brings back {least} to {most} % of what they hold, \
                 {median} % in the median"
            );
        }
        failures.iter().take(FAILURES_SHOWN).for_each(|failure| println!("  {failure}"));
        failed += failures.len();
    }
    println!("{failed} failures");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
