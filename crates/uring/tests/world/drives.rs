//! Transfers: what is written is read, whole, in any number, and errors say where.

use io::{ErrorKind, HEADROOM_BYTES};
use uring::{Access, Backend};

use crate::world::scratch::{Scratch, TinyFileSystem};
use crate::{on_both, start};

on_both!(
    what_was_written_is_read_back,
    hundreds_of_operations_fly_at_once,
    buffers_beyond_the_arena_work_like_those_in_it,
    parts_of_one_buffer_are_read_side_by_side,
    a_header_put_in_front_is_written_with_its_data,
    what_does_not_fit_the_drive_is_refused,
    a_file_that_shrank_is_noticed,
    a_full_file_system_is_told_apart,
    trimmed_and_zeroed_ranges_read_as_zeros,
    dropped_operations_are_carried_out_all_the_same,
    a_file_system_without_direct_access_will_do,
    a_busy_task_does_not_starve_transfers,
);

fn what_was_written_is_read_back(backend: Backend) {
    let file = Scratch::new(1 << 20);
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    io.block_on(async {
        let mut buf = io.pool().take(8192);
        buf.fill(7);
        let (buf, outcome) = device.write(4096, buf).await;
        outcome.unwrap();
        device.flush().await.unwrap();
        drop(buf);
        let (buf, outcome) = device.read(0, io.pool().take_zeroed(16384)).await;
        outcome.unwrap();
        assert!(buf[..4096].iter().all(|byte| *byte == 0));
        assert!(buf[4096..12288].iter().all(|byte| *byte == 7));
        assert!(buf[12288..].iter().all(|byte| *byte == 0));
    });
    assert_eq!(std::fs::read(file.path()).unwrap()[4096], 7);
}

fn hundreds_of_operations_fly_at_once(backend: Backend) {
    const COUNT: u64 = 500;
    let file = Scratch::new(COUNT * 4096);
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    io.block_on(async {
        // Many more than the queue of 16 entries and its 64 completions hold.
        let writes: Vec<_> = (0..COUNT)
            .map(|block| {
                let mut buf = io.pool().take(4096);
                buf.fill(block as u8);
                device.write(block * 4096, buf)
            })
            .collect();
        for write in writes {
            write.await.1.unwrap();
        }
        let reads: Vec<_> =
            (0..COUNT).map(|block| device.read(block * 4096, io.pool().take(4096))).collect();
        for (block, read) in reads.into_iter().enumerate() {
            let (buf, outcome) = read.await;
            outcome.unwrap();
            assert!(buf.iter().all(|byte| *byte == block as u8), "block {block}");
        }
    });
    assert_eq!(io.in_flight(), 0);
}

fn buffers_beyond_the_arena_work_like_those_in_it(backend: Backend) {
    let file = Scratch::new(16 << 20);
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    io.block_on(async {
        let mut buf = io.pool().take(16 << 20);
        assert!(!buf.in_arena());
        for (index, byte) in buf.iter_mut().enumerate() {
            *byte = (index >> 12) as u8;
        }
        let (mut buf, outcome) = device.write(0, buf).await;
        outcome.unwrap();
        buf.fill(0);
        let (buf, outcome) = device.read(0, buf).await;
        outcome.unwrap();
        assert!(buf.iter().enumerate().all(|(index, byte)| *byte == (index >> 12) as u8));
    });
}

fn parts_of_one_buffer_are_read_side_by_side(backend: Backend) {
    let file = Scratch::new(64 << 10);
    let content: Vec<u8> = (0..64 << 10).map(|at| (at >> 9) as u8).collect();
    std::fs::write(file.path(), content).unwrap();
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    let sector = u64::from(device.info().sector_bytes);
    io.block_on(async {
        let mut rest = io.pool().take(8 * sector as usize);
        let parts: Vec<_> = (0..8)
            .map(|part| device.read((7 - part) * sector, rest.split_to(sector as usize)))
            .collect();
        for (part, read) in parts.into_iter().enumerate() {
            let (buf, outcome) = read.await;
            outcome.unwrap();
            assert_eq!(buf[0], (((7 - part as u64) * sector) >> 9) as u8);
        }
    });
}

fn a_header_put_in_front_is_written_with_its_data(backend: Backend) {
    let file = Scratch::new(64 << 10);
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    io.block_on(async {
        let mut buf = io.pool().take(4096);
        buf.fill(2);
        buf.grow_front(HEADROOM_BYTES);
        buf[..HEADROOM_BYTES].fill(1);
        device.write(4096, buf).await.1.unwrap();
    });
    let content = std::fs::read(file.path()).unwrap();
    assert_eq!((content[4095], content[4096], content[8192], content[12288]), (0, 1, 2, 0));
}

fn what_does_not_fit_the_drive_is_refused(backend: Backend) {
    let file = Scratch::new((64 << 10) + 100);
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    let size = device.info().size_bytes;
    assert_eq!(size, 64 << 10, "a partial sector at the end does not count");
    let shown = file.path().display().to_string();
    io.block_on(async {
        let refuse = |error: io::IoError, at: u64| {
            assert_eq!(error.kind, ErrorKind::Range, "{error}");
            assert!(error.message.contains(&shown), "{error}");
            assert!(error.message.contains(&at.to_string()), "{error}");
        };
        for at in [size - 4096, size, u64::MAX - 8191] {
            refuse(device.read(at, io.pool().take(8192)).await.1.unwrap_err(), at);
            refuse(device.write(at, io.pool().take(8192)).await.1.unwrap_err(), at);
            refuse(device.trim(at, 8192).await.unwrap_err(), at);
            refuse(device.write_zeroes(at, 8192).await.unwrap_err(), at);
        }
        refuse(device.read(100, io.pool().take(4096)).await.1.unwrap_err(), 100);
        refuse(device.write(0, io.pool().take(4095)).await.1.unwrap_err(), 0);
        device.read(size, io.pool().take(0)).await.1.unwrap();
        device.write(size - 4096, io.pool().take(4096)).await.1.unwrap();
    });
    assert_eq!(std::fs::metadata(file.path()).unwrap().len(), (64 << 10) + 100);
}

fn a_file_that_shrank_is_noticed(backend: Backend) {
    let file = Scratch::new(64 << 10);
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    let shrinking = std::fs::File::options().write(true).open(file.path()).unwrap();
    shrinking.set_len(10_000).unwrap();
    io.block_on(async {
        let (buf, outcome) = device.read(4096, io.pool().take(16384)).await;
        let error = outcome.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");
        assert!(error.message.contains("shorter"), "{error}");
        assert_eq!(buf.len(), 16384, "the buffer comes back whole");
        device.read(0, io.pool().take(4096)).await.1.unwrap();
    });
}

fn a_full_file_system_is_told_apart(backend: Backend) {
    let Some(tiny) = TinyFileSystem::new(1 << 20) else { return };
    let path = tiny.path().join("drive.img");
    std::fs::File::create(&path).and_then(|file| file.set_len(8 << 20)).unwrap();
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&path, Access::ReadWrite).unwrap();
    let error = io.block_on(async {
        for at in (0..8 << 20).step_by(64 << 10) {
            if let Err(error) = device.write(at, io.pool().take_zeroed(64 << 10)).await.1 {
                return error;
            }
        }
        panic!("8 MiB went into a file system of 1 MiB");
    });
    assert_eq!((error.kind, error.errno), (ErrorKind::NoSpace, 28), "{error}");
    let begin = "write of 65536 bytes at ";
    assert!(error.message.starts_with(begin), "{error}");
    assert!(error.message.contains("drive.img: No space left on device"), "{error}");
    // Room made by a trim is room to write.
    io.block_on(async {
        device.trim(0, 512 << 10).await.unwrap();
        device.write(0, io.pool().take_zeroed(64 << 10)).await.1.unwrap();
    });
    drop((device, kernel, io));
}

fn trimmed_and_zeroed_ranges_read_as_zeros(backend: Backend) {
    let file = Scratch::new(4 << 20);
    std::fs::write(file.path(), vec![9; 4 << 20]).unwrap();
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    io.block_on(async {
        device.trim(1 << 20, 1 << 20).await.unwrap();
        device.write_zeroes(2 << 20, 4096).await.unwrap();
        device.flush().await.unwrap();
    });
    let content = std::fs::read(file.path()).unwrap();
    let zeros = (1 << 20)..(2 << 20) + 4096;
    for (at, byte) in content.iter().enumerate() {
        assert_eq!(*byte, if zeros.contains(&at) { 0 } else { 9 }, "byte {at}");
    }
}

fn dropped_operations_are_carried_out_all_the_same(backend: Backend) {
    let file = Scratch::new(1 << 20);
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    for block in 0..100 {
        let mut buf = io.pool().take(4096);
        buf.fill(block as u8 + 1);
        drop(device.write(block * 4096, buf));
    }
    // Without a round in between: the end of the world carries out what was submitted.
    drop((device, kernel, io));
    let content = std::fs::read(file.path()).unwrap();
    for block in 0..100 {
        assert_eq!(content[block * 4096], block as u8 + 1, "block {block}");
    }
}

fn a_file_system_without_direct_access_will_do(backend: Backend) {
    // A memory file: no direct access on many kernels, no disk below on all.
    let memory = rustix::fs::memfd_create("drive", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 1 << 20).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&memory);
    let path = format!("/proc/{}/fd/{number}", std::process::id());
    let (io, kernel) = start(backend);
    let device = kernel.open_device(path.as_ref(), Access::ReadWrite).unwrap();
    assert_eq!(device.info().atomic_write_bytes, 512);
    assert_eq!(device.info().rotational, None);
    io.block_on(async {
        let mut buf = io.pool().take(4096);
        buf.fill(3);
        device.write(8192, buf).await.1.unwrap();
        device.flush().await.unwrap();
        let (buf, outcome) = device.read(8192, io.pool().take_zeroed(4096)).await;
        outcome.unwrap();
        assert!(buf.iter().all(|byte| *byte == 3));
    });
}

fn a_busy_task_does_not_starve_transfers(backend: Backend) {
    let file = Scratch::new(1 << 20);
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    let busy = io.clone();
    // Always ready: the world is never given time to wait.
    io.spawn(async move {
        loop {
            busy.yield_now().await;
        }
    });
    io.block_on(async {
        for block in 0..50 {
            device.read(block * 4096, io.pool().take(4096)).await.1.unwrap();
        }
        device.write_zeroes(0, 4096).await.unwrap();
        device.flush().await.unwrap();
    });
    io.drop_tasks();
}
