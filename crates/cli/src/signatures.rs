//! What a drive already holds: file systems, partition tables, members of other volumes.
//!
//! * A table of magics, in the manner of libblkid, so that `create` can refuse on a machine
//!   where no such library or tool is installed.
//! * Errs on the side of finding something: a refusal costs a flag, a mistake costs the data.
//! * It names what was found and where its magic lies, so that `create --force` can wipe it and
//!   no other tool takes the drive for what it was.
//!
//! bimetal's own superblocks are not looked for here: [`crate::members`] reads those.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Something that was recognised on a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// In words, such as "an ext2/3/4 file system".
    pub what: String,
    /// Where its magic is, in bytes from the start of the drive.
    pub at: u64,
    /// Length of the magic in bytes.
    pub length: u64,
}

enum At {
    Start(u64),
    /// From the end of the drive, counted in bytes from the last multiple of the alignment.
    End {
        back: u64,
        align: u64,
    },
}

struct Magic {
    what: &'static str,
    at: At,
    bytes: &'static [u8],
}

const fn start(what: &'static str, at: u64, bytes: &'static [u8]) -> Magic {
    Magic { what, at: At::Start(at), bytes }
}

const KIB: u64 = 1024;
const LUKS: &str = "a LUKS encrypted volume";
const RAID: &str = "a member of a Linux software RAID";
const LVM: &str = "an LVM physical volume";
const SWAP: &str = "swap space";
const GPT: &str = "a GPT partition table";
const RAID_MAGIC: &[u8] = &0xa92b_4efcu32.to_le_bytes();

/// Magics that are proof enough by themselves.
const MAGICS: &[Magic] = &[
    start("an ext2/3/4 file system", KIB + 0x38, b"\x53\xef"),
    start("an XFS file system", 0, b"XFSB"),
    start("a Btrfs file system", 64 * KIB + 64, b"_BHRfS_M"),
    start("an F2FS file system", KIB, b"\x10\x20\xf5\xf2"),
    start("an exFAT file system", 3, b"EXFAT   "),
    start("an NTFS file system", 3, b"NTFS    "),
    start("a BitLocker volume", 3, b"-FVE-FS-"),
    start("a FAT file system", 0x36, b"FAT12   "),
    start("a FAT file system", 0x36, b"FAT16   "),
    start("a FAT file system", 0x52, b"FAT32   "),
    start("an ISO 9660 image", 32 * KIB + 1, b"CD001"),
    start("a SquashFS file system", 0, b"hsqs"),
    start("an EROFS file system", KIB, b"\xe2\xe1\xf5\xe0"),
    start("a JFS file system", 32 * KIB, b"JFS1"),
    start("a ReiserFS file system", 64 * KIB + 52, b"ReIsEr"),
    start("a NILFS2 file system", KIB + 6, b"\x34\x34"),
    start("an OCFS2 file system", 8 * KIB, b"OCFSV2"),
    start("a GFS2 file system", 64 * KIB, b"\x01\x16\x19\x70"),
    start("an APFS container", 32, b"NXSB"),
    start("an HFS+ file system", KIB, b"H+\x00\x04"),
    start("an HFS+ file system", KIB, b"HX\x00\x05"),
    start(LUKS, 0, b"LUKS\xba\xbe"),
    start(LUKS, 16 * KIB, b"SKUL\xba\xbe"),
    start(LVM, 0, b"LABELONE"),
    start(LVM, 512, b"LABELONE"),
    start(LVM, 1024, b"LABELONE"),
    start(LVM, 1536, b"LABELONE"),
    start(RAID, 0, RAID_MAGIC),
    start(RAID, 4 * KIB, RAID_MAGIC),
    Magic { what: RAID, at: At::End { back: 8 * KIB, align: 4 * KIB }, bytes: RAID_MAGIC },
    Magic { what: RAID, at: At::End { back: 64 * KIB, align: 64 * KIB }, bytes: RAID_MAGIC },
    start(SWAP, 4 * KIB - 10, b"SWAPSPACE2"),
    start(SWAP, 16 * KIB - 10, b"SWAPSPACE2"),
    start(SWAP, 64 * KIB - 10, b"SWAPSPACE2"),
    start(SWAP, 4 * KIB - 10, b"SWAP-SPACE"),
    start(
        "a bcache member",
        4 * KIB + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    start(
        "a bcachefs member",
        4 * KIB + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    start("a Stratis pool member", 4 * KIB + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    start("a VDO volume", 0, b"dmvdo001"),
    start("a dm-integrity volume", 0, b"integrt\x00"),
    start("a Ceph OSD", 0, b"bluestore block device"),
    start("a qcow2 image", 0, b"QFI\xfb"),
    start("a VMDK image", 0, b"KDMV"),
    start("a VHDX image", 0, b"vhdxfile"),
    start(GPT, 512, b"EFI PART"),
    start(GPT, 4 * KIB, b"EFI PART"),
    Magic { what: GPT, at: At::End { back: 512, align: 512 }, bytes: b"EFI PART" },
    Magic { what: GPT, at: At::End { back: 4 * KIB, align: 4 * KIB }, bytes: b"EFI PART" },
];

/// Looks for everything known. The findings are in the order of the table; the same thing may be
/// found twice (a GPT has two headers).
pub fn find(drive: &File, size_bytes: u64) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for magic in MAGICS {
        let Some(at) = place(&magic.at, size_bytes) else { continue };
        if read(drive, at, magic.bytes.len(), size_bytes)?.is_some_and(|b| b == magic.bytes) {
            findings.push(Finding {
                what: magic.what.to_owned(),
                at,
                length: magic.bytes.len() as u64,
            });
        }
    }
    find_zfs(drive, size_bytes, &mut findings)?;
    if !findings.iter().any(|finding| finding.at < 512) {
        // The boot sectors of FAT and NTFS end like a partition table: look only without those.
        find_partition_table(drive, size_bytes, &mut findings)?;
    }
    Ok(findings)
}

/// The things found, each named once, as a list for a sentence.
pub fn describe(findings: &[Finding]) -> String {
    let mut names: Vec<&str> = findings.iter().map(|finding| finding.what.as_str()).collect();
    names.dedup();
    names.join(", ")
}

fn place(at: &At, size_bytes: u64) -> Option<u64> {
    match *at {
        At::Start(at) => Some(at),
        At::End { back, align } => (size_bytes / align * align).checked_sub(back),
    }
}

/// `None` when the range is not inside the drive.
fn read(drive: &File, at: u64, length: usize, size_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    if at.checked_add(length as u64).is_none_or(|end| end > size_bytes) {
        return Ok(None);
    }
    let mut bytes = vec![0; length];
    drive.read_exact_at(&mut bytes, at)?;
    Ok(Some(bytes))
}

/// A pool member has four labels, two at the beginning and two at the end, any of which tells of the pool.
/// The second half of each is a ring of uberblocks, before which the pool is described.
fn find_zfs(drive: &File, size_bytes: u64, findings: &mut Vec<Finding>) -> io::Result<()> {
    const LABEL_BYTES: u64 = 256 * KIB;
    const POOL_AT: u64 = 16 * KIB;
    const POOL_BYTES: u64 = 112 * KIB;
    const RING_AT: u64 = 128 * KIB;
    const UBERBLOCK_MAGIC: u64 = 0x00ba_b10c;
    let end = size_bytes / LABEL_BYTES * LABEL_BYTES;
    let last = [2, 1].map(|back| end.checked_sub(back * LABEL_BYTES));
    let mut labels: Vec<u64> =
        [Some(0), Some(LABEL_BYTES)].into_iter().chain(last).flatten().collect();
    // On a small drive they fall together.
    labels.sort_unstable();
    labels.dedup();
    for label in labels {
        let Some(bytes) = read(drive, label, LABEL_BYTES as usize, size_bytes)? else { continue };
        let mut found = |at: u64, length: u64| {
            findings.push(Finding { what: "a ZFS pool member".to_owned(), at: label + at, length });
        };
        // A packed list of names and values, the first of which is the version.
        let pool = &bytes[POOL_AT as usize..];
        if matches!(pool[..4], [0 | 1, 0 | 1, 0, 0]) && pool[24..].starts_with(b"version\0") {
            found(POOL_AT, POOL_BYTES);
        }
        for (index, uberblock) in bytes[RING_AT as usize..].chunks_exact(1024).enumerate() {
            let magic = [UBERBLOCK_MAGIC.to_le_bytes(), UBERBLOCK_MAGIC.to_be_bytes()];
            if magic.iter().any(|magic| uberblock.starts_with(magic)) {
                found(RING_AT + index as u64 * KIB, 8);
            }
        }
    }
    Ok(())
}

/// A DOS partition table has no magic of its own but the boot mark: its entries must make sense.
fn find_partition_table(
    drive: &File,
    size_bytes: u64,
    findings: &mut Vec<Finding>,
) -> io::Result<()> {
    let Some(sector) = read(drive, 0, 512, size_bytes)? else { return Ok(()) };
    if sector[510..] != [0x55, 0xaa] {
        return Ok(());
    }
    let entries = || sector[446..510].chunks_exact(16);
    let sane = entries().all(|entry| matches!(entry[0], 0x00 | 0x80));
    let used = entries().any(|entry| entry[4] != 0 && entry[12..16] != [0; 4]);
    if sane && used {
        findings.push(Finding { what: "a DOS partition table".to_owned(), at: 446, length: 66 });
    } else {
        findings.push(Finding { what: "a boot sector".to_owned(), at: 510, length: 2 });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
