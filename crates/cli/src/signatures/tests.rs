use std::io::Write as _;
use std::process::Command;

use super::*;

const DRIVE_BYTES: u64 = 4 << 20;

fn blank() -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(DRIVE_BYTES).unwrap();
    file
}

#[test]
fn a_blank_drive_holds_nothing() {
    assert_eq!(find(&blank(), DRIVE_BYTES).unwrap(), []);
    assert_eq!(find(&tempfile::tempfile().unwrap(), 0).unwrap(), []);
}

#[test]
fn every_magic_of_the_table_is_found_where_it_lies_and_wiping_it_is_enough() {
    for magic in MAGICS {
        let file = blank();
        let at = place(&magic.at, DRIVE_BYTES).unwrap();
        file.write_all_at(magic.bytes, at).unwrap();
        let findings = find(&file, DRIVE_BYTES).unwrap();
        assert!(
            findings.iter().any(|finding| finding.what == magic.what && finding.at == at),
            "{} at {at}: {findings:?}",
            magic.what
        );
        for finding in findings {
            file.write_all_at(&vec![0; finding.length as usize], finding.at).unwrap();
        }
        assert_eq!(find(&file, DRIVE_BYTES).unwrap(), [], "{}", magic.what);
    }
}

#[test]
fn every_label_of_a_zfs_pool_is_found_and_wiped() {
    // Not a whole number of labels: the last two lie before the rest.
    let size = DRIVE_BYTES + 100_000;
    let label = 256 * KIB;
    for at in [0, label, DRIVE_BYTES - 2 * label, DRIVE_BYTES - label] {
        // By its uberblocks, which rot and time leave, or by its description alone.
        let mut pool =
            vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 36, 0, 0, 0, 32, 0, 0, 0, 7];
        pool.extend_from_slice(b"version\0");
        let uberblock = 0x00ba_b10c_u64.to_le_bytes().to_vec();
        for (within, bytes) in [(16 * KIB, pool), (128 * KIB + 31 * KIB, uberblock)] {
            let file = blank();
            file.set_len(size).unwrap();
            file.write_all_at(&bytes, at + within).unwrap();
            let findings = find(&file, size).unwrap();
            assert_eq!(describe(&findings), "a ZFS pool member", "{at} {within}");
            for finding in findings {
                file.write_all_at(&vec![0; finding.length as usize], finding.at).unwrap();
            }
            assert_eq!(find(&file, size).unwrap(), [], "{at} {within}");
            let mut left = vec![1; bytes.len()];
            file.read_exact_at(&mut left, at + within).unwrap();
            assert!(left.iter().all(|byte| *byte == 0), "{at} {within}");
        }
    }
}

#[test]
fn a_drive_of_odd_or_tiny_size_is_read_within_its_bounds() {
    for size in [1, 511, 512, 513, 4095, 4096, 65537, 200_001] {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![0x5a; size], 0).unwrap();
        assert_eq!(find(&file, size as u64).unwrap(), [], "{size} bytes");
    }
}

#[test]
fn partition_tables_and_boot_sectors_are_told_apart() {
    let file = blank();
    file.write_all_at(&[0x55, 0xaa], 510).unwrap();
    assert_eq!(describe(&find(&file, DRIVE_BYTES).unwrap()), "a boot sector");
    let mut entry = [0; 16];
    (entry[0], entry[4], entry[8], entry[12]) = (0x80, 0x83, 1, 99);
    file.write_all_at(&entry, 446).unwrap();
    assert_eq!(describe(&find(&file, DRIVE_BYTES).unwrap()), "a DOS partition table");
}

/// What the real tools write is what the table must know.
#[test]
fn file_systems_made_by_their_own_tools_are_recognised() {
    let tools: [(&str, &[&str], &str, u64); 4] = [
        ("mkfs.ext4", &["-q", "-F"], "ext2/3/4", 16 << 20),
        ("mkfs.xfs", &["-q", "-f"], "XFS", 320 << 20),
        ("mkfs.btrfs", &["-q", "-f"], "Btrfs", 128 << 20),
        ("mkswap", &["-q"], "swap", 16 << 20),
    ];
    for (tool, arguments, expected, size_bytes) in tools {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size_bytes).unwrap();
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let made = Command::new(tool)
            .args(arguments)
            .arg(file.path())
            .env("PATH", path)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {tool} is not installed or failed here");
            continue;
        }
        let found = describe(&find(file.as_file(), size_bytes).unwrap());
        assert!(found.contains(expected), "{tool}: {found}");
    }
}
