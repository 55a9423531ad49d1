//! Files as drives: making sparse ones, and making sure that an existing one holds nothing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::failure::{Failure, OnPath};

/// Bytes looked at in one go.
const CHUNK_BYTES: usize = 1 << 20;

/// Makes a sparse file that did not exist.
pub fn make(path: &Path, size_bytes: u64) -> Result<(), Failure> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .on_path("make the file", path)?;
    file.set_len(size_bytes).inspect_err(|_| drop(fs::remove_file(path))).map_err(|error| {
        Failure::failed(format!("cannot make {} {size_bytes} bytes long: {error}", path.display()))
            .hint("the file system may limit how large a file can be")
    })
}

/// Where the first byte is that is not zero; `None` when the file holds nothing. Holes are
/// skipped, so that a large sparse file costs nothing.
pub fn first_content(file: &File) -> io::Result<Option<u64>> {
    let size_bytes = file.metadata()?.len();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < size_bytes {
        at = match seek(file, SeekFrom::Data(at)) {
            Ok(data_at) => data_at,
            // No data from here to the end.
            Err(Errno::NXIO) => return Ok(None),
            // The file system cannot tell: everything is data.
            Err(Errno::INVAL) => at,
            Err(error) => return Err(error.into()),
        };
        let length = chunk.len().min((size_bytes - at) as usize);
        file.read_exact_at(&mut chunk[..length], at)?;
        if let Some(offset) = chunk[..length].iter().position(|byte| *byte != 0) {
            return Ok(Some(at + offset as u64));
        }
        at += length as u64;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_file_holds_nothing_until_something_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drive");
        make(&path, 1 << 40).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!(first_content(&file).unwrap(), None);
        file.write_all_at(&[0; 9000], 1 << 30).unwrap();
        assert_eq!(first_content(&file).unwrap(), None, "zeros are nothing");
        file.write_all_at(&[7], (1 << 39) + 5).unwrap();
        assert_eq!(first_content(&file).unwrap(), Some((1 << 39) + 5));
        assert!(make(&path, 1 << 20).is_err(), "an existing file is never remade");
    }
}
