//! Looking at volumes: live through their server, otherwise from their superblocks.

use std::path::Path;
use std::time::{Duration, Instant};

use engine::Tier;
use export::control::{self, ControlReply, ControlRequest};

use crate::failure::Failure;
use crate::in_use;
use crate::selection::{self, Selection};
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::volume_file;
use crate::volume_name::VolumeName;
use crate::volume_status::VolumeStatus;

/// How long a server may take to answer what needs its drives, or another client's turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a server may take to say how it is: it knows by heart, whatever its drives do.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);

/// How long a server that no longer answers may take to end, counted from the question: a last
/// checkpoint and its flushes on a busy hard disk.
const ENDING: Duration = Duration::from_millis(2500);
const ENDING_STEP: Duration = Duration::from_millis(20);

/// How the selected volume is.
pub fn volume(settings: &Settings, selection: &Selection) -> Result<VolumeStatus, Failure> {
    if let Some(server) = ServerRecord::serving(settings, selection)?
        && server.ready
    {
        let asked = Instant::now();
        match live(settings, &selection.name) {
            Ok(status) => return Ok(status),
            // It was ending when it was asked: its doors close before its drives are at rest.
            Err(_) if ends_by(settings, &selection.name, asked + ENDING)? => {}
            Err(failure) => {
                return Ok(at_rest(selection).not_answered(server.pid, &failure.message));
            }
        }
    }
    let user = Tier::BOTH.into_iter().find_map(|tier| in_use::locked_by(selection.path(tier)));
    let status = at_rest(selection);
    Ok(match user {
        Some(user) => status.used_by(&user),
        None => status,
    })
}

/// What the drives say by themselves.
fn at_rest(selection: &Selection) -> VolumeStatus {
    let [fast, slow] = selection.read();
    let name = selection.name.as_str();
    VolumeStatus::at_rest(name, (selection.fast.clone(), fast), (selection.slow.clone(), slow))
}

/// Whether the server of `name` is gone, now or before the deadline.
fn ends_by(settings: &Settings, name: &VolumeName, deadline: Instant) -> Result<bool, Failure> {
    while ServerRecord::is_alive(settings, name)? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(ENDING_STEP);
    }
    Ok(true)
}

/// How the served volume `name` is, as its server says.
pub fn live(settings: &Settings, name: &VolumeName) -> Result<VolumeStatus, Failure> {
    let socket = settings.control_socket(name);
    let value = ask_within(&socket, &ControlRequest::new("status"), STATUS_PATIENCE)?;
    serde_json::from_value(value).map_err(|error| {
        Failure::failed(format!("the server of '{name}' gave a status of another version: {error}"))
            .hint("it was started by another version of bimetal: restart it")
    })
}

/// Asks the server at `socket`.
pub fn ask(socket: &Path, request: &ControlRequest) -> Result<serde_json::Value, Failure> {
    ask_within(socket, request, PATIENCE)
}

fn ask_within(
    socket: &Path,
    request: &ControlRequest,
    patience: Duration,
) -> Result<serde_json::Value, Failure> {
    match control::call(socket, request, patience).map_err(Failure::failed)? {
        ControlReply::Done(value) => Ok(value),
        ControlReply::Failed(refusal) => {
            let failure = match refusal.code.as_str() {
                "refused" => Failure::refused(&refusal.message),
                _ => Failure::failed(&refusal.message),
            };
            Err(match refusal.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            })
        }
    }
}

/// Every volume that has a file; one whose file cannot be read is reported beside the others.
pub fn all(settings: &Settings) -> Result<(Vec<VolumeStatus>, Vec<String>), Failure> {
    let names = volume_file::names(&settings.config_dir)?;
    let look = |name| selection::by_name(settings, name).and_then(|found| volume(settings, &found));
    // All at once: each that does not answer takes its time.
    let found: Vec<Result<VolumeStatus, Failure>> = std::thread::scope(|scope| {
        let looks: Vec<_> = names.iter().map(|name| scope.spawn(move || look(name))).collect();
        let ended = looks.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended.map(|found| found.expect("looking does not panic")).collect()
    });
    let mut volumes = Vec::new();
    let mut problems = Vec::new();
    for found in found {
        match found {
            Ok(status) => volumes.push(status),
            Err(failure) => problems.push(failure.message),
        }
    }
    Ok((volumes, problems))
}
