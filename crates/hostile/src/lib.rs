//! Bytes that somebody else wrote, for every decoder: one [`Target`] per kind.
//!
//! * A target takes any bytes. It panics when the decoder does, when what was accepted does not
//!   come back the same, and when a conversation never ends.
//! * Checksums are made right before a decoder sees the bytes: what matters is what stands behind
//!   them, and no search finds a CRC.
//! * Seeds are real structures, made by the code that writes them. `cargo run -p bimetal-hostile
//!   --example seeds` puts them into `fuzz/seeds`, where the fuzzer begins and a plain test replays.
//!
//! [`damage`] is the other half: sound volumes, damaged byte by byte, and an oracle of what may
//! come of it. `docs/hunting.md` says how to run both.

mod control;
pub mod damage;
#[allow(dead_code, unreachable_pub)] // A file of the command, of which only its errors are needed.
#[path = "../../cli/src/failure.rs"]
mod failure;
mod heat_page;
mod map_page;
mod memory;
mod nbd;
mod psk;
mod record;
mod recovery;
mod superblock;
mod toml_file;
#[allow(dead_code, unreachable_pub, missing_docs)] // A file of the command: what it parses.
#[path = "../../cli/src/volume_file.rs"]
mod volume_file;
#[allow(dead_code, unreachable_pub, missing_docs)] // A file of the command: what it parses.
#[path = "../../cli/src/volume_name.rs"]
mod volume_name;
mod wire;

use crc_fast::{CrcAlgorithm, Digest};

/// A decoder, and bytes to begin with.
#[derive(Clone, Copy)]
pub struct Target {
    /// As the fuzzer and its directories call it.
    pub name: &'static str,
    /// Decodes any bytes.
    ///
    /// # Panics
    /// When the decoder is wrong.
    pub run: fn(&[u8]),
    /// Real inputs, each with a name.
    pub seeds: fn() -> Vec<Seed>,
}

/// An input and its name.
pub type Seed = (String, Vec<u8>);

/// Every decoder of bytes that bimetal has not written itself.
pub const TARGETS: &[Target] = &[
    superblock::TARGET,
    map_page::TARGET,
    heat_page::TARGET,
    record::TARGET,
    recovery::TARGET,
    nbd::HANDSHAKE,
    nbd::TRANSMISSION,
    control::TARGET,
    psk::TARGET,
    toml_file::TARGET,
];

/// Runs the target of that name.
///
/// # Panics
/// When there is none, or the decoder is wrong.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("a target of this name").run)(bytes);
}

/// Puts the CRC-32C of all other bytes into the four at `at`.
fn make_checksum_right(bytes: &mut [u8], at: usize) {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..at]);
    digest.update(&bytes[at + 4..]);
    bytes[at..at + 4].copy_from_slice(&(digest.finalize() as u32).to_le_bytes());
}

fn seed(name: &str, bytes: impl Into<Vec<u8>>) -> Seed {
    (name.to_owned(), bytes.into())
}
