//! `bimetal import`: writes the file of a volume that is known by its drives alone.

use std::path::PathBuf;

use clap::Args;
use engine::Tier;
use serde::Serialize;

use crate::commands::scan::{self, Member};
use crate::drive::Drive;
use crate::failure::{Exit, Failure, Outcome};
use crate::settings::Settings;
use crate::volume_file::{self, VolumeFile};

/// Make a volume known here by the superblocks of its drives
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal import vol0                              (looks at every block device)
  bimetal import vol0 --dir /srv/images            (looks at the files there)
  bimetal import --fast fast.img --slow slow.img")]
pub struct ImportArguments {
    /// Name or identity of the volume; not needed when only one can be meant
    volume: Option<String>,
    /// Look at this file or device, or the files in this directory, instead of every block device
    #[arg(long = "dir", value_name = "PATH")]
    dirs: Vec<PathBuf>,
    /// The fast drive
    #[arg(long, value_name = "DEV", requires = "slow", conflicts_with = "dirs")]
    fast: Option<PathBuf>,
    /// The slow drive
    #[arg(long, value_name = "DEV", requires = "fast", conflicts_with = "dirs")]
    slow: Option<PathBuf>,
    /// Replace an existing volume file of that name
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Serialize)]
struct Imported {
    name: String,
    volume: String,
    file: PathBuf,
    fast: PathBuf,
    slow: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &ImportArguments, settings: &Settings) -> Outcome {
    let paths: Vec<PathBuf> = match (&arguments.fast, &arguments.slow) {
        (Some(fast), Some(slow)) => vec![fast.clone(), slow.clone()],
        _ => arguments.dirs.clone(),
    };
    let (members, problems) = scan::find(&scan::candidates(&paths));
    let wanted = arguments.volume.as_deref();
    let [fast, slow] = choose(&members, wanted).map_err(|failure| {
        // What could not be read may be exactly what is missing.
        problems.iter().fold(failure, |failure, problem| failure.within(problem))
    })?;
    let name = fast.superblock.name.parse().map_err(Failure::failed)?;
    let path = volume_file::path_of(&settings.config_dir, &name);
    if path.exists() && !arguments.force {
        return Err(Failure::refused(format!("volume '{name}' is known here: {}", path.display()))
            .hint("--force writes its file again"));
    }
    let file = VolumeFile {
        name,
        volume: fast.superblock.volume_id.to_string(),
        fast: Drive::look(&fast.path)?.stable_path(),
        slow: Drive::look(&slow.path)?.stable_path(),
    };
    settings.make_config_dir()?;
    file.save(&settings.config_dir)?;
    let VolumeFile { name, volume, fast, slow } = file;
    let imported = Imported { name: name.to_string(), volume, file: path, fast, slow };
    settings.output.show("import", &imported, |imported| {
        format!(
            "imported volume '{}' ({})\nfast: {}\nslow: {}\n",
            imported.name,
            imported.volume,
            imported.fast.display(),
            imported.slow.display()
        )
    })?;
    Ok(Exit::Done)
}

/// The fast and slow drive of the one volume that is meant.
fn choose<'a>(members: &'a [Member], wanted: Option<&str>) -> Result<[&'a Member; 2], Failure> {
    let meant = |member: &&Member| {
        let superblock = &member.superblock;
        wanted.is_none_or(|w| superblock.name == w || superblock.volume_id.to_string() == w)
    };
    let meant: Vec<&Member> = members.iter().filter(meant).collect();
    let Some(first) = meant.first() else {
        return Err(match wanted {
            Some(wanted) => Failure::failed(format!("no drive of a volume '{wanted}' was found")),
            None => Failure::failed("no drive of a bimetal volume was found"),
        }
        .hint("say where to look: --dir PATH, or --fast DEV --slow DEV"));
    };
    let volume = first.superblock.volume_id;
    if let Some(other) = meant.iter().find(|member| member.superblock.volume_id != volume) {
        return Err(Failure::failed(format!(
            "drives of several volumes were found: '{}' ({volume}) and '{}' ({})",
            first.superblock.name, other.superblock.name, other.superblock.volume_id
        ))
        .hint("say which: 'bimetal import NAME' or its identity; 'bimetal scan' lists them"));
    }
    let of_role = |tier: Tier| {
        let mut drives = meant.iter().filter(|member| member.superblock.role == tier);
        match (drives.next(), drives.next()) {
            (Some(one), None) => Ok(*one),
            (None, _) => Err(Failure::failed(format!(
                "the {tier} drive of volume '{}' was not found",
                first.superblock.name
            ))
            .hint("connect it, or say where it is: --dir PATH, or --fast DEV --slow DEV")),
            (Some(one), Some(two)) => Err(Failure::failed(format!(
                "two drives say they are the {tier} drive of volume '{}': {} and {}",
                first.superblock.name,
                one.path.display(),
                two.path.display()
            ))
            .hint("one is a copy: say which is meant with --fast DEV --slow DEV")),
        }
    };
    Ok([of_role(Tier::Fast)?, of_role(Tier::Slow)?])
}
