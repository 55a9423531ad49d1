//! Transfers: what is written is read, whole, in any number, and errors say where.

use uring::{Access, Backend};

use crate::{file, on_both, start};

on_both!(what_was_written_is_read_back, hundreds_of_operations_fly_at_once,);

fn what_was_written_is_read_back(backend: Backend) {
    let (_directory, path) = file(1 << 20);
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&path, Access::ReadWrite).unwrap();
    assert_eq!(device.info().size_bytes, 1 << 20);
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
    assert_eq!(std::fs::read(&path).unwrap()[4096], 7);
}

fn hundreds_of_operations_fly_at_once(backend: Backend) {
    const COUNT: u64 = 500;
    let (_directory, path) = file(COUNT * 4096);
    let (io, kernel) = start(backend);
    let device = kernel.open_device(&path, Access::ReadWrite).unwrap();
    io.block_on(async {
        // Many more than the queue of 16 entries and its completions hold.
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
