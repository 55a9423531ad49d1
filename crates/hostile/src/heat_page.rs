//! A heat page, as a volume with the right tag would find it at its place.

use engine::format::heat_page::{HEAT_PAGE_BYTES, encode, entries, saving};
use engine::{ExtentId, HeatLevel};

use crate::{Seed, Target, make_checksum_right, seed};

/// Where the checksum is.
const CRC_AT: usize = 12;
const TAG: u64 = 42;
const SAVING: u64 = 7;
const PAGE: u32 = 3;

pub(crate) const TARGET: Target = Target { name: "heat_page", run, seeds };

fn run(bytes: &[u8]) {
    let _ = saving(bytes, TAG, PAGE);
    let mut page = vec![0; HEAT_PAGE_BYTES];
    let length = bytes.len().min(HEAT_PAGE_BYTES);
    page[..length].copy_from_slice(&bytes[..length]);
    make_checksum_right(&mut page, CRC_AT);
    let Some(number) = saving(&page, TAG, PAGE) else { return };
    let known: Vec<_> = entries(&page).collect();
    assert!(known.is_sorted_by_key(|(extent, _)| *extent));
    let mut again = vec![0; HEAT_PAGE_BYTES];
    let left = encode(&mut again, (TAG, number, PAGE), &known).len();
    assert!(entries(&again).eq(known[..known.len() - left].iter().copied()));
}

fn seeds() -> Vec<Seed> {
    let page = |name: &str, extents: &[(ExtentId, HeatLevel)]| {
        let mut bytes = vec![0; HEAT_PAGE_BYTES];
        encode(&mut bytes, (TAG, SAVING, PAGE), extents);
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        seed(name, &bytes[..end])
    };
    let near: Vec<_> = (10..40).map(|extent| (ExtentId(extent), HeatLevel(extent as u8))).collect();
    let far: Vec<_> = (0..9).map(|n| (ExtentId(n << 50), HeatLevel(200))).collect();
    vec![page("nothing", &[]), page("near", &near), page("far", &far)]
}
