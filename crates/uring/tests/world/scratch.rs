//! Things to open: files, loop devices, a file system too small for what is written to it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of zero bytes in a directory of its own. Removed when dropped.
pub struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    pub fn new(bytes: u64) -> Scratch {
        let scratch = Scratch { directory: tempfile::tempdir().expect("a temporary directory") };
        let made = std::fs::File::create(scratch.path()).and_then(|file| file.set_len(bytes));
        made.expect("a file in the temporary directory");
        scratch
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("drive.img")
    }

    /// Another name in the same directory.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// A block device over a file. Taken down when dropped.
pub struct Loop {
    pub path: PathBuf,
    file: Option<Scratch>,
}

impl Loop {
    /// `None`, and a word about it, without the rights or the kernel for it.
    pub fn new(bytes: u64, arguments: &[&str]) -> Option<Loop> {
        let file = Scratch::new(bytes);
        let mut command = Command::new("losetup");
        command.args(["--find", "--show"]).args(arguments).arg(file.path());
        let path = run(command)?;
        Some(Loop { path: PathBuf::from(path.trim()), file: Some(file) })
    }

    /// The file it stands on.
    pub fn file(&self) -> PathBuf {
        self.file.as_ref().expect("it stands on a file").path()
    }

    /// A loop device upon this one; must be dropped before it.
    pub fn stack(&self) -> Option<Loop> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show"]).arg(&self.path);
        Some(Loop { path: PathBuf::from(run(command)?.trim()), file: None })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let mut command = Command::new("losetup");
        command.arg("--detach").arg(&self.path);
        run(command);
    }
}

/// A mounted file system in memory of a given size. Unmounted when dropped.
pub struct TinyFileSystem {
    directory: tempfile::TempDir,
}

impl TinyFileSystem {
    /// `None`, and a word about it, without the rights for it.
    pub fn new(bytes: u64) -> Option<TinyFileSystem> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "bimetal-test"]);
        run(command_with(command, directory.path()))?;
        Some(TinyFileSystem { directory })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for TinyFileSystem {
    fn drop(&mut self) {
        run(command_with(Command::new("umount"), self.directory.path()));
    }
}

fn command_with(mut command: Command, path: &Path) -> Command {
    command.arg(path);
    command
}

fn run(mut command: Command) -> Option<String> {
    match command.output() {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        outcome => {
            eprintln!("NOT TESTED (needs root): {command:?} gave {outcome:?}");
            None
        }
    }
}
