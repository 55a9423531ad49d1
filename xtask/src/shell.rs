//! Running other programs, and saying exactly what failed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A failure, as a sentence for the person at the keyboard.
pub type Outcome<T = ()> = Result<T, String>;

/// The root of the source tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_owned()
}

/// A command whose system tools are found also where `/usr/sbin` is not in the path.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new(program);
    command.env("PATH", path).current_dir(root());
    command
}

/// The same as root: through sudo where we are not.
pub fn command_as_root(program: impl AsRef<std::ffi::OsStr>) -> Command {
    if is_root() {
        return command(program);
    }
    let mut sudo = command("sudo");
    sudo.arg(program);
    sudo
}

/// Whether we are root.
pub fn is_root() -> bool {
    output(command("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Runs with our own standard output and error.
pub fn run(command: &mut Command) -> Outcome {
    let status = command.status().map_err(|error| format!("{}: {error}", shown(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", shown(command))) }
}

/// Runs and gives standard output; standard error is shown when it fails.
pub fn output(command: &mut Command) -> Outcome<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", shown(command)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}\n{said}", shown(command), output.status))
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}
