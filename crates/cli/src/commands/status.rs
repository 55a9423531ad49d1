//! `bimetal status`: how volumes are, what that means and what to do.

use clap::Args;
use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome};
use crate::selection::VolumeArgument;
use crate::settings::Settings;
use crate::survey;
use crate::volume_status::VolumeStatus;

/// Show how a volume (or every volume) is, what that means and what to do
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal status vol0
  bimetal --json status vol0 | jq .volumes[0].drives.fast.write_bytes
  bimetal status --fast fast.img --slow slow.img

Ends with exit code 3 when a volume is degraded or cannot be used.")]
pub struct StatusArguments {
    #[command(flatten)]
    volume: OptionalVolume,
}

/// Like [`VolumeArgument`], but nothing means every volume.
#[derive(Debug, Args)]
struct OptionalVolume {
    /// Name of the volume; every volume when left out
    #[arg(conflicts_with_all = ["fast", "slow"])]
    name: Option<crate::volume_name::VolumeName>,
    /// The fast drive, instead of a name; needs --slow too
    #[arg(long, value_name = "DEV", requires = "slow")]
    fast: Option<std::path::PathBuf>,
    /// The slow drive, instead of a name; needs --fast too
    #[arg(long, value_name = "DEV", requires = "fast")]
    slow: Option<std::path::PathBuf>,
}

#[derive(Debug, Serialize)]
struct Status {
    volumes: Vec<VolumeStatus>,
    problems: Vec<String>,
}

/// Runs the command.
pub fn run(arguments: &StatusArguments, settings: &Settings) -> Outcome {
    let OptionalVolume { name, fast, slow } = &arguments.volume;
    let status = if name.is_none() && fast.is_none() {
        let (volumes, problems) = survey::all(settings)?;
        Status { volumes, problems }
    } else {
        let argument =
            VolumeArgument { name: name.clone(), fast: fast.clone(), slow: slow.clone() };
        let selection = argument.select(settings)?;
        Status { volumes: vec![survey::volume(settings, &selection)?], problems: Vec::new() }
    };
    settings.output.show("status", &status, |status| text(status, settings))?;
    if status.volumes.iter().any(|volume| volume.state.is_degraded()) {
        return Ok(Exit::Degraded);
    }
    if let Some(problem) = status.problems.first() {
        return Err(Failure::failed(problem));
    }
    Ok(Exit::Done)
}

fn text(status: &Status, settings: &Settings) -> String {
    let mut parts: Vec<String> =
        status.problems.iter().map(|problem| format!("{problem}\n")).collect();
    parts.extend(status.volumes.iter().map(VolumeStatus::text));
    if parts.is_empty() {
        return format!("no volumes in {}\n", settings.config_dir.display());
    }
    parts.join("\n")
}
