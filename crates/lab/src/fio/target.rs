//! What jobs are played against: a drive, or a volume that is served.

use io::{Buf, Device, Durability, Io, IoError, Volume};

/// Something with blocks. Clones are the same thing.
#[allow(async_fn_in_trait)] // One thread: futures need not be Send.
pub trait Target: Clone + 'static {
    /// The executor of its world.
    fn io(&self) -> &Io;

    /// Size in bytes.
    fn size_bytes(&self) -> u64;

    /// Unit of access in bytes.
    fn sector_bytes(&self) -> u64;

    /// A buffer to write from.
    fn blank(&self, bytes: usize) -> Buf {
        self.io().pool().take(bytes)
    }

    /// Fills `buf` from byte `at`.
    async fn read(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>);

    /// Writes `buf` at byte `at`.
    async fn write(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>);

    /// Makes durable what was written.
    async fn flush(&self) -> Result<(), IoError>;

    /// The range is no longer needed.
    async fn trim(&self, at: u64, length: u64) -> Result<(), IoError>;
}

impl Target for Device {
    fn io(&self) -> &Io {
        Device::io(self)
    }

    fn size_bytes(&self) -> u64 {
        self.info().size_bytes
    }

    fn sector_bytes(&self) -> u64 {
        u64::from(self.info().sector_bytes)
    }

    async fn read(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>) {
        Device::read(self, at, buf).await
    }

    async fn write(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>) {
        Device::write(self, at, buf).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        Device::flush(self).await
    }

    async fn trim(&self, at: u64, length: u64) -> Result<(), IoError> {
        Device::trim(self, at, length).await
    }
}

/// A volume with the executor it runs on.
#[derive(Clone)]
pub struct Served<V> {
    io: Io,
    volume: V,
}

impl<V: Volume + Clone> Served<V> {
    /// That volume.
    pub fn new(io: Io, volume: V) -> Served<V> {
        Served { io, volume }
    }

    /// The volume itself.
    pub fn volume(&self) -> &V {
        &self.volume
    }
}

impl<V: Volume + Clone> Target for Served<V> {
    fn io(&self) -> &Io {
        &self.io
    }

    fn size_bytes(&self) -> u64 {
        self.volume.info().size_bytes
    }

    fn sector_bytes(&self) -> u64 {
        u64::from(self.volume.info().sector_bytes)
    }

    /// Zeros: simulated drives keep no memory for them, so that a terabyte can be written.
    fn blank(&self, bytes: usize) -> Buf {
        self.io.pool().take_zeroed(bytes)
    }

    async fn read(&self, mut at: u64, mut buf: Buf) -> (Buf, Result<(), IoError>) {
        let most = self.volume.info().transfer_bytes_max as usize;
        if buf.len() <= most {
            return self.volume.read(at, buf).await;
        }
        // As the doors cut what is too long for one call.
        let mut done: Option<Buf> = None;
        while !buf.is_empty() {
            let piece = buf.split_to(most.min(buf.len()));
            let length = piece.len() as u64;
            let (piece, outcome) = self.volume.read(at, piece).await;
            done = Some(joined(done, piece));
            if outcome.is_err() {
                return (joined(done, buf), outcome);
            }
            at += length;
        }
        (joined(done, buf), Ok(()))
    }

    async fn write(&self, mut at: u64, mut buf: Buf) -> (Buf, Result<(), IoError>) {
        let most = self.volume.info().transfer_bytes_max as usize;
        if buf.len() <= most {
            return self.volume.write(at, buf, Durability::Volatile).await;
        }
        let mut done: Option<Buf> = None;
        while !buf.is_empty() {
            let piece = buf.split_to(most.min(buf.len()));
            let length = piece.len() as u64;
            let (piece, outcome) = self.volume.write(at, piece, Durability::Volatile).await;
            done = Some(joined(done, piece));
            if outcome.is_err() {
                return (joined(done, buf), outcome);
            }
            at += length;
        }
        (joined(done, buf), Ok(()))
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.volume.flush().await
    }

    async fn trim(&self, at: u64, length: u64) -> Result<(), IoError> {
        self.volume.trim(at, length, Durability::Volatile).await
    }
}

fn joined(front: Option<Buf>, back: Buf) -> Buf {
    match front {
        None => back,
        Some(mut front) => {
            front.unsplit(back);
            front
        }
    }
}
