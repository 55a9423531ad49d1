//! NBD: the volume as a network block device, over unix sockets and TCP.
//!
//! * Fixed newstyle handshake, one export (by its name or the empty name), structured replies,
//!   metadata contexts `base:allocation` and `bimetal:tier`; every command and flag of the
//!   protocol but resizing and extended headers.
//! * Access is in multiples of the volume's sector (512 bytes), which is advertised; what is not
//!   aligned is refused with `EINVAL`.
//! * Nothing a client says is believed: sizes are bounded before memory is taken, and a refused
//!   request leaves the connection usable.
//!
//! Who does what: `server` accepts and ends, `haggle` negotiates, `connection` transmits,
//! `crew` carries the calls into the volume, `outgoing` batches the replies.

mod address;
mod connection;
mod context;
pub(crate) mod crew;
mod export;
mod haggle;
mod in_flight;
mod inbox;
mod link;
mod options;
mod outgoing;
mod protocol;
mod reply;
mod request;
mod roster;
mod server;
mod tls;
mod transport;

pub use address::{check_plain_address, is_loopback};
pub use options::NbdOptions;
pub use server::NbdServer;
pub use tls::{ClientCertificates, PskKeys, Tls};
