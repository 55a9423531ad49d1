//! The array by itself.

use super::*;
use crate::model::Latencies;
use crate::{Bench, Load, Pattern, Profile, Random};

fn array(members: usize) -> Raid5 {
    let latencies = Latencies { jitter_percent: 0, channels: 1, ..Latencies::disk() };
    let member = || -> Box<dyn Model> {
        Box::new(crate::model::Channels::new(latencies.clone(), Random::new(1)))
    };
    Raid5::new((0..members).map(|_| member()).collect(), 64 << 10)
}

#[test]
fn parity_goes_round_and_units_never_share_a_place() {
    let array = array(4);
    let mut places = std::collections::BTreeSet::new();
    for stripe in 0..8 {
        assert!(places.insert((array.parity(stripe), stripe)));
    }
    for unit in 0..24 {
        let (member, stripe) = array.unit(unit);
        assert!(places.insert((member, stripe)), "unit {unit}");
    }
    assert_eq!(places.len(), 32);
}

#[test]
fn a_small_write_costs_four_requests_and_a_whole_stripe_one_for_each_member() {
    let counted = |at: u64, length: u64| {
        let mut array = array(4);
        let request = Request { kind: Kind::Write, at, length };
        assert_eq!(array.submit(0, 1, &request), None);
        let (mut requests, mut finished) = (0, Vec::new());
        while finished.is_empty() {
            requests += array.members.iter().filter(|member| member.next_ns().is_some()).count();
            let now_ns = array.next_ns().unwrap();
            array.advance(now_ns, &mut finished);
        }
        requests
    };
    assert_eq!(counted(4096, 4096), 4);
    assert_eq!(counted(0, 3 * (64 << 10)), 4);
    assert_eq!(counted(0, 6 * (64 << 10)), 4);
}

#[test]
fn the_array_reads_at_random_what_its_members_read_together() {
    let array = Profile::named("raid5-4x-hus156060vl").unwrap();
    let rate = |clients| {
        let load = Load {
            kind: Kind::Read,
            pattern: Pattern::Random,
            block_bytes: 4096,
            range: 0..array.size_bytes() / 4096 * 4096,
            clients,
            flushes: 0,
        };
        let mut bench = Bench::new(array.model(Random::new(1)), Random::new(2));
        bench.run(&load, 60_000_000_000, 20_000).per_second()
    };
    let [one, four, many] = [1, 4, 64].map(rate);
    // Four requests meet on average 2.7 different members of four.
    assert!((2.4..3.1).contains(&(four / one)), "{one} {four}");
    assert!(many > 3.9 * one, "{one} {many}");
}
