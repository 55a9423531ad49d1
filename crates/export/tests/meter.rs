//! The meter over a volume in memory, under the real clock.

use std::rc::Rc;

use export::Metered;
use io::{Durability, ErrorKind, IoError, Volume, ZeroMode};
use memory::MemoryVolume;
use uring::{Kernel, KernelOptions};

#[path = "memory/mod.rs"]
mod memory;

#[test]
fn each_kind_is_counted_with_its_bytes_errors_and_times() {
    let (io, _kernel) = Kernel::start(KernelOptions::default()).unwrap();
    let volume = Rc::new(MemoryVolume::new(io.clone(), 1 << 20));
    let metered = Metered::new(io.clone(), volume.clone());
    assert_eq!(metered.snapshot(), Default::default());
    io.block_on(async {
        for _ in 0..99 {
            metered.read(0, io.pool().take(4096)).await.1.unwrap();
        }
        volume.delay_ns.set(20_000_000);
        metered.read(0, io.pool().take(512)).await.1.unwrap();
        volume.delay_ns.set(0);
        metered.write(0, io.pool().take_zeroed(1024), Durability::Durable).await.1.unwrap();
        metered.trim(0, 4096, Durability::Volatile).await.unwrap();
        metered.write_zeroes(0, 8192, ZeroMode::Allocate, Durability::Volatile).await.unwrap();
        metered.flush().await.unwrap();
        *volume.failure.borrow_mut() = Some(IoError::new(ErrorKind::Io, "as the test wants"));
        metered.flush().await.unwrap_err();
        metered.write(0, io.pool().take_zeroed(512), Durability::Volatile).await.1.unwrap_err();
    });
    let meter = metered.snapshot();
    assert_eq!((meter.read.count, meter.read.bytes, meter.read.errors), (100, 99 * 4096 + 512, 0));
    // One slow one in a hundred: the median and the 99th percentile do not see it.
    assert!(meter.read.p50_us >= 1 && meter.read.p99_us < 20_000, "{:?}", meter.read);
    assert!((20_000..10_000_000).contains(&meter.read.max_us), "{:?}", meter.read);
    assert_eq!((meter.write.count, meter.write.bytes, meter.write.errors), (2, 1024, 1));
    assert_eq!((meter.trim.count, meter.trim.bytes), (1, 4096));
    assert_eq!((meter.zero.count, meter.zero.bytes), (1, 8192));
    assert_eq!((meter.flush.count, meter.flush.bytes, meter.flush.errors), (2, 0, 1));
}
