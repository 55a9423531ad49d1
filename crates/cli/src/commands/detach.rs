//! `bimetal detach`: undoes `attach`, also after the server was killed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use engine::{State, Superblock};
use export::control::ControlRequest;
use export::fuse::{self, loop_device};
use export::ublk;
use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome};
use crate::selection::{Selection, VolumeArgument};
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::survey;
use crate::volume_name::VolumeName;

/// How long a server may take to close its volume: it writes its map and waits for both drives.
const STOP_PATIENCE: Duration = Duration::from_secs(120);
const STOP_PAUSE: Duration = Duration::from_millis(20);

/// Take a volume's block device away and close the volume in order
#[derive(Debug, Args)]
#[command(after_help = "Example:
  umount /mnt && bimetal detach vol0

A device that is mounted or otherwise in use is left alone, and the message says by whom. What a
killed server left behind (a dead mount, a loop device) is cleared away.")]
pub struct DetachArguments {
    #[command(flatten)]
    volume: VolumeArgument,
}

#[derive(Debug, Serialize)]
struct Detached {
    name: String,
    /// Block devices that are gone.
    devices: Vec<PathBuf>,
    /// A server was stopped.
    stopped: bool,
    /// What a killed server had left behind was cleared away.
    cleared: bool,
}

/// Runs the command.
pub fn run(arguments: &DetachArguments, settings: &Settings) -> Outcome {
    let selection = arguments.volume.select(settings)?;
    let name = &selection.name;
    let detached = match ServerRecord::serving(settings, &selection)? {
        Some(server) => detach_served(settings, &selection, &server)?,
        None => {
            let Some(devices) = clear_remains(settings, name)? else {
                let not_attached = Failure::failed(format!("volume '{name}' is not attached"));
                let left = ServerRecord::last(settings, name).and_then(|server| server.ublk);
                return Err(match left.filter(|device| device.exists()) {
                    Some(device) => not_attached.hint(format!(
                        "its server may have left {}: 'bimetal attach {name} --ublk' takes it over",
                        device.display()
                    )),
                    None => not_attached,
                });
            };
            Detached { name: name.to_string(), devices, stopped: false, cleared: true }
        }
    };
    settings.output.show("detach", &detached, |detached| {
        let mut text = String::new();
        for device in &detached.devices {
            text.push_str(&format!("detached {}\n", device.display()));
        }
        if detached.stopped {
            text.push_str(&format!("closed volume '{}'\n", detached.name));
        }
        if detached.cleared {
            text.push_str("cleared away what a killed server had left behind\n");
        }
        text
    })?;
    Ok(Exit::Done)
}

/// Takes the devices of a running server away, and ends it if `attach` has started it.
fn detach_served(
    settings: &Settings,
    selection: &Selection,
    server: &ServerRecord,
) -> Result<Detached, Failure> {
    let name = &selection.name;
    // Before anything is taken away: what is refused must change nothing.
    if let Some(device) = server.ublk.as_ref().filter(|device| ublk::is_used(device)) {
        let device = device.display();
        return Err(Failure::refused(format!("{device} is mounted or otherwise in use"))
            .hint(format!("'findmnt {device}' and 'lsblk {device}' show by whom")));
    }
    let mut devices = match &server.fuse_file {
        Some(file) => detach_devices(file)?,
        None => Vec::new(),
    };
    if server.background {
        stop_server(settings, name, server.pid)?;
        if ServerRecord::is_alive(settings, name)? {
            // Somebody has attached the volume anew meanwhile: what is there is theirs.
            let name = name.to_string();
            return Ok(Detached { name, devices, stopped: true, cleared: false });
        }
        remove_mount_dir(settings, name);
        if !server.read_only && !is_closed(selection) {
            return Err(not_closed(settings, name));
        }
        if let Some(device) = &server.ublk {
            verify_gone(device, name)?;
            devices.push(device.clone());
        }
    } else if devices.is_empty() {
        return Err(Failure::refused(format!(
            "volume '{name}' is not attached: it is served by {server}"
        ))
        .hint(format!("end that process: kill {}", server.pid)));
    }
    Ok(Detached { name: name.to_string(), devices, stopped: server.background, cleared: false })
}

/// Somebody may have begun to use a ublk device while its server was ending: then it waits for the
/// next server.
fn verify_gone(device: &Path, name: &VolumeName) -> Result<(), Failure> {
    if !device.exists() {
        return Ok(());
    }
    let device = device.display();
    Err(Failure::failed(format!(
        "{device} stays and waits for a server, although volume '{name}' is closed"
    ))
    .hint(format!(
        "'findmnt {device}' and 'lsblk {device}' show who uses it; 'bimetal attach {name} --ublk' \
         takes it over"
    )))
}

/// Whether both drives say that the volume was closed in order, or the slow one of a cache that went on
/// alone: a server that ended says so to nobody but its log.
fn is_closed(selection: &Selection) -> bool {
    let clean = |superblock: &Superblock| superblock.state == State::Clean;
    match selection.read() {
        [_, Ok(slow)] if slow.alone => clean(&slow),
        [Ok(fast), Ok(slow)] => clean(&fast) && clean(&slow),
        _ => false,
    }
}

fn not_closed(settings: &Settings, name: &VolumeName) -> Failure {
    let log = settings.log_file(name);
    Failure::failed(format!("the server of '{name}' ended without closing the volume in order"))
        .hint(format!(
            "it says why in {}; 'bimetal status {name}' shows its drives. What was flushed is safe, and \
             the next attach replays the log",
            log.display()
        ))
}

fn detach_devices(file: &Path) -> Result<Vec<PathBuf>, Failure> {
    let devices = loop_device::find_by_backing(file)?;
    for device in &devices {
        loop_device::detach_from(file, device)?;
    }
    Ok(devices)
}

/// Tells the server of volume `name`, which is process `pid`, to stop and waits until it has. One that was started
/// meanwhile is left alone.
pub fn stop_server(settings: &Settings, name: &VolumeName, pid: u32) -> Result<(), Failure> {
    // A successor that has not written its record yet has no pid there: that is looked at again.
    let runs = || {
        let server = ServerRecord::alive(settings, name)?;
        Ok::<_, Failure>(server.is_some_and(|server| [pid, 0].contains(&server.pid)))
    };
    if !runs()? {
        return Ok(());
    }
    let asked = survey::ask(&settings.control_socket(name), &ControlRequest::new("stop"));
    let deadline = Instant::now() + STOP_PATIENCE;
    while runs()? {
        // It may have been on its way out already, so only its staying alive is a failure.
        if let Err(failure) = &asked {
            return Err(failure.clone().within("stopping the server"));
        }
        if Instant::now() > deadline {
            return Err(Failure::failed(format!(
                "the server of '{name}' has not stopped within {} s",
                STOP_PATIENCE.as_secs()
            ))
            .hint(format!(
                "it says why in {}; if its file was unmounted under a loop device ('losetup -a'), \
                 'losetup -d DEVICE' lets it end",
                settings.log_file(name).display()
            )));
        }
        std::thread::sleep(STOP_PAUSE);
    }
    Ok(())
}

/// Clears away what a killed server of volume `name` left behind: loop devices over its file, the
/// dead mount, the directory. Gives the devices; `None` when there was nothing.
pub fn clear_remains(
    settings: &Settings,
    name: &VolumeName,
) -> Result<Option<Vec<PathBuf>>, Failure> {
    let file = ServerRecord::last(settings, name)
        .and_then(|server| server.fuse_file)
        .unwrap_or_else(|| settings.mount_dir(name).join(name.as_str()));
    // First, and as a failure when one is in use: its user must be told, not cut off.
    let devices = detach_devices(&file)?;
    let dead_mount = match file.parent() {
        Some(dir) => fuse::clear_dead_mount(dir, name.as_str())?,
        None => None,
    };
    remove_mount_dir(settings, name);
    Ok((dead_mount.is_some() || !devices.is_empty()).then_some(devices))
}

/// Ours alone, and empty when nothing is mounted on it: `rmdir` refuses anything else.
fn remove_mount_dir(settings: &Settings, name: &VolumeName) {
    let _ = std::fs::remove_dir(settings.mount_dir(name));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_still_there_is_not_told_as_gone() {
        let dir = tempfile::tempdir().unwrap();
        let name = "vol0".parse().unwrap();
        let device = dir.path().join("ublkb0");
        verify_gone(&device, &name).unwrap();
        std::fs::write(&device, "").unwrap();
        let failure = verify_gone(&device, &name).unwrap_err();
        assert_eq!(failure.exit, Exit::Failed);
        assert!(failure.message.contains("ublkb0 stays"), "{failure}");
    }
}
