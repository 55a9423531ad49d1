//! Small files on a file system: made, written and, or not, made durable, one after the other, as
//! mail servers and package managers do.

use std::fs::{File, create_dir};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use super::{Case, Stopwatch};

/// Bytes of a file.
const FILE_BYTES: usize = 4096;

/// Makes files in a directory of its own below `dir` for `budget_ns`, at least one, and takes
/// all away again.
pub fn small_files(dir: &Path, flushed: bool, budget_ns: u64) -> io::Result<Case> {
    let home = tempfile::Builder::new().prefix(".bimetal-flush-").tempdir_in(dir)?;
    let place = home.path().join("files");
    create_dir(&place)?;
    let content = [0x5a; FILE_BYTES];
    let began = Instant::now();
    let now_ns = || began.elapsed().as_nanos() as u64;
    let mut watch = Stopwatch::new(0, budget_ns);
    for number in 0u64.. {
        let began_ns = now_ns();
        let mut file = File::create_new(place.join(number.to_string()))?;
        file.write_all(&content)?;
        let flush_ns = flushed.then(&now_ns);
        if flushed {
            file.sync_all()?;
        }
        drop(file);
        let ended_ns = now_ns();
        watch.note(began_ns, flush_ns, ended_ns);
        if watch.is_over(ended_ns) {
            break;
        }
    }
    let case = watch.case("small files", FILE_BYTES, now_ns());
    home.close()?;
    Ok(case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_are_counted_and_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        for flushed in [false, true] {
            let case = small_files(dir.path(), flushed, 20_000_000).unwrap();
            assert!(case.operations > 0 && case.rate_per_s > 0.0);
            assert_eq!((case.flushed, case.flush_ns.is_some()), (flushed, flushed));
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
