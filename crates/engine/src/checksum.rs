//! CRC-32C (Castagnoli), the checksum of everything on the drives.

use crc_fast::{CrcAlgorithm, Digest, checksum};

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of a structure that holds its own CRC: the four bytes at `hole` count as absent.
pub fn crc32c_around(bytes: &[u8], hole: usize) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..hole]);
    digest.update(&bytes[hole + 4..]);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_castagnoli_polynomial() {
        // Check value of RFC 3720 (iSCSI), appendix B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn the_hole_does_not_count() {
        let mut bytes = *b"abcd____efgh";
        let before = crc32c_around(&bytes, 4);
        bytes[4..8].copy_from_slice(b"1234");
        assert_eq!(crc32c_around(&bytes, 4), before);
        assert_eq!(before, crc32c(b"abcdefgh"));
    }
}
