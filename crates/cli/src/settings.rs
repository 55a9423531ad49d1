//! What holds for every command: where volume files are, where running servers are found, and how
//! results are printed.
//!
//! Volumes of different configuration directories never meet: each directory other than the
//! system's has its own runtime directory inside it.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::failure::{Failure, OnPath};
use crate::output::Output;
use crate::volume_name::VolumeName;

/// Where volume files are unless told otherwise.
pub const SYSTEM_CONFIG_DIR: &str = "/etc/bimetal";
/// `sun_path` holds 108 bytes, one of them the end of the text.
const SOCKET_PATH_BYTES_MAX: usize = 107;
const SYSTEM_RUNTIME_DIR: &str = "/run/bimetal";

/// Set for every command.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where `NAME.toml` files are. Absolute; may not exist yet.
    pub config_dir: PathBuf,
    /// Where sockets and marks of running servers are. Absolute; may not exist yet.
    pub runtime_dir: PathBuf,
    /// How to print.
    pub output: Output,
}

impl Settings {
    /// Settles the directories.
    pub fn new(config_dir: &Path, json: bool) -> Result<Settings, Failure> {
        let config_dir = std::path::absolute(config_dir).on_path("find", config_dir)?;
        let runtime_dir = if config_dir == Path::new(SYSTEM_CONFIG_DIR) {
            SYSTEM_RUNTIME_DIR.into()
        } else {
            config_dir.join("run")
        };
        Ok(Settings { config_dir, runtime_dir, output: Output { json } })
    }

    /// Makes the configuration directory when it is missing.
    pub fn make_config_dir(&self) -> Result<(), Failure> {
        make_dir(&self.config_dir, 0o755).map_err(|failure| self.advise(failure))
    }

    /// Makes the configuration directory when it is missing, and keeps others that would change
    /// the volumes in it out until the lock is dropped.
    pub fn lock_config_dir(&self) -> Result<ConfigLock, Failure> {
        self.make_config_dir()?;
        let directory = fs::File::open(&self.config_dir).on_path("open", &self.config_dir)?;
        match flock(&directory, FlockOperation::LockExclusive) {
            // Network file systems without locks: there, as without this lock, drives are compared
            // again once they are locked.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {
                Ok(ConfigLock { _directory: directory })
            }
            Err(error) => Err(std::io::Error::from(error)).on_path("lock", &self.config_dir),
        }
    }

    /// Makes the runtime directory when it is missing; only its owner may look into it.
    pub fn make_runtime_dir(&self) -> Result<(), Failure> {
        make_dir(&self.runtime_dir, 0o700).map_err(|failure| self.advise(failure))
    }

    fn advise(&self, failure: Failure) -> Failure {
        if self.config_dir == Path::new(SYSTEM_CONFIG_DIR) {
            failure.hint(
                "run as root, or keep volumes of your own with --config-dir DIR before the verb \
                 (or BIMETAL_CONFIG_DIR)",
            )
        } else {
            failure
        }
    }

    /// Files of the server of volume `name`: `KIND` is what follows the name.
    fn runtime_file(&self, name: &VolumeName, kind: &str) -> PathBuf {
        self.runtime_dir.join(format!("{name}.{kind}"))
    }

    /// Locked by the server of the volume while it lives, and says who that is.
    pub fn server_file(&self, name: &VolumeName) -> PathBuf {
        self.runtime_file(name, "server")
    }

    /// Refuses a volume whose sockets could not be made: the kernel takes short paths only.
    pub fn verify_socket_paths(&self, name: &VolumeName) -> Result<(), Failure> {
        let socket = self.control_socket(name);
        let length = socket.as_os_str().len();
        if length <= SOCKET_PATH_BYTES_MAX {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "the socket {} would have a path of {length} bytes, and the system takes \
             {SOCKET_PATH_BYTES_MAX}",
            socket.display()
        ))
        .hint("choose a shorter --config-dir or a shorter name"))
    }

    /// The server's control socket.
    pub fn control_socket(&self, name: &VolumeName) -> PathBuf {
        self.runtime_file(name, "ctl")
    }

    /// The server's NBD socket, unless it is told other doors.
    pub fn nbd_socket(&self, name: &VolumeName) -> PathBuf {
        self.runtime_file(name, "nbd")
    }

    /// Where `attach` mounts the volume's file.
    pub fn mount_dir(&self, name: &VolumeName) -> PathBuf {
        self.runtime_file(name, "mount")
    }

    /// What a background server says.
    pub fn log_file(&self, name: &VolumeName) -> PathBuf {
        self.runtime_file(name, "log")
    }
}

/// While it lives, no other process adds volumes to the directory.
#[derive(Debug)]
pub struct ConfigLock {
    /// The kernel unlocks it when it is closed, however the process ends.
    _directory: fs::File,
}

fn make_dir(path: &Path, mode: u32) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).on_path("make directory", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_different_directories_never_meet() {
        let system = Settings::new(Path::new("/etc/bimetal"), false).unwrap();
        assert_eq!(system.runtime_dir, Path::new("/run/bimetal"));
        let own = Settings::new(Path::new("/home/me/disks"), false).unwrap();
        assert_eq!(own.runtime_dir, Path::new("/home/me/disks/run"));
        assert!(Settings::new(Path::new("relative"), false).unwrap().config_dir.is_absolute());
    }
}
