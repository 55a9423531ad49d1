//! Where Btrfs keeps what it has an address of its own for: its chunk tree, as `btrfs inspect-internal` tells it.

use std::path::Path;
use std::process::Command;

use crate::failure::Failure;

/// A chunk: its own address, its length, its place on the device.
type Chunk = (u64, u64, u64);

/// The chunks of a file system on one device, by address.
pub struct BtrfsChunks(Vec<Chunk>);

impl BtrfsChunks {
    /// Those of the file system on `device`.
    pub fn read(device: &Path) -> Result<BtrfsChunks, Failure> {
        let told = Command::new("btrfs")
            .args(["inspect-internal", "dump-tree", "-t", "chunk"])
            .arg(device)
            .output()
            .map_err(|error| {
                Failure::failed(format!("btrfs does not start: {error}"))
                    .hint("it is in the package btrfs-progs; Btrfs needs it to tell places")
            })?;
        if !told.status.success() {
            let said = String::from_utf8_lossy(&told.stderr);
            return Err(Failure::failed(format!("btrfs cannot read its chunks: {}", said.trim())));
        }
        let chunks = parse_chunks(&String::from_utf8_lossy(&told.stdout));
        chunks.map(BtrfsChunks).map_err(Failure::failed)
    }

    /// Where an address is on the device, and how many bytes follow it there.
    pub fn place_of(&self, address: u64) -> Option<(u64, u64)> {
        let last = self.0.partition_point(|(start, ..)| *start <= address).checked_sub(1)?;
        let (start, length, at) = self.0[last];
        let inside = address - start;
        (inside < length).then(|| (at + inside, length - inside))
    }
}

fn parse_chunks(text: &str) -> Result<Vec<Chunk>, String> {
    let mut chunks: Vec<Chunk> = Vec::new();
    // The chunk that the lines are about: its address and its length.
    let mut current: Option<(u64, u64)> = None;
    let after = |words: &[&str], name: &str| {
        let place = words.iter().position(|word| *word == name)?;
        words.get(place + 1)?.parse::<u64>().ok()
    };
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(place) = words.iter().position(|word| *word == "CHUNK_ITEM") {
            // item 2 key (FIRST_CHUNK_TREE CHUNK_ITEM 22020096) itemoff 15975 itemsize 112
            let address = words.get(place + 1).map(|word| word.trim_end_matches(')'));
            current = address.and_then(|word| word.parse().ok()).map(|address| (address, 0));
        } else if words.contains(&"item") {
            current = None;
        } else if let Some((address, length)) = &mut current {
            if ["RAID0", "RAID10", "RAID5", "RAID6"].iter().any(|kind| line.contains(kind)) {
                return Err("Btrfs that stripes over devices is not understood".to_owned());
            }
            if words.first() == Some(&"length") {
                *length = after(&words, "length").unwrap_or(0);
            }
            // stripe 0 devid 1 offset 22020096: the first copy, if there are two.
            if words.first() == Some(&"stripe") {
                if after(&words, "devid") != Some(1) {
                    return Err("Btrfs on several devices is not understood".to_owned());
                }
                if words.get(1) == Some(&"0")
                    && let Some(at) = after(&words, "offset")
                {
                    chunks.push((*address, *length, at));
                }
            }
        }
    }
    chunks.sort_unstable();
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "btrfs-progs v6.2\nchunk tree\nleaf 22020096 items 3 free space 15781\n\
        \titem 0 key (DEV_ITEMS DEV_ITEM 1) itemoff 16185 itemsize 98\n\
        \t\tdevid 1 total_bytes 1073741824 bytes_used 239075328\n\
        \titem 1 key (FIRST_CHUNK_TREE CHUNK_ITEM 13631488) itemoff 16105 itemsize 80\n\
        \t\tlength 8388608 owner 2 stripe_len 65536 type DATA|single\n\
        \t\tio_align 65536 io_width 65536 sector_size 4096\n\
        \t\tnum_stripes 1 sub_stripes 1\n\
        \t\t\tstripe 0 devid 1 offset 13631488\n\
        \t\t\tdev_uuid 52cd\n\
        \titem 2 key (FIRST_CHUNK_TREE CHUNK_ITEM 22020096) itemoff 15993 itemsize 112\n\
        \t\tlength 8388608 owner 2 stripe_len 65536 type SYSTEM|DUP\n\
        \t\tnum_stripes 2 sub_stripes 1\n\
        \t\t\tstripe 0 devid 1 offset 32020096\n\
        \t\t\tstripe 1 devid 1 offset 40408704\n";

    #[test]
    fn addresses_of_btrfs_become_places() {
        let chunks = BtrfsChunks(parse_chunks(TREE).unwrap());
        assert_eq!(chunks.0, [(13631488, 8388608, 13631488), (22020096, 8388608, 32020096)]);
        assert_eq!(chunks.place_of(22020096 + 4096), Some((32020096 + 4096, 8388608 - 4096)));
        assert_eq!(chunks.place_of(1), None);
        assert_eq!(chunks.place_of(22020096 + 8388608), None);
        assert!(parse_chunks(&TREE.replace("DATA|single", "DATA|RAID0")).is_err());
        for stripe in [0, 1] {
            let [one, two] = [1, 2].map(|device| format!("stripe {stripe} devid {device}"));
            assert!(parse_chunks(&TREE.replace(&one, &two)).is_err());
        }
    }
}
