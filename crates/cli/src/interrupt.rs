//! Ctrl-C of a command that has begun what would go on without it.
//!
//! The first one is noticed by whoever waits, who ends what it began and says how things stand. The second one
//! ends the command at once, whatever goes on elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::failure::Failure;

/// What shells say of a program that ended by Ctrl-C: 128 and the signal's number.
const EXIT_CODE: i32 = 130;

/// Whether somebody has pressed it.
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on, until the process ends.
    pub fn listen() -> Result<Interrupt, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        // In this order: each press looks first, and is noted then, so that the second one finds the first.
        let listening = flag::register_conditional_shutdown(SIGINT, EXIT_CODE, asked.clone())
            .and_then(|_| flag::register(SIGINT, asked.clone()));
        listening
            .map(|_| Interrupt(asked))
            .map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))
    }

    /// Since this listens.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
