//! The driver's control device: makes devices, starts them, ends them. Every call here may wait
//! for the kernel, and some for requests that our own executor must answer: never call one on
//! the executor's thread.
//!
//! Its commands are too long for the ring of the executor, so it has a small one of its own.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io::{ErrorKind, IoError};
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::uapi::{CONTROL_PATH, DeviceInfo, MARK_READ_ONLY, Parameters, control, feature, state};

/// The kernel needs some time to notice that a server has died.
const QUIESCE_PATIENCE: Duration = Duration::from_secs(20);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Stands for "any device" and "no queue".
const ANY_DEVICE: u32 = u32::MAX;
const NO_QUEUE: u16 = u16::MAX;

/// What a device must be able to do, of a volume that outlives its server: requests wait for the next one.
pub(super) const LASTING: u64 = PASSING | feature::RECOVERY | feature::RECOVERY_REISSUE;

/// And of any other: when its server has died, the driver ends it with errors.
pub(super) const PASSING: u64 = feature::USER_COPY;

/// The control device.
pub(super) struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
}

/// Memory that goes with a command, or a number.
enum With<'a> {
    Nothing,
    Info(&'a mut DeviceInfo),
    Parameters(&'a mut Parameters),
    Number(u64),
}

impl Control {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel has no ublk, does not let us, or has no io_uring; each with what to do.
    pub(super) fn open() -> Result<Control, IoError> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL_PATH);
        let file = file.map_err(|cause| match cause.kind() {
            std::io::ErrorKind::NotFound => IoError::new(
                ErrorKind::Unsupported,
                format!(
                    "this kernel has no ublk driver ({CONTROL_PATH} is missing): try 'modprobe \
                     ublk_drv' (Linux 6.5 or newer); NBD and FUSE work without it"
                ),
            ),
            _ => failed("opening", &cause),
        })?;
        let ring = IoUring::builder().build(4).map_err(|e| failed("a ring for", &e))?;
        Ok(Control { ring, file })
    }

    /// Makes a device that can do what `info` asks for at least.
    pub(super) fn add(&mut self, info: &mut DeviceInfo) -> Result<(), IoError> {
        info.id = ANY_DEVICE;
        let wanted = info.features;
        // The driver takes away what it does not know.
        info.features |= feature::LENDS;
        self.command(control::ADD, ANY_DEVICE, With::Info(info), "making a device")?;
        if info.features & wanted == wanted {
            return Ok(());
        }
        self.delete(info.id)?;
        let message = "the ublk driver of this kernel is too old: Linux 6.5 or newer is needed";
        Err(IoError::new(ErrorKind::Unsupported, message))
    }

    pub(super) fn info(&mut self, id: u32) -> Result<DeviceInfo, IoError> {
        let mut info = DeviceInfo::default();
        self.command(control::GET_INFO, id, With::Info(&mut info), "asking for a device")?;
        Ok(info)
    }

    pub(super) fn set_parameters(
        &mut self,
        id: u32,
        parameters: &mut Parameters,
    ) -> Result<(), IoError> {
        let with = With::Parameters(parameters);
        self.command(control::SET_PARAMETERS, id, with, "describing a device")
    }

    /// Waits until every place of every queue has been fetched, then lets the disk appear.
    pub(super) fn start(&mut self, id: u32) -> Result<(), IoError> {
        let pid = u64::from(std::process::id());
        self.command(control::START, id, With::Number(pid), "starting a device")
    }

    /// Ends a disk: whoever uses it gets errors.
    pub(super) fn stop(&mut self, id: u32) -> Result<(), IoError> {
        self.command(control::STOP, id, With::Nothing, "stopping a device")
    }

    /// Takes a device away; its file must be closed.
    pub(super) fn delete(&mut self, id: u32) -> Result<(), IoError> {
        self.command(control::DELETE, id, With::Nothing, "removing a device")
    }

    /// Lets a new server fetch from a device whose server has died.
    pub(super) fn start_recovery(&mut self, id: u32) -> Result<(), IoError> {
        let deadline = Instant::now() + QUIESCE_PATIENCE;
        loop {
            let what = "taking over a device";
            match self.command(control::START_RECOVERY, id, With::Nothing, what) {
                // The old server's file is not closed yet.
                Err(error) if error.errno == libc::EBUSY && Instant::now() < deadline => {
                    std::thread::sleep(PAUSE);
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits until every place has been fetched, then lets requests flow again.
    pub(super) fn end_recovery(&mut self, id: u32) -> Result<(), IoError> {
        let pid = u64::from(std::process::id());
        self.command(control::END_RECOVERY, id, With::Number(pid), "taking over a device")
    }

    /// The device with this mark that an earlier server has left, if there is one, waiting for a
    /// server. Devices of that mark that were never started are taken away.
    pub(super) fn left_behind(&mut self, mark: u64) -> Result<Option<DeviceInfo>, IoError> {
        let deadline = Instant::now() + QUIESCE_PATIENCE;
        for id in known_devices() {
            // It may be gone, or be somebody's whom we may not ask.
            while let Ok(info) = self.info(id) {
                if (info.mark ^ mark) & !MARK_READ_ONLY != 0 {
                    break;
                }
                if info.mark != mark && info.state != state::DEAD {
                    let writable = info.mark & MARK_READ_ONLY == 0;
                    let how = if writable { "for writing" } else { "read-only" };
                    let message = format!(
                        "/dev/ublkb{id} of this volume was left by a server that served it {how}: \
                         serve it so until nobody uses the device"
                    );
                    return Err(IoError::new(ErrorKind::ReadOnly, message));
                }
                match info.state {
                    state::QUIESCED => return Ok(Some(info)),
                    state::DEAD => {
                        self.delete(id)?;
                        break;
                    }
                    state::LIVE if Instant::now() < deadline => std::thread::sleep(PAUSE),
                    _ => {
                        let pid = info.server_pid;
                        let message = format!("/dev/ublkb{id} is served by process {pid}");
                        return Err(IoError::new(ErrorKind::Io, message));
                    }
                }
            }
        }
        Ok(None)
    }

    fn command(&mut self, code: u32, id: u32, with: With<'_>, what: &str) -> Result<(), IoError> {
        let (address, length, number) = match with {
            With::Nothing => (0, 0, 0),
            With::Info(info) => (std::ptr::from_mut(info) as u64, size_of::<DeviceInfo>(), 0),
            With::Parameters(one) => (std::ptr::from_mut(one) as u64, size_of::<Parameters>(), 0),
            With::Number(number) => (0, 0, number),
        };
        let mut command = [0; 80];
        command[..4].copy_from_slice(&id.to_ne_bytes());
        command[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
        command[6..8].copy_from_slice(&(length as u16).to_ne_bytes());
        command[8..16].copy_from_slice(&address.to_ne_bytes());
        command[16..24].copy_from_slice(&number.to_ne_bytes());
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), code).cmd(command).build();
        // SAFETY: what the command points to is borrowed for this call, which does not return
        // before the command has been answered.
        unsafe { self.ring.submission().push(&entry) }.expect("one command at a time");
        loop {
            match self.ring.submit_and_wait(1) {
                Err(e) if e.raw_os_error() != Some(libc::EINTR) => {
                    // The kernel may still use the memory, and nothing would ever say when not.
                    panic!("the control ring of ublk failed: {e}");
                }
                _ => {}
            }
            if let Some(answer) = self.ring.completion().next() {
                let errno = -answer.result();
                return if errno <= 0 { Ok(()) } else { Err(IoError::from_errno(errno, what)) };
            }
        }
    }
}

/// The numbers of the devices there are.
fn known_devices() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/sys/class/ublk-char") else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok()).collect()
}

fn failed(what: &str, cause: &std::io::Error) -> IoError {
    IoError::from_errno(cause.raw_os_error().unwrap_or(0), format!("{what} {CONTROL_PATH}"))
}
