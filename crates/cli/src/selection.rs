//! Which volume a command is about: by name through its file, or by both drives.

use std::path::{Path, PathBuf};

use clap::Args;
use engine::{Error, Inspection, Member, Superblock, Tier};
use io::ErrorKind;
use io::units::human_bytes;
use rustix::io::Errno;
use uring::{Access, Kernel};

use crate::drive::Drive;
use crate::failure::Failure;
use crate::in_use;
use crate::members;
use crate::settings::Settings;
use crate::volume_file::{self, VolumeFile};
use crate::volume_name::VolumeName;
use crate::volume_status::Unusable;

/// A volume on the command line.
#[derive(Debug, Clone, Args)]
pub struct VolumeArgument {
    /// Name of the volume, as given at 'create'
    #[arg(required_unless_present_any = ["fast", "slow"], conflicts_with_all = ["fast", "slow"])]
    pub name: Option<VolumeName>,
    /// The fast drive, instead of a name; needs --slow too
    #[arg(long, value_name = "DEV", requires = "slow")]
    pub fast: Option<PathBuf>,
    /// The slow drive, instead of a name; needs --fast too
    #[arg(long, value_name = "DEV", requires = "fast")]
    pub slow: Option<PathBuf>,
}

/// A volume whose drives are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Its name.
    pub name: VolumeName,
    /// Its identity, when its file says so.
    pub volume: Option<String>,
    /// Where the fast drive is.
    pub fast: PathBuf,
    /// Where the slow drive is.
    pub slow: PathBuf,
}

impl VolumeArgument {
    /// Finds the drives.
    pub fn select(&self, settings: &Settings) -> Result<Selection, Failure> {
        match (&self.name, &self.fast, &self.slow) {
            (Some(name), ..) => by_name(settings, name),
            (None, Some(fast), Some(slow)) => by_drives(fast, slow),
            _ => Err(Failure::usage("give the volume's name, or --fast DEV and --slow DEV")),
        }
    }
}

/// The volume whose file is `NAME.toml`.
pub fn by_name(settings: &Settings, name: &VolumeName) -> Result<Selection, Failure> {
    let Some(file) = VolumeFile::load(&settings.config_dir, name)? else {
        let known = volume_file::names(&settings.config_dir)?;
        let failure = Failure::failed(format!(
            "there is no volume '{name}' ({} is missing)",
            volume_file::path_of(&settings.config_dir, name).display()
        ));
        return Err(if known.is_empty() {
            failure.hint("'bimetal create' makes one, 'bimetal import' finds one on its drives")
        } else {
            let known: Vec<&str> = known.iter().map(VolumeName::as_str).collect();
            failure.hint(format!("there are: {}", known.join(", ")))
        });
    };
    let VolumeFile { name, volume, fast, slow } = file;
    Ok(Selection { name, volume: Some(volume), fast, slow })
}

/// The volume on these drives, named by the first superblock that can be read.
fn by_drives(fast: &Path, slow: &Path) -> Result<Selection, Failure> {
    let looks = [Drive::look(fast), Drive::look(slow)];
    // One that is not there is kept as given: some commands do without it.
    let paths = [fast, slow].into_iter().zip(&looks);
    let mut paths = paths.map(|(given, look)| {
        look.as_ref().map_or_else(|_| given.to_owned(), |drive| drive.path.clone())
    });
    let [fast, slow] = [(); 2].map(|()| paths.next().expect("two drives"));
    let readings = looks.map(|look| look.and_then(|drive| members::read(&drive.path)));
    let named = readings.iter().find_map(|reading| match reading {
        Ok(Inspection::Member(superblock)) => Some(&superblock.name),
        _ => None,
    });
    let name = match named {
        Some(name) => name.parse().map_err(Failure::failed)?,
        None => {
            for reading in readings {
                reading?;
            }
            return Err(Failure::failed(format!(
                "neither {} nor {} is a drive of a bimetal volume",
                fast.display(),
                slow.display()
            ))
            .hint("'bimetal scan' lists the drives that are"));
        }
    };
    Ok(Selection { name, volume: None, fast, slow })
}

impl Selection {
    /// The same with the volume's identity, read from its drives where no file says it.
    ///
    /// # Errors
    /// The two drives are of two volumes.
    pub fn identified(mut self) -> Result<Selection, Failure> {
        if self.volume.is_some() {
            return Ok(self);
        }
        let found = Tier::BOTH.map(|tier| match members::read(self.path(tier)) {
            Ok(Inspection::Member(superblock)) => Some(superblock),
            _ => None,
        });
        if let [Some(fast), Some(slow)] = &found
            && fast.volume_id != slow.volume_id
        {
            return Err(Failure::refused(format!(
                "{} is a drive of '{}' ({}), and {} of '{}' ({})",
                self.fast.display(),
                fast.name,
                fast.volume_id,
                self.slow.display(),
                slow.name,
                slow.volume_id
            ))
            .hint("give both drives of one volume; 'bimetal scan' lists them"));
        }
        self.volume = found.into_iter().flatten().next().map(|one| one.volume_id.to_string());
        Ok(self)
    }

    /// Whether that superblock is of this volume.
    pub fn owns(&self, superblock: &Superblock) -> bool {
        self.volume.as_ref().is_none_or(|volume| *volume == superblock.volume_id.to_string())
    }

    /// What can be read of both drives: a superblock, or what is wrong. Drives that are truncated or
    /// do not fit together are told as the engine would refuse them.
    pub fn read(&self) -> [Result<Superblock, Unusable>; 2] {
        let mut sizes_bytes = [0; 2];
        let mut readings = Tier::BOTH.map(|tier| {
            let path = self.path(tier);
            let drive = self.look(tier).map_err(|failure| Unusable::missing(failure.message))?;
            sizes_bytes[tier.index()] = drive.size_bytes;
            let found = members::read(&drive.path);
            match found.map_err(|failure| Unusable::faulty(failure.message))? {
                Inspection::NotAMember => Err(Unusable::missing(format!(
                    "{} carries no bimetal superblock",
                    path.display()
                ))),
                Inspection::Member(superblock) => {
                    self.judge_identity(path, *superblock).map_err(Unusable::foreign)
                }
            }
        });
        let [fast, slow] = &readings;
        if let (Ok(fast), Ok(slow)) = (fast, slow) {
            let paths = Tier::BOTH.map(|tier| self.path(tier).display().to_string());
            let drives =
                Tier::BOTH.map(|tier| (paths[tier.index()].as_str(), sizes_bytes[tier.index()]));
            // What else is wrong with a pair is read from the superblocks themselves.
            if let Err(Error::Unfit { tier, problem }) = engine::judge([fast, slow], drives) {
                readings[tier.index()] = Err(Unusable::unfit(problem));
            }
        }
        readings
    }

    /// Looks at a drive. An empty file is told with what it was: whoever gives it a size again has
    /// zeros in place of data.
    fn look(&self, tier: Tier) -> Result<Drive, Failure> {
        let path = self.path(tier);
        Drive::look(path).map_err(|failure| {
            if !path.metadata().is_ok_and(|facts| facts.is_file() && facts.len() == 0) {
                return failure;
            }
            let size = match members::read(self.path(tier.other())) {
                Ok(Inspection::Member(other)) => {
                    let was_bytes = other.geometry.layouts[tier.index()].drive_bytes;
                    format!("; it was {} long", human_bytes(was_bytes))
                }
                _ => String::new(),
            };
            Failure::refused(format!(
                "{}, and was the {tier} drive of '{}'{size}. Restore it from a copy; do not make \
                 it longer, what it held is not in it",
                failure.message, self.name
            ))
        })
    }

    /// Where a drive is.
    pub fn path(&self, tier: Tier) -> &Path {
        match tier {
            Tier::Fast => &self.fast,
            Tier::Slow => &self.slow,
        }
    }

    fn judge_identity(&self, path: &Path, found: Superblock) -> Result<Superblock, String> {
        match &self.volume {
            Some(expected) if !self.owns(&found) => Err(format!(
                "{} is a drive of another volume: '{}' ({}) instead of '{}' ({expected})",
                path.display(),
                found.name,
                found.volume_id,
                self.name
            )),
            _ => Ok(found),
        }
    }

    /// Opens the drives; one that is not there or cannot be opened is told to the engine as gone.
    /// When one is gone the other is opened for reading only, unless it is all that the volume needs.
    ///
    /// # Errors
    /// A drive is of another volume than the file says, or in use.
    pub fn open(&self, kernel: &Kernel, access: Access) -> Result<[Member; 2], Failure> {
        self.refuse_strangers()?;
        let looks = Tier::BOTH.map(|tier| self.look(tier));
        let complete = looks.iter().all(Result::is_ok) || looks[1].is_ok() && self.goes_on_slow();
        let access = if complete { access } else { Access::ReadOnly };
        if let [Err(one), Err(other)] = &looks {
            return Err(Failure::failed(format!("{one}; {other}")));
        }
        let mut members = Vec::with_capacity(2);
        for (path, look) in [&self.fast, &self.slow].into_iter().zip(looks) {
            let gone = |why: String| Member::Gone { path: path.display().to_string(), why };
            members.push(match look {
                Err(failure) => gone(failure.message),
                Ok(_) => match kernel.open_device(path, access) {
                    Ok(device) => Member::Here(device),
                    // In use, no permission, or an odd kind of file: the drive is not gone.
                    Err(error)
                        if error.errno == Errno::BUSY.raw_os_error()
                            || !matches!(error.kind, ErrorKind::Io | ErrorKind::Disconnected) =>
                    {
                        return Err(in_use::opening_failed(path, error));
                    }
                    Err(error) => gone(error.to_string()),
                },
            });
        }
        Ok(members.try_into().unwrap_or_else(|_| unreachable!("two drives")))
    }

    /// Whether the volume can be written with its slow drive alone: in write-through it has all.
    fn goes_on_slow(&self) -> bool {
        matches!(members::read(&self.slow), Ok(Inspection::Member(superblock))
            if superblock.brings_home())
    }

    /// Refuses when a drive that is there belongs to another volume than the file says.
    fn refuse_strangers(&self) -> Result<(), Failure> {
        Tier::BOTH.into_iter().try_for_each(|tier| self.refuse_stranger(tier))
    }

    /// The same of one drive, where the other one does not matter.
    pub fn refuse_stranger(&self, tier: Tier) -> Result<(), Failure> {
        let path = self.path(tier);
        if let Ok(drive) = Drive::look(path)
            && let Ok(Inspection::Member(superblock)) = members::read(&drive.path)
        {
            self.judge_identity(path, *superblock).map_err(|problem| {
                Failure::refused(problem).hint("'bimetal scan' lists the drives and their volumes")
            })?;
        }
        Ok(())
    }

    /// Refuses when a drive is not there or belongs to another volume than the file says, before
    /// anything is opened. Whether the two fit together is judged by the engine.
    pub fn verify_identity(&self) -> Result<(), Failure> {
        for tier in Tier::BOTH {
            self.look(tier)?;
        }
        self.refuse_strangers()
    }
}
