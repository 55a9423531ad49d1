//! The directory of backing files, and the one for sockets and logs; both are gone afterwards.
//!
//! Files are written out once before anybody serves them: otherwise the first writes of a turn would
//! measure how the file system allocates.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// The name is fixed, so that a run which was interrupted is cleared away by the next.
const NAME: &str = "bench-files";
/// Written at once.
const CHUNK_BYTES: u64 = 1 << 20;

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
            let mut file = File::create(&path)?;
            let zeros = vec![0; CHUNK_BYTES as usize];
            for _ in 0..bytes.div_ceil(CHUNK_BYTES) {
                file.write_all(&zeros)?;
            }
            file.sync_all()
        };
        write().with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.files) {
            eprintln!("{} stays behind: {error}", self.files.display());
        }
    }
}
