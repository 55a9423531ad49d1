//! The doors at which servers are compared, and who takes part at each.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use clap::ValueEnum;

use super::server::Kind;
use super::steps::{Client, Mix, Step};

/// Larger requests than this are not asked for at the vhost-user door: its client keeps each in one piece.
const VHOST_BLOCK_BYTES_MAX: u64 = 128 << 10;

/// How clients reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// A unix socket.
    Nbd,
    /// The same over TCP, within this machine.
    NbdTcp,
    /// One large file, opened past the page cache.
    Fuse,
    /// Queues in memory that is shared with a guest.
    VhostUser,
    /// A unix socket, and behind the server a simulated disk that takes the time of a real one: what a miss
    /// costs, and what a fast drive of a quarter of the span saves.
    PacedDisk,
    /// A unix socket, and drives that are files in memory: what the servers themselves cost.
    Memory,
}

impl Door {
    /// Who takes part, in the order of the tables' columns.
    pub fn contestants(self) -> &'static [Kind] {
        match self {
            Door::Nbd => &[
                Kind::Bimetal,
                Kind::BimetalBehind,
                Kind::NbdkitNoCache,
                Kind::QemuNoCache,
                Kind::QemuStorage,
                Kind::Nbdkit,
                Kind::Qemu,
            ],
            Door::NbdTcp => {
                &[Kind::Bimetal, Kind::NbdkitNoCache, Kind::QemuNoCache, Kind::QemuStorage]
            }
            Door::Fuse | Door::VhostUser => &[Kind::Bimetal, Kind::QemuStorage],
            Door::PacedDisk => &[Kind::Bimetal, Kind::QemuNoCache],
            Door::Memory => &[Kind::Bimetal, Kind::DoorAlone, Kind::NbdkitMemory],
        }
    }

    /// Whether a row can be asked for here.
    pub fn takes(self, step: &Step) -> bool {
        if step.paced != (self == Door::PacedDisk) {
            return false;
        }
        match self {
            Door::Nbd | Door::PacedDisk => true,
            Door::NbdTcp | Door::Fuse => step.client == Client::Fio,
            Door::VhostUser => {
                step.client == Client::Fio
                    && step.jobs == 1
                    && step.depth <= 32
                    && step.mix != Mix::SevenToThree
                    && step.block_bytes <= VHOST_BLOCK_BYTES_MAX
            }
            Door::Memory => step.client == Client::Lean || step.depth == 1 && !step.flush,
        }
    }

    /// The address at `entrance`, where that is none in the file system.
    pub fn address(self, entrance: &Path) -> Option<SocketAddr> {
        let text = (self == Door::NbdTcp).then(|| entrance.to_str()).flatten()?;
        Some(text.parse().expect("made of an address"))
    }
}

impl fmt::Display for Door {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Door::Nbd => "NBD",
            Door::NbdTcp => "NBD over TCP",
            Door::Fuse => "FUSE",
            Door::VhostUser => "vhost-user",
            Door::PacedDisk => "a paced disk",
            Door::Memory => "NBD on memory",
        })
    }
}
