//! How an NBD server is set up.

use super::Tls;

/// Settings of an [`super::NbdServer`]. Start from the default and change what differs.
#[derive(Debug, Clone)]
pub struct NbdOptions {
    /// Name of the export; clients may also ask for the empty name.
    pub export_name: String,
    /// Shown to people by clients that list exports; may be empty.
    pub description: String,
    /// Refuse writes even if the volume takes them.
    pub read_only: bool,
    /// Tell clients that the volume behaves like a spinning disk.
    pub rotational: bool,
    /// TLS: without it, every client that can connect is served.
    pub tls: Option<Tls>,
    /// Requests of one connection between arrival and reply. Clients rarely keep more than 128;
    /// each costs a few kilobytes once it has been used.
    pub in_flight_max: usize,
    /// Payload bytes of one connection between arrival and reply; with a single request it may
    /// be exceeded, by up to 32 MiB in all. What peers that do not read their replies can hold of
    /// the server's memory is this times `connections_max`.
    pub in_flight_bytes_max: u64,
    /// Connections at a time; more are closed at once.
    pub connections_max: usize,
    /// A client that has not finished its handshake after this long is closed.
    pub handshake_ms: u32,
}

impl Default for NbdOptions {
    fn default() -> NbdOptions {
        NbdOptions {
            export_name: String::new(),
            description: String::new(),
            read_only: false,
            rotational: false,
            tls: None,
            in_flight_max: 256,
            // One request of the greatest length, or 256 of 128 KiB.
            in_flight_bytes_max: 32 << 20,
            connections_max: 128,
            handshake_ms: 10_000,
        }
    }
}
