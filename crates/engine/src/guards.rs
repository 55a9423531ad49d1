//! Which extents are being written by requests, so that requests and background work that would
//! harm each other take turns:
//! * an unaligned write reads, changes and writes whole blocks: it holds its extents alone;
//! * a home that is being written in place is not copied or rewritten in the background.

use crate::address::ExtentId;
use crate::fixed_map::FixedMap;

#[derive(Debug, Default, Clone, Copy)]
struct Guard {
    writers: u32,
    home_writers: u32,
    alone: bool,
}

/// How a request uses an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Writes whole blocks through the log or into a fresh slot.
    Shared,
    /// Writes whole blocks into the extent's home.
    Home,
    /// Reads, changes and writes blocks: nobody else may write meanwhile.
    Alone,
}

#[derive(Default)]
pub(crate) struct Guards {
    extents: FixedMap<u64, Guard>,
    /// Extents held alone: mostly none, so that the common check is one comparison.
    alone: u64,
}

impl Guards {
    /// Whether some extent of the range is held alone.
    pub fn any_alone(&self, first: ExtentId, count: u64) -> bool {
        if self.alone == 0 {
            return false;
        }
        if count > self.extents.len() as u64 {
            let range = first.0..first.0 + count;
            return self.extents.iter().any(|(x, guard)| guard.alone && range.contains(x));
        }
        (first.0..first.0 + count).any(|x| self.extents.get(&x).is_some_and(|guard| guard.alone))
    }

    /// Whether some extent of the range is being written by requests that share it.
    pub fn any_writer(&self, first: ExtentId, count: u64) -> bool {
        (first.0..first.0 + count).any(|x| {
            self.extents.get(&x).is_some_and(|guard| guard.writers + guard.home_writers > 0)
        })
    }

    /// Whether some home is being written in place.
    pub fn any_home_written(&self) -> bool {
        self.extents.values().any(|guard| guard.home_writers > 0)
    }

    pub fn home_written(&self, extent: ExtentId) -> bool {
        self.extents.get(&extent.0).is_some_and(|guard| guard.home_writers > 0)
    }

    pub fn enter(&mut self, first: ExtentId, count: u64, hold: Hold) {
        for extent in first.0..first.0 + count {
            let guard = self.extents.entry(extent).or_default();
            match hold {
                Hold::Shared => guard.writers += 1,
                Hold::Home => guard.home_writers += 1,
                Hold::Alone => {
                    assert!(!guard.alone, "an extent is held alone by one");
                    guard.alone = true;
                    self.alone += 1;
                }
            }
        }
    }

    pub fn leave(&mut self, first: ExtentId, count: u64, hold: Hold) {
        for extent in first.0..first.0 + count {
            let guard = self.extents.get_mut(&extent).expect("who leaves has entered");
            match hold {
                Hold::Shared => guard.writers -= 1,
                Hold::Home => guard.home_writers -= 1,
                Hold::Alone => {
                    guard.alone = false;
                    self.alone -= 1;
                }
            }
            if guard.writers == 0 && guard.home_writers == 0 && !guard.alone {
                self.extents.remove(&extent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_is_seen_by_ranges_of_any_length() {
        let mut guards = Guards::default();
        let extent = ExtentId(1000);
        guards.enter(ExtentId(5), 2, Hold::Home);
        assert!(!guards.any_alone(ExtentId(0), u64::from(u32::MAX)));
        guards.enter(extent, 1, Hold::Alone);
        assert!(guards.any_alone(extent, 1));
        assert!(guards.any_alone(ExtentId(0), 1 << 40));
        assert!(!guards.any_alone(ExtentId(1001), 1 << 40));
        assert!(guards.home_written(ExtentId(6)) && !guards.home_written(extent));
        guards.leave(extent, 1, Hold::Alone);
        guards.leave(ExtentId(5), 2, Hold::Home);
        assert!(!guards.any_writer(ExtentId(0), 2000));
    }
}
