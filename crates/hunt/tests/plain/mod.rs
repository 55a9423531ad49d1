//! The simplest volume there is, and wrong ones: everything goes straight to the fast drive at
//! the same place. Right by construction on drives that do not tear 4 KiB; with a flaw, it is a
//! canary that the hunt must notice.

use hunt::{Prey, Scenario, Subject, Trouble, Workload};
use io::{Buf, Device, Durability, Io, IoError, Span, Volume, VolumeInfo, ZeroMode};
use twin::{DriveSpec, Latencies};

/// What is wrong with a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// A flush says it is done and is never sent.
    FlushNotSent,
    /// A flush covers only writes before the one that ended last.
    DurableNotHonoured,
    /// A trim does nothing.
    TrimIgnored,
    /// A trim is left to the drive, whose trimmed content is undefined.
    TrimTrusted,
    /// A write is reported before the drive has it.
    EarlyWrite,
    /// One write in some goes to the neighbouring block.
    Misplaced,
    /// Opening forgets a block that was written.
    ForgetfulOpen,
    /// Opening shows what is not durable yet.
    HastyOpen,
    /// A small write rewrites its block from a copy that is out of date.
    LostNeighbour,
}

pub struct Plain(pub Flaw);

#[derive(Clone)]
pub struct PlainVolume {
    drive: Device,
    flaw: Flaw,
}

impl Subject for Plain {
    type Volume = PlainVolume;

    async fn create(&self, _: &Io, fast: &Device, _: &Device) -> Result<(), String> {
        let size_bytes = fast.info().size_bytes;
        fast.write_zeroes(0, size_bytes).await.map_err(|error| error.to_string())?;
        fast.flush().await.map_err(|error| error.to_string())
    }

    async fn open(&self, io: &Io, fast: &Device, _: &Device) -> Result<PlainVolume, String> {
        if self.0 == Flaw::ForgetfulOpen {
            let zeros = io.pool().take_zeroed(4096);
            fast.write(64 << 10, zeros).await.1.map_err(|error| error.to_string())?;
        }
        // What a process that died has written may still be in the drive's cache.
        if self.0 != Flaw::HastyOpen {
            fast.flush().await.map_err(|error| error.to_string())?;
        }
        Ok(PlainVolume { drive: fast.clone(), flaw: self.0 })
    }

    async fn close(&self, volume: PlainVolume) -> Result<(), String> {
        volume.drive.flush().await.map_err(|error| error.to_string())
    }

    async fn check(&self, _: &Io, _: &Device, _: &Device) -> Result<(), String> {
        Ok(())
    }
}

impl PlainVolume {
    async fn end(&self, how: Durability) -> Result<(), IoError> {
        match how {
            Durability::Volatile => Ok(()),
            Durability::Durable if self.flaw == Flaw::DurableNotHonoured => Ok(()),
            Durability::Durable => self.drive.flush().await,
        }
    }
}

impl Prey for PlainVolume {}

impl Volume for PlainVolume {
    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            size_bytes: self.drive.info().size_bytes,
            sector_bytes: 512,
            preferred_bytes: 4096,
            transfer_bytes_max: 1 << 20,
            read_only: false,
        }
    }

    async fn read(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>) {
        self.drive.read(at, buf).await
    }

    async fn write(&self, at: u64, buf: Buf, how: Durability) -> (Buf, Result<(), IoError>) {
        let pool = self.drive.io().pool();
        let length = buf.len();
        if self.flaw == Flaw::EarlyWrite {
            drop(self.drive.write(at, buf));
            return (pool.take(length), self.end(how).await);
        }
        if self.flaw == Flaw::LostNeighbour && length < 4096 && at / 4096 == (at + 511) / 4096 {
            let block = at / 4096 * 4096;
            let (mut old, outcome) = self.drive.read(block, pool.take(4096)).await;
            if outcome.is_err() || at + length as u64 > block + 4096 {
                return self.drive.write(at, buf).await;
            }
            old[(at - block) as usize..][..length].copy_from_slice(&buf);
            let (_, outcome) = self.drive.write(block, old).await;
            return (buf, outcome.and(self.end(how).await));
        }
        let misplaced = self.flaw == Flaw::Misplaced && at % (64 << 10) == 8192;
        let (buf, outcome) = self.drive.write(if misplaced { at - 4096 } else { at }, buf).await;
        let outcome = match outcome {
            Ok(()) => self.end(how).await,
            failed => failed,
        };
        (buf, outcome)
    }

    async fn flush(&self) -> Result<(), IoError> {
        if self.flaw == Flaw::FlushNotSent { Ok(()) } else { self.drive.flush().await }
    }

    async fn trim(&self, at: u64, length: u64, how: Durability) -> Result<(), IoError> {
        match self.flaw {
            Flaw::TrimIgnored => {}
            Flaw::TrimTrusted => self.drive.trim(at, length).await?,
            _ => self.drive.write_zeroes(at, length).await?,
        }
        self.end(how).await
    }

    async fn write_zeroes(
        &self,
        at: u64,
        length: u64,
        _: ZeroMode,
        how: Durability,
    ) -> Result<(), IoError> {
        self.drive.write_zeroes(at, length).await?;
        self.end(how).await
    }

    async fn cache(&self, _: u64, _: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn places(&self, _: u64, length: u64, _: usize) -> Vec<Span> {
        vec![Span { length, place: io::Place::Fast }]
    }
}

/// Several clients at once over a small span, so that they meet.
pub fn scenario(name: &'static str, seed: u64, atomic_write_bytes: u32) -> Scenario<PlainVolume> {
    let latencies = Latencies { channels: 4, ..Latencies::flash() };
    let fast = DriveSpec { latencies, atomic_write_bytes, ..DriveSpec::fast("fast", 8 << 20) };
    let slow = DriveSpec::slow("slow", 8 << 20);
    let work = move |seed| Workload {
        seed,
        clients: 4,
        steps: 15,
        span: 0..256 << 10,
        length_bytes_max: 32 << 10,
        patient: false,
    };
    Scenario::new(name, seed, fast, slow)
        .prepare(move |stage| async move { prepared(&stage.volume, &work(seed + 1)).await })
        .act(move |stage| async move { work(seed).run(&stage.volume).await })
}

async fn prepared(volume: &hunt::Watched<PlainVolume>, workload: &Workload) -> Result<(), Trouble> {
    // Every block holds something: a forgetful volume has something to forget.
    for at in (0..256 << 10).step_by(32 << 10) {
        volume.write(at, 32 << 10, Durability::Volatile).await?;
    }
    workload.run(volume).await
}
