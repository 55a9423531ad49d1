//! What zstd has compressed: frames, one after the other (RFC 8878, 3.1), as of files that were joined or
//! appended to. Each frame's checksum is looked at; those to skip are skipped; what is no frame is an error.

use std::io::{BufRead, Error, ErrorKind, Read, Result, copy, sink};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// A frame begins with these octets.
pub(super) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// One to skip with these, and any of sixteen in front.
const SKIPPED_MAGIC: [u8; 3] = [0x2a, 0x4d, 0x18];

/// Whether a file begins as one of zstd does.
pub(super) fn is_compressed(start: &[u8]) -> bool {
    let skipped = |start: &[u8]| start[0] & 0xf0 == 0x50 && start[1..4] == SKIPPED_MAGIC;
    start.starts_with(&MAGIC) || start.len() >= 4 && skipped(start)
}

/// The content of all frames.
pub(super) struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    /// Some of a frame may be to come.
    in_frame: bool,
}

impl<R: BufRead> Frames<R> {
    pub fn new(source: R) -> Frames<R> {
        Frames { source, decoder: FrameDecoder::new(), in_frame: false }
    }

    /// Gives what comes next of the frame; 0 at its end.
    fn read_frame(&mut self, buf: &mut [u8]) -> Result<usize> {
        let decoder = &mut self.decoder;
        while decoder.can_collect() == 0 && !decoder.is_finished() {
            let step = BlockDecodingStrategy::UptoBlocks(1);
            decoder.decode_blocks(&mut self.source, step).map_err(Error::other)?;
        }
        decoder.read(buf)
    }

    fn verify_checksum(&self) -> Result<()> {
        let Some(said) = self.decoder.get_checksum_from_data() else { return Ok(()) };
        if self.decoder.get_calculated_checksum().is_none_or(|found| found == said) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidData, "a frame's content does not match its checksum"))
    }

    /// Goes to the next frame with content; false at the end.
    fn begin_frame(&mut self) -> Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if copy(&mut (&mut self.source).take(length), &mut sink())? < length {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(problem) => return Err(Error::other(problem)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            if self.in_frame {
                let count = self.read_frame(buf)?;
                if count > 0 {
                    return Ok(count);
                }
                self.verify_checksum()?;
            }
            self.in_frame = self.begin_frame()?;
            if !self.in_frame {
                return Ok(0);
            }
        }
    }
}
