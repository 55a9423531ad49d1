//! `NAME.toml`: where the drives of a volume are. Nothing else: state lives in the superblocks,
//! so a lost file is rebuilt by `bimetal import`.
//!
//! The volume's identity is in the file too, so that a drive that was swapped under the same
//! path is noticed before anything is opened for writing.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, OnPath};
use crate::volume_name::VolumeName;

/// One volume's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeFile {
    /// The volume's name, as in the file name and in the superblocks.
    pub name: VolumeName,
    /// The volume's identity, as in the superblocks.
    pub volume: String,
    /// The fast drive; absolute, by a name that survives a reboot where there is one.
    pub fast: PathBuf,
    /// The slow drive, likewise.
    pub slow: PathBuf,
}

/// Where the file of volume `name` is.
pub fn path_of(config_dir: &Path, name: &VolumeName) -> PathBuf {
    config_dir.join(format!("{name}.toml"))
}

impl VolumeFile {
    /// Reads the file of volume `name`; `None` when there is none.
    pub fn load(config_dir: &Path, name: &VolumeName) -> Result<Option<VolumeFile>, Failure> {
        let path = path_of(config_dir, name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).on_path("read", &path),
        };
        let file = VolumeFile::parse(&text, &path)?;
        if file.name != *name {
            return Err(Failure::failed(format!(
                "{} describes the volume '{}'",
                path.display(),
                file.name
            ))
            .hint("a volume's file carries its name: rename one or the other"));
        }
        Ok(Some(file))
    }

    /// Reads what stands in a file; `path` is for the message.
    pub fn parse(text: &str, path: &Path) -> Result<VolumeFile, Failure> {
        toml::from_str(text).map_err(|error| {
            Failure::failed(format!("{} is not a volume file: {error}", path.display()))
                .hint("'bimetal import --fast DEV --slow DEV --force' writes it again")
        })
    }

    /// Writes the file, whole or not at all.
    pub fn save(&self, config_dir: &Path) -> Result<(), Failure> {
        let path = path_of(config_dir, &self.name);
        let text = toml::to_string(self).map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", path.display()))
        })?;
        let draft = config_dir.join(format!(".{}.toml.{}", self.name, std::process::id()));
        let write = || {
            let mut file = fs::File::create(&draft)?;
            writeln!(
                file,
                "# Where the drives of this bimetal volume are. Their superblocks hold"
            )?;
            writeln!(file, "# the rest: 'bimetal import' writes this file again when it is lost.")?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            // The rename itself must survive a power cut, or the volume is created but unnamed.
            fs::File::open(config_dir)?.sync_all()
        };
        let written: std::io::Result<()> = write();
        written.inspect_err(|_| drop(fs::remove_file(&draft))).on_path("write", &path)
    }

    /// Removes the file of volume `name`; whether there was one.
    pub fn remove(config_dir: &Path, name: &VolumeName) -> Result<bool, Failure> {
        let path = path_of(config_dir, name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).on_path("remove", &path),
        }
    }
}

/// The names of all volumes that have a file, sorted. Other files are not ours and ignored.
pub fn names(config_dir: &Path) -> Result<Vec<VolumeName>, Failure> {
    let mut names = Vec::new();
    let entries = match fs::read_dir(config_dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(names),
        Err(error) => return Err(error).on_path("list", config_dir),
    };
    for entry in entries {
        let path = entry.on_path("list", config_dir)?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        if path.extension().is_some_and(|extension| extension == "toml")
            && let Some(Ok(name)) = stem.map(str::parse)
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(name: &str) -> VolumeFile {
        VolumeFile {
            name: name.parse().unwrap(),
            volume: "11112222-3333-4444-5555-666677778888".to_owned(),
            fast: "/dev/disk/by-id/nvme-x".into(),
            slow: "/srv/slow \"quoted\" ä.img".into(),
        }
    }

    #[test]
    fn a_file_reads_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = example("vol0");
        file.save(dir.path()).unwrap();
        assert_eq!(VolumeFile::load(dir.path(), &file.name).unwrap(), Some(file.clone()));
        assert_eq!(names(dir.path()).unwrap(), vec![file.name.clone()]);
        assert!(VolumeFile::remove(dir.path(), &file.name).unwrap());
        assert!(!VolumeFile::remove(dir.path(), &file.name).unwrap());
        assert_eq!(VolumeFile::load(dir.path(), &file.name).unwrap(), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn unknown_fields_and_foreign_names_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let name: VolumeName = "vol0".parse().unwrap();
        let path = path_of(dir.path(), &name);
        example("vol0").save(dir.path()).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{good}\nfats = \"/dev/sda\"\n")).unwrap();
        let failure = VolumeFile::load(dir.path(), &name).unwrap_err();
        assert!(failure.message.contains("fats"), "{failure}");
        fs::write(&path, good.replace("vol0", "vol1")).unwrap();
        let failure = VolumeFile::load(dir.path(), &name).unwrap_err();
        assert!(failure.message.contains("'vol1'"), "{failure}");
    }
}
