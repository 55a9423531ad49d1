//! The memory that a front-end shares: the guest's, mapped here.
//!
//! * A region is mapped only if its file has all of it. A front-end that cuts the file afterwards
//!   ends this process at the next access, as it ends every back-end: whoever may open the socket
//!   is trusted that far.
//! * A table is never changed: another one takes its place, and whoever still uses the old one
//!   keeps its regions mapped.

use std::fs::File;
use std::sync::Arc;

use io::{ErrorKind, IoError};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// Guest memory by guest addresses.
pub(super) type GuestMemory = GuestMemoryMmap<()>;

/// Guests have memory in pages. Regions of other sizes could tear what is read in one piece, such
/// as the entries of a ring.
const PAGE_BYTES: u64 = 4096;

/// Most regions of a guest's memory. QEMU has one or two, and one for each plugged in.
pub(super) const REGIONS_MAX: usize = 64;

/// Where a region is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Region {
    /// In the guest's memory.
    pub(super) guest_at: u64,
    pub(super) length: u64,
    /// In the front-end's own address space, by which it names the places of queues.
    pub(super) front_end_at: u64,
    /// In the file.
    pub(super) file_at: u64,
}

/// The regions known now.
#[derive(Clone, Default)]
pub(super) struct MemoryTable {
    memory: Arc<GuestMemory>,
    regions: Vec<Region>,
}

impl MemoryTable {
    /// A table of these regions.
    pub(super) fn new(
        regions: impl IntoIterator<Item = (Region, File)>,
    ) -> Result<MemoryTable, IoError> {
        let mut table = MemoryTable::default();
        for (region, file) in regions {
            table = table.with(region, file)?;
        }
        Ok(table)
    }

    /// This table with one more region.
    pub(super) fn with(&self, region: Region, file: File) -> Result<MemoryTable, IoError> {
        if self.regions.len() == REGIONS_MAX {
            let message = format!("more than {REGIONS_MAX} regions of memory");
            return Err(IoError::new(ErrorKind::Range, message));
        }
        let mapped = Arc::new(map(region, file)?);
        let memory = self.memory.insert_region(mapped).map_err(|e| refused(region, &e))?;
        let mut regions = self.regions.clone();
        regions.push(region);
        Ok(MemoryTable { memory: Arc::new(memory), regions })
    }

    /// This table without a region.
    pub(super) fn without(&self, region: Region) -> Result<MemoryTable, IoError> {
        let known = |one: &Region| {
            (one.guest_at, one.length, one.front_end_at)
                == (region.guest_at, region.length, region.front_end_at)
        };
        let regions: Vec<Region> = self.regions.iter().copied().filter(|one| !known(one)).collect();
        if regions.len() == self.regions.len() {
            return Err(refused(region, &"there is no such region"));
        }
        if regions.is_empty() {
            return Ok(MemoryTable::default());
        }
        let (memory, _) = self
            .memory
            .remove_region(GuestAddress(region.guest_at), region.length)
            .map_err(|e| refused(region, &e))?;
        Ok(MemoryTable { memory: Arc::new(memory), regions })
    }

    pub(super) fn memory(&self) -> Arc<GuestMemory> {
        self.memory.clone()
    }

    /// The guest's address of what the front-end has at this address of its own.
    pub(super) fn guest_address(&self, front_end_at: u64) -> Option<GuestAddress> {
        self.regions.iter().find_map(|region| {
            let inside = front_end_at.checked_sub(region.front_end_at)?;
            (inside < region.length).then(|| GuestAddress(region.guest_at + inside))
        })
    }
}

fn map(region: Region, file: File) -> Result<GuestRegionMmap<()>, IoError> {
    if !(region.guest_at | region.length).is_multiple_of(PAGE_BYTES) {
        return Err(refused(region, &"it is not made of whole pages"));
    }
    let overflows = region.guest_at.checked_add(region.length).is_none()
        || region.front_end_at.checked_add(region.length).is_none();
    let metadata = file.metadata().map_err(|e| refused(region, &e))?;
    let end = region.file_at.checked_add(region.length);
    if region.length == 0 || overflows || end.is_none_or(|end| end > metadata.len()) {
        return Err(refused(region, &format!("its file has {} bytes", metadata.len())));
    }
    let length = usize::try_from(region.length).map_err(|e| refused(region, &e))?;
    let mapping = MmapRegion::from_file(FileOffset::new(file, region.file_at), length)
        .map_err(|e| refused(region, &e))?;
    GuestRegionMmap::new(mapping, GuestAddress(region.guest_at))
        .ok_or_else(|| refused(region, &"it does not fit the address space"))
}

fn refused(region: Region, why: &dyn std::fmt::Display) -> IoError {
    let Region { guest_at, length, file_at, .. } = region;
    IoError::new(
        ErrorKind::Range,
        format!("memory of {length} bytes at {guest_at:#x}, {file_at:#x} of its file: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use vm_memory::Bytes;

    use super::*;

    fn file(bytes: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        file
    }

    fn region(guest_at: u64, length: u64) -> Region {
        Region { guest_at, length, front_end_at: guest_at + (1 << 40), file_at: 0 }
    }

    #[test]
    fn regions_come_and_go() {
        let low = region(0, 8192);
        let high = region(1 << 32, 4096);
        let both = MemoryTable::new([(low, file(8192)), (high, file(4096))]).unwrap();
        assert_eq!(both.guest_address((1 << 40) + 8191), Some(GuestAddress(8191)));
        assert_eq!(both.guest_address((1 << 40) + 8192), None);
        assert_eq!(both.guest_address(5), None);
        both.memory().write_obj(7u8, GuestAddress(1 << 32)).unwrap();
        let one = both.without(high).unwrap();
        one.memory().write_obj(7u8, GuestAddress(1 << 32)).unwrap_err();
        assert!(one.without(high).is_err(), "it is gone");
        one.without(low).unwrap();
    }

    #[test]
    fn what_the_file_does_not_have_is_not_mapped() {
        assert!(MemoryTable::new([(region(0, 8192), file(4096))]).is_err());
        assert!(MemoryTable::new([(region(0, 0), file(4096))]).is_err());
        let beyond = Region { guest_at: u64::MAX - 4095, ..region(0, 8192) };
        assert!(MemoryTable::new([(beyond, file(8192))]).is_err());
        let overlapping = [(region(0, 8192), file(8192)), (region(4096, 8192), file(8192))];
        assert!(MemoryTable::new(overlapping).is_err());
        let odd = Region { file_at: 100, ..region(0, 4096) };
        assert!(MemoryTable::new([(odd, file(8192))]).is_err(), "not a page of the file");
    }

    #[test]
    fn a_region_that_is_not_made_of_whole_pages_is_refused() {
        assert!(MemoryTable::new([(region(0, 0x1001), file(8192))]).is_err());
        assert!(MemoryTable::new([(region(0x1001, 4096), file(8192))]).is_err());
        assert!(MemoryTable::new([(region(0x1000, 4096), file(8192))]).is_ok());
    }
}
