//! A volume in memory that holds the doors to the contract of [`Volume`].

use std::cell::RefCell;

use io::{Buf, Durability, IoError, Place, Span, Volume, VolumeInfo, ZeroMode};

/// Bytes of the volume.
const SIZE_BYTES: u64 = 256 << 10;
const TRANSFER_BYTES_MAX: u32 = 64 << 10;
const SECTOR_BYTES: u64 = 512;

/// Panics when a door asks for what its clients may not have.
pub(crate) struct MemoryVolume(RefCell<Vec<u8>>);

impl MemoryVolume {
    pub(crate) fn new() -> MemoryVolume {
        MemoryVolume(RefCell::new(vec![0; SIZE_BYTES as usize]))
    }

    fn zero(&self, at: u64, length: u64) {
        assert_inside(at, length);
        self.0.borrow_mut()[at as usize..][..length as usize].fill(0);
    }
}

fn assert_inside(at: u64, length: u64) {
    assert!(at.checked_add(length).is_some_and(|end| end <= SIZE_BYTES), "beyond the volume");
    assert!((at | length).is_multiple_of(SECTOR_BYTES), "not aligned");
}

fn assert_transfer(at: u64, buf: &Buf) {
    assert_inside(at, buf.len() as u64);
    assert!(buf.len() <= TRANSFER_BYTES_MAX as usize, "too much at once");
}

impl Volume for MemoryVolume {
    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            size_bytes: SIZE_BYTES,
            sector_bytes: SECTOR_BYTES as u32,
            preferred_bytes: 4096,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            read_only: false,
        }
    }

    async fn read(&self, at: u64, mut buf: Buf) -> (Buf, Result<(), IoError>) {
        assert_transfer(at, &buf);
        let length = buf.len();
        buf.copy_from_slice(&self.0.borrow()[at as usize..][..length]);
        (buf, Ok(()))
    }

    async fn write(&self, at: u64, buf: Buf, _: Durability) -> (Buf, Result<(), IoError>) {
        assert_transfer(at, &buf);
        self.0.borrow_mut()[at as usize..][..buf.len()].copy_from_slice(&buf);
        (buf, Ok(()))
    }

    async fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }

    async fn trim(&self, at: u64, length: u64, _: Durability) -> Result<(), IoError> {
        self.zero(at, length);
        Ok(())
    }

    async fn write_zeroes(
        &self,
        at: u64,
        length: u64,
        _: ZeroMode,
        _: Durability,
    ) -> Result<(), IoError> {
        self.zero(at, length);
        Ok(())
    }

    async fn cache(&self, at: u64, length: u64) -> Result<(), IoError> {
        assert_inside(at, length);
        Ok(())
    }

    fn places(&self, at: u64, length: u64, spans_max: usize) -> Vec<Span> {
        assert_inside(at, length);
        let bytes = self.0.borrow();
        let mut spans: Vec<Span> = Vec::new();
        for sector in bytes[at as usize..][..length as usize].chunks(SECTOR_BYTES as usize) {
            let hole = sector.iter().all(|byte| *byte == 0);
            let place = if hole { Place::Hole } else { Place::Fast };
            let full = spans.len() == spans_max.max(1);
            match spans.last_mut() {
                Some(last) if last.place == place => last.length += sector.len() as u64,
                _ if full => break,
                _ => spans.push(Span { length: sector.len() as u64, place }),
            }
        }
        spans
    }
}
