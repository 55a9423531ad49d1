//! The file: bytes, durability, holes, and what it refuses.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use io::{ErrorKind, IoError};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate};
use rustix::io::Errno;

use crate::server::{SIZE_BYTES, Server, fio_verify, possible, run};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// A small generator; the tests need repeatable variety, not quality.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn bytes_at_any_offset_and_length_read_back_as_written() {
    if !possible("bytes_at_any_offset", &["FUSE"]) {
        return;
    }
    // A small largest transfer, so that requests are cut at odd places too.
    let server = Server::with(|volume| volume.with_transfer_max(16 << 10), false);
    let file = open(&server.file);
    let mut random = Random(99);
    let mut model = vec![0_u8; 1 << 20];
    let base = SIZE_BYTES - model.len() as u64;
    for round in 0..600_u64 {
        let start = random.below(model.len() as u64) as usize;
        let length = 1 + random.below(100_000).min(model.len() as u64 - start as u64 - 1) as usize;
        let range = start..(start + length).min(model.len());
        let at = base + range.start as u64;
        match random.below(5) {
            0 | 1 => {
                let fill = (round % 251) as u8 + 1;
                model[range.clone()].fill(fill);
                model[range.start] = !fill;
                file.write_all_at(&model[range], at).unwrap();
            }
            2 => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, flags, at, range.len() as u64).unwrap();
                model[range].fill(0);
            }
            3 => {
                fallocate(&file, FallocateFlags::ZERO_RANGE, at, range.len() as u64).unwrap();
                model[range].fill(0);
            }
            _ => {
                let mut found = vec![0; range.len()];
                file.read_exact_at(&mut found, at).unwrap();
                assert!(found == model[range.clone()], "round {round}, {range:?}");
            }
        }
    }
    let mut found = vec![0; model.len()];
    file.read_exact_at(&mut found, base).unwrap();
    assert!(found == model);
}

#[test]
fn writers_of_parts_of_one_sector_never_undo_each_other() {
    if !possible("writers_of_parts_of_one_sector", &["FUSE"]) {
        return;
    }
    const WRITERS: usize = 4;
    const LANE_BYTES: usize = 100;
    let server = Server::start();
    // Slow enough that a rewrite of a sector is interrupted by others.
    server.delay(300_000);
    let rounds = 40;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let file = open(&server.file);
            scope.spawn(move || {
                for round in 0..rounds {
                    // All in the same two sectors; the second one also by whole-sector writes.
                    let at = (writer * LANE_BYTES) as u64;
                    file.write_all_at(&[round + 1; LANE_BYTES], at).unwrap();
                    file.write_all_at(&[round + 1; 90], 512 + at).unwrap();
                }
            });
        }
    });
    let file = open(&server.file);
    let mut sectors = [0; 1024];
    file.read_exact_at(&mut sectors, 0).unwrap();
    assert_eq!(sectors[..WRITERS * LANE_BYTES], [rounds; WRITERS * LANE_BYTES]);
    for writer in 0..WRITERS {
        let start = 512 + writer * LANE_BYTES;
        assert_eq!(sectors[start..start + 90], [rounds; 90]);
        assert_eq!(sectors[start + 90..start + 100], [0; 10]);
    }
}

#[test]
fn programs_copy_through_the_file_buffered_and_direct() {
    if !possible("programs_copy", &["FUSE", "dd", "cmp"]) {
        return;
    }
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let (source, copy) = (directory.path().join("source"), directory.path().join("copy"));
    run("dd", &["if=/dev/urandom", &format!("of={}", source.display()), "bs=1M", "count=32"]);
    let (volume, source, copy) =
        (server.file.to_str().unwrap(), source.to_str().unwrap(), copy.to_str().unwrap());
    let (from, into) = (format!("if={source}"), format!("of={volume}"));
    for how in [&["bs=1M", "oflag=direct"][..], &["bs=4k"], &["bs=10007"]] {
        let mut arguments = vec![from.as_str(), into.as_str(), "conv=notrunc,fsync"];
        arguments.extend(how);
        run("dd", &arguments);
        run("cmp", &["-n", "33554432", source, volume]);
    }
    let (from, into) = (format!("if={volume}"), format!("of={copy}"));
    for how in [["bs=1M", "iflag=direct"], ["bs=4093", "iflag=fullblock"]] {
        let mut arguments = vec![from.as_str(), into.as_str()];
        arguments.extend(how);
        run("dd", &arguments);
        run("cmp", &[volume, copy]);
    }
}

#[test]
fn fio_finds_every_block_as_it_wrote_it() {
    if !possible("fio_finds_every_block", &["FUSE", "fio"]) {
        return;
    }
    let server = Server::start();
    fio_verify(&server.file);
}

#[test]
fn only_what_asks_for_durability_pays_for_it() {
    if !possible("only_what_asks_for_durability", &["FUSE"]) {
        return;
    }
    let server = Server::start();
    let file = open(&server.file);
    file.write_all_at(&[1; 4096], 0).unwrap();
    let before = server.counts();
    assert_eq!((before.flushes, before.durable), (0, 0));
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    assert_eq!(server.counts().flushes, 2);
    let durable =
        OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(&server.file).unwrap();
    durable.write_all_at(&[1; 4096], 0).unwrap();
    assert_eq!(server.counts().durable, 1);
    // The door adds a flush at each close, for programs that forget.
    drop((file, durable));
    assert_eq!(server.counts().flushes, 4);
}

#[test]
fn holes_are_found_and_copied_as_holes() {
    if !possible("holes_are_found", &["FUSE", "cp", "cmp"]) {
        return;
    }
    let server = Server::start();
    let file = open(&server.file);
    file.write_all_at(&[1; 8192], 1 << 20).unwrap();
    file.write_all_at(&[1; 4096], SIZE_BYTES - 4096).unwrap();
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(seek(SeekFrom::Data((1 << 20) + 5000)), Ok((1 << 20) + 5000));
    assert_eq!(seek(SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 8192));
    assert_eq!(seek(SeekFrom::Hole(77)), Ok(77));
    assert_eq!(seek(SeekFrom::Data(2 << 20)), Ok(SIZE_BYTES - 4096));
    assert_eq!(seek(SeekFrom::Hole(SIZE_BYTES - 1)), Ok(SIZE_BYTES));
    assert_eq!(seek(SeekFrom::Data(SIZE_BYTES)), Err(Errno::NXIO));
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    run("cp", &[server.file.to_str().unwrap(), copy.to_str().unwrap()]);
    run("cmp", &[server.file.to_str().unwrap(), copy.to_str().unwrap()]);
    let copied = std::fs::metadata(&copy).unwrap();
    assert!(copied.blocks() * 512 < SIZE_BYTES / 4, "{} bytes", copied.blocks() * 512);
    // Giving everything back leaves nothing to find.
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, SIZE_BYTES * 2)
        .unwrap();
    assert_eq!(server.blocks_used(), 0);
    assert_eq!(seek(SeekFrom::Data(0)), Err(Errno::NXIO));
}

#[test]
fn the_size_is_fixed_and_its_end_is_the_end() {
    if !possible("the_size_is_fixed", &["FUSE"]) {
        return;
    }
    let server = Server::start();
    let file = open(&server.file);
    let facts = file.metadata().unwrap();
    assert_eq!((facts.len(), facts.mode() & 0o777), (SIZE_BYTES, 0o600));
    for size in [0, SIZE_BYTES - 1, SIZE_BYTES + 1] {
        assert_eq!(file.set_len(size).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }
    file.set_len(SIZE_BYTES).unwrap();
    assert_eq!(file.write_at(&[1; 4096], SIZE_BYTES - 1000).unwrap(), 1000);
    let beyond = file.write_at(&[1; 4096], SIZE_BYTES).unwrap_err();
    assert_eq!(beyond.raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(file.read_at(&mut [0; 4096], SIZE_BYTES - 10).unwrap(), 10);
    assert_eq!(file.read_at(&mut [0; 4096], SIZE_BYTES + 10).unwrap(), 0);
    assert_eq!(file.metadata().unwrap().len(), SIZE_BYTES);
    for refused in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE] {
        assert_eq!(fallocate(&file, refused, 0, 4096), Err(Errno::OPNOTSUPP));
    }
    let grow = fallocate(&file, FallocateFlags::ZERO_RANGE, SIZE_BYTES, 4096);
    assert_eq!(grow, Err(Errno::NOSPC));
    assert!(File::create(server.directory.join("another")).is_err());
    assert!(std::fs::remove_file(&server.file).is_err());
    assert!(std::fs::rename(&server.file, server.directory.join("moved")).is_err());
    let names: Vec<_> = std::fs::read_dir(&server.directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, ["volume"]);
}

#[test]
fn failures_of_the_volume_reach_the_program() {
    if !possible("failures_of_the_volume", &["FUSE"]) {
        return;
    }
    let server = Server::start();
    let file = open(&server.file);
    for (kind, errno) in [
        (ErrorKind::Io, libc::EIO),
        (ErrorKind::Disconnected, libc::EIO),
        (ErrorKind::NoSpace, libc::ENOSPC),
        (ErrorKind::ReadOnly, libc::EROFS),
    ] {
        server.fail_with(Some(IoError::new(kind, "as the test wants")));
        assert_eq!(file.write_at(&[1; 512], 0).unwrap_err().raw_os_error(), Some(errno));
        assert_eq!(file.write_at(&[1; 5], 3).unwrap_err().raw_os_error(), Some(errno));
        assert_eq!(file.read_at(&mut [1; 512], 0).unwrap_err().raw_os_error(), Some(errno));
        assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(errno));
    }
    server.fail_with(None);
    file.write_all_at(&[1; 512], 0).unwrap();
}

#[test]
fn a_read_only_file_cannot_be_opened_for_writing() {
    if !possible("a_read_only_file", &["FUSE"]) {
        return;
    }
    for server in [Server::with(|volume| volume.read_only(), false), Server::with(|v| v, true)] {
        let refused = OpenOptions::new().write(true).open(&server.file).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
        let file = File::open(&server.file).unwrap();
        file.read_exact_at(&mut [0; 512], 0).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o400);
    }
}
