//! A superblock.

use engine::format::superblock::{SUPERBLOCK_BYTES, Superblock};

use crate::{Seed, Target, make_checksum_right, recovery, seed};

/// Where the checksum is.
pub(crate) const CRC_AT: usize = SUPERBLOCK_BYTES - 4;

pub(crate) const TARGET: Target = Target { name: "superblock", run, seeds };

fn run(bytes: &[u8]) {
    for copy in 0..2 {
        // As it is, of whatever length.
        let _ = Superblock::decode(bytes, copy);
        let mut block = vec![0; SUPERBLOCK_BYTES];
        let length = bytes.len().min(SUPERBLOCK_BYTES);
        block[..length].copy_from_slice(&bytes[..length]);
        make_checksum_right(&mut block, CRC_AT);
        if let Ok(superblock) = Superblock::decode(&block, copy) {
            assert!(superblock.geometry.problem().is_none());
            let mut again = vec![0; SUPERBLOCK_BYTES];
            superblock.encode(&mut again, copy);
            assert_eq!(Superblock::decode(&again, copy), Ok(superblock));
        }
    }
}

fn seeds() -> Vec<Seed> {
    let of = |name, block: Vec<u8>| seed(name, &block[..512]);
    vec![
        of("fast", recovery::example_block(0, 4096)),
        of("fast-second-copy", recovery::example_block(0, 512 << 10)),
        of("slow", recovery::example_block(1, 4096)),
    ]
}
