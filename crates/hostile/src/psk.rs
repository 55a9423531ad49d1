//! A file of shared keys.

use export::nbd::PskKeys;

use crate::{Seed, Target, seed};

pub(crate) const TARGET: Target = Target { name: "psk_file", run, seeds };

fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(keys) = PskKeys::parse(text) {
        assert!(keys.users() > 0);
    }
}

fn seeds() -> Vec<Seed> {
    let key = "f4b1ff39e4bb1a8f6f3a25a2e0b0d7fc66a3f5ce0c1d5e1a9e8f7d6c5b4a3928";
    vec![
        seed("one", format!("alice:{key}\n")),
        seed("commented", format!("# made by psktool\n\n bob:{key}\nd:e:{key}\r\n")),
        seed("wrong", "alice\nbob:xyz\n:00\n"),
    ]
}
