//! Memory for what is written, on its way from a session thread to the executor.
//!
//! It is allocated on one thread and freed on another, in pieces of up to a megabyte: the allocator would give each
//! back to the kernel, and the next would be made of fresh pages. So pieces are kept and used again.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// Pieces kept while nobody uses them; each holds one request.
const PIECES_MAX: usize = 32;

/// The pieces that wait to be used again. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Spares(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spares {
    /// A copy of the bytes.
    pub(super) fn copy_of(&self, bytes: &[u8]) -> Copied {
        let spare = self.pieces(|pieces| pieces.pop());
        let mut piece = spare.unwrap_or_default();
        piece.clear();
        piece.extend_from_slice(bytes);
        Copied { piece, home: self.clone() }
    }

    fn pieces<T>(&self, what: impl FnOnce(&mut Vec<Vec<u8>>) -> T) -> T {
        // A list of unused memory cannot be left half changed.
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Bytes that were copied; their memory is used again when they are dropped.
pub(super) struct Copied {
    piece: Vec<u8>,
    home: Spares,
}

impl Deref for Copied {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.piece
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let piece = std::mem::take(&mut self.piece);
        self.home.pieces(|pieces| {
            if pieces.len() < PIECES_MAX {
                pieces.push(piece);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_holds_the_new_bytes_alone() {
        let spares = Spares::default();
        let long = spares.copy_of(&[7; 5000]);
        let place = long.as_ptr();
        assert_eq!(&long[..], [7; 5000]);
        drop(long);
        let short = spares.copy_of(&[1, 2, 3]);
        assert_eq!(&short[..], [1, 2, 3]);
        assert_eq!(short.as_ptr(), place);
        let beside = spares.copy_of(&[9; 4000]);
        assert_ne!(beside.as_ptr(), place, "two that live share nothing");
        assert_eq!(&short[..], [1, 2, 3]);
    }

    #[test]
    fn what_a_burst_leaves_is_bounded() {
        let spares = Spares::default();
        let burst: Vec<Copied> = (0..PIECES_MAX + 9).map(|_| spares.copy_of(&[0; 64])).collect();
        drop(burst);
        assert_eq!(spares.pieces(|pieces| pieces.len()), PIECES_MAX);
    }
}
