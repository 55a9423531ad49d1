//! How large a job's requests are.

use twin::Random;

use super::amount;

/// Block sizes with their weights; sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocks {
    /// Always this.
    One(u64),
    /// Evenly drawn multiples of the smallest up to the largest.
    Range(u64, u64),
    /// Drawn by hundredths; they add up to 100.
    Split(Vec<(u64, u64)>),
}

impl Blocks {
    /// Reads one field of `bs`.
    pub(super) fn one(text: &str) -> Result<Blocks, String> {
        size(text).map(Blocks::One)
    }

    /// Reads one field of `bsrange`.
    pub(super) fn range(text: &str) -> Result<Blocks, String> {
        let (low, high) = text
            .split_once(['-', ':'])
            .ok_or_else(|| format!("'{text}' is not a range (try 4k-64k)"))?;
        let (low, high) = (size(low)?, size(high)?);
        if low > high {
            return Err(format!("'{text}' begins above its end"));
        }
        Ok(Blocks::Range(low, high))
    }

    /// Reads one field of `bssplit`: `4k/60:64k/` where what has no share takes what is left.
    pub(super) fn split(text: &str) -> Result<Blocks, String> {
        let mut shares = Vec::new();
        for part in text.split(':') {
            let (bytes, share) = part.split_once('/').unwrap_or((part, ""));
            let share = match share {
                "" => None,
                share => Some(amount::count(share.trim_end_matches('%'))?),
            };
            shares.push((size(bytes)?, share));
        }
        let said: u64 = shares.iter().filter_map(|(_, share)| *share).sum();
        let silent = shares.iter().filter(|(_, share)| share.is_none()).count() as u64;
        if said > 100 || silent == 0 && said != 100 {
            return Err(format!("the shares of '{text}' add up to {said}, not to 100"));
        }
        let mut left = 100 - said;
        let mut unsaid = silent;
        let shares = shares.into_iter().map(|(bytes, share)| {
            let share = share.unwrap_or_else(|| {
                // What does not divide evenly goes to the last.
                let share = left / unsaid;
                left -= share;
                unsaid -= 1;
                share
            });
            (bytes, share)
        });
        Ok(Blocks::Split(shares.collect()))
    }

    /// The smallest; requests are aligned to it.
    pub fn min(&self) -> u64 {
        match self {
            Blocks::One(bytes) | Blocks::Range(bytes, _) => *bytes,
            Blocks::Split(shares) => shares.iter().map(|(bytes, _)| *bytes).min().unwrap_or(512),
        }
    }

    /// The largest.
    pub fn max(&self) -> u64 {
        match self {
            Blocks::One(bytes) | Blocks::Range(_, bytes) => *bytes,
            Blocks::Split(shares) => shares.iter().map(|(bytes, _)| *bytes).max().unwrap_or(512),
        }
    }

    /// The size of the next request.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Blocks::One(bytes) => *bytes,
            Blocks::Range(low, high) => low * (1 + random.below(high / low)),
            Blocks::Split(shares) => {
                let mut ticket = random.below(100);
                for (bytes, share) in shares {
                    match ticket.checked_sub(*share) {
                        None => return *bytes,
                        Some(left) => ticket = left,
                    }
                }
                unreachable!("the shares add up to 100")
            }
        }
    }
}

fn size(text: &str) -> Result<u64, String> {
    match amount::bytes(text)? {
        0 => Err("a block of no bytes".to_owned()),
        // One request is one buffer; fio's own limit is 2^32.
        bytes if bytes > 1 << 30 => Err(format!("a block of {bytes} bytes is above 1g")),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_gives_what_is_left_to_those_without_a_share() {
        let split = Blocks::split("4k/10:16k:64k/50").unwrap();
        assert_eq!(split, Blocks::Split(vec![(4096, 10), (16384, 40), (65536, 50)]));
        assert!(Blocks::split("4k/60:8k/50").is_err());
        assert!(Blocks::split("4k/60").is_err());
    }

    #[test]
    fn draws_follow_the_shares() {
        let split = Blocks::split("4k/25:8k/75").unwrap();
        let mut random = Random::new(1);
        let small = (0..10_000).filter(|_| split.draw(&mut random) == 4096).count();
        assert!((2300..2700).contains(&small), "{small}");
        let range = Blocks::range("1k-4k").unwrap();
        let drawn: Vec<u64> = (0..100).map(|_| range.draw(&mut random)).collect();
        assert!(drawn.iter().all(|bytes| bytes % 1024 == 0 && (1024..=4096).contains(bytes)));
        assert!(drawn.contains(&1024) && drawn.contains(&4096));
    }
}
