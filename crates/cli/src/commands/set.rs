//! `bimetal set`: changes a setting of a volume, while it is served or at rest.

use std::str::FromStr;

use clap::Args;
use engine::{CacheMode, FlushMode, TuningChange};
use export::control::ControlRequest;
use serde::Serialize;

use crate::at_rest;
use crate::failure::{Exit, Outcome};
use crate::homecoming;
use crate::machine_memory;
use crate::selection;
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::survey;
use crate::volume_name::VolumeName;

/// Change a setting of a volume, now and for good
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal set vol0 durability=deferred=250        (a power cut takes up to 250 ms, never order)
  bimetal set vol0 durability=deferred=1s,64M     (nor more than 64 MiB)
  bimetal set vol0 durability=strict              (returns when everything is durable)
  bimetal set vol0 mode=writeback                 (class cache: flushes stop at the fast drive)
  bimetal set vol0 mode=writethrough              (returns when everything is on the slow drive)
  bimetal set vol0 mode=writearound               (the same; what is written leaves the fast drive)
  bimetal set vol0 wear_gb_per_day=40             (nothing moves to the fast drive beyond that)
  bimetal set vol0 quiet=true                     (the slow drive may sleep; writes wait in the log)
  bimetal set vol0 stage=512M                     (RAM for what was read from the slow drive)
  bimetal set vol0 write_behind=16M               (so much is acknowledged before it is written)
  bimetal set vol0 inclusion=on                   (class span: what goes up stays below while there is room)

A volume that is served is changed while it is in use; one that is not is opened, changed and closed.")]
pub struct SetArguments {
    /// Name of the volume, as given at 'create'
    name: VolumeName,
    /// durability=strict|deferred=MS[,BYTES], mode=writethrough|writearound|writeback,
    /// wear_gb_per_day=GB|none, quiet=true|false, stage=BYTES|default, write_behind=BYTES|off or
    /// inclusion=on|off
    #[arg(value_name = "SETTING=VALUE")]
    setting: Setting,
}

/// One setting and what it shall be.
#[derive(Debug, Clone, Copy)]
enum Setting {
    Durability(FlushMode),
    Mode(CacheMode),
    Tuning(TuningChange),
}

impl Setting {
    fn name(self) -> &'static str {
        match self {
            Setting::Durability(_) => "durability",
            Setting::Mode(_) => "mode",
            Setting::Tuning(change) => change.name(),
        }
    }

    fn value(self) -> String {
        match self {
            Setting::Durability(mode) => mode.to_string(),
            Setting::Mode(mode) => mode.to_string(),
            Setting::Tuning(change) => change.to_string(),
        }
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let refusal = format!(
            "'{text}' is not a setting; there is durability=strict, \
             durability=deferred=MS[,BYTES], mode=writethrough, mode=writearound, \
             mode=writeback, {}",
            TuningChange::NAMES.map(|name| format!("{name}=…")).join(", ")
        );
        match text.split_once('=') {
            Some(("durability", mode)) => mode.parse().map(Setting::Durability),
            Some(("mode", mode)) => mode.parse().map(Setting::Mode),
            Some((name, value)) => match TuningChange::parse(name, value) {
                Some(change) => change.map(Setting::Tuning),
                None => Err(refusal),
            },
            None => Err(refusal),
        }
    }
}

#[derive(Debug, Serialize)]
struct Changed {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wear_gb_per_day: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quiet: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_behind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inclusion: Option<String>,
    /// It is served, and was changed while in use.
    live: bool,
}

/// Runs the command.
pub fn run(arguments: &SetArguments, settings: &Settings) -> Outcome {
    let selection = selection::by_name(settings, &arguments.name)?;
    let setting = arguments.setting;
    if let Setting::Tuning(change) = setting {
        machine_memory::verify(change)?;
    }
    let live = ServerRecord::serving(settings, &selection)?.is_some();
    let switched = match setting {
        Setting::Mode(mode) => homecoming::switch(settings, &selection, live, mode)?,
        _ => false,
    };
    if live && !switched {
        let request = ControlRequest::new("set").with(setting.name(), setting.value());
        survey::ask(&settings.control_socket(&selection.name), &request)?;
    } else if !switched {
        at_rest::change(settings, &selection, async |_, engine| match setting {
            Setting::Durability(mode) => engine.set_flush_mode(mode).await,
            Setting::Mode(mode) => engine.set_cache_mode(mode).await,
            Setting::Tuning(change) => engine.tune(change).await,
        })?;
    }
    let name = selection.name.to_string();
    let value_of = |name: &str| (setting.name() == name).then(|| setting.value());
    let changed = Changed {
        name,
        durability: value_of("durability"),
        mode: value_of("mode"),
        wear_gb_per_day: value_of("wear_gb_per_day"),
        quiet: value_of("quiet"),
        stage: value_of("stage"),
        write_behind: value_of("write_behind"),
        inclusion: value_of("inclusion"),
        live,
    };
    settings.output.show("set", &changed, |changed| {
        format!("volume '{}': {} {}\n", changed.name, setting.name(), setting.value())
    })?;
    Ok(Exit::Done)
}
