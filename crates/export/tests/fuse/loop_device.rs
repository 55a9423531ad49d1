//! The block device made of the file: a real file system, discards, flushes, detaching.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use export::fuse::{Unmount, loop_device};

use crate::server::{LoopGuard, MountGuard, SIZE_BYTES, Server, fio_verify, possible, run};

const NEEDS: [&str; 3] = ["FUSE", "root", "loop driver"];

fn needs<'a>(tools: &[&'a str]) -> Vec<&'a str> {
    NEEDS.into_iter().chain(tools.iter().copied()).collect()
}

#[test]
fn a_device_appears_and_goes_without_a_trace() {
    if !possible("a_device_appears_and_goes", &NEEDS) {
        return;
    }
    let server = Server::start();
    for sector_bytes in [512, 4096] {
        let device = LoopGuard::attach(&server.file, sector_bytes);
        assert_eq!(loop_device::find_by_backing(&server.file).unwrap(), [device.0.as_path()]);
        let name = device.0.file_name().unwrap().to_str().unwrap();
        let queue = format!("/sys/block/{name}/queue/logical_block_size");
        let reported = std::fs::read_to_string(queue).unwrap();
        assert_eq!(reported.trim(), sector_bytes.to_string());
        let busy = server.unmount(Unmount::WhenUnused).unwrap_err();
        assert!(busy.message.contains(device.0.to_str().unwrap()), "{busy}");
        let other = loop_device::detach_from(Path::new("/another/file"), &device.0).unwrap_err();
        assert!(other.message.contains("not a loop device in use"), "{other}");
        loop_device::detach_from(&server.file, &device.0).unwrap();
        assert!(loop_device::find_by_backing(&server.file).unwrap().is_empty());
        let again = loop_device::detach_from(&server.file, &device.0).unwrap_err();
        assert!(again.message.contains("not a loop device in use"), "{again}");
    }
    server.unmount(Unmount::WhenUnused).unwrap();
}

#[test]
fn a_held_device_is_named_busy_and_goes_when_released() {
    if !possible("a_held_device", &NEEDS) {
        return;
    }
    let server = Server::start();
    let device = LoopGuard::attach(&server.file, 512);
    let missing = loop_device::attach(Path::new("/nowhere/file"), Default::default()).unwrap_err();
    assert!(missing.message.contains("/nowhere/file"), "{missing}");
    let not_loop = loop_device::detach(&server.file).unwrap_err();
    assert!(not_loop.message.contains("not a loop device"), "{not_loop}");
    let holder = File::open(&device.0).unwrap();
    let path = device.0.clone();
    let detaching = std::thread::spawn(move || loop_device::detach(&path));
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(!detaching.is_finished());
    drop(holder);
    detaching.join().unwrap().unwrap();
}

#[test]
fn fio_finds_every_block_of_the_device_as_it_wrote_it() {
    if !possible("fio_finds_every_block_of_the_device", &needs(&["fio"])) {
        return;
    }
    let server = Server::start();
    let device = LoopGuard::attach(&server.file, 512);
    fio_verify(&device.0);
}

#[test]
fn a_file_system_lives_on_the_device_and_is_clean_afterwards() {
    let tools = ["mkfs.ext4", "fsck.ext4", "cp", "diff", "fstrim"];
    if !possible("a_file_system_lives_on_the_device", &needs(&tools)) {
        return;
    }
    let server = Server::start();
    let device = LoopGuard::attach(&server.file, 4096);
    let path = device.0.to_str().unwrap();
    run("mkfs.ext4", &["-q", path]);
    let tree = tempfile::tempdir().unwrap();
    let tree = tree.path();
    for number in 0..500_usize {
        let directory = tree.join(format!("{}/{}", number % 7, number % 31));
        std::fs::create_dir_all(&directory).unwrap();
        // From nothing to a few blocks, and now and then a large one.
        let length = number * number % 20_011 * if number % 50 == 0 { 40 } else { 1 };
        std::fs::write(directory.join(number.to_string()), vec![number as u8; length]).unwrap();
    }
    {
        let mounted = MountGuard::mount(&device.0);
        let copy = mounted.path().join("copy");
        run("cp", &["-r", tree.to_str().unwrap(), copy.to_str().unwrap()]);
        std::fs::write(mounted.path().join("large"), vec![7; 20 << 20]).unwrap();
        let mounted_path = mounted.path().to_str().unwrap();
        run("sync", &["-f", mounted_path]);
        let busy = loop_device::detach(&device.0).unwrap_err();
        assert!(busy.message.contains(mounted_path), "{busy}");
        let full = server.blocks_used();
        std::fs::remove_file(mounted.path().join("large")).unwrap();
        run("sync", &["-f", mounted_path]);
        run("fstrim", &[mounted_path]);
        assert!(server.blocks_used() + 4000 < full, "{} of {full}", server.blocks_used());
        run("umount", &[mounted_path]);
    }
    run("fsck.ext4", &["-fn", path]);
    let mounted = MountGuard::mount(&device.0);
    run("diff", &["-r", tree.to_str().unwrap(), mounted.path().join("copy").to_str().unwrap()]);
}

#[test]
fn discards_become_holes_and_zeros() {
    if !possible("discards_become_holes", &needs(&["blkdiscard"])) {
        return;
    }
    let server = Server::start();
    let device = LoopGuard::attach(&server.file, 512);
    let path = device.0.to_str().unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&server.file).unwrap();
    file.write_all_at(&vec![9; 8 << 20], 0).unwrap();
    run("blkdiscard", &["--offset", "1048576", "--length", "2097152", path]);
    run("blkdiscard", &["--zeroout", "--offset", "4194304", "--length", "1048576", path]);
    let mut found = vec![1; 8 << 20];
    file.read_exact_at(&mut found, 0).unwrap();
    for (index, mebibyte) in found.chunks(1 << 20).enumerate() {
        let expected = if matches!(index, 1 | 2 | 4) { 0 } else { 9 };
        assert!(mebibyte.iter().all(|byte| *byte == expected), "mebibyte {index}");
    }
    run("blkdiscard", &["--force", path]);
    assert_eq!(server.blocks_used(), 0);
    assert_eq!(file.metadata().unwrap().len(), SIZE_BYTES);
}

#[test]
fn a_flush_of_the_device_is_one_flush_of_the_volume() {
    if !possible("a_flush_of_the_device", &NEEDS) {
        return;
    }
    let server = Server::start();
    let device = LoopGuard::attach(&server.file, 512);
    let block = OpenOptions::new().read(true).write(true).open(&device.0).unwrap();
    block.write_all_at(&[5; 4096], 8192).unwrap();
    let before = server.counts().flushes;
    block.sync_all().unwrap();
    assert_eq!(server.counts().flushes, before + 1);
    let mut found = [0; 4096];
    File::open(&server.file).unwrap().read_exact_at(&mut found, 8192).unwrap();
    assert_eq!(found, [5; 4096]);
}
