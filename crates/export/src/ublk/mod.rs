//! The ublk door: the volume as a block device of this machine, `/dev/ublkbN`.
//!
//! Requests come over our own ring from the kernel's ublk driver, without a mount, a socket or a
//! page cache in between. The device outlives the server: after a `kill -9` (or an orderly end
//! while somebody uses the device) requests wait, and the next server of the same volume finds the
//! device by its mark and goes on, so that a mounted file system sees a delay and no error.
//!
//! * [`UblkDoor::open`] takes over the device that an earlier server has left, or makes one.
//! * [`UblkDoor::shutdown`] takes the device away if nobody uses it, else leaves it.
//! * A volume that is gone with its server has a device without a mark: no server takes that over,
//!   and it ends with its own, however that ends.
//!
//! Needs root, Linux 6.5 or newer with `ublk_drv`, and io_uring.

mod control;
mod queue;
mod uapi;
mod users;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use io::{ErrorKind, Io, IoError, Volume, VolumeInfo, mailbox};

use control::Control;
use queue::{Crowd, Queues};
use uapi::{Basic, DeviceInfo, Discard, Parameters, SECTOR_BYTES};
pub use users::is_used;

/// Places of one queue: as many requests as a disk orders well, and a bound for buffers.
const QUEUE_DEPTH: u16 = 128;

/// Most queues. They share one thread here; more of them keep processors apart in the kernel.
const QUEUES_MAX: usize = 4;

/// Largest request; the kernel cuts larger ones.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Longest range of one request to trim or to write zeros.
const RANGE_SECTORS_MAX: u32 = 1 << 21;

/// How long a device's file may take to appear once the device is there.
const APPEAR_PATIENCE: Duration = Duration::from_secs(10);

/// How a volume is to appear.
#[derive(Debug, Clone)]
pub struct UblkOptions {
    /// What the device of this volume is found by after its server has died: unique to the volume.
    /// The lowest bit does not count. `None`: the content does not outlive the server, so the device
    /// does not either, and whoever still uses it gets errors instead of another content.
    pub mark: Option<u64>,
    /// Tell the kernel that seeks are expensive.
    pub rotational: bool,
}

/// A volume as a block device. Dropping it leaves the device to the next server.
pub struct UblkDoor {
    id: u32,
    path: PathBuf,
    recovered: bool,
    /// It may wait for a next server.
    lasts: bool,
    crowd: Rc<Crowd>,
}

/// What became of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It is gone.
    Removed,
    /// Somebody uses it: it waits for the next server.
    Left,
}

impl UblkDoor {
    /// Makes the device, or takes over the one that an earlier server has left. Ready when it has
    /// returned.
    ///
    /// # Errors
    /// The kernel has no ublk, or does not let us; the message says what to do.
    pub async fn open<V: Volume>(
        io: Io,
        volume: Rc<V>,
        options: UblkOptions,
    ) -> Result<UblkDoor, IoError> {
        let info = volume.info();
        // A disk stays what it was made as: the next server must be of the same mind.
        let read_only = if info.read_only { uapi::MARK_READ_ONLY } else { 0 };
        let mark = options.mark.map(|mark| mark & !uapi::MARK_READ_ONLY | read_only);
        let left = match mark {
            Some(mark) => aside(move || Control::open()?.left_behind(mark)).await?,
            None => None,
        };
        let device = match left {
            Some(device) => device,
            None => {
                let wanted = describe_device(mark);
                let mut parameters = describe_disk(&info, options.rotational);
                aside(move || {
                    let mut control = Control::open()?;
                    let mut device = wanted;
                    control.add(&mut device)?;
                    if let Err(error) = control.set_parameters(device.id, &mut parameters) {
                        control.delete(device.id)?;
                        return Err(error);
                    }
                    Ok(device)
                })
                .await?
            }
        };
        let recovered = left.is_some();
        let id = device.id;
        match UblkDoor::serve(io, volume, device, recovered).await {
            Ok(crowd) => {
                let path = PathBuf::from(format!("/dev/ublkb{id}"));
                let lasts = mark.is_some();
                let door = UblkDoor { id, path: path.clone(), recovered, lasts, crowd };
                if let Err(error) = aside(move || await_path(&path)).await {
                    door.give_up().await?;
                    return Err(error);
                }
                Ok(door)
            }
            // One that was left stays, with whoever uses it.
            Err(error) if recovered => Err(error),
            Err(error) => {
                aside(move || Control::open()?.delete(id)).await?;
                Err(error)
            }
        }
    }

    async fn serve<V: Volume>(
        io: Io,
        volume: Rc<V>,
        device: DeviceInfo,
        recovers: bool,
    ) -> Result<Rc<Crowd>, IoError> {
        let id = device.id;
        let file = aside(move || {
            if recovers {
                Control::open()?.start_recovery(id)?;
            }
            await_file(Path::new(&format!("/dev/ublkc{id}")))
        })
        .await?;
        let queues = Queues::new(io, volume, file, &device)?;
        let crowd = queues.serve();
        let started = aside(move || {
            let mut control = Control::open()?;
            if recovers { control.end_recovery(id) } else { control.start(id) }
        })
        .await;
        match started {
            Ok(()) => Ok(crowd),
            Err(error) => {
                // Ends the fetches, so that the device can be taken away.
                if !recovers {
                    aside(move || Control::open()?.stop(id)).await?;
                    crowd.ended().await;
                }
                Err(error)
            }
        }
    }

    /// The block device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads that went from a drive straight into the memory of their request; `None` where the driver does
    /// not lend it (before Linux 6.15).
    pub fn uncopied_reads(&self) -> Option<u64> {
        self.crowd.uncopied_reads()
    }

    /// Whether an earlier server had left the device.
    pub fn recovered(&self) -> bool {
        self.recovered
    }

    /// Whether somebody uses the device. To ask may make the kernel read from it, so requests must be
    /// served meanwhile.
    ///
    /// # Errors
    /// The thread that asks could not end.
    pub async fn is_used(&self) -> Result<bool, IoError> {
        let path = self.path.clone();
        aside(move || Ok(is_used(&path))).await
    }

    /// Ends requests under way, and takes the device away unless somebody uses it. One without a mark
    /// is taken away in any case: whoever uses it gets errors.
    ///
    /// # Errors
    /// The kernel does not let go of it.
    pub async fn shutdown(&self) -> Result<Ended, IoError> {
        if self.lasts && self.is_used().await? {
            self.crowd.leave().await;
            return Ok(Ended::Left);
        }
        self.take_away().await?;
        Ok(Ended::Removed)
    }

    /// Undoes the opening: one that was left stays, with whoever uses it.
    async fn give_up(&self) -> Result<(), IoError> {
        if self.recovered {
            self.crowd.leave().await;
            return Ok(());
        }
        self.take_away().await
    }

    async fn take_away(&self) -> Result<(), IoError> {
        let id = self.id;
        aside(move || Control::open()?.stop(id)).await?;
        self.crowd.ended().await;
        aside(move || Control::open()?.delete(id)).await
    }
}

/// Serves the requests of a device through its file, which somebody else has made and opened, until
/// the driver takes the device away: what a door does between its beginning and its end. Requests are copied.
///
/// # Errors
/// The file is not that of a device with so many queues, of so many places each.
pub async fn serve_file<V: Volume>(
    io: Io,
    volume: Rc<V>,
    file: File,
    queues: u16,
    queue_depth: u16,
) -> Result<(), IoError> {
    let device = DeviceInfo { queues, queue_depth, ..DeviceInfo::default() };
    Queues::new(io, volume, file, &device)?.serve().ended().await;
    Ok(())
}

fn describe_device(mark: Option<u64>) -> DeviceInfo {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    DeviceInfo {
        queues: processors.min(QUEUES_MAX) as u16,
        queue_depth: QUEUE_DEPTH,
        request_bytes_max: REQUEST_BYTES_MAX,
        features: if mark.is_some() { control::LASTING } else { control::PASSING },
        // Of a volume's device by a chance of one in 2^63.
        mark: mark.unwrap_or(0),
        ..DeviceInfo::default()
    }
}

fn describe_disk(info: &VolumeInfo, rotational: bool) -> Parameters {
    let mut attributes = Basic::VOLATILE_CACHE | Basic::FORCE_UNIT_ACCESS;
    if info.read_only {
        attributes |= Basic::READ_ONLY;
    }
    if rotational {
        attributes |= Basic::ROTATIONAL;
    }
    let request_bytes_max = REQUEST_BYTES_MAX.min(info.transfer_bytes_max);
    let block_shift = info.preferred_bytes.ilog2() as u8;
    let writable = !info.read_only;
    Parameters {
        bytes: size_of::<Parameters>() as u32,
        parts: Parameters::BASIC | if writable { Parameters::DISCARD } else { 0 },
        basic: Basic {
            attributes,
            logical_shift: info.sector_bytes.ilog2() as u8,
            physical_shift: block_shift,
            optimal_shift: block_shift,
            smallest_shift: block_shift,
            request_sectors_max: request_bytes_max / SECTOR_BYTES as u32,
            size_sectors: info.size_bytes / SECTOR_BYTES,
            ..Basic::default()
        },
        discard: Discard {
            granularity_bytes: info.preferred_bytes,
            discard_sectors_max: RANGE_SECTORS_MAX,
            zero_sectors_max: RANGE_SECTORS_MAX,
            discard_segments_max: 1,
            ..Discard::default()
        },
    }
}

/// Does what waits for the kernel on a thread of its own: the kernel may want answers from us
/// before it goes on.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, IoError> + Send + 'static,
) -> Result<T, IoError> {
    let (sender, mut receiver) = mailbox(1);
    std::thread::spawn(move || drop(sender.send(work())));
    match receiver.receive().await {
        Some(outcome) => outcome,
        None => Err(IoError::new(ErrorKind::Io, "the thread that speaks to ublk died")),
    }
}

/// Opens a device's file, which the kernel or udev makes some time after the device.
fn await_file(path: &Path) -> Result<File, IoError> {
    await_path(path)?;
    OpenOptions::new().read(true).write(true).open(path).map_err(|e| failed(path, &e))
}

fn await_path(path: &Path) -> Result<(), IoError> {
    let deadline = Instant::now() + APPEAR_PATIENCE;
    loop {
        match path.symlink_metadata() {
            Ok(_) => return Ok(()),
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Err(e) => return Err(failed(path, &e)),
        }
    }
}

fn failed(path: &Path, cause: &std::io::Error) -> IoError {
    let errno = cause.raw_os_error().unwrap_or(0);
    IoError::from_errno(errno, format!("opening {}", path.display()))
}
