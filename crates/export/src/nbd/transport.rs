//! The byte stream under the protocol: one receive and one send in flight at a time.
//!
//! The protocol is generic over it, so that the plain path pays nothing for TLS.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use io::{Buf, IoError, Socket, Transferring};

/// What a transfer gives back: the buffer, and the bytes moved.
pub(super) type Moved = (Buf, Result<usize, IoError>);

/// A stream of bytes in both directions.
pub(super) trait Transport {
    /// Begins to receive into the front of `buf`. None may be in flight.
    fn start_receive(&mut self, buf: Buf);

    /// Ends the receive: at least one byte, or 0 at the end of the stream.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Moved>;

    /// Begins to send all of `buf`. None may be in flight.
    fn start_send(&mut self, buf: Buf);

    /// Ends the send.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Moved>;

    /// Takes leave of the peer, where the stream has a way to; nothing may be in flight.
    fn poll_close(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Ends the connection: transfers in flight end soon after.
    fn shutdown(&self);

    /// Receives at least one byte, or 0 at the end of the stream.
    async fn receive(&mut self, buf: Buf) -> Moved {
        self.start_receive(buf);
        poll_fn(|context| self.poll_receive(context)).await
    }

    /// Sends all of `buf`.
    async fn send(&mut self, buf: Buf) -> Moved {
        self.start_send(buf);
        poll_fn(|context| self.poll_send(context)).await
    }
}

/// The socket itself.
pub(super) struct Plain {
    socket: Socket,
    receiving: Option<Transferring>,
    sending: Option<Transferring>,
}

impl Plain {
    pub(super) fn new(socket: Socket) -> Plain {
        Plain { socket, receiving: None, sending: None }
    }
}

impl Transport for Plain {
    fn start_receive(&mut self, buf: Buf) {
        assert!(self.receiving.is_none(), "one receive at a time");
        self.receiving = Some(self.socket.receive(buf));
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Moved> {
        poll_transfer(&mut self.receiving, context)
    }

    fn start_send(&mut self, buf: Buf) {
        assert!(self.sending.is_none(), "one send at a time, or the bytes mix");
        self.sending = Some(self.socket.send(buf));
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Moved> {
        poll_transfer(&mut self.sending, context)
    }

    fn shutdown(&self) {
        self.socket.shutdown();
    }
}

/// Polls the transfer in `slot`; nothing in flight is never ready.
pub(super) fn poll_transfer(
    slot: &mut Option<Transferring>,
    context: &mut Context<'_>,
) -> Poll<Moved> {
    let Some(transfer) = slot else { return Poll::Pending };
    let moved = ready!(Pin::new(transfer).poll(context));
    *slot = None;
    Poll::Ready(moved)
}
