//! A run that is told to end, by a key or a signal, ends after the turn it is in, so that servers
//! are stopped and files removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Whether somebody wants the run to end.
pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// From now on signals are noted instead of ending the process.
    pub fn listen() -> Result<Interruption> {
        let noted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, noted.clone())?;
        }
        Ok(Interruption(noted))
    }

    /// An error once somebody does.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }
}
