//! A map page, as a volume with the right tag would find it at its place.

use engine::format::map_page::{
    ENTRIES_PER_PAGE, EntryForm, PAGE_BYTES, PageCopy, Part, Residence, encode, encode_home,
    entries, examine,
};
use engine::{ExtentId, Home, Lsn, SlotId, Tier};

use crate::{Seed, Target, make_checksum_right, seed};

/// Where the checksum is.
pub(crate) const CRC_AT: usize = 32;
const TAG: u64 = 42;
const PAGE: u64 = 3;

pub(crate) const TARGET: Target = Target { name: "map_page", run, seeds };

fn run(bytes: &[u8]) {
    let _ = examine(bytes, TAG, PAGE);
    let mut page = vec![0; PAGE_BYTES];
    let length = bytes.len().min(PAGE_BYTES);
    page[..length].copy_from_slice(&bytes[..length]);
    make_checksum_right(&mut page, CRC_AT);
    let PageCopy::Valid(lsn) = examine(&page, TAG, PAGE) else { return };
    let raw: Vec<u64> = entries(&page).collect();
    for form in
        [EntryForm::OnePlace, EntryForm::TwoPlaces, EntryForm::OwnSlot, EntryForm::OwnSlotInParts]
    {
        let first = PAGE * ENTRIES_PER_PAGE as u64;
        for (extent, entry) in (first..).map(ExtentId).zip(&raw) {
            if let Some(residence) = form.decode(*entry, extent) {
                assert_eq!(form.encode(residence), *entry);
            }
        }
    }
    let mut again = vec![0; PAGE_BYTES];
    encode(&mut again, TAG, PAGE, lsn, &raw);
    assert_eq!(examine(&again, TAG, PAGE), PageCopy::Valid(lsn));
    assert!(entries(&again).eq(raw));
}

fn seeds() -> Vec<Seed> {
    let page = |name: &str, raw: &[u64]| {
        let mut bytes = vec![0; PAGE_BYTES];
        encode(&mut bytes, TAG, PAGE, Lsn(1000), raw);
        seed(name, &bytes[..64 + raw.len() * 8])
    };
    let home = |tier, slot| encode_home(Some(Home { tier, slot: SlotId(slot) }));
    let in_part = |blocks: &[u64]| {
        let part = Part::of(blocks.iter().copied(), 32).expect("some blocks");
        let own = Home { tier: Tier::Slow, slot: SlotId(PAGE * ENTRIES_PER_PAGE as u64) };
        let copy = Home { tier: Tier::Fast, slot: SlotId(6) };
        EntryForm::OwnSlotInParts.encode(Residence::in_part(copy, own, part))
    };
    vec![
        page("holes", &[]),
        page("both-drives", &[home(Tier::Fast, 0), 0, home(Tier::Slow, 7), home(Tier::Slow, 8)]),
        page(
            "two-places",
            &[
                EntryForm::TwoPlaces.encode(Residence::copy(
                    Home { tier: Tier::Fast, slot: SlotId(5) },
                    Home { tier: Tier::Slow, slot: SlotId(9) },
                )),
                home(Tier::Slow, 9),
                u64::MAX,
                7 << 61,
            ],
        ),
        page("in-parts", &[in_part(&[0]), in_part(&[1, 30, 31]), 7 << 61, u64::MAX >> 5]),
        page("full", &(0..64).map(|slot| home(Tier::Slow, slot)).collect::<Vec<_>>()),
    ]
}
