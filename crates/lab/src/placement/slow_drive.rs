//! What a request costs on a disk, as the study has it: positioning unless a request continues one
//! of the last few streams, and the bytes.
//!
//! Plain on purpose: it weighs policies against each other and does not tell what a certain drive
//! would take; the twins do that.

/// Seek, settle and half a turn of a 7200 rpm disk.
const READ_POSITIONING_S: f64 = 8e-3;
/// The same for a write, which the drive's cache lets it sort among others.
const WRITE_POSITIONING_S: f64 = 5.5e-3;
/// What passes under the head.
const BYTES_PER_S: f64 = 150e6;
/// Streams that the drive's own cache segments and scheduler keep going.
const STREAMS: usize = 4;
/// A request this little ahead of a stream's end continues it.
const GAP_BYTES: u64 = 64 << 10;

/// See the head of the file.
#[derive(Debug, Default, Clone)]
pub struct SlowDrive {
    /// Ends of the streams, the latest last.
    ends: [Option<u64>; STREAMS],
    /// Time it was busy.
    pub busy_s: f64,
}

impl SlowDrive {
    /// Reads; returns the time it takes.
    pub fn read(&mut self, at: u64, length: u64) -> f64 {
        self.serve(READ_POSITIONING_S, at, length)
    }

    /// Writes; returns the time it takes.
    pub fn write(&mut self, at: u64, length: u64) -> f64 {
        self.serve(WRITE_POSITIONING_S, at, length)
    }

    /// The time so many bytes take to pass under the head.
    pub fn transfer_s(bytes: u64) -> f64 {
        bytes as f64 / BYTES_PER_S
    }

    fn serve(&mut self, positioning_s: f64, at: u64, length: u64) -> f64 {
        let continued = self
            .ends
            .iter()
            .position(|end| end.is_some_and(|end| (end..=end + GAP_BYTES).contains(&at)));
        let mut taken_s = SlowDrive::transfer_s(length);
        if continued.is_none() {
            taken_s += positioning_s;
        }
        // The continued one, or the one not used for longest, becomes the latest.
        self.ends[continued.unwrap_or(0)..].rotate_left(1);
        self.ends[STREAMS - 1] = Some(at + length);
        self.busy_s += taken_s;
        taken_s
    }
}
