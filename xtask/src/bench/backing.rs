//! The directory of backing files, and the one for sockets and logs; both are gone afterwards.
//!
//! Files are written out once before anybody serves them: otherwise the first writes of a turn would
//! measure how the file system allocates. Past the page cache, as those write who are measured: a drive that is
//! itself a file somewhere may remember for good how it was written first (docs/performance.md).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use tempfile::TempDir;

/// The name is fixed, so that a run which was interrupted is cleared away by the next.
const NAME: &str = "bench-files";
/// Written at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// What memory and places have to be multiples of, on any drive.
const ALIGNMENT: usize = 4096;

/// Where a run keeps its files.
pub struct Backing {
    files: PathBuf,
    /// Socket paths end at 107 bytes, so they do not go beside the files.
    sockets: TempDir,
}

impl Backing {
    /// Makes both directories below `directory` and the system's temporary one.
    pub fn make(directory: &Path) -> Result<Backing> {
        let files = directory.join(NAME);
        if files.exists() {
            fs::remove_dir_all(&files).context("clearing what an interrupted run left")?;
        }
        fs::create_dir_all(&files).with_context(|| format!("making {}", files.display()))?;
        let sockets = tempfile::Builder::new().prefix("bimetal-bench-").tempdir()?;
        Ok(Backing { files: fs::canonicalize(files)?, sockets })
    }

    /// Where backing files go.
    pub fn directory(&self) -> &Path {
        &self.files
    }

    /// A place for a socket or a log.
    pub fn beside_sockets(&self, name: &str) -> PathBuf {
        self.sockets.path().join(name)
    }

    /// A file of zeros, allocated and on the drive.
    pub fn file(&self, name: &str, bytes: u64) -> Result<PathBuf> {
        let path = self.files.join(name);
        let write = || -> std::io::Result<()> {
            let mut file = past_the_page_cache(&path).or_else(|_| File::create(&path))?;
            let memory = vec![0; CHUNK_BYTES as usize + ALIGNMENT];
            let aligned = memory.as_ptr().align_offset(ALIGNMENT);
            for _ in 0..bytes.div_ceil(CHUNK_BYTES) {
                file.write_all(&memory[aligned..][..CHUNK_BYTES as usize])?;
            }
            file.sync_all()
        };
        write().with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

/// # Errors
/// The file system knows no such thing, as one in memory may not.
fn past_the_page_cache(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::DIRECT.bits() as i32;
    OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(path)
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.files) {
            eprintln!("{} stays behind: {error}", self.files.display());
        }
    }
}
