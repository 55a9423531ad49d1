//! Ctrl-C of a command that has begun what would go on without it.
//!
//! The first one is noticed by whoever waits, who ends what it began and says how things stand. A second one
//! ends the command at once, whatever goes on elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::failure::Failure;

/// What shells say of a program that ended by Ctrl-C: 128 and the signal's number.
const EXIT_CODE: i32 = 130;
/// So soon after the first one it is the same one again: `timeout` and others send it to the process and to its
/// group.
const ECHO: Duration = Duration::from_millis(250);

/// Whether somebody has pressed it.
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on, until the process ends.
    pub fn listen() -> Result<Interrupt, Failure> {
        let refused = |error| Failure::failed(format!("cannot listen for signals: {error}"));
        let mut signals = Signals::new([SIGINT]).map_err(refused)?;
        let asked = Arc::new(AtomicBool::new(false));
        let noted = asked.clone();
        let listen = move || {
            let mut first: Option<Instant> = None;
            for _ in signals.forever() {
                if first.get_or_insert_with(Instant::now).elapsed() > ECHO {
                    low_level::exit(EXIT_CODE);
                }
                noted.store(true, Ordering::Relaxed);
            }
        };
        thread::Builder::new().name("interrupt".to_owned()).spawn(listen).map_err(refused)?;
        Ok(Interrupt(asked))
    }

    /// Since this listens.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
