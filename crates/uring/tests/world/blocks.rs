//! Block devices, as loop devices.

use io::ErrorKind;
use uring::{Access, Backend};

use crate::world::scratch::Loop;
use crate::{on_both, start};

on_both!(
    a_block_device_keeps_what_was_written,
    a_block_device_in_use_is_refused,
    a_loop_device_and_its_file_keep_each_other_out,
    a_block_device_set_read_only_is_refused,
    a_block_device_with_large_sectors_says_so,
);

fn a_block_device_keeps_what_was_written(backend: Backend) {
    let Some(disk) = Loop::new(8 << 20, &[]) else { return };
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&disk.path, Access::ReadWrite).unwrap();
    assert_eq!(device.info().size_bytes, 8 << 20);
    assert_eq!(device.info().sector_bytes, 512);
    io.block_on(async {
        let mut buf = io.pool().take(1 << 20);
        buf.fill(5);
        device.write(1 << 20, buf).await.1.unwrap();
        device.write_zeroes((1 << 20) + 4096, 4096).await.unwrap();
        device.trim((1 << 20) + (512 << 10), 512 << 10).await.unwrap();
        device.flush().await.unwrap();
        let (buf, outcome) = device.read(1 << 20, io.pool().take(512 << 10)).await;
        outcome.unwrap();
        let zeros = 4096..8192;
        for (at, byte) in buf.iter().enumerate() {
            assert_eq!(*byte, if zeros.contains(&at) { 0 } else { 5 }, "byte {at}");
        }
        let error = device.read(8 << 20, io.pool().take(512)).await.1.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Range);
    });
}

fn a_block_device_in_use_is_refused(backend: Backend) {
    let Some(disk) = Loop::new(1 << 20, &[]) else { return };
    let (_io, kernel) = start(backend);
    let _first = kernel.open_device(&disk.path, Access::ReadWrite).unwrap();
    let error = kernel.open_device(&disk.path, Access::ReadWrite).err().expect("it is in use");
    assert!(error.message.contains("in use"), "{error}");
    assert!(error.message.contains(&disk.path.display().to_string()), "{error}");
}

fn a_loop_device_and_its_file_keep_each_other_out(backend: Backend) {
    let Some(disk) = Loop::new(1 << 20, &[]) else { return };
    let Some(upon) = disk.stack() else { return };
    let file = disk.file();
    // What is between them is kept by the kernel for the device upon it.
    let paths = [file.as_path(), upon.path.as_path()];
    for (number, path) in paths.into_iter().enumerate() {
        let (_io, kernel) = start(backend);
        let _first = kernel.open_device(path, Access::ReadWrite).unwrap();
        for other in paths.into_iter().enumerate().filter(|(n, _)| *n != number).map(|(_, p)| p) {
            let error = kernel.open_device(other, Access::ReadWrite).err();
            let error = error.unwrap_or_else(|| panic!("{path:?} is open, and so is {other:?}"));
            assert!(error.message.contains("in use"), "{error}");
        }
    }
}

fn a_block_device_set_read_only_is_refused(backend: Backend) {
    let Some(disk) = Loop::new(1 << 20, &["--read-only"]) else { return };
    let (io, kernel) = start(backend);
    let error = kernel.open_device(&disk.path, Access::ReadWrite).err().expect("it is read-only");
    assert_eq!(error.kind, ErrorKind::ReadOnly, "{error}");
    let device = kernel.open_device(&disk.path, Access::ReadOnly).unwrap();
    io.block_on(device.read(0, io.pool().take(4096))).1.unwrap();
}

fn a_block_device_with_large_sectors_says_so(backend: Backend) {
    let Some(disk) = Loop::new(1 << 20, &["--sector-size", "4096"]) else { return };
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&disk.path, Access::ReadWrite).unwrap();
    assert_eq!((device.info().sector_bytes, device.info().atomic_write_bytes), (4096, 4096));
    io.block_on(async {
        let error = device.write(512, io.pool().take(512)).await.1.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Range, "{error}");
        device.write(4096, io.pool().take(4096)).await.1.unwrap();
    });
}
