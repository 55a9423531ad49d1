//! What may move: a share of what clients move.

/// Bytes moved up for each byte of clients.
const SHARE: f64 = 0.5;
/// How far the account may fill.
const BYTES_MAX: f64 = (32u64 << 20) as f64;

pub(crate) struct Budget {
    bytes: f64,
}

impl Budget {
    pub fn new() -> Budget {
        Budget { bytes: BYTES_MAX }
    }

    pub fn earn(&mut self, client_bytes: u64) {
        self.bytes = (self.bytes + SHARE * client_bytes as f64).min(BYTES_MAX);
    }

    pub fn covers(&self, bytes: u64) -> bool {
        self.bytes >= bytes as f64
    }

    /// What is spent although it was not covered is not owed.
    pub fn spend(&mut self, bytes: u64) {
        self.bytes = (self.bytes - bytes as f64).max(0.0);
    }
}
