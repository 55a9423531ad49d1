//! A volume file, `NAME.toml`.

use std::path::Path;

use crate::volume_file::VolumeFile;
use crate::{Seed, Target, seed};

pub(crate) const TARGET: Target = Target { name: "volume_file", run, seeds };

fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let path = Path::new("volume.toml");
    if let Ok(file) = VolumeFile::parse(text, path) {
        let again = toml::to_string(&file).expect("what was read can be written");
        assert_eq!(VolumeFile::parse(&again, path).ok(), Some(file));
    }
}

fn seeds() -> Vec<Seed> {
    let lines = "name = \"vol0\"\nvolume = \"11112222-3333-4444-5555-666677778888\"\n\
                 fast = \"/dev/disk/by-id/nvme-x\"\nslow = \"/srv/slow.img\"\n";
    vec![
        seed("plain", format!("# A comment.\n{lines}")),
        seed("unknown-field", format!("{lines}fats = \"/dev/sda\"\n")),
        seed("odd", "name = 'v'\nvolume = \"\\u00e4\"\nfast = \"\"\"\na\"\"\"\nslow = 5\n"),
    ]
}
