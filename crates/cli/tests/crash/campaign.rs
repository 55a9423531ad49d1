//! How many rounds, from which seed, and what is kept when one fails.
//!
//! | variable | what it sets |
//! |---|---|
//! | `BIMETAL_CRASH_ROUNDS` | rounds of every test; without it the few that fit into every run of the tests |
//! | `BIMETAL_CRASH_SEED` | the seed of all choices but the scheduler's; printed when not given |
//! | `BIMETAL_CRASH_KEEP` | directory that receives the drives of a failed round, as the kill left them (`before`) and as they are now |
//!
//! The seed fixes sizes, requests and kill moments. It does not fix how far the server had come
//! at that moment: a finding is the kept drives, not the seed alone.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::{Place, must, run, tool};

/// One test's rounds.
pub struct Campaign {
    name: &'static str,
    /// Rounds to run.
    pub rounds: u64,
    /// Makes this test's choices.
    pub dice: Dice,
    long: bool,
    begun: Instant,
}

impl Campaign {
    /// `few` rounds unless the environment asks for more.
    pub fn new(name: &'static str, few: u64) -> Campaign {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let asked = number("BIMETAL_CRASH_ROUNDS");
        let seed = number("BIMETAL_CRASH_SEED").unwrap_or_else(|| {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs())
        });
        // Printed by the harness when the test fails, and at once with `--nocapture`.
        println!("{name}: BIMETAL_CRASH_SEED={seed}");
        let salt = name.bytes().fold(seed, |salt, byte| salt.rotate_left(7) ^ u64::from(byte));
        Campaign {
            name,
            rounds: asked.unwrap_or(few),
            dice: Dice::new(salt),
            long: asked.is_some(),
            begun: Instant::now(),
        }
    }

    /// Whether many rounds were asked for.
    pub fn is_long(&self) -> bool {
        self.long
    }

    /// A line of progress, only when many rounds were asked for.
    pub fn tell(&self, round: u64, what: &str) {
        if self.long {
            let (name, rounds, seconds) = (self.name, self.rounds, self.begun.elapsed().as_secs());
            let _ = writeln!(
                std::io::stderr(),
                "{name}: round {} of {rounds}, {seconds} s: {what}",
                round + 1
            );
        }
    }
}

/// Choices from a seed (splitmix64).
pub struct Dice(u64);

impl Dice {
    /// The same seed gives the same choices.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `bound` - 1; the bias of the remainder does not matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A time between the bounds, in ms.
    pub fn moment(&mut self, low_ms: u64, high_ms: u64) -> Duration {
        Duration::from_millis(low_ms + self.below(high_ms - low_ms))
    }

    /// Choices of its own for a part that makes an unknown number of them.
    pub fn split(&mut self) -> Dice {
        Dice(self.next())
    }
}

/// Keeps what a failed round leaves behind, when the environment names a directory for it.
pub struct Evidence<'a> {
    place: &'a Place,
    directory: Option<PathBuf>,
}

impl<'a> Evidence<'a> {
    /// Watches over one place; declare it right after the place, so that it is dropped when
    /// servers and mounts are gone and the place is still there.
    pub fn new(place: &'a Place) -> Evidence<'a> {
        let directory = std::env::var_os("BIMETAL_CRASH_KEEP").map(PathBuf::from);
        Evidence { place, directory }
    }

    /// Copies the drives as they are now, before the next start changes them.
    pub fn before_restart(&self) {
        if self.directory.is_some() {
            let script = "rm -rf before && mkdir before && \
                          cp --sparse=always v.fast v.slow conf/v.toml before/";
            must(tool("sh").args(["-c", script]).current_dir(self.place.dir.path()));
        }
    }
}

impl Drop for Evidence<'_> {
    fn drop(&mut self) {
        if let Some(directory) = self.directory.as_ref().filter(|_| std::thread::panicking()) {
            let _ = std::fs::create_dir_all(directory);
            // Never across a mount that could not be undone: -x stays on this file system.
            let copied = run(tool("cp")
                .args(["-a", "-x", "--sparse=always"])
                .arg(self.place.dir.path())
                .arg(directory));
            let _ = writeln!(
                std::io::stderr(),
                "KEPT: {:?} in {directory:?} ({})",
                self.place.dir.path().file_name(),
                copied.status
            );
        }
    }
}
