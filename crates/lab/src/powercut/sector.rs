//! What a written sector says: which write of which run it is of, where it belongs, when it was
//! written, and a checksum over all that.
//!
//! Units are 512 bytes, also on drives with larger sectors, so that what tears is seen.
//!
//! ```text
//! 0    8     16         24      32       40                             504   512
//! magic run   sequence   place   time ns  filler (random, incompressible) crc
//! ```

use super::plan::mix;

/// Bytes of a unit.
pub(super) const UNIT_BYTES: usize = 512;

const MAGIC: [u8; 8] = *b"BMplugTS";
const FILLER: usize = 40;
const CRC: usize = UNIT_BYTES - 8;

/// What a unit on the drive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Not of this run: never written by it, or written over.
    Foreign,
    /// Of this run and this place: written by the write of this number.
    Of(u64),
    /// Of this run, and of another place.
    Misplaced(u64),
    /// Begins like a sector of ours, and is damaged: neither old nor new.
    Damaged,
}

/// Fills `bytes` (whole units) with the content of a write at byte `at`.
pub(super) fn fill(bytes: &mut [u8], run: u64, sequence: u64, at: u64, time_ns: u64) {
    for (index, unit) in (0..).zip(bytes.as_chunks_mut::<UNIT_BYTES>().0) {
        let place = at + index * UNIT_BYTES as u64;
        unit[..8].copy_from_slice(&MAGIC);
        unit[8..16].copy_from_slice(&run.to_le_bytes());
        unit[16..24].copy_from_slice(&sequence.to_le_bytes());
        unit[24..32].copy_from_slice(&place.to_le_bytes());
        unit[32..40].copy_from_slice(&time_ns.to_le_bytes());
        let mut filler = mix(run ^ mix(sequence ^ mix(place)));
        for word in unit[FILLER..CRC].as_chunks_mut::<8>().0 {
            filler = filler.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            *word = filler.to_le_bytes();
        }
        let crc = checksum(&unit[..CRC]);
        unit[CRC..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Reads a unit found at byte `at`.
pub(super) fn read(unit: &[u8; UNIT_BYTES], run: u64, at: u64) -> Unit {
    let word = |at: usize| u64::from_le_bytes(unit[at..at + 8].try_into().expect("eight bytes"));
    if unit[..8] != MAGIC || word(8) != run {
        return Unit::Foreign;
    }
    if word(CRC) != checksum(&unit[..CRC]) {
        return Unit::Damaged;
    }
    let sequence = word(16);
    if word(24) == at { Unit::Of(sequence) } else { Unit::Misplaced(sequence) }
}

fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_tells_what_it_is_and_every_flipped_bit_is_seen() {
        let mut bytes = [0; 2 * UNIT_BYTES];
        fill(&mut bytes, 5, 77, 8192, 1);
        let units = bytes.as_chunks::<UNIT_BYTES>().0;
        assert_eq!(read(&units[0], 5, 8192), Unit::Of(77));
        assert_eq!(read(&units[1], 5, 8704), Unit::Of(77));
        assert_eq!(read(&units[1], 5, 8192), Unit::Misplaced(77));
        assert_eq!(read(&units[0], 6, 8192), Unit::Foreign);
        assert_eq!(read(&[0; UNIT_BYTES], 5, 0), Unit::Foreign);
        for byte in 0..UNIT_BYTES {
            let mut unit = units[0];
            unit[byte] ^= 4;
            assert!(matches!(read(&unit, 5, 8192), Unit::Damaged | Unit::Foreign), "{byte}");
        }
        // Half old, half new.
        let mut torn = units[0];
        fill(&mut bytes, 5, 78, 8192, 2);
        torn[256..].copy_from_slice(&bytes[256..512]);
        assert_eq!(read(&torn, 5, 8192), Unit::Damaged);
    }
}
