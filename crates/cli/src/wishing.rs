//! Saying what is wished for ranges of a volume, while it is served or at rest, and listing it.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use engine::{Wish, Wishes};
use export::control::ControlRequest;
use io::units::{exact_bytes, human_bytes, parse_bytes};
use serde::{Deserialize, Serialize};

use crate::at_rest;
use crate::atlas;
use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::file_extents::FileFinder;
use crate::selection;
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::survey;
use crate::unplaced::Unplaced;
use crate::volume_name::VolumeName;

/// A part of a volume, written `OFFSET+LENGTH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// Its first byte.
    pub at: u64,
    /// Its bytes.
    pub length: u64,
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", exact_bytes(self.at), exact_bytes(self.length))
    }
}

impl FromStr for ByteRange {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteRange, String> {
        let (at, length) = text
            .split_once('+')
            .ok_or_else(|| format!("'{text}' is not a range such as 20G+512M"))?;
        let (at, length) = (parse_bytes(at)?, parse_bytes(length)?);
        if length == 0 || at.checked_add(length).is_none() {
            return Err(format!("'{text}' is no range: it must have a length and an end"));
        }
        Ok(ByteRange { at, length })
    }
}

/// Offsets and lengths in bytes.
type Ranges = Vec<(u64, u64)>;

/// What a wish is about: a part of a volume, or a file or directory on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A part of the volume.
    Range(ByteRange),
    /// Where this file, or all files below this directory, lie now.
    Path(PathBuf),
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Subject, String> {
        match text.parse() {
            Ok(range) => Ok(Subject::Range(range)),
            Err(_) if Path::new(text).exists() => Ok(Subject::Path(text.into())),
            Err(refusal) => Err(format!("{refusal}, and there is no such file")),
        }
    }
}

impl Subject {
    /// Appends the parts of the volume that it is about: offset and length in bytes.
    fn ranges(
        &self,
        settings: &Settings,
        name: &VolumeName,
        ranges: &mut Ranges,
    ) -> Result<(), Failure> {
        let path = match self {
            Subject::Range(range) => {
                ranges.push((range.at, range.length));
                return Ok(());
            }
            Subject::Path(path) => path,
        };
        let before = ranges.len();
        let mut unplaced = Unplaced::default();
        let mut finder = FileFinder::new(settings);
        for file in files_below(path)? {
            let extents = finder.find(&file, None)?;
            if extents.volume != *name {
                let (path, other) = (file.display(), &extents.volume);
                return Err(Failure::usage(format!("{path} is on volume '{other}', not '{name}'")));
            }
            ranges.extend(extents.pieces.iter().map(|piece| (piece.at, piece.length)));
            unplaced += extents.unplaced;
        }
        let (shown, why) = (path.display(), unplaced.words());
        match (ranges.len() > before, unplaced.bytes()) {
            (true, 0) => {}
            // Small files lie among the file system's own data: not a reason to do nothing for the others.
            (true, _) => eprintln!("bimetal: not all of {shown}: {why}"),
            (false, 0) => {
                let why = "it holds no data: nothing but holes and empty files";
                return Err(Failure::failed(format!("{shown} has no place on the volume: {why}")));
            }
            (false, _) => {
                let failure = Failure::failed(format!("{shown} has no place that is known: {why}"));
                return Err(match unplaced.hint(path) {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                });
            }
        }
        Ok(())
    }
}

/// The file, or all regular files below a directory, on its file system.
fn files_below(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let facts = fs::metadata(path).on_path("look at", path)?;
    if !facts.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let (mut files, mut directories) = (Vec::new(), vec![path.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).on_path("read", &directory)? {
            let path = entry.on_path("read", &directory)?.path();
            let entry = fs::symlink_metadata(&path).on_path("look at", &path)?;
            if entry.dev() != facts.dev() {
                continue;
            }
            match entry.file_type() {
                kind if kind.is_dir() => directories.push(path),
                kind if kind.is_file() && entry.len() > 0 => files.push(path),
                _ => {}
            }
        }
    }
    Ok(files)
}

/// What is wished for a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wished {
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub length: u64,
    /// `pinned`, `hot`, `cold` or `stream`.
    pub wish: String,
}

/// What is wished for a volume's ranges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Report {
    name: String,
    ranges: Vec<Wished>,
}

/// A volume's wishes in bytes.
pub fn wished(wishes: &Wishes, extent_bytes: u64) -> Vec<Wished> {
    let in_bytes = |range: &engine::WishRange| Wished {
        at: range.first * extent_bytes,
        length: range.count * extent_bytes,
        wish: range.wish.name().to_owned(),
    };
    wishes.ranges().iter().map(in_bytes).collect()
}

/// Wishes something for parts of a volume, or takes it back, and shows all that is wished then.
pub fn wish(
    settings: &Settings,
    command: &str,
    name: &VolumeName,
    subjects: &[Subject],
    wish: Option<Wish>,
) -> Outcome {
    let mut ranges = Vec::new();
    for subject in subjects {
        subject.ranges(settings, name, &mut ranges)?;
    }
    let wished = ask(settings, name, Some((atlas::joined(ranges), wish)))?;
    show(settings, command, name, wished)
}

/// Takes back all that is wished, and shows that.
pub fn forget(settings: &Settings, command: &str, name: &VolumeName) -> Outcome {
    let all: Ranges = ask(settings, name, None)?.iter().map(|it| (it.at, it.length)).collect();
    let wished = ask(settings, name, Some((all, None)))?;
    show(settings, command, name, wished)
}

/// Shows all that is wished.
pub fn list(settings: &Settings, command: &str, name: &VolumeName) -> Outcome {
    let ranges = ask(settings, name, None)?;
    show(settings, command, name, ranges)
}

fn show(settings: &Settings, command: &str, name: &VolumeName, ranges: Vec<Wished>) -> Outcome {
    let report = Report { name: name.to_string(), ranges };
    settings.output.show(command, &report, |report| {
        let mut text = format!("volume '{}':", report.name);
        if report.ranges.is_empty() {
            text.push_str(" nothing is wished for any range");
        }
        for Wished { at, length, wish } in &report.ranges {
            let range = ByteRange { at: *at, length: *length }.to_string();
            let human = format!("{} from {}", human_bytes(*length), human_bytes(*at));
            text.push_str(&format!("\n  {wish:<7} {range:<24} {human}"));
        }
        text + "\n"
    })?;
    Ok(Exit::Done)
}

fn ask(
    settings: &Settings,
    name: &VolumeName,
    change: Option<(Ranges, Option<Wish>)>,
) -> Result<Vec<Wished>, Failure> {
    let selection = selection::by_name(settings, name)?;
    if ServerRecord::serving(settings, &selection)?.is_some() {
        let mut request = ControlRequest::new("wish");
        if let Some((ranges, wish)) = change {
            let ranges = serde_json::to_value(ranges).map_err(Failure::failed)?;
            request = request.with("ranges", ranges).with("wish", wish.map_or("none", Wish::name));
        }
        let value = survey::ask(&settings.control_socket(&selection.name), &request)?;
        return serde_json::from_value(value).map_err(|error| {
            Failure::failed(format!("the server gave an answer of another version: {error}"))
        });
    }
    at_rest::change(settings, &selection, async |_, engine| {
        if let Some((ranges, wish)) = change {
            engine.wish(&ranges, wish).await?;
        }
        Ok(wished(&engine.wishes(), engine.status().geometry.extent_bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_with_units_and_nonsense_is_refused() {
        let range = |text: &str| text.parse::<ByteRange>();
        assert_eq!(range("20G+512M"), Ok(ByteRange { at: 20 << 30, length: 512 << 20 }));
        assert_eq!(range("0+131072"), Ok(ByteRange { at: 0, length: 131_072 }));
        for bad in ["", "20G", "20G+", "+5", "5+0", "18446744073709551615+1", "a+b"] {
            assert!(range(bad).is_err(), "{bad}");
        }
        // What is listed can be given back as it stands.
        for text in ["20G+512M", "0+128K", "1310848K+640K", "4097+1"] {
            assert_eq!(range(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn all_files_below_a_directory_are_meant_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("below")).unwrap();
        fs::write(path("one"), "1").unwrap();
        fs::write(path("below/two"), "2").unwrap();
        fs::write(path("empty"), "").unwrap();
        std::os::unix::fs::symlink(path("one"), path("link")).unwrap();
        let mut files = files_below(directory.path()).unwrap();
        files.sort();
        assert_eq!(files, [path("below/two"), path("one")]);
        assert_eq!(files_below(&path("one")).unwrap(), [path("one")]);
        assert!("no/such/file".parse::<Subject>().is_err());
    }
}
