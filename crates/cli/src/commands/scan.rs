//! `bimetal scan`: which drives here belong to bimetal volumes.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use engine::{Inspection, Superblock};
use io::units::human_bytes;
use serde::Serialize;

use crate::failure::{Exit, Outcome};
use crate::members;
use crate::settings::Settings;
use crate::table::{Align, Table};

/// List the drives that belong to volumes, by their superblocks
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal scan                       (every block device of this machine)
  bimetal scan /srv/images fast.img  (files, and the files in directories)")]
pub struct ScanArguments {
    /// Files, devices, or directories to look through, instead of every block device
    paths: Vec<PathBuf>,
}

/// A drive of a volume, as found.
#[derive(Debug, Clone)]
pub struct Member {
    /// Where it is.
    pub path: PathBuf,
    /// Its superblock.
    pub superblock: Superblock,
}

#[derive(Debug, Serialize)]
struct Scan {
    members: Vec<MemberValue>,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MemberValue {
    path: PathBuf,
    name: String,
    volume: String,
    role: String,
    state: String,
    generation: u64,
    volume_bytes: u64,
}

/// Runs the command.
pub fn run(arguments: &ScanArguments, settings: &Settings) -> Outcome {
    let (members, problems) = find(&candidates(&arguments.paths));
    let members = members
        .into_iter()
        .map(|Member { path, superblock }| MemberValue {
            path,
            name: superblock.name,
            volume: superblock.volume_id.to_string(),
            role: superblock.role.to_string(),
            state: format!("{:?}", superblock.state).to_lowercase(),
            generation: superblock.generation,
            volume_bytes: superblock.geometry.volume_bytes,
        })
        .collect();
    settings.output.show("scan", &Scan { members, problems }, text)?;
    Ok(Exit::Done)
}

/// Where to look: the given paths (with the files in directories), or every block device.
pub fn candidates(paths: &[PathBuf]) -> Vec<PathBuf> {
    let files_in = |dir: &Path| {
        let mut files: Vec<PathBuf> =
            fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        files.sort();
        files
    };
    if paths.is_empty() {
        let devices = files_in(Path::new("/sys/class/block"));
        return devices
            .iter()
            .filter_map(|device| Some(Path::new("/dev").join(device.file_name()?)))
            .collect();
    }
    let mut candidates = Vec::new();
    for path in paths {
        if path.is_dir() {
            candidates.extend(files_in(path).into_iter().filter(|file| file.is_file()));
        } else {
            candidates.push(path.clone());
        }
    }
    candidates
}

/// Reads every candidate: the members, sorted by volume and role, and what could not be read.
pub fn find(candidates: &[PathBuf]) -> (Vec<Member>, Vec<String>) {
    let mut members = Vec::new();
    let mut problems = Vec::new();
    for path in candidates {
        match members::read(path) {
            Ok(Inspection::Member(superblock)) => {
                let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                members.push(Member { path, superblock: *superblock });
            }
            Ok(Inspection::NotAMember) => {}
            Err(failure) => problems.push(failure.message),
        }
    }
    members.sort_by(|one, two| {
        let key = |member: &Member| {
            let superblock = &member.superblock;
            (superblock.name.clone(), superblock.volume_id, superblock.role, member.path.clone())
        };
        key(one).cmp(&key(two))
    });
    members.dedup_by(|one, two| one.path == two.path);
    (members, problems)
}

fn text(scan: &Scan) -> String {
    let problems: String = scan.problems.iter().map(|problem| format!("{problem}\n")).collect();
    if scan.members.is_empty() {
        return format!("{problems}no drive of a bimetal volume was found\n");
    }
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("VOLUME", Align::Left),
        ("SIZE", Align::Right),
        ("ROLE", Align::Left),
        ("STATE", Align::Left),
        ("GENERATION", Align::Right),
        ("PATH", Align::Left),
    ]);
    for member in &scan.members {
        table.row([
            member.name.clone(),
            member.volume.clone(),
            human_bytes(member.volume_bytes),
            member.role.clone(),
            member.state.clone(),
            member.generation.to_string(),
            member.path.display().to_string(),
        ]);
    }
    problems + &table.render()
}
