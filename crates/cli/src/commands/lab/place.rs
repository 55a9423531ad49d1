//! What an experiment is made on, as the command line names it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use io::units::human_bytes;
use lab::bench::{Bench, FioBench, FioTarget, FusedBench, FusedKind, TwinBench};
use lab::probe::Identity;
use twin::Profile;

use super::{facts, free};
use crate::blank_file;
use crate::drive::{Drive, DriveArgument, DriveKind, disk_of, sysfs_of};
use crate::failure::Failure;
use crate::holdings::Holdings;
use crate::in_use;
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::volume_name::VolumeName;

/// A place that exists.
pub struct Place {
    /// Where jobs are played.
    pub bench: Box<dyn Bench>,
    kind: Kind,
}

enum Kind {
    Simulated,
    Drive(Drive),
    Volume { name: String, uri: String },
}

/// Finds what `text` names.
pub fn find(text: &str, seed: u64, settings: &Settings) -> Result<Place, Failure> {
    let simulated = |bench: Box<dyn Bench>| Place { bench, kind: Kind::Simulated };
    if let Some(choice) = text.strip_prefix("twin:") {
        let bench = TwinBench::new(choice, seed).map_err(Failure::usage)?;
        return Ok(simulated(Box::new(bench)));
    }
    for kind in FusedKind::ALL {
        let pair = text.strip_prefix(kind.scheme()).and_then(|rest| rest.strip_prefix(':'));
        if let Some(pair) = pair {
            let bench = FusedBench::new(pair, kind, seed).map_err(Failure::usage)?;
            return Ok(simulated(Box::new(bench)));
        }
    }
    if text.starts_with("nbd://") || text.starts_with("nbd+unix://") {
        return volume(text.to_owned(), text);
    }
    let argument: DriveArgument = text.parse().map_err(Failure::usage)?;
    if argument.path.exists() || argument.create_bytes.is_some() || text.contains('/') {
        return drive(&argument);
    }
    let name: VolumeName = text.parse().map_err(|problem| {
        Failure::usage(format!("'{text}' is no place for an experiment: {problem}"))
            .hint("twin:NAME, fusion:FAST+SLOW, a device, a file, an NBD URI or a volume's name")
    })?;
    let server = ServerRecord::alive(settings, &name)?.ok_or_else(|| {
        Failure::failed(format!("there is no drive '{text}', and no volume '{text}' is served"))
            .hint(format!("for a volume: bimetal serve {name}"))
    })?;
    match (server.uris.into_iter().next(), server.fuse_file) {
        (Some(uri), _) => volume(uri, text),
        (None, Some(file)) => drive(&DriveArgument { path: file, create_bytes: None }),
        (None, None) => Err(Failure::failed(format!("volume '{name}' has no open door"))),
    }
}

fn drive(argument: &DriveArgument) -> Result<Place, Failure> {
    let path = &argument.path;
    if let Some(size_bytes) = argument.create_bytes
        && !path.exists()
    {
        blank_file::make(path, size_bytes)?;
    }
    let drive = Drive::look(path)?;
    let target = FioTarget::Path(drive.path.clone());
    let bench = FioBench::new(target, drive.size_bytes).map_err(Failure::failed)?;
    Ok(Place { bench: Box::new(bench), kind: Kind::Drive(drive) })
}

fn volume(uri: String, name: &str) -> Result<Place, Failure> {
    let size_bytes = nbd_size(&uri)?;
    let target = FioTarget::Nbd(uri.clone());
    let bench = FioBench::new(target, size_bytes).map_err(Failure::failed)?;
    Ok(Place { bench: Box::new(bench), kind: Kind::Volume { name: name.to_owned(), uri } })
}

fn nbd_size(uri: &str) -> Result<u64, Failure> {
    let told = Command::new("nbdinfo").args(["--size", uri]).output().map_err(|error| {
        Failure::failed(format!("nbdinfo does not start: {error}"))
            .hint("it is in the package libnbd-bin (scripts/setup brings it)")
    })?;
    let said = String::from_utf8_lossy(&told.stdout);
    said.trim().parse().map_err(|_| {
        let problem = String::from_utf8_lossy(&told.stderr);
        Failure::failed(format!("nothing answers at {uri}: {}", problem.trim()))
    })
}

/// Whether the server says that its drive turns; `None` when it does not answer that.
fn nbd_rotational(uri: &str) -> Option<bool> {
    let told = Command::new("nbdinfo").args(["--json", uri]).output().ok()?;
    let value: serde_json::Value = serde_json::from_slice(&told.stdout).ok()?;
    value["exports"][0]["is_rotational"].as_bool()
}

impl Place {
    /// What it says of itself. `text` is how the user named it.
    pub fn identity(&self, text: &str) -> Result<Identity, Failure> {
        let size_bytes = self.bench.size_bytes();
        Ok(match &self.kind {
            Kind::Simulated => match text.strip_prefix("twin:") {
                Some(choice) => {
                    let profile = Profile::find(choice).map_err(Failure::usage)?;
                    Identity::of_twin(text, &profile)
                }
                None => Identity::unknown(text, "fused twins", size_bytes),
            },
            Kind::Drive(drive) => {
                let path = drive.path.display().to_string();
                let hidden_by = facts::of(drive).hidden_by;
                match drive.kind {
                    DriveKind::File => {
                        let identity = Identity::unknown(&path, "file", size_bytes);
                        Identity { hidden_by, ..identity }
                    }
                    DriveKind::Block { number } => {
                        let sysfs = sysfs_of(disk_of(number).unwrap_or(number));
                        let identity = Identity::unknown(&path, "block device", size_bytes);
                        Identity { hidden_by, ..identity.add_kernel(&sysfs) }
                    }
                }
            }
            Kind::Volume { uri, .. } => {
                let identity = Identity::unknown(text, "network block device", size_bytes);
                Identity { rotational: nbd_rotational(uri), ..identity }
            }
        })
    }

    /// Refuses what holds anything, and what cannot be seen to hold nothing: there is no flag
    /// against it.
    pub fn refuse_unless_empty(&self) -> Result<(), Failure> {
        let hint = "nothing was written; without --write it is only read";
        let drive = match &self.kind {
            Kind::Simulated => return Ok(()),
            Kind::Volume { name, .. } => {
                return Err(Failure::refused(format!("volume '{name}' may hold data")).hint(hint));
            }
            Kind::Drive(drive) => drive,
        };
        let mut holdings = Holdings::look(drive)?;
        if drive.kind == DriveKind::File {
            holdings.look_for_data(&drive.path)?;
        }
        if holdings.words.is_empty() {
            return Ok(());
        }
        let (path, held) = (drive.path.display(), holdings.words.join("; "));
        Err(Failure::refused(format!("{path} holds {held}")).hint(hint))
    }

    /// Says of a file with holes that reading them says nothing of the drive it lies on.
    pub fn warn_of_holes(&self) {
        let Kind::Drive(drive) = &self.kind else { return };
        let Ok(facts) = drive.path.metadata() else { return };
        let written_bytes = facts.blocks() * 512;
        if drive.kind == DriveKind::File && written_bytes < drive.size_bytes {
            let (written, size) = (human_bytes(written_bytes), human_bytes(drive.size_bytes));
            eprintln!(
                "warning: of {} only {written} of {size} are allocated: holes are read without \
                 asking the drive, and the first write into one costs more; fill it first",
                drive.path.display()
            );
        }
    }

    /// Refuses what the experiment could destroy, unless `force` allows it; what is in use by others
    /// always.
    pub fn refuse_unless_safe(&self, writes: bool, force: bool) -> Result<(), Failure> {
        match &self.kind {
            Kind::Simulated => Ok(()),
            Kind::Drive(drive) if writes => free::refuse_unless_free(drive, force, "--force"),
            Kind::Drive(drive) => {
                let users = in_use::users(drive);
                if users.is_empty() || force {
                    return Ok(());
                }
                let path = drive.path.display();
                Err(Failure::refused(format!("{path} is in use: {}", users.join("; "))).hint(
                    "others' requests would be in the figures; --force reads it nevertheless",
                ))
            }
            Kind::Volume { name, .. } if writes && !force => {
                Err(Failure::refused(format!("volume '{name}' may hold data, and this writes"))
                    .hint("--force overwrites it; what it holds is lost"))
            }
            Kind::Volume { .. } => Ok(()),
        }
    }
}

/// A path in a command that may be repeated in a shell.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,=".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
