//! How heat is drawn: in steps of two below the hottest part, as digits, or as colours behind what is drawn.
//!
//! Reads differ by orders of magnitude from part to part, so the scale is one of powers: on a straight one
//! all but the hottest few would look alike.

use std::fmt::Write;

use crate::part_heat::PartHeat;

/// The hottest part's level. 0 is what was not read lately.
pub const LEVEL_MAX: u8 = 9;
/// Background of each level, as a number of the 256 colours that terminals have: blue, purple, red, yellow.
/// Level 0 has the terminal's own.
const BACKGROUNDS: [u8; LEVEL_MAX as usize + 1] = [0, 17, 19, 55, 91, 126, 160, 202, 214, 226];
/// From this level on the background is so bright that black is read better than white.
const BRIGHT_FROM: u8 = 7;

/// The level of a part with `reads` for each byte, where the hottest one has `hottest`.
pub fn level(reads: f64, hottest: f64) -> u8 {
    if reads <= 0.0 {
        return 0;
    }
    // Ceiling: what is hotter than half of the hottest belongs to it.
    let steps = (reads / hottest).log2().ceil();
    (f64::from(LEVEL_MAX) + steps).clamp(1.0, f64::from(LEVEL_MAX)) as u8
}

/// The levels of parts, each with its length in bytes. What counts is reads for each byte: the last part of a
/// volume may be shorter.
pub fn levels(parts: &[(PartHeat, u64)]) -> Vec<u8> {
    let density = |(heat, length): &(PartHeat, u64)| heat.reads / (*length).max(1) as f64;
    let hottest = parts.iter().map(density).fold(0.0, f64::max);
    parts.iter().map(|part| level(density(part), hottest)).collect()
}

/// The levels as digits, a space for what was not read lately.
pub fn digits(levels: &[u8]) -> String {
    let digit = |level: &u8| if *level == 0 { ' ' } else { char::from(b'0' + *level) };
    levels.iter().map(digit).collect()
}

/// Each character before its level's colour, in the escape sequences of terminals.
pub fn coloured(characters: &str, levels: &[u8]) -> String {
    let mut text = String::new();
    let mut now = 0;
    for (character, level) in characters.chars().zip(levels) {
        if *level != now {
            text.push_str(&colour(*level));
            now = *level;
        }
        text.push(character);
    }
    if now != 0 {
        text.push_str(&colour(0));
    }
    text
}

fn colour(level: u8) -> String {
    let mut text = "\x1b[0m".to_owned();
    if level > 0 {
        let ink = if level < BRIGHT_FROM { 15 } else { 16 };
        let background = BACKGROUNDS[usize::from(level)];
        write!(text, "\x1b[38;5;{ink};48;5;{background}m").expect("a string takes any text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_is_half_as_hot_as_the_one_above() {
        let heats = [0.0, 0.001, 4.0, 8.0, 500.0, 512.0, 513.0, 1024.0];
        assert_eq!(heats.map(|reads| level(reads, 1024.0)), [0, 1, 1, 2, 8, 8, 9, 9]);
        // Nothing was read at all.
        assert_eq!(level(0.0, 0.0), 0);
    }

    #[test]
    fn a_short_part_is_as_hot_as_its_bytes() {
        let heat = |reads| PartHeat { reads, hottest_extent_reads: reads };
        assert_eq!(levels(&[(heat(8.0), 1024), (heat(2.0), 256), (heat(1.0), 1024)]), [9, 9, 6]);
        assert!(levels(&[]).is_empty());
    }

    #[test]
    fn what_is_drawn_stays_readable_in_both_ways() {
        assert_eq!(digits(&[9, 0, 1]), "9 1");
        assert_eq!(coloured("#-.", &[0, 0, 0]), "#-.");
        assert_eq!(
            coloured("##-.", &[9, 9, 1, 0]),
            "\x1b[0m\x1b[38;5;16;48;5;226m##\x1b[0m\x1b[38;5;15;48;5;17m-\x1b[0m."
        );
        assert!(coloured("#", &[5]).ends_with("#\x1b[0m"));
    }
}
