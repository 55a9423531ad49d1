//! What a drive says of itself, and what the kernel says of it.

use serde::{Deserialize, Serialize};
use twin::Profile;

use crate::reference;

/// See the head of the file. What is not known is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Where it was, as the command line said it.
    pub place: String,
    /// `block device`, `file`, `network block device`, `twin`.
    pub kind: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Maker's name of the model.
    pub model: Option<String>,
    /// Version of its firmware.
    pub firmware: Option<String>,
    /// Whether platters turn in it.
    pub rotational: Option<bool>,
    /// How often a minute.
    pub rpm: Option<u32>,
    /// Unit of access in bytes.
    pub sector_bytes: Option<u32>,
    /// Unit that it keeps, in bytes.
    pub physical_sector_bytes: Option<u32>,
    /// It has a volatile write cache, which is on.
    pub write_cache: Option<bool>,
    /// How it is connected.
    pub link: Option<Link>,
    /// How the kernel cuts and queues requests to it.
    pub queue: Option<Queue>,
    /// What its maker says of it.
    #[serde(default)]
    pub advertised: Vec<Advertised>,
    /// A twin of this model that is part of the program.
    pub known_twin: Option<String>,
    /// What stands between us and the drive: its own answers are not seen.
    pub hidden_by: Option<String>,
    /// The kernel counts the requests that it sends to it.
    #[serde(default)]
    pub counts_requests: bool,
}

/// How a drive is connected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// In words: `SATA 6.0 Gbps`.
    pub name: String,
    /// What its coding leaves of that, 10^6 bytes per second.
    pub mb_s: f64,
}

/// How the kernel cuts and queues requests (`/sys/block/…/queue`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Largest request that it makes; can be set.
    pub max_sectors_kb: Option<u64>,
    /// Largest request that the hardware takes.
    pub max_hw_sectors_kb: Option<u64>,
    /// Pieces of memory in a request.
    pub max_segments: Option<u64>,
    /// Largest of these pieces.
    pub max_segment_bytes: Option<u64>,
    /// Requests that wait in the kernel.
    pub requests_max: Option<u64>,
    /// Requests that the drive takes at a time.
    pub device_depth: Option<u64>,
    /// Who orders them.
    pub scheduler: Option<String>,
}

/// A figure of a data sheet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advertised {
    /// What of.
    pub what: String,
    /// How much.
    pub value: f64,
    /// Of what unit.
    pub unit: String,
}

impl Identity {
    /// What a simulated drive says of itself: what a real one would, and no more.
    pub fn of_twin(place: &str, profile: &Profile) -> Identity {
        let setting = profile.setting();
        Identity {
            place: place.to_owned(),
            kind: "twin".to_owned(),
            size_bytes: profile.size_bytes(),
            model: Some(profile.title().to_owned()),
            rotational: Some(profile.rotational()),
            write_cache: Some(setting.write_cache),
            ..Identity::default()
        }
        .with_what_is_known()
    }

    /// Something with a size, of which no more is known.
    pub fn unknown(place: &str, kind: &str, size_bytes: u64) -> Identity {
        let (place, kind) = (place.to_owned(), kind.to_owned());
        Identity { place, kind, size_bytes, ..Identity::default() }
    }

    /// Adds what is known of the model: its twin, and what its maker says of it.
    pub fn with_what_is_known(mut self) -> Identity {
        let model = self.model.as_deref().unwrap_or_default().to_lowercase();
        let profiles = Profile::list();
        // A model's name has letters and digits; "disk" in somebody's title is none.
        let known = profiles.iter().find(|profile| {
            let name = profile.name().split('-').next().unwrap_or_default();
            name.len() >= 6 && name.bytes().any(|b| b.is_ascii_digit()) && model.contains(name)
        });
        let Some(profile) = known else { return self };
        self.known_twin = Some(profile.name().to_owned());
        for (name, number) in profile.part().chain().flat_map(|part| &part.numbers) {
            if number.source.starts_with("data sheet") {
                let (what, unit) = name.split_once('_').unwrap_or((name, ""));
                self.advertised.push(Advertised {
                    what: if unit.is_empty() { "turns" } else { what }.to_owned(),
                    value: number.value,
                    unit: if unit.is_empty() { "rpm".to_owned() } else { unit.replace('_', "/") },
                });
            }
        }
        for row in reference::rows() {
            let specified = row.kind.as_deref() == Some("specification");
            if let (true, Some((value, _))) = (specified, row.published())
                && row.device.as_deref() == Some(profile.name())
            {
                let unit = if row.unit.is_empty() { "io/s".to_owned() } else { row.unit.clone() };
                let what = row.id.trim_start_matches("nr-ssd-").trim_end_matches("-spec");
                self.advertised.push(Advertised { what: what.to_owned(), value, unit });
            }
        }
        self
    }
}
