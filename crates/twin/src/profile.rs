//! A drive that can be bought, or could: its numbers, where each is from, and the physics of it.
//!
//! * A profile is a TOML file; those of published drives are part of the program. Every number has
//!   its source, and the ids of the published rows that it was fitted to, if it was.
//! * A number that the physics does not know, or one that it misses, is an error, not a default.
//! * A setting says in what condition the drive is: whether its write cache is on, and whether
//!   it is fresh or has been written over several times.

mod error;
mod number;
mod physics;
mod text;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

pub use self::error::ProfileError;
pub use self::number::Number;
use self::physics::Physics;
use crate::drive::DriveSpec;
use crate::model::Model;
use crate::random::Random;

/// The profiles that are part of the program.
const BUILT_IN: &[&str] = &[
    include_str!("../profiles/al13seb900.toml"),
    include_str!("../profiles/apple-ans-m1.toml"),
    include_str!("../profiles/emulated-disk.toml"),
    include_str!("../profiles/emulated-ssd.toml"),
    include_str!("../profiles/fusion-io-iodrive.toml"),
    include_str!("../profiles/imac-fusion-disk.toml"),
    include_str!("../profiles/imac-fusion-ssd.toml"),
    include_str!("../profiles/mq01abd100h-disk.toml"),
    include_str!("../profiles/mq01abd100h-flash.toml"),
    include_str!("../profiles/mz7lm1t9.toml"),
    include_str!("../profiles/raid5-4x-atp-velocity-sii.toml"),
    include_str!("../profiles/raid5-4x-hus156060vl.toml"),
    include_str!("../profiles/samsung-850-evo-1tb.toml"),
    include_str!("../profiles/samsung-860-evo-500.toml"),
    include_str!("../profiles/seagate-600-pro.toml"),
    include_str!("../profiles/ssdsa2cw160g310.toml"),
    include_str!("../profiles/ssdsa2m160g2gc.toml"),
    include_str!("../profiles/st2000dx001-disk.toml"),
    include_str!("../profiles/st2000dx001-flash.toml"),
    include_str!("../profiles/st91000640ns.toml"),
    include_str!("../profiles/usb3-flash-drive.toml"),
    include_str!("../profiles/wd-sn550-1tb.toml"),
    include_str!("../profiles/wd3200bekt.toml"),
    include_str!("../profiles/wd5002abys.toml"),
];

/// The version of the format that this program reads.
pub const PROFILE_SCHEMA: u32 = 1;

/// Whether a drive has been written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// After a secure erase.
    Fresh,
    /// Written over as a whole several times, in random order at last.
    Used,
}

/// In what condition a drive is put to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Writes end in the cache and not on the medium.
    pub write_cache: bool,
    /// Fresh or used.
    pub condition: Condition,
}

/// What a part of a drive is: the drive itself, or what stands before others.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Which physics: `disk`, ...
    pub kind: String,
    /// The numbers of that physics.
    pub numbers: BTreeMap<String, Number>,
    /// What stands behind it, for a controller or an array.
    #[serde(default)]
    pub behind: Option<Box<Part>>,
}

/// A profile as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileFile {
    /// Version of the format.
    pub schema: u32,
    /// Its name on the command line.
    pub name: String,
    /// Maker, model, size.
    pub title: String,
    /// What is worth knowing about the twin, for `show`.
    #[serde(default)]
    pub about: String,
    /// Capacity.
    pub size_bytes: u64,
    /// Unit of access.
    #[serde(default = "sector_bytes")]
    pub sector_bytes: u32,
    /// Whether platters turn in it.
    pub rotational: bool,
    /// What a power cut may lose with the cache on.
    pub volatile_bytes: u64,
    /// The condition it is in, unless something else is said.
    pub setting: Setting,
    /// Rows of the reference that it explains: ids, or beginnings of ids with a `*`.
    #[serde(default)]
    pub explains: Vec<String>,
    /// Its physics.
    pub part: Part,
}

fn sector_bytes() -> u32 {
    512
}

/// A drive's profile in a setting. Clones share it.
#[derive(Debug, Clone)]
pub struct Profile {
    file: Arc<ProfileFile>,
    physics: Arc<Physics>,
    setting: Setting,
}

impl Profile {
    /// Reads a profile. `origin` names it in errors.
    pub fn parse(origin: &str, text: &str) -> Result<Profile, ProfileError> {
        let file: ProfileFile = toml::from_str(text)
            .map_err(|error| ProfileError::Syntax(origin.to_owned(), error.to_string()))?;
        Profile::of(origin, file)
    }

    /// The profile that is written so. `origin` names it in errors.
    pub fn of(origin: &str, file: ProfileFile) -> Result<Profile, ProfileError> {
        if file.schema != PROFILE_SCHEMA {
            return Err(ProfileError::Schema { origin: origin.to_owned(), found: file.schema });
        }
        if file.size_bytes == 0 || file.size_bytes > 1 << 60 {
            let problem = format!("a size of {} bytes", file.size_bytes);
            return Err(ProfileError::Number(origin.to_owned(), problem));
        }
        if !matches!(file.sector_bytes, 512 | 4096) {
            let problem = format!("sectors of {} bytes", file.sector_bytes);
            return Err(ProfileError::Number(origin.to_owned(), problem));
        }
        let physics = Physics::of(&file.part, file.size_bytes)
            .map_err(|problem| ProfileError::Number(origin.to_owned(), problem))?;
        let setting = file.setting;
        Ok(Profile { file: Arc::new(file), physics: Arc::new(physics), setting })
    }

    /// All profiles that are part of the program, in the order of their names.
    pub fn list() -> Vec<Profile> {
        let parsed = BUILT_IN.iter().map(|text| {
            Profile::parse("built in", text).expect("a test reads every profile of the program")
        });
        let mut profiles: Vec<Profile> = parsed.collect();
        profiles.sort_by(|one, other| one.name().cmp(other.name()));
        profiles
    }

    /// The profile of that name, with choices behind commas: `wd5002abys,cache=off,fresh`.
    pub fn named(choice: &str) -> Result<Profile, ProfileError> {
        let (name, words) = choice.split_once(',').unwrap_or((choice, ""));
        let known = Profile::list();
        let found = known.iter().find(|profile| profile.name() == name);
        let profile = found.ok_or_else(|| {
            let names = known.iter().map(|profile| profile.name().to_owned()).collect();
            ProfileError::Unknown { name: name.to_owned(), names }
        })?;
        profile.choose(words)
    }

    /// The profile that a user means: a built-in one, or a file when the name has a slash or ends in
    /// `.toml`; with choices behind commas.
    pub fn find(choice: &str) -> Result<Profile, ProfileError> {
        let (name, words) = choice.split_once(',').unwrap_or((choice, ""));
        if !name.contains('/') && !name.ends_with(".toml") {
            return Profile::named(choice);
        }
        let text = std::fs::read_to_string(Path::new(name))
            .map_err(|error| ProfileError::Unreadable(name.to_owned(), error.to_string()))?;
        Profile::parse(name, &text)?.choose(words)
    }

    /// The same drive with choices, between commas: `cache=off,fresh,scale=1/64`.
    pub fn choose(&self, words: &str) -> Result<Profile, ProfileError> {
        let (mut setting, mut times) = (self.setting, 1);
        for word in words.split(',').filter(|word| !word.is_empty()) {
            match word {
                "cache=on" => setting.write_cache = true,
                "cache=off" => setting.write_cache = false,
                "fresh" => setting.condition = Condition::Fresh,
                "used" => setting.condition = Condition::Used,
                _ => {
                    let part = word.strip_prefix("scale=1/").and_then(|part| part.parse().ok());
                    times = part
                        .filter(|times| *times > 0)
                        .ok_or_else(|| ProfileError::Choice(word.to_owned()))?;
                }
            }
        }
        let chosen = self.with_setting(setting);
        if times == 1 { Ok(chosen) } else { chosen.shrunk(times) }
    }

    /// Its name on the command line.
    pub fn name(&self) -> &str {
        &self.file.name
    }

    /// Maker, model, size.
    pub fn title(&self) -> &str {
        &self.file.title
    }

    /// What is worth knowing about the twin.
    pub fn about(&self) -> &str {
        &self.file.about
    }

    /// Capacity in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.file.size_bytes
    }

    /// Whether platters turn in it.
    pub fn rotational(&self) -> bool {
        self.file.rotational
    }

    /// The condition it is in.
    pub fn setting(&self) -> Setting {
        self.setting
    }

    /// The same drive in another condition.
    pub fn with_setting(&self, setting: Setting) -> Profile {
        Profile { setting, ..self.clone() }
    }

    /// What a power cut may lose with the cache on.
    pub fn volatile_bytes(&self) -> u64 {
        self.file.volatile_bytes
    }

    /// All of it, as written.
    pub fn file(&self) -> &ProfileFile {
        &self.file
    }

    /// Its physics, as written.
    pub fn part(&self) -> &Part {
        &self.file.part
    }

    /// Rows of the reference that it explains: ids, or beginnings of ids with a `*`.
    pub fn explains(&self) -> &[String] {
        &self.file.explains
    }

    /// The same drive with one of its numbers changed: `rpm`, or `behind.rpm` for what stands
    /// behind a controller. For questions of the kind "what if".
    pub fn with_number(&self, name: &str, value: f64) -> Result<Profile, ProfileError> {
        let mut part = self.file.part.clone();
        part.set(name, value)
            .map_err(|problem| ProfileError::Number(self.name().to_owned(), problem))?;
        self.remade(self.file.size_bytes, part)
    }

    /// The same drive with so many times fewer bytes: as many seeks of as many milliseconds, the
    /// same rates, the same share of spare.
    pub fn shrunk(&self, times: u64) -> Result<Profile, ProfileError> {
        let size_bytes = self.file.size_bytes / times.max(1) / (1 << 20) * (1 << 20);
        if size_bytes < 1 << 26 {
            let problem = format!("1/{times} of it leaves less than 64 MiB");
            return Err(ProfileError::Number(self.name().to_owned(), problem));
        }
        self.remade(size_bytes, self.file.part.clone())
    }

    fn remade(&self, size_bytes: u64, part: Part) -> Result<Profile, ProfileError> {
        let file = ProfileFile { size_bytes, part, ..ProfileFile::clone(&self.file) };
        Ok(Profile { setting: self.setting, ..Profile::of(self.name(), file)? })
    }

    /// A drive of a simulation that is its twin.
    pub fn spec(&self, path: impl Into<String>) -> DriveSpec {
        let plain = DriveSpec::fast(path, self.file.size_bytes);
        DriveSpec {
            sector_bytes: self.file.sector_bytes,
            atomic_write_bytes: self.file.sector_bytes,
            rotational: self.file.rotational,
            cache_bytes: if self.setting.write_cache { self.file.volatile_bytes } else { 0 },
            profile: Some(self.clone()),
            ..plain
        }
    }

    /// The physics at work, in this condition.
    pub fn model(&self, random: Random) -> Box<dyn Model> {
        self.physics.model(self.setting, random)
    }
}

#[cfg(test)]
mod tests;
