//! `bimetal map`: a picture of where the data of a volume is.

use std::fmt::Write;

use clap::Args;
use io::units::human_bytes;
use serde::Serialize;

use crate::atlas::Atlas;
use crate::failure::{Exit, Failure, Outcome};
use crate::selection::VolumeArgument;
use crate::settings::Settings;
use crate::tally::Tally;

/// Cells are whole extents of the usual size.
const CELL_STEP_BYTES: u64 = 128 << 10;
/// Cells of one line.
const COLUMNS: usize = 64;

/// Draw where the data of a volume is
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal map vol0
  bimetal map vol0 --at 10G --length 1G
  bimetal --json map vol0 --cells 4096

Each character is a part of the volume, by where most of its data is:
# fast drive, + landing log, - slow drive, . holds no data, ! lost or not certain.
A part that is on both drives is drawn as = when the lesser share is a quarter or more.")]
pub struct MapArguments {
    #[command(flatten)]
    volume: VolumeArgument,
    /// Begin at this byte
    #[arg(long, value_name = "OFFSET", value_parser = io::units::parse_bytes, default_value = "0")]
    at: u64,
    /// Draw so many bytes (to the end of the volume)
    #[arg(long, value_name = "BYTES", value_parser = io::units::parse_bytes)]
    length: Option<u64>,
    /// Parts to draw, at most
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    cells: u64,
}

#[derive(Debug, Serialize)]
struct Map {
    name: String,
    size_bytes: u64,
    at: u64,
    length: u64,
    cell_bytes: u64,
    total: Tally,
    cells: Vec<Tally>,
}

/// Runs the command.
pub fn run(arguments: &MapArguments, settings: &Settings) -> Outcome {
    let selection = arguments.volume.select(settings)?;
    let atlas = Atlas::open(settings, &selection)?;
    let size_bytes = atlas.size_bytes()?;
    let at = arguments.at / CELL_STEP_BYTES * CELL_STEP_BYTES;
    if at >= size_bytes {
        return Err(Failure::usage(format!("the volume ends at {size_bytes}")));
    }
    let length = arguments.length.unwrap_or(u64::MAX).min(size_bytes - at);
    let cell_bytes = length.div_ceil(arguments.cells).next_multiple_of(CELL_STEP_BYTES);
    let count = length.div_ceil(cell_bytes);
    let ranges: Vec<(u64, u64)> = (0..count)
        .map(|cell| (at + cell * cell_bytes, cell_bytes.min(length - cell * cell_bytes)))
        .collect();
    let cells = atlas.tallies(&ranges)?;
    let mut total = Tally::default();
    cells.iter().for_each(|cell| total += *cell);
    let name = selection.name.to_string();
    let map = Map { name, size_bytes, at, length, cell_bytes, total, cells };
    settings.output.show("map", &map, text)?;
    Ok(if map.total.lost_bytes > 0 { Exit::Degraded } else { Exit::Done })
}

fn text(map: &Map) -> String {
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect("a string takes any text");
    line(format!(
        "volume '{}', {} from {}; each character {}",
        map.name,
        human_bytes(map.length),
        human_bytes(map.at),
        human_bytes(map.cell_bytes)
    ));
    for (row, cells) in map.cells.chunks(COLUMNS).enumerate() {
        let start = map.at + (row * COLUMNS) as u64 * map.cell_bytes;
        let drawn: String = cells.iter().map(character).collect();
        line(format!("{:>9}  {drawn}", human_bytes(start)));
    }
    line("# fast   + landing log   - slow   = both   . no data   ! lost".to_owned());
    line(map.total.words());
    text
}

fn character(cell: &Tally) -> char {
    let data = cell.data_bytes();
    let (fast, slow) = (cell.fast_bytes + cell.log_bytes, cell.slow_bytes);
    if cell.lost_bytes > 0 {
        '!'
    } else if data == 0 {
        '.'
    } else if fast.min(slow) * 4 >= data {
        '='
    } else if slow > fast {
        '-'
    } else if cell.log_bytes > cell.fast_bytes {
        '+'
    } else {
        '#'
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_its_character() {
        let tally = |fast_bytes, slow_bytes, log_bytes, lost_bytes| Tally {
            fast_bytes,
            slow_bytes,
            log_bytes,
            lost_bytes,
            hole_bytes: 1,
        };
        let drawn = [
            tally(4, 0, 0, 0),
            tally(1, 0, 3, 0),
            tally(0, 4, 0, 0),
            tally(3, 1, 0, 0),
            tally(9, 1, 0, 0),
            tally(0, 0, 0, 0),
            tally(9, 0, 0, 1),
        ];
        assert_eq!(drawn.iter().map(character).collect::<String>(), "#+-=#.!");
    }
}
