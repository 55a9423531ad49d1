//! What may be read from one block: its writes, their order, and what is known of it.
//!
//! A block is eight sectors, and a write changes all of those it covers at once or none. So an
//! observation is right exactly when some of the block's writes, carried out one after another,
//! give it: all that *must* be there, those that are seen, in an order that respects which
//! ended before another began, and what earlier reads have shown. [`explain`] decides that: for
//! each sector, every write that covers it comes before the one that is seen there. Such an
//! order exists exactly when these demands have no cycle.
//!
//! A must that another must certainly covers later adds nothing and is left out, which keeps the
//! graph small.

use crate::sector::{BLOCK_SECTORS, Value};

/// A moment: the count of things that began or ended before it.
pub type Tick = u64;

/// One write as it concerns one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Number of the write.
    pub write: u32,
    /// Which sectors of the block it covers, as bits.
    pub mask: u8,
    /// It makes zeros.
    pub zeros: bool,
    /// It may be without effect for ever: the ragged edge of a trim.
    pub optional: bool,
    /// When it began.
    pub begun: Tick,
    /// When it ended well; `None` while in flight or after a failure.
    pub ended: Option<Tick>,
    /// It had been asked to be durable on its own.
    pub forced: bool,
}

impl Entry {
    /// Whether it ended before `other` began.
    fn precedes(&self, other: &Entry) -> bool {
        self.ended.is_some_and(|ended| ended < other.begun)
    }

    /// Whether it had ended by that moment.
    pub fn ended_by(&self, tick: Tick) -> bool {
        self.ended.is_some_and(|ended| ended <= tick)
    }
}

/// The writes of one block that may still be seen.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// In the order they began.
    pub entries: Vec<Entry>,
    /// Pairs of writes (earlier, later) that overlapped in time and whose order a read has shown.
    pub shown: Vec<(u32, u32)>,
}

/// What an entry means for an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Its effect must be there, unless covered by a later write.
    Must,
    /// It may be there as a whole or not.
    May,
    /// It was in flight while the block was read, or when a drive that tears lost power: each sector on its
    /// own may show it.
    Racing,
}

impl History {
    /// Drops writes that can never be seen again: a write that must survive everything covers
    /// all of them, began after they ended, and no read that is still under way began before.
    pub fn prune(&mut self, durable: impl Fn(&Entry) -> bool, reads_since: Tick) {
        if self.entries.len() < 2 {
            return;
        }
        let entries = &self.entries;
        let covers = |later: &Entry, earlier: &Entry| {
            earlier.precedes(later)
                && earlier.mask & !later.mask == 0
                && durable(later)
                && !later.optional
                && later.ended_by(reads_since)
        };
        let kept: Vec<Entry> = entries
            .iter()
            .enumerate()
            .filter(|(at, earlier)| !entries[at + 1..].iter().any(|later| covers(later, earlier)))
            .map(|(_, entry)| *entry)
            .collect();
        if kept.len() < entries.len() {
            self.shown.retain(|(earlier, later)| {
                kept.iter().any(|e| e.write == *earlier) && kept.iter().any(|e| e.write == *later)
            });
            self.entries = kept;
        }
    }

    /// Whether the sectors of `mask` may hold `seen`, given each entry's weight. The error says
    /// in words what is wrong, without the history.
    pub fn explain(
        &self,
        seen: &[Value; BLOCK_SECTORS],
        mask: u8,
        weight: impl Fn(&Entry) -> Weight,
    ) -> Result<(), String> {
        let mut chosen = [None; BLOCK_SECTORS];
        // Sectors of zeros with the same possible makers have the same maker: see `try_zeros`.
        let mut groups: Vec<(Vec<Option<usize>>, u8)> = Vec::new();
        for sector in sectors(mask) {
            match seen[sector] {
                Value::Of(write) => {
                    let maker = |e: &Entry| e.write == write && covers(e, sector) && !e.zeros;
                    let Some(index) = self.entries.iter().position(maker) else {
                        return Err(format!(
                            "sector {sector} holds data of write {write}, which is not among \
                             the writes that may be seen here: stale"
                        ));
                    };
                    chosen[sector] = Some(index);
                }
                Value::Zeros => {
                    let makers = self.entries.iter().enumerate();
                    let makers = makers.filter(|(_, e)| e.zeros && covers(e, sector));
                    // Latest first: most often the right one.
                    let mut makers: Vec<Option<usize>> = makers.map(|(i, _)| Some(i)).collect();
                    makers.reverse();
                    makers.push(None);
                    match groups.iter_mut().find(|(known, _)| *known == makers) {
                        Some((_, mask)) => *mask |= 1 << sector,
                        None => groups.push((makers, 1 << sector)),
                    }
                }
                wrong => return Err(format!("sector {sector} holds {wrong}")),
            }
        }
        self.try_zeros(&groups, &mut chosen, mask, &weight)
    }

    /// Tries each maker for each group of zero sectors. All sectors of a group are covered by
    /// the same zeroings, so the last of those carried out made them all.
    fn try_zeros(
        &self,
        groups: &[(Vec<Option<usize>>, u8)],
        chosen: &mut [Option<usize>; BLOCK_SECTORS],
        mask: u8,
        weight: &impl Fn(&Entry) -> Weight,
    ) -> Result<(), String> {
        let Some(((makers, group), rest)) = groups.split_first() else {
            return self.ordered(chosen, mask, weight);
        };
        let mut first = None;
        for maker in makers {
            for sector in sectors(*group) {
                chosen[sector] = *maker;
            }
            match self.try_zeros(rest, chosen, mask, weight) {
                Ok(()) => return Ok(()),
                Err(wrong) => first = first.or(Some(wrong)),
            }
        }
        Err(first.expect("there is always the initial content to try"))
    }

    /// Whether an order exists in which each sector's chosen maker is the last to cover it.
    fn ordered(
        &self,
        chosen: &[Option<usize>; BLOCK_SECTORS],
        mask: u8,
        weight: &impl Fn(&Entry) -> Weight,
    ) -> Result<(), String> {
        let entries = &self.entries;
        let must = |e: &Entry| weight(e) == Weight::Must && !e.optional;
        let hidden = |e: &Entry| {
            let mut later = entries.iter();
            later.any(|l| must(l) && e.precedes(l) && e.mask & mask & !l.mask == 0)
        };
        let nodes: Vec<usize> = (0..entries.len())
            .filter(|index| {
                let entry = &entries[*index];
                let seen = sectors(mask).any(|sector| chosen[sector] == Some(*index));
                seen || (must(entry) && entry.mask & mask != 0 && !hidden(entry))
            })
            .collect();
        // before[a] lists the nodes that must come before node a.
        let mut before = vec![Vec::new(); nodes.len()];
        for (place, index) in nodes.iter().enumerate() {
            for (other_place, other) in nodes.iter().enumerate() {
                let (earlier, later) = (&entries[*other], &entries[*index]);
                let shown = self.shown.contains(&(earlier.write, later.write));
                if place != other_place && (earlier.precedes(later) || shown) {
                    before[place].push(other_place);
                }
            }
        }
        for sector in sectors(mask) {
            let last = chosen[sector].and_then(|index| nodes.iter().position(|n| *n == index));
            for (place, index) in nodes.iter().enumerate() {
                let entry = &entries[*index];
                if !covers(entry, sector) || Some(place) == last {
                    continue;
                }
                // A racing write, and a trim's ragged edge, need not show in every sector.
                if weight(entry) == Weight::Racing || entry.optional {
                    continue;
                }
                match last {
                    Some(last) => before[last].push(place),
                    None => {
                        return Err(format!(
                            "sector {sector} holds zeros from before write {}, which must be \
                             seen: lost",
                            entry.write
                        ));
                    }
                }
            }
        }
        match cycle(&before) {
            None => Ok(()),
            Some(stuck) => {
                let numbers: Vec<String> =
                    stuck.iter().map(|place| entries[nodes[*place]].write.to_string()).collect();
                Err(format!(
                    "no order of writes {} gives these sectors: one of them is lost, stale or torn",
                    numbers.join(", ")
                ))
            }
        }
    }
}

fn covers(entry: &Entry, sector: usize) -> bool {
    entry.mask & (1 << sector) != 0
}

fn sectors(mask: u8) -> impl Iterator<Item = usize> {
    (0..BLOCK_SECTORS).filter(move |sector| mask & (1 << sector) != 0)
}

/// The nodes that cannot be put in order, if there are any.
fn cycle(before: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut placed = vec![false; before.len()];
    loop {
        let mut progress = false;
        for node in 0..before.len() {
            if !placed[node] && before[node].iter().all(|other| placed[*other]) {
                placed[node] = true;
                progress = true;
            }
        }
        if !progress {
            let stuck: Vec<usize> = (0..before.len()).filter(|node| !placed[*node]).collect();
            return (!stuck.is_empty()).then_some(stuck);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(write: u32, mask: u8, begun: Tick, ended: Option<Tick>) -> Entry {
        Entry { write, mask, zeros: false, optional: false, begun, ended, forced: false }
    }

    fn of(writes: [u32; 8]) -> [Value; 8] {
        writes.map(|write| if write == 0 { Value::Zeros } else { Value::Of(write) })
    }

    fn history(entries: &[Entry]) -> History {
        History { entries: entries.to_vec(), shown: Vec::new() }
    }

    fn ended(entry: &Entry) -> Weight {
        if entry.ended.is_some() { Weight::Must } else { Weight::May }
    }

    #[test]
    fn the_last_of_two_writes_must_be_seen() {
        let two = history(&[entry(1, 255, 1, Some(2)), entry(2, 255, 3, Some(4))]);
        assert_eq!(two.explain(&of([2; 8]), 255, ended), Ok(()));
        assert!(two.explain(&of([1; 8]), 255, ended).is_err());
        assert!(two.explain(&of([0; 8]), 255, ended).is_err());
        let may = |_: &Entry| Weight::May;
        assert_eq!(two.explain(&of([1; 8]), 255, may), Ok(()));
        assert_eq!(two.explain(&of([0; 8]), 255, may), Ok(()));
    }

    #[test]
    fn a_block_torn_between_two_writes_is_wrong_and_racing_ones_may_mix() {
        let two = history(&[entry(1, 255, 1, Some(2)), entry(2, 255, 3, None)]);
        let torn = of([1, 1, 1, 1, 2, 2, 2, 2]);
        assert!(two.explain(&torn, 255, ended).is_err());
        let racing = |e: &Entry| if e.ended.is_some() { Weight::Must } else { Weight::Racing };
        assert_eq!(two.explain(&torn, 255, racing), Ok(()));
    }

    #[test]
    fn a_torn_block_of_zeros_and_data_is_wrong() {
        let one = history(&[entry(1, 255, 1, None)]);
        assert!(one.explain(&of([1, 1, 0, 0, 0, 0, 0, 0]), 255, ended).is_err());
        assert_eq!(one.explain(&of([0; 8]), 255, ended), Ok(()));
        assert_eq!(one.explain(&of([1; 8]), 255, ended), Ok(()));
    }

    #[test]
    fn overlapping_writes_end_in_either_order_but_not_in_both() {
        // Both cover sectors 2 and 3; each alone covers two more.
        let two = history(&[entry(1, 0b00_1111, 1, Some(10)), entry(2, 0b11_1100, 2, Some(9))]);
        let outcome = |seen| two.explain(&of(seen), 255, ended).is_ok();
        assert!(outcome([1, 1, 2, 2, 2, 2, 0, 0]));
        assert!(outcome([1, 1, 1, 1, 2, 2, 0, 0]));
        assert!(!outcome([1, 1, 1, 2, 2, 2, 0, 0]));
    }

    #[test]
    fn an_order_that_a_read_has_shown_stays() {
        let mut two = history(&[entry(1, 255, 1, Some(10)), entry(2, 255, 2, Some(9))]);
        assert_eq!(two.explain(&of([1; 8]), 255, ended), Ok(()));
        two.shown.push((1, 2));
        assert!(two.explain(&of([1; 8]), 255, ended).is_err());
    }

    #[test]
    fn zeros_are_explained_by_any_zeroing_that_fits() {
        let trim = Entry { zeros: true, ..entry(2, 255, 3, Some(4)) };
        let both = history(&[entry(1, 255, 1, Some(2)), trim]);
        assert_eq!(both.explain(&of([0; 8]), 255, ended), Ok(()));
        assert!(both.explain(&of([1; 8]), 255, ended).is_err(), "stale after a trim");
        let again = history(&[entry(1, 255, 1, Some(2)), trim, entry(3, 1, 5, Some(6))]);
        assert_eq!(again.explain(&of([3, 0, 0, 0, 0, 0, 0, 0]), 255, ended), Ok(()));
        assert!(again.explain(&of([3, 1, 1, 1, 1, 1, 1, 1]), 255, ended).is_err());
    }

    #[test]
    fn the_ragged_edge_of_a_trim_may_be_old_or_zeros() {
        let edge = Entry { zeros: true, optional: true, ..entry(2, 0b11, 3, Some(4)) };
        let both = history(&[entry(1, 255, 1, Some(2)), edge]);
        assert_eq!(both.explain(&of([1; 8]), 255, ended), Ok(()));
        assert_eq!(both.explain(&of([0, 0, 1, 1, 1, 1, 1, 1]), 255, ended), Ok(()));
        assert_eq!(both.explain(&of([0, 1, 1, 1, 1, 1, 1, 1]), 255, ended), Ok(()));
        assert!(both.explain(&of([0, 0, 0, 1, 1, 1, 1, 1]), 255, ended).is_err());
    }

    #[test]
    fn a_durable_neighbour_must_survive_a_small_write() {
        let both = history(&[entry(1, 255, 1, Some(2)), entry(2, 0b10, 3, None)]);
        assert_eq!(both.explain(&of([1, 2, 1, 1, 1, 1, 1, 1]), 255, ended), Ok(()));
        assert!(both.explain(&of([0, 2, 0, 0, 0, 0, 0, 0]), 255, ended).is_err());
    }

    #[test]
    fn what_a_durable_write_covers_is_forgotten_unless_a_read_may_still_see_it() {
        let both = history(&[entry(1, 0b11, 1, Some(2)), entry(2, 255, 3, Some(4))]);
        let mut pruned = both.clone();
        pruned.prune(|_| true, 3);
        assert_eq!(pruned.entries.len(), 2, "a read began before write 2 ended");
        pruned.prune(|_| true, 4);
        assert_eq!(pruned.entries, both.entries[1..]);
        assert!(pruned.explain(&of([1, 1, 2, 2, 2, 2, 2, 2]), 255, ended).is_err());
    }
}
