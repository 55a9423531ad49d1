//! A volume that nobody serves: opened for a change, and closed again.

use engine::{Engine, Error, OpenOptions};
use io::Io;
use uring::{Access, Kernel, KernelOptions};

use crate::failure::Failure;
use crate::selection::Selection;
use crate::server::ServerLock;
use crate::settings::Settings;

/// Opens the volume, lets `act` do something with it, and closes it in order, also when that failed.
pub fn change<T>(
    settings: &Settings,
    selection: &Selection,
    act: impl AsyncFnOnce(&Io, &Engine) -> Result<T, Error>,
) -> Result<T, Failure> {
    selection.verify_identity()?;
    let _lock = ServerLock::take(settings, &selection.name)?;
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let fast = kernel.open_device(&selection.fast, Access::ReadWrite)?;
    let slow = kernel.open_device(&selection.slow, Access::ReadWrite)?;
    let outcome = io.block_on(async {
        let engine = Engine::open(&io, &fast, &slow, OpenOptions::default()).await?;
        let outcome = act(&io, &engine).await;
        engine.close().await?;
        outcome
    });
    io.drop_tasks();
    outcome.map_err(Failure::failed)
}
