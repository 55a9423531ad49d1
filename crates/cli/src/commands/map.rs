//! `bimetal map`: a picture of where the data of a volume is, and how hot.

use std::fmt::Write;

use clap::Args;
use io::units::human_bytes;
use serde::Serialize;

use crate::atlas::Atlas;
use crate::failure::{Exit, Failure, Outcome};
use crate::heat_scale;
use crate::part_heat::PartHeat;
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
  bimetal map vol0 --heat                  (and how often each part was read lately)
  bimetal --json map vol0 --cells 4096

Each character is a part of the volume, by where most of its data is:
# fast drive, + landing log, - slow drive, . holds no data, ! lost or not certain.
A part that is on both drives is drawn as = when the lesser share is a quarter or more.

With --heat the colour behind a character is how often its part was read lately, beside the hottest part;
without colours (in a pipe, or with NO_COLOR set) a digit below it, from 9 to 1. Each step is half as often.
Of a volume that nobody serves it is told as it was written down when it was closed.")]
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
    /// Draw also how often each part was read lately
    #[arg(long)]
    heat: bool,
}

#[derive(Debug, Serialize)]
struct Map {
    name: String,
    size_bytes: u64,
    at: u64,
    length: u64,
    cell_bytes: u64,
    total: Cell,
    cells: Vec<Cell>,
}

#[derive(Debug, Clone, Serialize)]
struct Cell {
    #[serde(flatten)]
    tally: Tally,
    #[serde(flatten)]
    heat: Option<PartHeat>,
    /// 1 to 9 on the scale that is drawn, 0: it was not read lately.
    #[serde(skip_serializing_if = "Option::is_none")]
    heat_level: Option<u8>,
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
    if length == 0 {
        return Err(Failure::usage("a length of 0 has nothing to show"));
    }
    let cell_bytes = length.div_ceil(arguments.cells).next_multiple_of(CELL_STEP_BYTES);
    let count = length.div_ceil(cell_bytes);
    let ranges: Vec<(u64, u64)> = (0..count)
        .map(|cell| (at + cell * cell_bytes, cell_bytes.min(length - cell * cell_bytes)))
        .collect();
    let tallies = atlas.tallies(&ranges)?;
    let mut cells: Vec<Cell> = tallies.iter().copied().map(Cell::of).collect();
    let mut total = Cell::of(Tally::default());
    tallies.iter().for_each(|tally| total.tally += *tally);
    if arguments.heat {
        let heats = atlas.heats(&ranges)?;
        let mut sum = PartHeat::default();
        heats.iter().for_each(|heat| sum += *heat);
        total.heat = Some(sum);
        let lengths = ranges.iter().map(|(_, length)| *length);
        let parts: Vec<(PartHeat, u64)> = heats.into_iter().zip(lengths).collect();
        let levels = heat_scale::levels(&parts);
        for ((cell, (heat, _)), level) in cells.iter_mut().zip(parts).zip(levels) {
            (cell.heat, cell.heat_level) = (Some(heat), Some(level));
        }
    }
    let name = selection.name.to_string();
    let map = Map { name, size_bytes, at, length, cell_bytes, total, cells };
    let colours = settings.output.takes_colours();
    settings.output.show("map", &map, |map| text(map, colours))?;
    Ok(if map.total.tally.lost_bytes > 0 { Exit::Degraded } else { Exit::Done })
}

impl Cell {
    fn of(tally: Tally) -> Cell {
        Cell { tally, heat: None, heat_level: None }
    }
}

fn text(map: &Map, colours: bool) -> String {
    let mut text = String::new();
    let mut line = |line: &str| writeln!(text, "{line}").expect("a string takes any text");
    line(&format!(
        "volume '{}', {} from {}; each character {}",
        map.name,
        human_bytes(map.length),
        human_bytes(map.at),
        human_bytes(map.cell_bytes)
    ));
    for (row, cells) in map.cells.chunks(COLUMNS).enumerate() {
        let start = human_bytes(map.at + (row * COLUMNS) as u64 * map.cell_bytes);
        let drawn: String = cells.iter().map(|cell| character(&cell.tally)).collect();
        let levels: Vec<u8> = cells.iter().filter_map(|cell| cell.heat_level).collect();
        match (levels.is_empty(), colours) {
            (true, _) => line(&format!("{start:>9}  {drawn}")),
            (false, true) => {
                line(&format!("{start:>9}  {}", heat_scale::coloured(&drawn, &levels)));
            }
            (false, false) => {
                line(&format!("{start:>9}  {drawn}"));
                let digits = heat_scale::digits(&levels);
                // A row of nothing but cold parts needs no empty line.
                if !digits.trim().is_empty() {
                    line(format!("{:>9}  {digits}", "").trim_end());
                }
            }
        }
    }
    line("# fast   + landing log   - slow   = both   . no data   ! lost");
    if let Some(total) = &map.total.heat {
        legend(map, total, colours).iter().for_each(|words| line(words));
    }
    line(&map.total.tally.words());
    text
}

/// What the colours or digits mean, and what stands behind them here.
fn legend(map: &Map, total: &PartHeat, colours: bool) -> Vec<String> {
    if total.reads == 0.0 {
        return vec!["nothing of it was read lately, as far as is known".to_owned()];
    }
    let scale: Vec<u8> = (1..=heat_scale::LEVEL_MAX).rev().collect();
    let digits = heat_scale::digits(&scale);
    let samples = match colours {
        true => format!("{}: the colour is", heat_scale::coloured(&digits, &scale)),
        false => format!("{digits} below a part:"),
    };
    let mut lines = vec![format!(
        "{samples} how often it was read lately; 9 for the hottest, each step half as often"
    )];
    let reads = |cell: &Cell| cell.heat.map_or(0.0, |heat| heat.reads);
    let places = map.cells.iter().enumerate();
    let hottest = places.max_by(|(_, one), (_, other)| reads(one).total_cmp(&reads(other)));
    if let Some((index, cell)) = hottest {
        let at = map.at + index as u64 * map.cell_bytes;
        lines.push(format!(
            "read lately: {:.1} times, most of it at {} ({:.1} times); the hottest extent {:.1} times",
            total.reads,
            human_bytes(at),
            reads(cell),
            total.hottest_extent_reads
        ));
    }
    lines
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
            both_bytes: 0,
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

    #[test]
    fn heat_is_a_row_of_digits_or_a_colour_and_the_drive_stays_readable() {
        let cell = |fast_bytes, slow_bytes, reads, level| Cell {
            tally: Tally { fast_bytes, slow_bytes, ..Tally::default() },
            heat: Some(PartHeat { reads, hottest_extent_reads: reads / 2.0 }),
            heat_level: Some(level),
        };
        let map = |cells: Vec<Cell>, reads| Map {
            name: "v".to_owned(),
            size_bytes: 3 << 20,
            at: 0,
            length: 3 << 20,
            cell_bytes: 1 << 20,
            total: cell(4, 4, reads, 0),
            cells,
        };
        let warm = map(vec![cell(4, 0, 8.0, 9), cell(0, 4, 1.0, 6), cell(0, 0, 0.0, 0)], 9.0);
        let plain = text(&warm, false);
        assert!(plain.contains("\n        0  #-.\n           96\n# fast"), "{plain}");
        assert!(plain.contains("987654321 below a part: how often"), "{plain}");
        assert!(plain.contains("most of it at 0 (8.0 times); the hottest extent 4.5"), "{plain}");
        let bright = text(&warm, true);
        assert!(bright.contains("226m#\x1b[0m") && bright.contains("160m-\x1b[0m.\n"), "{bright}");
        assert!(!bright.contains("           96\n"), "{bright}");
        let cold = text(&map(vec![cell(4, 0, 0.0, 0)], 0.0), true);
        assert!(cold.contains("nothing of it was read lately") && !cold.contains('\x1b'), "{cold}");
    }
}
