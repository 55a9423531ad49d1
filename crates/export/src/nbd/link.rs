//! A transport with its inbox: what the handshake reads and writes in exact amounts.

use io::{ErrorKind, IoError, Pool};

use super::inbox::Inbox;
use super::transport::Transport;

/// Both directions of a connection in its handshake.
pub(super) struct Link<T> {
    pub(super) transport: T,
    pub(super) inbox: Inbox,
    pool: Pool,
}

impl<T: Transport> Link<T> {
    pub(super) fn new(transport: T, pool: Pool) -> Link<T> {
        Link { transport, inbox: Inbox::new(pool.clone()), pool }
    }

    /// The bytes received and not consumed.
    pub(super) fn unread(&self) -> &[u8] {
        self.inbox.unread()
    }

    /// The next `bytes` are done with.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.inbox.consume(bytes);
    }

    /// Waits until `bytes` are unread.
    pub(super) async fn need(&mut self, bytes: usize) -> Result<(), IoError> {
        while self.unread().len() < bytes {
            let buf = self.inbox.prepare(bytes);
            let (buf, outcome) = self.transport.receive(buf).await;
            let count = *outcome.as_ref().unwrap_or(&0);
            self.inbox.arrived(buf, count);
            if outcome? == 0 {
                return Err(IoError::new(
                    ErrorKind::Disconnected,
                    "the peer left during the handshake",
                ));
            }
        }
        Ok(())
    }

    /// Takes the next `N` bytes.
    pub(super) async fn take<const N: usize>(&mut self) -> Result<[u8; N], IoError> {
        self.need(N).await?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.unread()[..N]);
        self.consume(N);
        Ok(bytes)
    }

    /// Receives `bytes` and forgets them.
    pub(super) async fn skip(&mut self, mut bytes: usize) -> Result<(), IoError> {
        while bytes > 0 {
            self.need(1).await?;
            let count = self.unread().len().min(bytes);
            self.consume(count);
            bytes -= count;
        }
        Ok(())
    }

    /// Sends `bytes`.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), IoError> {
        let mut buf = self.pool.take(bytes.len());
        buf.copy_from_slice(bytes);
        self.transport.send(buf).await.1.map(|_| ())
    }
}
