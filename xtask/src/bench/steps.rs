//! The rows of the benchmark: what a client does.

/// The span every row works on, in bytes; filled before.
pub const SPAN_BYTES: u64 = 1 << 30;

/// A disk does some hundred requests in a second: rows of one take so many times as long as others.
const PACED_TIMES: f64 = 4.0;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// fio's nbd engine: a call into the library per request; at depth 32 itself near the limit.
    Fio,
    /// The example `nbd_load`: batches what it sends and receives, so that the server is the limit.
    Lean,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    Read,
    Write,
    /// Seven reads for three writes; the rate is that of both.
    SevenToThree,
}

impl Mix {
    /// Whether anything is written.
    pub fn writes(self) -> bool {
        self != Mix::Read
    }
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
    /// Requests under way at once, on each connection.
    pub depth: u32,
    /// Connections.
    pub jobs: u32,
    /// What is asked for.
    pub mix: Mix,
    /// At random places, or one after another.
    pub random: bool,
    /// Of the random places few are asked for most of the time: Zipf's law, exponent 1.2.
    pub zipf: bool,
    /// Of a disk that takes its time: see [`Step::times`].
    pub paced: bool,
    /// A flush follows each write (and counts for no request of its own).
    pub flush: bool,
    /// Taken with `--all` only.
    pub long_run: bool,
}

impl Step {
    const fn random(name: &'static str, depth: u32, mix: Mix) -> Step {
        Step {
            name,
            client: Client::Fio,
            block_bytes: 4096,
            depth,
            jobs: 1,
            mix,
            random: true,
            zipf: false,
            paced: false,
            flush: false,
            long_run: false,
        }
    }

    const fn sequential(name: &'static str, block_bytes: u64, mix: Mix) -> Step {
        Step { block_bytes, random: false, ..Step::random(name, 4, mix) }
    }

    const fn flushed(name: &'static str, jobs: u32, depth: u32) -> Step {
        Step { jobs, flush: true, ..Step::random(name, depth, Mix::Write) }
    }

    /// A turn is so many times as long as others.
    pub fn times(&self) -> f64 {
        if self.paced { PACED_TIMES } else { 1.0 }
    }

    /// A row of the long run.
    const fn long(self) -> Step {
        Step { long_run: true, ..self }
    }

    const fn jobs(self, jobs: u32) -> Step {
        Step { jobs, ..self }
    }

    const fn zipf(self) -> Step {
        Step { zipf: true, ..self }
    }

    const fn paced(self) -> Step {
        Step { paced: true, ..self }
    }

    const fn lean(self) -> Step {
        Step { client: Client::Lean, ..self }
    }
}

/// All rows, in the order in which they are taken.
pub const STEPS: [Step; 27] = [
    Step::random("4K random read, depth 1", 1, Mix::Read),
    Step::random("4K random read, depth 8", 8, Mix::Read).long(),
    Step::random("4K random read, depth 32", 32, Mix::Read),
    Step::random("4K random read, depth 128", 128, Mix::Read).long(),
    Step::random("4K random read, 4 x depth 8", 8, Mix::Read).jobs(4).long(),
    Step::random("4K random read, depth 32, lean", 32, Mix::Read).lean(),
    Step::random("4K random write, depth 1", 1, Mix::Write),
    Step::random("4K random write, depth 8", 8, Mix::Write).long(),
    Step::random("4K random write, depth 32", 32, Mix::Write),
    Step::random("4K random write, depth 128", 128, Mix::Write).long(),
    Step::random("4K random write, 4 x depth 8", 8, Mix::Write).jobs(4).long(),
    Step::random("4K random write, depth 32, lean", 32, Mix::Write).lean(),
    Step::random("4K 70 % reads, depth 1", 1, Mix::SevenToThree).long(),
    Step::random("4K 70 % reads, depth 32", 32, Mix::SevenToThree).long(),
    Step::flushed("4K write + flush, depth 1", 1, 1),
    Step::flushed("4K write + flush, 4 clients", 4, 1).long(),
    Step::flushed("4K write + flush, 16 clients", 16, 1).long(),
    Step::flushed("4K write + flush, 32 clients", 32, 1).long(),
    Step::flushed("4K write + flush, depth 32", 1, 32),
    Step::sequential("128K sequential read, depth 4", 128 << 10, Mix::Read),
    Step::sequential("128K sequential write, depth 4", 128 << 10, Mix::Write),
    Step::sequential("1M sequential read, depth 4", 1 << 20, Mix::Read),
    Step::sequential("1M sequential write, depth 4", 1 << 20, Mix::Write),
    Step::random("4K random read, depth 1", 1, Mix::Read).paced(),
    Step::random("4K random read, depth 32", 32, Mix::Read).paced(),
    Step::random("4K Zipf read, depth 1", 1, Mix::Read).zipf().paced(),
    Step::random("4K Zipf 70 % reads, depth 16", 16, Mix::SevenToThree).zipf().paced(),
];
