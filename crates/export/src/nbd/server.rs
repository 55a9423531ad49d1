//! The server: accepts connections, leads each through its handshake, and ends them all.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use io::units::{MILLISECOND_NS, SECOND_NS};
use io::{ErrorKind, Io, IoError, Listener, Socket, Volume};

use super::NbdOptions;
use super::connection::{Connection, Limits};
use super::context::Contexts;
use super::export::Export;
use super::haggle::{Haggled, Security, greet, haggle};
use super::link::Link;
use super::request::Terms;
use super::roster::{Roster, Seat};
use super::tls::TlsStream;
use super::transport::{Plain, Transport};

/// Pause after an accept that failed for want of something (descriptors, memory) that other
/// connections will give back.
const ACCEPT_RETRY_NS: u64 = 100 * MILLISECOND_NS;

/// How long [`NbdServer::shutdown`] waits for requests under way. Longer than the time a
/// connection lingers for its replies, and than a slow drive takes for a flush.
const SHUTDOWN_NS: u64 = 30 * SECOND_NS;

/// Serves one volume to NBD clients. Clones are the same server.
///
/// The connections share the volume: a flush on one covers what the others have written, as
/// `CAN_MULTI_CONN` promises.
pub struct NbdServer<V>(Rc<Inner<V>>);

impl<V> Clone for NbdServer<V> {
    fn clone(&self) -> NbdServer<V> {
        NbdServer(self.0.clone())
    }
}

struct Inner<V> {
    io: Io,
    volume: Rc<V>,
    export: Export,
    options: NbdOptions,
    roster: Rc<Roster>,
    listeners: std::cell::RefCell<Vec<Listener>>,
}

impl<V: Volume> NbdServer<V> {
    /// A server of `volume` that does nothing yet.
    pub fn new(io: Io, volume: Rc<V>, options: NbdOptions) -> NbdServer<V> {
        let info = volume.info();
        let export = Export {
            name: options.export_name.clone(),
            description: options.description.clone(),
            read_only: options.read_only || info.read_only,
            rotational: options.rotational,
            info,
        };
        NbdServer(Rc::new(Inner {
            io,
            volume,
            export,
            options,
            roster: Rc::default(),
            listeners: Default::default(),
        }))
    }

    /// Accepts connections until [`NbdServer::shutdown`], or until the listener is shut down.
    /// Each connection is a task of its own. May be called for several listeners.
    pub async fn serve(&self, listener: Listener) {
        let inner = &self.0;
        inner.listeners.borrow_mut().push(listener.clone());
        while !inner.roster.is_stopping() {
            match listener.accept().await {
                Ok(socket) => {
                    let server = self.clone();
                    inner.io.spawn(async move { server.serve_connection(socket).await });
                }
                Err(error) if is_final(&error) => return,
                Err(_) => inner.io.sleep(ACCEPT_RETRY_NS).await,
            }
        }
    }

    /// Serves one connection until it ends. Beyond `connections_max` it is closed at once.
    pub async fn serve_connection(&self, socket: Socket) {
        let inner = &self.0;
        let connections_max = inner.options.connections_max;
        let Some(seat) = inner.roster.admit(socket.clone(), connections_max) else { return };
        let limit_ns = u64::from(inner.options.handshake_ms) * MILLISECOND_NS;
        let mut patience = pin!(inner.io.sleep(limit_ns));
        let mut opening = pin!(self.open(socket.clone()));
        let opened = poll_fn(|context| {
            // The handshake waits in the socket, so that is where it is ended.
            if patience.as_mut().poll(context).is_ready() {
                socket.shutdown();
                return Poll::Ready(Ok(Opened::Nothing));
            }
            opening.as_mut().poll(context)
        })
        .await;
        match opened {
            Ok(Opened::Plain(link, terms)) => self.transmit(seat, link, terms).await,
            Ok(Opened::Tls(link, terms)) => self.transmit(seat, link, terms).await,
            // The peer left, broke the protocol or was not let in: nobody to tell.
            Ok(Opened::Nothing) | Err(_) => {}
        }
    }

    /// Stops accepting, lets requests under way end, and closes all connections. Returns when
    /// they are closed, or after half a minute if the volume does not answer; requests are never
    /// abandoned half-way, so the volume must outlive what [`NbdServer::connections`] still says.
    pub async fn shutdown(&self) {
        let inner = &self.0;
        inner.roster.stop();
        for listener in inner.listeners.take() {
            listener.shutdown();
        }
        let mut patience = pin!(inner.io.sleep(SHUTDOWN_NS));
        let mut empty = pin!(inner.roster.empty());
        poll_fn(|context| {
            if patience.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            empty.as_mut().poll(context)
        })
        .await;
    }

    /// Connections open now, those in their handshake included.
    pub fn connections(&self) -> usize {
        self.0.roster.taken()
    }

    async fn open(&self, socket: Socket) -> Result<Opened, IoError> {
        let inner = &self.0;
        let security = match &inner.options.tls {
            None => Security::None,
            Some(tls) if tls.is_required() => Security::Required,
            Some(_) => Security::Offered,
        };
        let mut link = Link::new(Plain::new(socket), inner.io.pool().clone());
        let Some(no_zeroes) = greet(&mut link).await? else { return Ok(Opened::Nothing) };
        match haggle(&mut link, &inner.export, security, no_zeroes).await? {
            Haggled::Transmit { structured, contexts } => {
                Ok(Opened::Plain(link, self.terms(structured, contexts)))
            }
            Haggled::StartTls => self.open_tls(link, no_zeroes).await,
            Haggled::End => Ok(Opened::Nothing),
        }
    }

    async fn open_tls(&self, link: Link<Plain>, no_zeroes: bool) -> Result<Opened, IoError> {
        let inner = &self.0;
        let Some(tls) = &inner.options.tls else { return Ok(Opened::Nothing) };
        // The client must wait for our consent before its first TLS message. Bytes that are here
        // already were put in by someone in between, to be taken for encrypted ones.
        if !link.unread().is_empty() {
            return Ok(Opened::Nothing);
        }
        let pool = inner.io.pool().clone();
        let stream = TlsStream::accept(link.transport, tls.begin()?, pool.clone()).await?;
        let mut link = Link::new(stream, pool);
        match haggle(&mut link, &inner.export, Security::Active, no_zeroes).await? {
            Haggled::Transmit { structured, contexts } => {
                Ok(Opened::Tls(link, self.terms(structured, contexts)))
            }
            Haggled::StartTls | Haggled::End => {
                poll_fn(|context| link.transport.poll_close(context)).await;
                Ok(Opened::Nothing)
            }
        }
    }

    fn terms(&self, structured: bool, contexts: Contexts) -> Terms {
        let export = &self.0.export;
        Terms::new(&export.info, export.read_only, structured, contexts)
    }

    async fn transmit<T: Transport>(&self, seat: Seat, link: Link<T>, terms: Terms) {
        seat.settle_in();
        let inner = &self.0;
        let limits = Limits {
            requests_max: inner.options.in_flight_max.max(1),
            bytes_max: inner.options.in_flight_bytes_max,
        };
        let (io, volume) = (inner.io.clone(), inner.volume.clone());
        Connection::new(io, seat, terms, limits, volume, link).run().await;
    }
}

/// What came of a handshake.
enum Opened {
    Plain(Link<Plain>, Terms),
    Tls(Link<TlsStream>, Terms),
    Nothing,
}

/// Whether a listener that failed like this will never accept again.
fn is_final(error: &IoError) -> bool {
    matches!(error.kind, ErrorKind::Range | ErrorKind::Unsupported | ErrorKind::Disconnected)
}
