//! One end of a TLS session, as pure bytes in and bytes out: no socket, no waiting.

use io::IoError;

/// What reading plaintext gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Plaintext {
    /// This many bytes.
    Bytes(usize),
    /// Nothing before more ciphertext has come.
    Starved,
    /// The peer has closed the session properly.
    End,
}

/// The server's end of a session.
pub(in super::super) trait Session {
    /// Takes received ciphertext and gives how many bytes of it were taken. Read all plaintext
    /// before feeding more.
    fn feed(&mut self, ciphertext: &[u8]) -> Result<usize, IoError>;

    /// Goes on with the handshake; whether it is complete.
    fn handshake(&mut self) -> Result<bool, IoError>;

    /// Decrypted bytes.
    fn read(&mut self, plain: &mut [u8]) -> Result<Plaintext, IoError>;

    /// Encrypts; gives how many bytes were taken, 0 until ciphertext has been emitted.
    fn write(&mut self, plain: &[u8]) -> Result<usize, IoError>;

    /// Puts ciphertext to send into `out` and gives its length; 0: there is none.
    fn emit(&mut self, out: &mut [u8]) -> usize;

    /// Says goodbye: a last message to emit.
    fn close(&mut self);
}
