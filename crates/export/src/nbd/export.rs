//! What the handshake says about the one export of a server.

use io::VolumeInfo;

use super::protocol::{PAYLOAD_BYTES_MAX, transmission_flag};

/// The export's face to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) name: String,
    /// For people; may be empty.
    pub(super) description: String,
    pub(super) info: VolumeInfo,
    pub(super) read_only: bool,
    pub(super) rotational: bool,
}

impl Export {
    /// Whether a client means this export: by its name, or by the empty (default) name.
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    /// The transmission flags for a connection.
    pub(super) fn flags(&self, structured: bool) -> u16 {
        let mut flags = transmission_flag::HAS_FLAGS
            | transmission_flag::SEND_FLUSH
            | transmission_flag::SEND_FUA
            | transmission_flag::CAN_MULTI_CONN
            | transmission_flag::SEND_CACHE;
        if structured {
            flags |= transmission_flag::SEND_DF;
        }
        if self.read_only {
            flags |= transmission_flag::READ_ONLY;
        } else {
            flags |= transmission_flag::SEND_TRIM
                | transmission_flag::SEND_WRITE_ZEROES
                | transmission_flag::SEND_FAST_ZERO;
        }
        if self.rotational {
            flags |= transmission_flag::ROTATIONAL;
        }
        flags
    }

    /// Minimum, preferred and maximum block size in bytes.
    pub(super) fn block_sizes(&self) -> [u32; 3] {
        let minimum = self.info.sector_bytes;
        // The protocol wants the preferred size to be a power of two of at least 512.
        let preferred = self.info.preferred_bytes.max(minimum).max(512).next_power_of_two();
        [minimum, preferred, PAYLOAD_BYTES_MAX]
    }
}
