//! A TLS session over a socket, as a transport.
//!
//! Ciphertext goes through two buffers of its own; the session encrypts and decrypts between them
//! and the protocol's buffers. A session also speaks by itself (key updates, alerts), so every
//! poll in either direction sends what it has to say.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use io::{Buf, ErrorKind, IoError, Pool};

use super::session::{Plaintext, Session};
use crate::nbd::transport::{Moved, Plain, Transport};

/// Ciphertext moved at once, in bytes: a buffer class of the pool, four full records.
const CIPHERTEXT_BYTES: usize = 64 << 10;

/// The transport of a TLS connection.
pub(in super::super) struct TlsStream {
    socket: Plain,
    session: Box<dyn Session>,
    pool: Pool,
    /// Where received plaintext goes, while someone receives.
    target: Option<Buf>,
    /// Received ciphertext that the session has not taken: buffer, start, end.
    received: Option<(Buf, usize, usize)>,
    receiving: bool,
    /// Plaintext to send, and how much of it the session has taken.
    source: Option<(Buf, usize)>,
    /// Ciphertext is on its way.
    sending: bool,
    /// The goodbye has been said.
    closing: bool,
    /// Why nothing can be sent any more.
    send_failure: Option<IoError>,
}

impl TlsStream {
    /// Accepts a session on `socket`.
    pub(in super::super) async fn accept(
        socket: Plain,
        session: Box<dyn Session>,
        pool: Pool,
    ) -> Result<TlsStream, IoError> {
        let mut stream = TlsStream {
            socket,
            session,
            pool,
            target: None,
            received: None,
            receiving: false,
            source: None,
            sending: false,
            closing: false,
            send_failure: None,
        };
        let outcome = poll_fn(|context| stream.poll_handshake(context)).await;
        if outcome.is_err() {
            // The alert that tells the peer why. It may not arrive, but it must not be awaited
            // without bound either; the server bounds the whole handshake.
            poll_fn(|context| stream.pump(context)).await?;
        }
        outcome.map(|()| stream)
    }

    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<Result<(), IoError>> {
        loop {
            let complete = self.session.handshake()?;
            let sent = self.pump(context)?.is_ready();
            if complete {
                return if sent { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            if ready!(self.poll_feed(context))? == 0 {
                let message = "the peer left during the TLS handshake";
                return Poll::Ready(Err(IoError::new(ErrorKind::Disconnected, message)));
            }
        }
    }

    /// Gives the session more ciphertext; the bytes it took, 0 at the end of the stream.
    fn poll_feed(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, IoError>> {
        loop {
            if let Some((buf, start, end)) = &mut self.received {
                let taken = self.session.feed(&buf[*start..*end])?;
                *start += taken;
                if start == end {
                    self.received = None;
                } else if taken == 0 {
                    return Poll::Ready(Err(super::broken("the session takes nothing more")));
                }
                return Poll::Ready(Ok(taken));
            }
            if !self.receiving {
                self.socket.start_receive(self.pool.take(CIPHERTEXT_BYTES));
                self.receiving = true;
            }
            let (buf, outcome) = ready!(self.socket.poll_receive(context));
            self.receiving = false;
            let count = outcome?;
            if count == 0 {
                return Poll::Ready(Ok(0));
            }
            self.received = Some((buf, 0, count));
        }
    }

    /// Sends what the session has to say and the plaintext of `source`. Ready when all is sent.
    fn pump(&mut self, context: &mut Context<'_>) -> Poll<Result<(), IoError>> {
        if let Some(failure) = &self.send_failure {
            return Poll::Ready(Err(failure.clone()));
        }
        let outcome = ready!(self.try_pump(context));
        if let Err(failure) = &outcome {
            self.send_failure = Some(failure.clone());
        }
        Poll::Ready(outcome)
    }

    fn try_pump(&mut self, context: &mut Context<'_>) -> Poll<Result<(), IoError>> {
        loop {
            if self.sending {
                let (_, outcome) = ready!(self.socket.poll_send(context));
                self.sending = false;
                outcome?;
            }
            let mut left = 0;
            if let Some((buf, taken)) = &mut self.source {
                *taken += self.session.write(&buf[*taken..])?;
                left = buf.len() - *taken;
            }
            let mut ciphertext = self.pool.take(CIPHERTEXT_BYTES);
            let count = self.session.emit(&mut ciphertext);
            if count > 0 {
                ciphertext.truncate(count);
                self.socket.start_send(ciphertext);
                self.sending = true;
            } else if left == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_plaintext(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, IoError>> {
        loop {
            let Some(target) = &mut self.target else { return Poll::Pending };
            match self.session.read(target)? {
                Plaintext::Bytes(count) => return Poll::Ready(Ok(count)),
                Plaintext::End => return Poll::Ready(Ok(0)),
                Plaintext::Starved => {}
            }
            // A cut without a goodbye ends the stream as well: NBD has its own end of a request.
            if ready!(self.poll_feed(context))? == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }
}

impl Transport for TlsStream {
    fn start_receive(&mut self, buf: Buf) {
        assert!(self.target.is_none(), "one receive at a time");
        self.target = Some(buf);
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Moved> {
        let outcome = self.poll_plaintext(context);
        if self.source.is_none() {
            // What the session says by itself; with a source, `poll_send` does it. A failure
            // shows at the next send.
            let _ = self.pump(context);
        }
        let outcome = ready!(outcome);
        let buf = self.target.take().expect("checked by poll_plaintext");
        Poll::Ready((buf, outcome))
    }

    fn start_send(&mut self, buf: Buf) {
        assert!(self.source.is_none(), "one send at a time");
        self.source = Some((buf, 0));
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Moved> {
        if self.source.is_none() {
            return Poll::Pending;
        }
        let outcome = ready!(self.pump(context));
        let (buf, taken) = self.source.take().expect("checked above");
        Poll::Ready((buf, outcome.map(|()| taken)))
    }

    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.closing {
            self.closing = true;
            self.source = None;
            self.session.close();
        }
        self.pump(context).map(|_| ())
    }

    fn shutdown(&self) {
        self.socket.shutdown();
    }
}
