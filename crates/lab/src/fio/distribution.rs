//! Which blocks random requests go to.
//!
//! Zipf and Pareto are drawn exactly as fio 3 draws them (lib/zipf.c, after Gray et al., *Quickly
//! Generating Billion-Record Synthetic Databases*, 1994), with its scattering of ranks over the
//! target and its bound on how many terms of the zeta sum are added up, so that the same theta
//! concentrates as much; a center puts the hot blocks where fio has them, too. A uniform job visits each block once before it visits one again, as fio's
//! random map makes it, but by a permutation that needs no memory.

use twin::{Random, mix};

use super::amount;

/// fio adds up so many terms of zeta(n) at most.
const ZETA_TERMS_MAX: u64 = 10_000_000;
/// What fio scatters ranks with: 2^64 divided by the golden ratio.
const GOLDEN_RATIO_64: u64 = 0x61c8_8646_80b5_83eb;

/// A distribution over blocks.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// Every block alike.
    Uniform,
    /// Rank r is drawn in proportion to r^-theta.
    Zipf {
        /// Above 0, not 1.
        theta: f64,
        /// Where the hottest is.
        center: Center,
    },
    /// A share 1-h of the draws goes to a share h of the blocks, and again inside them.
    Pareto {
        /// That share, between 0 and 1.
        power: f64,
        /// Where the hottest is.
        center: Center,
    },
    /// Zones in order: hundredths of the draws, hundredths of the target.
    Zoned(Vec<(u64, u64)>),
}

/// Where the hottest block is, from 0 to 1 of the target; the others are as far from it as ever. `None`: drawn, so that
/// jobs with different seeds have different hot blocks.
pub type Center = Option<f64>;

impl Distribution {
    pub(super) fn parse(text: &str) -> Result<Distribution, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "random" if rest.is_empty() => Ok(Distribution::Uniform),
            "zipf" => {
                let good = |theta| theta > 0.0 && theta != 1.0;
                let (theta, center) = centered(rest, 1.1, "a theta above 0 other than 1", good)?;
                Ok(Distribution::Zipf { theta, center })
            }
            "pareto" => {
                let good = |power| power > 0.0 && power < 1.0;
                let (power, center) = centered(rest, 0.2, "a power between 0 and 1", good)?;
                Ok(Distribution::Pareto { power, center })
            }
            "zoned" if !rest.contains(',') => zones(rest).map(Distribution::Zoned),
            _ => Err(format!(
                "'{text}' is not known (random, zipf:THETA[:CENTER], pareto:POWER[:CENTER], zoned:ACCESS/SIZE:…)"
            )),
        }
    }
}

/// A number and a center behind it, of which either may be left out from the end.
fn centered(
    text: &str,
    default: f64,
    what: &str,
    good: fn(f64) -> bool,
) -> Result<(f64, Center), String> {
    if text.is_empty() {
        return Ok((default, None));
    }
    let (number, center) = match text.split_once(':') {
        Some((number, center)) => (number, Some(center)),
        None => (text, None),
    };
    let parse = |text: &str, what: &str, good: fn(f64) -> bool| {
        let value = text.parse().ok().filter(|value| good(*value));
        value.ok_or_else(|| format!("'{text}' is not {what}"))
    };
    let number = parse(number, what, good)?;
    let inside = |center| (0.0..=1.0).contains(&center);
    let center = center.map(|center| parse(center, "a center from 0 to 1", inside)).transpose()?;
    Ok((number, center))
}

fn zones(text: &str) -> Result<Vec<(u64, u64)>, String> {
    let mut zones = Vec::new();
    for zone in text.split(':') {
        let (access, size) =
            zone.split_once('/').ok_or_else(|| format!("'{zone}' is not a zone (try 60/10)"))?;
        zones.push((amount::count(access)?, amount::count(size)?));
    }
    let sum = |pick: fn(&(u64, u64)) -> u64| zones.iter().map(pick).sum::<u64>();
    match (sum(|zone| zone.0), sum(|zone| zone.1)) {
        (100, 100) => Ok(zones),
        (access, size) => {
            Err(format!("the zones add up to {access}% of the accesses and {size}% of the space"))
        }
    }
}

/// Draws block numbers below a bound.
#[derive(Debug, Clone)]
pub(super) enum Drawer {
    /// Each block once in a pass.
    Once(Permutation),
    Uniform {
        blocks: u64,
    },
    Zipf {
        blocks: u64,
        shift: Shift,
        zipf: Zipf,
    },
    Pareto {
        blocks: u64,
        shift: Shift,
        power: f64,
    },
    Zoned {
        blocks: u64,
        zones: Vec<(u64, u64)>,
    },
}

impl Drawer {
    /// `once`: each block is visited before one is visited again, where the distribution is even.
    pub fn new(what: &Distribution, blocks: u64, once: bool, random: &mut Random) -> Drawer {
        let blocks = blocks.max(1);
        let drawn = random.below(blocks);
        let shift = |center: Center| match center {
            Some(center) => Shift::Given((blocks as f64 * center) as u64),
            None => Shift::Drawn(drawn),
        };
        match what {
            Distribution::Uniform if once => Drawer::Once(Permutation::new(blocks, random.bits())),
            Distribution::Uniform => Drawer::Uniform { blocks },
            Distribution::Zipf { theta, center } => {
                Drawer::Zipf { blocks, shift: shift(*center), zipf: Zipf::new(blocks, *theta) }
            }
            Distribution::Pareto { power, center } => {
                let power = power.ln() / (1.0 - power).ln();
                Drawer::Pareto { blocks, shift: shift(*center), power }
            }
            Distribution::Zoned(zones) => Drawer::Zoned { blocks, zones: zones.clone() },
        }
    }

    /// The same distribution with its hot places elsewhere, unless they have a center: what another copy of the job draws.
    /// (Adding up zeta takes a moment, so it is done once.)
    pub fn elsewhere(&self, random: &mut Random) -> Drawer {
        let mut other = self.clone();
        match &mut other {
            Drawer::Once(permutation) => permutation.restart(random.bits()),
            Drawer::Zipf { blocks, shift, .. } | Drawer::Pareto { blocks, shift, .. } => {
                if let Shift::Drawn(drawn) = shift {
                    *drawn = random.below(*blocks);
                }
            }
            Drawer::Uniform { .. } | Drawer::Zoned { .. } => {}
        }
        other
    }

    pub fn draw(&mut self, random: &mut Random) -> u64 {
        match self {
            Drawer::Once(permutation) => permutation.next(random),
            Drawer::Uniform { blocks } => random.below(*blocks),
            Drawer::Zipf { blocks, shift, zipf } => {
                scatter(zipf.rank(*blocks, unit(random)), *shift, *blocks)
            }
            Drawer::Pareto { blocks, shift, power } => {
                let rank = ((*blocks - 1) as f64 * unit(random).powf(*power)) as u64;
                scatter(rank, *shift, *blocks)
            }
            Drawer::Zoned { blocks, zones } => {
                let mut ticket = random.below(100);
                let mut before = 0;
                for (access, size) in zones.iter() {
                    if ticket < *access {
                        let start = *blocks * before / 100;
                        let end = *blocks * (before + size) / 100;
                        return start + random.below(end - start);
                    }
                    ticket -= access;
                    before += size;
                }
                unreachable!("the zones add up to all accesses")
            }
        }
    }
}

/// A number from 0 to below 1, with the 32 bits fio draws.
fn unit(random: &mut Random) -> f64 {
    (random.bits() >> 32) as f64 / 4_294_967_296.0
}

/// How far the ranks are moved, and so the place of the hottest.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shift {
    Drawn(u64),
    Given(u64),
}

fn scatter(rank: u64, shift: Shift, blocks: u64) -> u64 {
    let (Shift::Drawn(shift) | Shift::Given(shift)) = shift;
    (rank.wrapping_mul(GOLDEN_RATIO_64).wrapping_add(shift)) % blocks
}

#[derive(Debug, Clone)]
pub(super) struct Zipf {
    theta: f64,
    zeta2: f64,
    zeta_n: f64,
}

impl Zipf {
    fn new(blocks: u64, theta: f64) -> Zipf {
        let zeta = |terms: u64| (1..=terms).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        Zipf { theta, zeta2: zeta(2), zeta_n: zeta(blocks.min(ZETA_TERMS_MAX)) }
    }

    fn rank(&self, blocks: u64, unit: f64) -> u64 {
        let alpha = 1.0 / (1.0 - self.theta);
        let eta =
            (1.0 - (2.0 / blocks as f64).powf(1.0 - self.theta)) / (1.0 - self.zeta2 / self.zeta_n);
        let z = unit * self.zeta_n;
        if z < 1.0 {
            0
        } else if z < 1.0 + 0.5f64.powf(self.theta) {
            1
        } else {
            (blocks as f64 * (eta * unit - eta + 1.0).powf(alpha)) as u64
        }
    }
}

/// A walk over the numbers below `size` that meets each once: a Feistel network over the next
/// power of four, leaving out what is too large. At each end a new walk begins.
#[derive(Debug, Clone)]
pub(super) struct Permutation {
    size: u64,
    half_bits: u32,
    key: u64,
    step: u64,
}

impl Permutation {
    fn new(size: u64, key: u64) -> Permutation {
        let bits = u64::BITS - (size - 1).leading_zeros();
        Permutation { size, half_bits: bits.div_ceil(2).max(1), key, step: 0 }
    }

    fn restart(&mut self, key: u64) {
        (self.step, self.key) = (0, key);
    }

    fn next(&mut self, random: &mut Random) -> u64 {
        if self.step == self.size {
            self.restart(random.bits());
        }
        let mut value = self.step;
        self.step += 1;
        loop {
            value = self.network(value);
            if value < self.size {
                return value;
            }
        }
    }

    fn network(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..4 {
            let scrambled = mix(right ^ self.key.wrapping_add(round)) & mask;
            (left, right) = (right, left ^ scrambled);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(what: &Distribution, blocks: u64, count: usize) -> Vec<u64> {
        let mut random = Random::new(7);
        let mut drawer = Drawer::new(what, blocks, true, &mut random);
        (0..count).map(|_| drawer.draw(&mut random)).collect()
    }

    #[test]
    fn an_even_job_visits_every_block_once_in_each_pass() {
        for blocks in [1, 2, 3, 64, 1000] {
            let drawn = draws(&Distribution::Uniform, blocks, 2 * blocks as usize);
            for pass in drawn.chunks(blocks as usize) {
                let mut sorted = pass.to_vec();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..blocks).collect::<Vec<_>>());
            }
        }
        let drawn = draws(&Distribution::Uniform, 1000, 1000);
        assert!(drawn.windows(2).filter(|pair| pair[0] < pair[1]).count() < 600);
    }

    #[test]
    fn zipf_concentrates_as_its_theta_says() {
        let drawn = draws(&Distribution::Zipf { theta: 1.2, center: None }, 10_000, 100_000);
        let mut counts = std::collections::HashMap::new();
        drawn.iter().for_each(|block| *counts.entry(*block).or_insert(0u64) += 1);
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        // Rank 1 gets 1/zeta(10,000; 1.2) of the draws, rank 2 that over 2^1.2.
        let zeta: f64 = (1..=10_000u32).map(|r| f64::from(r).powf(-1.2)).sum();
        let expected = 100_000.0 / zeta;
        assert!((counts[0] as f64 / expected - 1.0).abs() < 0.05, "{} of {expected}", counts[0]);
        let second = expected / 2f64.powf(1.2);
        assert!((counts[1] as f64 / second - 1.0).abs() < 0.05, "{} of {second}", counts[1]);
    }

    /// The blocks by how often they were drawn, from the hottest.
    fn hottest(drawn: &[u64], count: usize) -> Vec<u64> {
        let mut counts = std::collections::HashMap::new();
        drawn.iter().for_each(|block| *counts.entry(*block).or_insert(0u64) += 1);
        let mut blocks: Vec<u64> = counts.keys().copied().collect();
        blocks.sort_unstable_by_key(|block| std::cmp::Reverse(counts[block]));
        blocks.truncate(count);
        blocks
    }

    #[test]
    fn a_center_puts_the_hot_blocks_where_fio_has_them_whatever_the_seed() {
        // As 204,800 requests of fio 3.33 had them, on 64 MiB in blocks of 4 KiB.
        let zipf = Distribution::Zipf { theta: 1.2, center: Some(0.3) };
        let pareto = Distribution::Pareto { power: 0.2, center: Some(0.7) };
        let all: [(&Distribution, [u64; 5]); 2] = [
            (&zipf, [4915, 5918, 6921, 7924, 8927]),
            (&pareto, [11468, 12471, 13474, 14477, 15480]),
        ];
        for (what, want) in all {
            let drawn = [1, 2].map(|seed| {
                let mut random = Random::new(seed);
                let mut drawer = Drawer::new(what, 16_384, false, &mut random);
                (0..204_800).map(|_| drawer.draw(&mut random)).collect::<Vec<_>>()
            });
            assert_eq!([hottest(&drawn[0], 5), hottest(&drawn[1], 5)], [want, want]);
            assert_ne!(drawn[0][..100], drawn[1][..100]);
        }
    }

    #[test]
    fn another_copy_of_a_job_keeps_a_center_and_draws_its_own_hot_block_without_one() {
        let places = |center| {
            let mut random = Random::new(7);
            let what = Distribution::Zipf { theta: 1.5, center };
            let first = Drawer::new(&what, 1 << 20, false, &mut random);
            let both = [first.elsewhere(&mut random), first];
            both.map(|mut drawer| {
                let drawn: Vec<u64> = (0..1000).map(|_| drawer.draw(&mut random)).collect();
                hottest(&drawn, 1)[0]
            })
        };
        assert_eq!(places(Some(1.0)), [0, 0]);
        assert_eq!(places(Some(0.5)), [1 << 19, 1 << 19]);
        let [one, other] = places(None);
        assert_ne!(one, other);
    }

    #[test]
    fn the_other_distributions_stay_inside_and_lean_where_they_should() {
        let near = |what: &Distribution, from: u64, to: u64| {
            let drawn = draws(what, 1000, 10_000);
            assert!(drawn.iter().all(|block| *block < 1000));
            drawn.iter().filter(|block| (from..to).contains(*block)).count()
        };
        let zoned = near(&Distribution::Zoned(vec![(60, 10), (40, 90)]), 0, 100);
        assert!((5800..6200).contains(&zoned), "{zoned}");
        let pareto = draws(&Distribution::Pareto { power: 0.2, center: None }, 1000, 10_000);
        let mut counts = vec![0u64; 1000];
        pareto.iter().for_each(|block| counts[*block as usize] += 1);
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let fifth: u64 = counts[..200].iter().sum();
        // Four of five, and somewhat more because scattered ranks meet in blocks.
        assert!((7500..9900).contains(&fifth), "{fifth}");
    }

    #[test]
    fn only_known_distributions_are_taken() {
        let zipf = |theta, center| Ok(Distribution::Zipf { theta, center });
        let pareto = |power, center| Ok(Distribution::Pareto { power, center });
        assert_eq!(Distribution::parse("zipf"), zipf(1.1, None));
        assert_eq!(Distribution::parse("zipf:1.2"), zipf(1.2, None));
        assert_eq!(Distribution::parse("zipf:1.2:0.25"), zipf(1.2, Some(0.25)));
        assert_eq!(Distribution::parse("pareto:0.3"), pareto(0.3, None));
        assert_eq!(Distribution::parse("pareto:0.3:1"), pareto(0.3, Some(1.0)));
        assert_eq!(
            Distribution::parse("zoned:60/10:40/90"),
            Ok(Distribution::Zoned(vec![(60, 10), (40, 90)]))
        );
        for bad in [
            "zipf:1",
            "zipf:-1",
            "zipf:1.2:",
            "zipf:1.2:1.01",
            "zipf:1.2:-0.5",
            "zipf:1.2:0.5:0.5",
            "pareto:0.3:nan",
            "pareto:1",
            "zoned:60/10",
            "zoned_abs:1/1",
            "cauchy",
            "zipf:1,zipf:2",
        ] {
            assert!(Distribution::parse(bad).is_err(), "{bad}");
        }
    }
}
