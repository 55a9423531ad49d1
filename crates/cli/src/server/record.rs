//! The mark of a running server: a file that it keeps locked while it lives, and in which it says
//! who it is and which doors it has opened.
//!
//! The lock is the truth, the content only its description: a server that was killed leaves the
//! file behind, unlocked.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::Inspection;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, OnPath};
use crate::members;
use crate::selection::Selection;
use crate::settings::Settings;
use crate::volume_name::VolumeName;

/// Readers hold the lock for moments while they look; a server tries again this often.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// One that begins or ends is given so long: it replays its log, or waits for who uses the volume.
const SETTLE_PATIENCE: Duration = Duration::from_secs(30);

/// What a running server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Its process number.
    pub pid: u32,
    /// It was started by `attach`, and ends with `detach`.
    pub background: bool,
    /// It answers requests.
    pub ready: bool,
    /// It was told to stop: its doors close, and it may go at any moment.
    #[serde(default)]
    pub ending: bool,
    /// It writes nothing to its drives: they stay as they were left.
    #[serde(default)]
    pub read_only: bool,
    /// Where its drives are.
    pub fast: PathBuf,
    /// Where its drives are.
    pub slow: PathBuf,
    /// Its NBD addresses.
    pub uris: Vec<String>,
    /// The volume as a file.
    pub fuse_file: Option<PathBuf>,
    /// The socket for virtual machines.
    pub vhost_user: Option<PathBuf>,
    /// The block device.
    pub ublk: Option<PathBuf>,
}

impl fmt::Display for ServerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if self.background { f.write_str(" (started by 'bimetal attach')") } else { Ok(()) }
    }
}

impl ServerRecord {
    /// The record of the server of volume `name`, if one is running.
    pub fn alive(settings: &Settings, name: &VolumeName) -> Result<Option<ServerRecord>, Failure> {
        let path = settings.server_file(name);
        let Some((mut file, locked)) = probe(&path)? else { return Ok(None) };
        if !locked {
            return Ok(None);
        }
        let mut text = String::new();
        file.read_to_string(&mut text).on_path("read", &path)?;
        // Between taking the lock and writing the record there is nothing to read yet.
        Ok(Some(serde_json::from_str(&text).unwrap_or_default()))
    }

    /// The record of the server of the selected volume, if one is running.
    ///
    /// # Errors
    /// A volume of the same name is served from other drives, such as those that these are copies of:
    /// what is meant for one must not reach the other.
    pub fn serving(
        settings: &Settings,
        selection: &Selection,
    ) -> Result<Option<ServerRecord>, Failure> {
        let Some(server) = ServerRecord::alive(settings, &selection.name)? else { return Ok(None) };
        // Between taking the lock and writing the record nothing is said of drives.
        if server.fast.as_os_str().is_empty() || server.is_of(selection) {
            return Ok(Some(server));
        }
        let (fast, slow) = (server.fast.display(), server.slow.display());
        Err(Failure::refused(format!(
            "a volume '{}' is served by {server} from other drives, {fast} and {slow}, and not from \
             {} and {}",
            selection.name,
            selection.fast.display(),
            selection.slow.display()
        ))
        .hint(format!(
            "if that one is meant: --fast {fast} --slow {slow}; one volume of a name is served at a \
             time, but for another --config-dir"
        )))
    }

    /// The same, but of a server that begins or ends it is waited for what comes of it: until then, what it
    /// says of its doors is not so yet, or no more.
    ///
    /// # Errors
    /// That takes longer than anybody should wait for.
    pub fn settled(
        settings: &Settings,
        selection: &Selection,
    ) -> Result<Option<ServerRecord>, Failure> {
        let deadline = Instant::now() + SETTLE_PATIENCE;
        loop {
            let server = match ServerRecord::serving(settings, selection)? {
                Some(server) if server.ending || !server.ready => server,
                settled => return Ok(settled),
            };
            if Instant::now() > deadline {
                let name = &selection.name;
                let does = if server.ending { "still ending" } else { "not ready yet" };
                return Err(Failure::refused(format!(
                    "the server of volume '{name}', {server}, is {does}"
                ))
                .hint(format!("it says why in {}", settings.log_file(name).display())));
            }
            std::thread::sleep(LOCK_PAUSE);
        }
    }

    /// The last record, also when its server is gone: tells what a killed one left behind.
    pub fn last(settings: &Settings, name: &VolumeName) -> Option<ServerRecord> {
        serde_json::from_str(&fs::read_to_string(settings.server_file(name)).ok()?).ok()
    }

    /// Refuses drives whose block device a killed server has left, but of the drives that these are
    /// copies of: both have one identity, and whoever uses the device would go on with the copies.
    pub fn verify_device(settings: &Settings, selection: &Selection) -> Result<(), Failure> {
        if ServerRecord::is_alive(settings, &selection.name)? {
            return Ok(());
        }
        let last = ServerRecord::last(settings, &selection.name);
        let Some(last) = last.filter(|last| !last.is_of(selection)) else { return Ok(()) };
        let Some(device) = last.ublk.as_ref().filter(|device| device.exists()) else {
            return Ok(());
        };
        let selected = selection.clone().identified()?;
        let is_original = |path: &Path| match members::read(path) {
            Ok(Inspection::Member(superblock)) => selected.owns(&superblock),
            _ => false,
        };
        if !is_original(&last.fast) && !is_original(&last.slow) {
            return Ok(());
        }
        let device = device.display();
        let (fast, slow) = (last.fast.display(), last.slow.display());
        Err(Failure::refused(format!(
            "{device} was left by a server of '{}' on other drives, {fast} and {slow}: its users must \
             not go on with {} and {}",
            selection.name,
            selection.fast.display(),
            selection.slow.display()
        ))
        .hint(format!(
            "'bimetal attach --ublk --fast {fast} --slow {slow}' takes the device over; unmount it and \
             'bimetal detach --fast {fast} --slow {slow}', then serve these"
        )))
    }

    /// Whether it served the selected drives.
    fn is_of(&self, selection: &Selection) -> bool {
        is_same(&self.fast, &selection.fast) && is_same(&self.slow, &selection.slow)
    }

    /// Whether a server of volume `name` is running.
    pub fn is_alive(settings: &Settings, name: &VolumeName) -> Result<bool, Failure> {
        Ok(probe(&settings.server_file(name))?.is_some_and(|(_, locked)| locked))
    }
}

/// Whether both paths lead to one drive. One that is gone leads nowhere: then its other name says
/// nothing against it.
fn is_same(served: &Path, selected: &Path) -> bool {
    match (fs::canonicalize(served), fs::canonicalize(selected)) {
        (Ok(served), Ok(selected)) => served == selected,
        _ => true,
    }
}

/// Opens the file and says whether somebody holds its lock; `None` when there is no file.
fn probe(path: &Path) -> Result<Option<(File, bool)>, Failure> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).on_path("open", path),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        // Dropping the file gives the lock back.
        Ok(()) => Ok(Some((file, false))),
        Err(Errno::WOULDBLOCK) => Ok(Some((file, true))),
        Err(error) => Err(error).on_path("look at the lock of", path),
    }
}

/// Held by a server while it lives; dropping it removes the file.
#[derive(Debug)]
pub struct ServerLock {
    file: File,
    path: PathBuf,
}

impl ServerLock {
    /// Becomes the server of volume `name`.
    ///
    /// # Errors
    /// Another one is: the message says which.
    pub fn take(settings: &Settings, name: &VolumeName) -> Result<ServerLock, Failure> {
        settings.make_runtime_dir()?;
        let path = settings.server_file(name);
        for _ in 0..LOCK_ATTEMPTS {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .on_path("open", &path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // A server that ended meanwhile may have removed the file we have locked.
                Ok(()) if is_at(&file, &path) => {
                    file.set_len(0).on_path("write", &path)?;
                    return Ok(ServerLock { file, path });
                }
                Ok(()) => continue,
                Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
                Err(error) => return Err(error).on_path("lock", &path),
            }
        }
        let server = ServerRecord::alive(settings, name)?.unwrap_or_default();
        let end = match server.background {
            true => format!("'bimetal detach {name}' ends it"),
            false => format!("SIGTERM ends it: kill {}", server.pid),
        };
        Err(Failure::refused(format!("volume '{name}' is already served by {server}"))
            .hint(format!("'bimetal status {name}' shows it; {end}")))
    }

    /// Says who we are.
    pub fn write(&mut self, record: &ServerRecord) -> Result<(), Failure> {
        let text = serde_json::to_string(record)
            .map_err(|error| Failure::failed(format!("cannot describe the server: {error}")))?;
        let path = self.path.clone();
        let mut write = || {
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(text.as_bytes())
        };
        write().on_path("write", &path)
    }
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        // Removed while locked, so that nobody else's file can be hit.
        let _ = fs::remove_file(&self.path);
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |facts: fs::Metadata| (facts.dev(), facts.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(mine), Ok(there)) => identity(mine) == identity(there),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_at_a_time_and_it_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings::new(dir.path(), false).unwrap();
        let name: VolumeName = "vol0".parse().unwrap();
        assert_eq!(ServerRecord::alive(&settings, &name).unwrap(), None);
        let mut lock = ServerLock::take(&settings, &name).unwrap();
        let record = ServerRecord { pid: 4321, ready: true, ..ServerRecord::default() };
        lock.write(&record).unwrap();
        assert_eq!(ServerRecord::alive(&settings, &name).unwrap(), Some(record));
        let refusal = ServerLock::take(&settings, &name).unwrap_err();
        assert!(refusal.message.contains("process 4321"), "{refusal}");
        drop(lock);
        assert!(!ServerRecord::is_alive(&settings, &name).unwrap());
        ServerLock::take(&settings, &name).unwrap();
    }
}
