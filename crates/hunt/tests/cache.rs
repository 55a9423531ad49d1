//! Volumes of class cache under power cuts: the stories of the engine, in both modes, and each drive
//! alone now and then.

use engine::CacheMode;
use hunt::{Cached, Effort, enumerate, stories};

/// Stories are the same in each run; other seeds are for hunting.
const SEED: u64 = 1;

/// Plays a share of the stories; more tests run side by side. Deferred mode is told elsewhere.
fn survives(mode: CacheMode, atomic_write_bytes: u32) {
    let effort = Effort {
        stride: 7,
        seeds: 1,
        recut_every: 500,
        relive_every: 8,
        alone_every: 8,
        ..Effort::default()
    };
    for story in stories(SEED, atomic_write_bytes) {
        if story.name.starts_with("deferred") && mode == CacheMode::WriteThrough {
            continue;
        }
        let begun = std::time::Instant::now();
        let report = enumerate(&Cached(mode), &story, &effort);
        println!(
            "{}: {} cases, alone {:?}, {:?}",
            story.name,
            report.cases,
            report.alone,
            begun.elapsed()
        );
        report.expect_clean();
    }
}

#[test]
fn a_write_back_cache_survives_on_drives_that_tear() {
    survives(CacheMode::WriteBack, 512);
}

#[test]
fn a_write_back_cache_survives_on_drives_that_do_not_tear() {
    survives(CacheMode::WriteBack, 4096);
}
