//! What is mounted, as this process sees it.
//!
//! Reads `/proc/self/mountinfo`. Looking here never touches the file systems themselves, so it
//! works while one of them has lost its server or waits for ours.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use io::{ErrorKind, IoError};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Device number of the file system, `major:minor`.
    pub(super) device: String,
    /// Where it is.
    pub(super) mount_point: PathBuf,
    /// Its type, such as `ext4` or `fuse`.
    pub(super) kind: String,
    /// What is mounted: a device, or the name a FUSE server gave.
    pub(super) source: String,
}

/// Every mount, in the order they were made.
pub(super) fn read() -> Result<Vec<Mount>, IoError> {
    let path = "/proc/self/mountinfo";
    let table = std::fs::read(path)
        .map_err(|cause| IoError::new(ErrorKind::Io, format!("read {path}: {cause}")))?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The mount on top at `directory`, if it is a mount point. The path must be absolute and without
/// symbolic links.
pub(super) fn at(directory: &Path) -> Result<Option<Mount>, IoError> {
    Ok(read()?.into_iter().rfind(|mount| mount.mount_point == directory))
}

/// One line: `36 35 98:0 /root /mount-point rw,noatime master:1 - ext4 /dev/root rw`.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
    let mount_point = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    // Optional fields come in any number before the dash.
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    let source = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    Some(Mount { device, mount_point, kind, source })
}

/// Blanks, line ends and backslashes stand as `\` and three octal digits.
pub(super) fn unescape(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        match behind.get(..3) {
            Some([a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7']) if *first == b'\\' => {
                text.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = &behind[3..];
            }
            _ => {
                text.push(*first);
                rest = behind;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_blanks_and_optional_fields_is_understood() {
        let line = br"36 35 0:98 / /a\040b\134c rw,noatime shared:1 master:2 - fuse bimetal:x rw";
        let mount = parse(line).unwrap();
        assert_eq!(mount.device, "0:98");
        assert_eq!(mount.mount_point, Path::new(r"/a b\c"));
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("fuse", "bimetal:x"));
        let line = b"22 1 254:0 / / rw - ext4 /dev/root rw";
        assert_eq!(parse(line).unwrap().source, "/dev/root");
    }

    #[test]
    fn what_is_not_a_mount_line_is_passed_over() {
        for line in [&b""[..], b"36", b"36 35 0:1 / /x rw shared:1", b"\xff \xff \xff \xff \xff - "]
        {
            assert_eq!(parse(line), None);
        }
        assert_eq!(unescape(br"\04"), br"\04");
        assert_eq!(unescape(br"\400\"), br"\400\");
    }

    #[test]
    fn the_root_is_in_the_table() {
        assert!(at(Path::new("/")).unwrap().is_some());
        assert!(at(Path::new("/no such place")).unwrap().is_none());
    }
}
