//! The directory the file is mounted on: made ready, explained when it is not, given back.
//!
//! * Our mounts carry `bimetal:NAME` as their source, so a dead one can be told from others'.
//! * A dead mount (its server was killed) is detached together with the loop devices that were
//!   made of its file. A living one, ours or another's, is never touched.

use std::io::ErrorKind as Cause;
use std::path::{Path, PathBuf};
use std::process::Command;

use io::{ErrorKind, IoError};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::{loop_device, mount_table};

/// How many users of a busy file a message names.
const USERS_NAMED_MAX: usize = 5;

/// The source of our mounts; commas and backslashes would end an option of `fusermount3`.
pub(super) fn source(name: &str) -> String {
    format!("bimetal:{}", name.replace([',', '\\'], "_"))
}

/// The name behind `bimetal:` if our mount is on top at `directory`.
pub(super) fn ours(directory: &Path) -> Result<Option<String>, IoError> {
    let mount = mount_table::at(&normal(directory))?;
    Ok(mount
        .filter(|mount| mount.kind.starts_with("fuse"))
        .and_then(|mount| mount.source.strip_prefix("bimetal:").map(str::to_owned)))
}

/// The absolute path without symbolic links. Works when a dead mount lies on the directory.
pub(super) fn canonical(directory: &Path) -> Result<PathBuf, IoError> {
    match std::fs::canonicalize(directory) {
        Ok(path) if path.is_dir() || is_dead(&path) => Ok(path),
        Ok(path) => Err(IoError::new(
            ErrorKind::Range,
            format!("{} is not a directory; the volume's file needs one", path.display()),
        )),
        Err(cause) if cause.kind() == Cause::NotFound => Err(IoError::new(
            ErrorKind::Range,
            format!("{}: no such directory; make it first", directory.display()),
        )),
        Err(cause) if is_not_connected(&cause) => Ok(normal(directory)),
        Err(cause) => Err(failed(&cause, format!("directory {}", directory.display()))),
    }
}

/// The path with everything but its last part resolved: the last may be a dead mount.
fn normal(directory: &Path) -> PathBuf {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let (Some(parent), Some(last)) = (absolute.parent(), absolute.file_name()) else {
        return absolute;
    };
    std::fs::canonicalize(parent).map_or(absolute.clone(), |parent| parent.join(last))
}

fn is_not_connected(cause: &std::io::Error) -> bool {
    // ECONNABORTED: the same, when the server died while the kernel was asking.
    matches!(cause.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// Whether the server of what is mounted at `path` is gone. Asks for something the kernel never
/// remembers: attributes would still be answered from its memory.
fn is_dead(path: &Path) -> bool {
    matches!(rustix::fs::statfs(path), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Makes sure nothing is mounted on the directory. Takes a dead mount of ours away, and says so.
pub(super) fn clear(directory: &Path, file_name: &str) -> Result<Option<String>, IoError> {
    let Some(mount) = mount_table::at(directory)? else { return Ok(None) };
    let place = directory.display();
    let refused = |reason: String| Err(IoError::new(ErrorKind::Io, reason));
    if !is_dead(directory) {
        return refused(match mount.source.strip_prefix("bimetal:") {
            Some(name) => format!("{place}: volume '{name}' is being served there already"),
            None => format!("{place}: {} ({}) is mounted there", mount.source, mount.kind),
        });
    }
    if !mount.source.starts_with("bimetal:") {
        let kind = format!("{} ({})", mount.source, mount.kind);
        return refused(format!(
            "{place}: a mount of {kind} whose server is gone lies there; unmount it with \
             'umount {place}' or 'fusermount3 -u {place}'"
        ));
    }
    // Before the mount goes: afterwards the devices no longer name the file by this path.
    let mut removed = Vec::new();
    let file = directory.join(file_name);
    for device in loop_device::find_by_backing(&file)? {
        // A device in use stays and fails; it goes away when its user lets go of it.
        if loop_device::detach_from(&file, &device).is_ok() {
            removed.push(device.display().to_string());
        }
    }
    unmount(directory, true)?;
    let devices = if removed.is_empty() {
        String::new()
    } else {
        format!(" and its loop device {}", removed.join(", "))
    };
    Ok(Some(format!("{place}: removed the mount{devices} that a killed server had left behind")))
}

/// Unmounts `directory`, at once if `detach`; as root directly, otherwise through `fusermount3`.
pub(super) fn unmount(directory: &Path, detach: bool) -> Result<(), IoError> {
    let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let place = || format!("unmount {}", directory.display());
    match rustix::mount::unmount(directory, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => unmount_unprivileged(directory, detach),
        // Nothing is mounted there any more: somebody was faster.
        Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(IoError::from_errno(errno.raw_os_error(), place())),
    }
}

fn unmount_unprivileged(directory: &Path, detach: bool) -> Result<(), IoError> {
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if detach {
        command.arg("-z");
    }
    let output = command.arg("--").arg(directory).output().map_err(|cause| {
        failed(&cause, "unmounting without root needs fusermount3 (Debian: apt install fuse3)")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let busy = said.contains("busy");
    let mut error = IoError::new(
        ErrorKind::Io,
        format!("unmount {}: fusermount3: {}", directory.display(), said.trim()),
    );
    error.errno = if busy { libc::EBUSY } else { 0 };
    Err(error)
}

/// Says who uses the file, when that is why `error` happened.
pub(super) fn name_users(error: IoError, directory: &Path, file: &Path) -> IoError {
    if error.errno != libc::EBUSY {
        return error;
    }
    let mut users = Vec::new();
    for device in loop_device::find_by_backing(file).unwrap_or_default() {
        users.push(format!("loop device {}", device.display()));
    }
    users.extend(processes_inside(directory));
    let more = users.len().saturating_sub(USERS_NAMED_MAX);
    users.truncate(USERS_NAMED_MAX);
    let mut by = users.join(", ");
    if more > 0 {
        by = format!("{by} and {more} more");
    }
    let by = if by.is_empty() { "a process this user may not see".to_owned() } else { by };
    IoError {
        message: format!("{} is in use by {by}; end that first, or detach it", file.display()),
        ..error
    }
}

/// Processes with an open file or working directory under `directory`. Only reads links: looking
/// at the files themselves would ask the very server that is being unmounted.
fn processes_inside(directory: &Path) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut found = Vec::new();
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(id) = name.to_str().filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()))
        else {
            continue;
        };
        let home = process.path();
        let open = std::fs::read_dir(home.join("fd")).into_iter().flatten().flatten();
        let inside = open
            .map(|entry| entry.path())
            .chain([home.join("cwd")])
            .any(|link| std::fs::read_link(link).is_ok_and(|to| to.starts_with(directory)));
        if inside {
            let command = std::fs::read_to_string(home.join("comm")).unwrap_or_default();
            found.push(format!("{} (process {id})", command.trim()));
        }
    }
    found
}

/// Why mounting failed, and what to do.
pub(super) fn explain(directory: &Path, cause: &std::io::Error) -> IoError {
    let place = format!("mount on {}", directory.display());
    let reason = cause.to_string();
    let hint = if !Path::new("/dev/fuse").exists() {
        "/dev/fuse is missing: load the kernel's FUSE module ('modprobe fuse'), and in a container \
         pass the device in"
    } else if rustix::process::geteuid().is_root() {
        ""
    } else if cause.kind() == Cause::NotFound {
        "mounting without root needs fusermount3: install it (Debian: apt install fuse3)"
    } else if cause.kind() == Cause::PermissionDenied {
        "this user may not open /dev/fuse or mount here; the directory must belong to the user"
    } else {
        ""
    };
    let message = match hint {
        "" => format!("{place}: {}", reason.trim()),
        hint => format!("{place}: {}: {hint}", reason.trim()),
    };
    IoError { errno: cause.raw_os_error().unwrap_or(0), ..IoError::new(ErrorKind::Io, message) }
}

fn failed(cause: &std::io::Error, context: impl std::fmt::Display) -> IoError {
    match cause.raw_os_error() {
        Some(errno) => IoError::from_errno(errno, context),
        None => IoError::new(ErrorKind::Io, format!("{context}: {cause}")),
    }
}
