//! The rows of the benchmark: what a client does.

/// The span every row works on, in bytes; filled before.
pub const SPAN_BYTES: u64 = 1 << 30;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// fio's nbd engine: a call into the library per request; at depth 32 itself near the limit.
    Fio,
    /// The example `nbd_load`: batches what it sends and receives, so that the server is the limit.
    Lean,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// What the tables call it.
    pub name: &'static str,
    /// Who asks.
    pub client: Client,
    /// Size of a request.
    pub block_bytes: u64,
    /// Requests under way at once, on one connection.
    pub depth: u32,
    /// Writes, or reads.
    pub write: bool,
    /// At random places, or one after another.
    pub random: bool,
    /// A flush follows each write (and counts for no request of its own).
    pub flush: bool,
}

impl Step {
    const fn random(name: &'static str, depth: u32, write: bool) -> Step {
        let client = Client::Fio;
        Step { name, client, block_bytes: 4096, depth, write, random: true, flush: false }
    }

    const fn sequential(name: &'static str, block_bytes: u64, write: bool) -> Step {
        let client = Client::Fio;
        Step { name, client, block_bytes, depth: 4, write, random: false, flush: false }
    }
}

/// All rows, in the order in which they are taken.
pub const STEPS: [Step; 12] = [
    Step::random("4K random read, depth 1", 1, false),
    Step::random("4K random read, depth 32", 32, false),
    Step { client: Client::Lean, ..Step::random("4K random read, depth 32, lean", 32, false) },
    Step::random("4K random write, depth 1", 1, true),
    Step::random("4K random write, depth 32", 32, true),
    Step { client: Client::Lean, ..Step::random("4K random write, depth 32, lean", 32, true) },
    Step { flush: true, ..Step::random("4K write + flush, depth 1", 1, true) },
    Step { flush: true, ..Step::random("4K write + flush, depth 32", 32, true) },
    Step::sequential("128K sequential read, depth 4", 128 << 10, false),
    Step::sequential("128K sequential write, depth 4", 128 << 10, true),
    Step::sequential("1M sequential read, depth 4", 1 << 20, false),
    Step::sequential("1M sequential write, depth 4", 1 << 20, true),
];
