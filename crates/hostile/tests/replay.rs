//! Every seed and every input that once was a bug, and simple mutations of them, on any compiler.

use std::fs;
use std::path::Path;

use hostile::TARGETS;
use twin::Random;

/// Mutations of each seed: all together take some seconds.
const MUTATIONS: u64 = 60;

/// What is committed in `fuzz/seeds`.
fn committed(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut seeds: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    seeds.sort();
    seeds
}

#[test]
fn every_committed_seed_is_survived() {
    for target in TARGETS {
        for (name, bytes) in committed(target.name) {
            println!("{}/{name}", target.name);
            (target.run)(&bytes);
        }
    }
}

#[test]
fn the_committed_seeds_are_what_the_code_writes_today() {
    for target in TARGETS {
        let committed = committed(target.name);
        for seed in (target.seeds)() {
            assert!(
                committed.contains(&seed),
                "{}/{}: make them anew: cargo run -p bimetal-hostile --example seeds",
                target.name,
                seed.0
            );
        }
    }
}

#[test]
fn mutations_of_the_seeds_are_survived() {
    for target in TARGETS {
        for (name, seed) in committed(target.name) {
            for number in 0..MUTATIONS {
                let mut random = Random::new(number);
                let bytes = mutated(seed.clone(), &mut random);
                println!("{}/{name}, mutation {number}", target.name);
                (target.run)(&bytes);
            }
        }
    }
}

fn mutated(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        let value = random.bits() as u8;
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, value),
            2 if at < bytes.len() => bytes[at] ^= 1 << (value % 8),
            3 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][usize::from(value) % 5],
            _ if at < bytes.len() => bytes[at] = value,
            _ => {}
        }
    }
    bytes
}
