//! What Linux says of a block device: files of one value each, below `/sys`.

use std::fs;
use std::path::Path;

use super::identity::{Identity, Link, Queue};

/// A page of SCSI's that says how fast a drive turns; 1: it does not.
const TURNS_PAGE: &str = "device/vpd_pgb1";

impl Identity {
    /// What the directory of a block device, `/sys/block/…`, says of it; for a partition that of
    /// its whole disk. What cannot be read stays unknown.
    pub fn add_kernel(mut self, sysfs: &Path) -> Identity {
        let read = |name: &str| {
            let text = fs::read_to_string(sysfs.join(name)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let number = |name: &str| read(name)?.parse::<u64>().ok();
        self.model = read("device/model");
        self.firmware = read("device/firmware_rev").or_else(|| read("device/rev"));
        self.rotational = number("queue/rotational").map(|value| value != 0);
        self.rpm = turns(sysfs);
        self.sector_bytes = number("queue/logical_block_size").and_then(|n| n.try_into().ok());
        self.physical_sector_bytes =
            number("queue/physical_block_size").and_then(|n| n.try_into().ok());
        self.write_cache = read("queue/write_cache").map(|value| value == "write back");
        self.link = link(sysfs);
        self.counts_requests = sysfs.join("stat").exists();
        self.queue = Some(Queue {
            max_sectors_kb: number("queue/max_sectors_kb"),
            max_hw_sectors_kb: number("queue/max_hw_sectors_kb"),
            max_segments: number("queue/max_segments"),
            max_segment_bytes: number("queue/max_segment_size"),
            requests_max: number("queue/nr_requests"),
            device_depth: number("device/queue_depth"),
            scheduler: read("queue/scheduler").map(|text| chosen(&text)),
        });
        self.with_what_is_known()
    }
}

/// Of `none [mq-deadline]` the one in use.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(name, _)| name).to_owned()
}

fn turns(sysfs: &Path) -> Option<u32> {
    let page = fs::read(sysfs.join(TURNS_PAGE)).ok()?;
    // Bytes 4 and 5: turns a minute; 0: not told, 1: none, from 0x401 on: that many (SBC-3).
    let turns = u16::from_be_bytes([*page.get(4)?, *page.get(5)?]);
    (turns >= 0x401 && turns != u16::MAX).then(|| turns.into())
}

/// The link, found on the way from the device up to the root of all.
fn link(sysfs: &Path) -> Option<Link> {
    let whole = fs::canonicalize(sysfs).ok()?;
    let text = |path: &Path| Some(fs::read_to_string(path).ok()?.trim().to_owned());
    for place in whole.ancestors() {
        let name = place.file_name()?.to_str()?;
        if let Some(port) = name.strip_prefix("ata") {
            let link = format!("link{port}");
            let speed = text(&place.join(&link).join("ata_link").join(&link).join("sata_spd"));
            // Eight bits in ten: 6 Gb/s are 600 MB/s.
            return speed.and_then(|speed| {
                let gigabits: f64 = speed.split(' ').next()?.parse().ok()?;
                Some(Link { name: format!("SATA {speed}"), mb_s: gigabits * 100.0 })
            });
        }
        if let Some(speed) = text(&place.join("current_link_speed")) {
            let width = text(&place.join("current_link_width"))?;
            let transfers: f64 = speed.split(' ').next()?.parse().ok()?;
            let lanes: f64 = width.parse().ok()?;
            // Eight bits in ten up to 5 GT/s, 128 in 130 above.
            let share = if transfers <= 5.0 { 0.8 } else { 128.0 / 130.0 };
            let mb_s = transfers * lanes * share * 125.0;
            return Some(Link { name: format!("PCIe {speed} x{width}"), mb_s });
        }
        if place.join("bMaxPower").exists() {
            let megabits: f64 = text(&place.join("speed"))?.parse().ok()?;
            let share = if megabits < 10_000.0 { 0.8 } else { 128.0 / 132.0 };
            let mb_s = megabits / 8.0 * if megabits < 5_000.0 { 1.0 } else { share };
            return Some(Link { name: format!("USB {megabits} Mb/s"), mb_s });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str, content: impl AsRef<[u8]>) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn a_sata_disk_is_identified_down_to_its_link_and_its_limits() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("ata3/host2/target2:0:0/block/sda");
        for (name, value) in [
            ("device/model", "ST91000640NS\n"),
            ("device/rev", "SN02\n"),
            ("device/queue_depth", "31\n"),
            ("queue/rotational", "1\n"),
            ("queue/logical_block_size", "512\n"),
            ("queue/physical_block_size", "4096\n"),
            ("queue/write_cache", "write back\n"),
            ("queue/max_sectors_kb", "512\n"),
            ("queue/max_hw_sectors_kb", "32767\n"),
            ("queue/max_segments", "168\n"),
            ("queue/nr_requests", "64\n"),
            ("queue/scheduler", "none [mq-deadline]\n"),
            ("stat", "1 2 3\n"),
        ] {
            write(&disk, name, value);
        }
        write(&disk, TURNS_PAGE, [0, 0xb1, 0, 0x3c, 0x1c, 0x20, 0, 0]);
        write(root.path(), "ata3/link3/ata_link/link3/sata_spd", "6.0 Gbps\n");
        let found = Identity::unknown("/dev/sda", "block device", 1 << 40).add_kernel(&disk);
        assert_eq!(found.rpm, Some(7200));
        assert_eq!(found.link, Some(Link { name: "SATA 6.0 Gbps".to_owned(), mb_s: 600.0 }));
        assert_eq!((found.rotational, found.write_cache), (Some(true), Some(true)));
        assert_eq!((found.sector_bytes, found.physical_sector_bytes), (Some(512), Some(4096)));
        let queue = found.queue.as_ref().unwrap();
        assert_eq!((queue.max_sectors_kb, queue.max_segments), (Some(512), Some(168)));
        assert_eq!(
            (queue.device_depth, queue.scheduler.as_deref()),
            (Some(31), Some("mq-deadline"))
        );
        // A known model comes with its twin and its maker's figures.
        assert_eq!(found.known_twin.as_deref(), Some("st91000640ns"));
        assert!(found.advertised.iter().any(|one| one.unit == "rpm" && one.value == 7200.0));
        assert!(found.counts_requests);
    }

    #[test]
    fn what_the_kernel_does_not_say_stays_unknown() {
        let root = tempfile::tempdir().unwrap();
        let found = Identity::unknown("/dev/x", "block device", 1).add_kernel(root.path());
        assert_eq!((found.rpm, found.link.clone(), found.rotational), (None, None, None));
        write(root.path(), TURNS_PAGE, [0, 0xb1]);
        write(root.path(), "queue/rotational", "maybe");
        let found = Identity::unknown("/dev/x", "block device", 1).add_kernel(root.path());
        assert_eq!((found.rpm, found.rotational, found.known_twin), (None, None, None));
    }

    #[test]
    fn an_nvme_drive_tells_its_link_by_speed_and_width() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("0000:01:00.0/nvme/nvme0/nvme0n1");
        write(&disk, "queue/rotational", "0");
        write(root.path(), "0000:01:00.0/current_link_speed", "8.0 GT/s PCIe\n");
        write(root.path(), "0000:01:00.0/current_link_width", "4\n");
        let found = link(&disk).unwrap();
        assert!((found.mb_s - 3938.0).abs() < 1.0, "{found:?}");
    }
}
