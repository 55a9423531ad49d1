//! The descriptor over which the kernel's FUSE driver asks and is answered.
//!
//! The library mounts and agrees with the kernel on the protocol; from then on the messages are read here, by the
//! thread that carries them out, when the ring says that there are some. So a request wakes one thread and not two,
//! and a large write's data is received into memory that a drive can take.

use std::fs::OpenOptions;
use std::io::{IoSlice, IoSliceMut};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use fuser::{Filesystem, InitFlags, KernelConfig, Session};
use io::{Io, IoError, Watch};
use rustix::fs::OFlags;
use rustix::io::{DupFlags, Errno};

use super::protocol::{ANSWER_HEADER_BYTES, WRITE_HEAD_BYTES};

/// Largest write and read the kernel sends at once: its own default limit (256 pages).
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Background requests the kernel keeps under way. Asynchronous direct I/O, which the loop driver
/// and `io_uring` clients use, counts as background: less than their queue depth slows them down.
const BACKGROUND_MAX: u16 = 256;

/// What is said to the kernel at the beginning.
pub(super) struct Greeting;

impl Filesystem for Greeting {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without it the loop driver's requests come one at a time; every kernel in use has it.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        // Refused values come back as the nearest possible one.
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        if let Err(most) = config.set_max_readahead(REQUEST_BYTES_MAX) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        Ok(())
    }
}

/// The front of a message: all of most of them, and what comes before the data of a write.
pub(super) type Head = [u8; WRITE_HEAD_BYTES];

/// What a look at the connection found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// A message of so many bytes, in the head and then in the rest.
    Message(usize),
    /// None there: [`Connection::readable`] tells when there is.
    Nothing,
    /// The mount is gone.
    Over,
}

/// See the head of the file. The kernel ends the connection when this is dropped: whoever still has the file open gets
/// errors, and does not wait for ever.
pub(super) struct Connection {
    file: OwnedFd,
    watch: Watch,
}

impl Connection {
    /// Takes over the connection of a session that must not be run itself.
    ///
    /// # Errors
    /// No descriptors are left, or the world cannot wait for them.
    pub(super) fn of(io: &Io, session: &Session<Greeting>) -> Result<Connection, IoError> {
        let failed = |cause: std::io::Error| {
            IoError::from_errno(cause.raw_os_error().unwrap_or(0), "take over a FUSE connection")
        };
        let file = session.as_fd().try_clone_to_owned().map_err(failed)?;
        let flags = rustix::fs::fcntl_getfl(&file).map_err(|errno| failed(errno.into()))?;
        rustix::fs::fcntl_setfl(&file, flags | OFlags::NONBLOCK)
            .map_err(|errno| failed(errno.into()))?;
        let watch = Watch::adopt(io, file.try_clone().map_err(failed)?)?;
        // The session itself is never dropped (see `FuseDoor`), and the connection must not last as long.
        let nothing =
            OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed)?;
        // SAFETY: the number is the session's, which lives and goes on owning it: it is not closed here.
        let kept = unsafe { OwnedFd::from_raw_fd(session.as_fd().as_raw_fd()) };
        let mut kept = ManuallyDrop::new(kept);
        rustix::io::dup3(nothing, &mut kept, DupFlags::CLOEXEC)
            .map_err(|errno| failed(errno.into()))?;
        Ok(Connection { file, watch })
    }

    /// Waits until there is a message, or the mount is gone.
    pub(super) async fn readable(&self) -> Result<(), IoError> {
        self.watch.readable().await.map(|_| ())
    }

    /// Takes the next message, without waiting. `rest` has room for [`REQUEST_BYTES_MAX`].
    ///
    /// # Errors
    /// What the kernel says beyond "later", "never mind" and "no more".
    pub(super) fn receive(&self, head: &mut Head, rest: &mut [u8]) -> Result<Received, IoError> {
        loop {
            let mut places = [IoSliceMut::new(head), IoSliceMut::new(rest)];
            return match rustix::io::readv(&self.file, &mut places) {
                Ok(bytes) => Ok(Received::Message(bytes)),
                Err(Errno::AGAIN) => Ok(Received::Nothing),
                // Given up by its client while it was handed over.
                Err(Errno::NOENT | Errno::INTR) => continue,
                Err(Errno::NODEV) => Ok(Received::Over),
                Err(errno) => {
                    Err(IoError::from_errno(errno.raw_os_error(), "a message from the FUSE driver"))
                }
            };
        }
    }

    /// Answers a message: with data, or with an errno.
    pub(super) fn answer(&self, number: u64, outcome: Result<&[u8], i32>) {
        match self.say(number, outcome) {
            // Its client has given up, or all of them have.
            Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
            // What the kernel does not take must not stay unanswered.
            Err(_) => drop(self.say(number, Err(libc::EIO))),
        }
    }

    fn say(&self, number: u64, outcome: Result<&[u8], i32>) -> Result<(), Errno> {
        let (data, error) = match outcome {
            Ok(data) => (data, 0),
            Err(errno) => (&[][..], -errno),
        };
        let mut header = [0; ANSWER_HEADER_BYTES];
        let length = ANSWER_HEADER_BYTES + data.len();
        header[..4].copy_from_slice(&(length as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&error.to_ne_bytes());
        header[8..].copy_from_slice(&number.to_ne_bytes());
        // Taken as a whole or not at all.
        rustix::io::writev(&self.file, &[IoSlice::new(&header), IoSlice::new(data)]).map(|_| ())
    }
}
