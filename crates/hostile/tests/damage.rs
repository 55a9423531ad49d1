//! A fixed sample of all damage to two small volumes. `cargo run --release -p bimetal-hostile
//! --example damage` does all of it.

use std::collections::BTreeMap;

use hostile::damage::{Outcome, Verdict, cases, images, judge};

/// One case of so many is tried: some ten seconds in a debug build. A prime, so that every kind of
/// damage meets every kind of place.
const STRIDE: usize = 307;

#[test]
fn damage_anywhere_is_repaired_or_told_and_nothing_wrong_is_returned() {
    let mut outcomes: BTreeMap<Outcome, u64> = BTreeMap::new();
    let (mut rescues, mut best) = (0, 0);
    for image in images() {
        for damage in cases(&image).into_iter().step_by(STRIDE) {
            match judge(&image, &damage) {
                Ok(Verdict { outcome, rescued }) => {
                    *outcomes.entry(outcome).or_default() += 1;
                    rescues += u64::from(rescued.is_some());
                    best = best.max(rescued.map_or(0, |rescued| rescued.right));
                }
                Err(why) => panic!("{} volume, {damage:?}: {why}", image.name),
            }
        }
    }
    println!("{outcomes:?}");
    assert!(rescues > 10 && best > 0, "{rescues} rescues brought back {best} blocks at best");
    let kinds = [Outcome::Right, Outcome::Refused, Outcome::ReadError, Outcome::HomeChanged];
    for outcome in kinds {
        assert!(outcomes.contains_key(&outcome), "the sample has no {outcome:?}");
    }
}
