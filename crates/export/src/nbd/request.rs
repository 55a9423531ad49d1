//! One request: its 28 bytes, and whether this export will do it.
//!
//! * Pure functions over bytes we do not trust: any 28 bytes give a verdict, never a panic.
//! * The verdict depends on the request and the connection's [`Terms`] alone.
//! * What a request's payload holds, and carrying it out, is [`super::connection`]'s part.

use io::{Durability, VolumeInfo, ZeroMode};

use super::context::Contexts;
use super::protocol::{
    PAYLOAD_BYTES_MAX, REQUEST_BYTES, REQUEST_MAGIC, command, command_flag, error,
};

/// A request as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) flags: u16,
    pub(super) command: u16,
    /// The client's name for the request, echoed in replies.
    pub(super) cookie: u64,
    /// Byte offset.
    pub(super) at: u64,
    /// Bytes.
    pub(super) length: u32,
}

/// What both sides agreed on before the transmission phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) size_bytes: u64,
    /// Offsets and lengths are multiples of this.
    pub(super) sector_bytes: u32,
    /// Largest piece the volume takes in one call, in bytes.
    pub(super) transfer_bytes_max: u32,
    pub(super) read_only: bool,
    /// Replies to reads are structured.
    pub(super) structured: bool,
    pub(super) contexts: Contexts,
}

/// What to do for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Send the range; in one chunk if fragments are not wanted.
    Read { dont_fragment: bool },
    /// Write the payload.
    Write(Durability),
    /// End the connection.
    Disconnect,
    /// Make completed writes durable.
    Flush,
    /// Give the range up.
    Trim(Durability),
    /// Fetch the range ahead.
    Cache,
    /// Zero the range.
    WriteZeroes(ZeroMode, Durability),
    /// Describe the range; in one run if only one is wanted.
    BlockStatus { one: bool },
}

/// Why a request is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The protocol's error number.
    pub(super) error: u32,
    /// For the client's log.
    pub(super) message: &'static str,
}

impl Terms {
    pub(super) fn new(
        info: &VolumeInfo,
        read_only: bool,
        structured: bool,
        contexts: Contexts,
    ) -> Terms {
        // A volume that takes less than a sector per call could do nothing at all.
        let transfer_bytes_max = info.transfer_bytes_max.max(info.sector_bytes);
        Terms {
            size_bytes: info.size_bytes,
            sector_bytes: info.sector_bytes.max(1),
            // Floor to whole sectors, so that each cut of a request is aligned too.
            transfer_bytes_max: transfer_bytes_max - transfer_bytes_max % info.sector_bytes.max(1),
            read_only,
            structured,
            contexts,
        }
    }
}

impl Request {
    /// Reads a request; `None` when the magic is wrong, and then nothing that follows can be
    /// understood.
    pub(super) fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Request> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (flags, rest) = rest.split_first_chunk::<2>()?;
        let (command, rest) = rest.split_first_chunk::<2>()?;
        let (cookie, rest) = rest.split_first_chunk::<8>()?;
        let (at, rest) = rest.split_first_chunk::<8>()?;
        let (length, _) = rest.split_first_chunk::<4>()?;
        (u32::from_be_bytes(*magic) == REQUEST_MAGIC).then(|| Request {
            flags: u16::from_be_bytes(*flags),
            command: u16::from_be_bytes(*command),
            cookie: u64::from_be_bytes(*cookie),
            at: u64::from_be_bytes(*at),
            length: u32::from_be_bytes(*length),
        })
    }

    /// Bytes that follow the request on the wire, whether or not it is going to be done.
    pub(super) fn payload_bytes(&self) -> u32 {
        if self.command == command::WRITE { self.length } else { 0 }
    }

    /// Decides what to do.
    pub(super) fn check(&self, terms: &Terms) -> Result<Work, Refusal> {
        if self.command == command::DISC {
            return Ok(Work::Disconnect);
        }
        let allowed = command_flag::FUA
            | match self.command {
                command::READ if terms.structured => command_flag::DF,
                command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
                command::BLOCK_STATUS => command_flag::REQ_ONE,
                _ => 0,
            };
        if self.flags & !allowed != 0 {
            return refuse(error::EINVAL, "a flag does not belong to this command");
        }
        let durability = if self.flags & command_flag::FUA != 0 {
            Durability::Durable
        } else {
            Durability::Volatile
        };
        let work = match self.command {
            command::READ => Work::Read { dont_fragment: self.flags & command_flag::DF != 0 },
            command::WRITE => Work::Write(durability),
            command::FLUSH => Work::Flush,
            command::TRIM => Work::Trim(durability),
            command::CACHE => Work::Cache,
            command::WRITE_ZEROES => {
                let keep = self.flags & command_flag::NO_HOLE != 0;
                let mode = if keep { ZeroMode::Allocate } else { ZeroMode::Deallocate };
                Work::WriteZeroes(mode, durability)
            }
            command::BLOCK_STATUS => {
                Work::BlockStatus { one: self.flags & command_flag::REQ_ONE != 0 }
            }
            _ => return refuse(error::EINVAL, "unknown command"),
        };
        self.check_range(work, terms)?;
        let changes = matches!(work, Work::Write(_) | Work::Trim(_) | Work::WriteZeroes(..));
        if changes && terms.read_only {
            return refuse(error::EPERM, "the export is read-only");
        }
        // Zeros that keep their space are written out: no faster than a write of zeros.
        let fast = self.flags & command_flag::FAST_ZERO != 0;
        if fast && matches!(work, Work::WriteZeroes(ZeroMode::Allocate, _)) {
            return refuse(error::ENOTSUP, "zeroing without a hole is not fast");
        }
        Ok(work)
    }

    fn check_range(&self, work: Work, terms: &Terms) -> Result<(), Refusal> {
        if work == Work::Flush {
            return if self.at == 0 && self.length == 0 {
                Ok(())
            } else {
                refuse(error::EINVAL, "a flush has no range")
            };
        }
        if matches!(work, Work::Read { .. } | Work::Write(_)) && self.length > PAYLOAD_BYTES_MAX {
            return refuse(error::EINVAL, "longer than the maximum block size of 32 MiB");
        }
        let inside =
            self.at.checked_add(u64::from(self.length)).is_some_and(|end| end <= terms.size_bytes);
        if !inside {
            let grows = matches!(work, Work::Write(_) | Work::WriteZeroes(..));
            let error = if grows { error::ENOSPC } else { error::EINVAL };
            return refuse(error, "the range goes beyond the end of the export");
        }
        let sector = u64::from(terms.sector_bytes);
        if !self.at.is_multiple_of(sector) || !u64::from(self.length).is_multiple_of(sector) {
            return refuse(error::EINVAL, "not aligned to the minimum block size");
        }
        if let Work::BlockStatus { .. } = work {
            if !terms.contexts.any() {
                return refuse(error::EINVAL, "no metadata context was negotiated");
            }
            if self.length == 0 {
                return refuse(error::EINVAL, "nothing to describe");
            }
        }
        Ok(())
    }
}

fn refuse<T>(error: u32, message: &'static str) -> Result<T, Refusal> {
    Err(Refusal { error, message })
}

#[cfg(test)]
mod tests;
