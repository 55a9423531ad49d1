//! The numbers of the NBD protocol, as its published text gives them.
//!
//! All integers on the wire are big-endian. Only what this server speaks is named here.

/// First 8 bytes of the greeting.
pub(super) const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// In the greeting, and in front of every option.
pub(super) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// In front of every option reply.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// In front of every request.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// In front of a simple reply.
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// In front of a structured reply chunk.
pub(super) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags, the same bits in both directions.
pub(super) mod handshake_flag {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags: what the export can do.
pub(super) mod transmission_flag {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const ROTATIONAL: u16 = 1 << 4;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options of the handshake.
pub(super) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Kinds of option replies. Errors have the top bit set.
pub(super) mod option_reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERR_UNSUP: u32 = (1 << 31) | 1;
    pub(crate) const ERR_INVALID: u32 = (1 << 31) | 3;
    pub(crate) const ERR_TLS_REQD: u32 = (1 << 31) | 5;
    pub(crate) const ERR_UNKNOWN: u32 = (1 << 31) | 6;
    pub(crate) const ERR_TOO_BIG: u32 = (1 << 31) | 9;
}

/// Kinds of information in a reply to `INFO` and `GO`.
pub(super) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Commands of the transmission phase.
pub(super) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub(super) mod command_flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// The last chunk of a structured reply.
pub(super) const CHUNK_DONE: u16 = 1 << 0;

/// Kinds of structured reply chunks.
pub(super) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = (1 << 15) | 1;
    pub(crate) const ERROR_OFFSET: u16 = (1 << 15) | 2;
}

/// Error numbers in replies: the protocol's own, whatever the host's are.
pub(super) mod error {
    pub(crate) const EPERM: u32 = 1;
    pub(crate) const EIO: u32 = 5;
    pub(crate) const EINVAL: u32 = 22;
    pub(crate) const ENOSPC: u32 = 28;
    pub(crate) const ENOTSUP: u32 = 95;
}

/// State flags of `base:allocation`.
pub(super) mod allocation {
    /// Nothing is stored there.
    pub(crate) const HOLE: u32 = 1 << 0;
    /// It reads as zeros.
    pub(crate) const ZERO: u32 = 1 << 1;
}

/// Bytes of a request without its payload.
pub(super) const REQUEST_BYTES: usize = 28;

/// Largest read or write, in bytes. The protocol text names 32 MiB as what every client may
/// count on, and every common client stays within it.
pub(super) const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
