//! `bimetal list`: one line per volume.

use clap::Args;
use io::units::human_bytes;
use serde::Serialize;

use crate::failure::{Exit, Outcome};
use crate::settings::Settings;
use crate::survey;
use crate::table::{Align, Table};
use crate::volume_status::VolumeStatus;

/// List the volumes that are known here, one line each
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal list
  bimetal --json list | jq -r '.volumes[].name'

Ends with exit code 3 when a volume is degraded or cannot be used.")]
pub struct ListArguments {}

#[derive(Debug, Serialize)]
struct List {
    volumes: Vec<VolumeStatus>,
    problems: Vec<String>,
}

/// Runs the command.
pub fn run(_: &ListArguments, settings: &Settings) -> Outcome {
    let (volumes, problems) = survey::all(settings)?;
    let exit = match problems.is_empty() {
        false => Exit::Failed,
        true if volumes.iter().any(|volume| volume.state.is_degraded()) => Exit::Degraded,
        true => Exit::Done,
    };
    let list = List { volumes, problems };
    settings.output.show("list", &list, |list| text(list, settings))?;
    Ok(exit)
}

fn text(list: &List, settings: &Settings) -> String {
    let problems: String = list.problems.iter().map(|problem| format!("{problem}\n")).collect();
    if list.volumes.is_empty() {
        return format!("{problems}no volumes in {}\n", settings.config_dir.display());
    }
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("SIZE", Align::Right),
        ("FAST", Align::Right),
        ("SLOW", Align::Right),
        ("CLASS", Align::Left),
        ("STATE", Align::Left),
        ("EXPORT", Align::Left),
    ]);
    for volume in &list.volumes {
        let bytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), human_bytes);
        let exports = volume.server.as_ref().map(|server| {
            let mut exports = server.uris.clone();
            exports.extend(server.fuse_file.iter().map(|file| file.display().to_string()));
            let socket = server.vhost_user.iter();
            exports.extend(socket.map(|path| format!("vhost-user:{}", path.display())));
            exports.extend(server.ublk.iter().map(|device| device.display().to_string()));
            exports.join(" ")
        });
        table.row([
            volume.name.clone(),
            bytes(volume.size_bytes),
            bytes(volume.drives.fast.size_bytes),
            bytes(volume.drives.slow.size_bytes),
            volume.class.clone().unwrap_or("-".to_owned()),
            volume.state.word().to_owned(),
            exports.unwrap_or("-".to_owned()),
        ]);
    }
    problems + &table.render()
}
