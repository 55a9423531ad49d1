//! Serves control connections on the executor.
//!
//! * One task per connection; requests on it are answered one after the other.
//! * At most [`CLIENTS_MAX`] connections; one more is told so and closed.
//! * A line longer than [`super::REQUEST_BYTES_MAX`] ends its connection; a line that is not a
//!   request is answered with `bad_request` and the connection goes on.
//! * It carries no meaning: every request goes to the handler.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use io::units::{MILLISECOND_NS, SECOND_NS};
use io::{Io, Listener, Socket, WaitList};

use super::{ControlReply, ControlRequest, REQUEST_BYTES_MAX};

/// Connections at a time. Whoever can connect owns the server; this only bounds its mistakes.
pub const CLIENTS_MAX: usize = 64;

/// Bytes asked for per receive: more than almost every request has.
const RECEIVE_BYTES: usize = 4096;

/// Pause after a failed accept: descriptors may be used up, and trying at once would spin.
const ACCEPT_PAUSE_NS: u64 = 100 * MILLISECOND_NS;

/// How long a shutdown waits for replies that are being worked on.
const SHUTDOWN_PATIENCE_NS: u64 = 2 * SECOND_NS;

type Handler = Box<dyn Fn(ControlRequest) -> Pin<Box<dyn Future<Output = ControlReply>>>>;

/// Answers control connections; clones are the same server.
#[derive(Clone)]
pub struct ControlServer(Rc<Server>);

struct Server {
    io: Io,
    handler: Handler,
    stopping: Cell<bool>,
    listeners: RefCell<Vec<Listener>>,
    clients: RefCell<Vec<Rc<Client>>>,
    changed: WaitList,
}

struct Client {
    socket: Socket,
    /// A request is being answered; a shutdown lets it finish.
    busy: Cell<bool>,
}

impl ControlServer {
    /// A server that gives each request to `handler`.
    pub fn new<F>(io: Io, handler: impl Fn(ControlRequest) -> F + 'static) -> ControlServer
    where
        F: Future<Output = ControlReply> + 'static,
    {
        ControlServer(Rc::new(Server {
            io,
            handler: Box::new(move |request| Box::pin(handler(request))),
            stopping: Cell::new(false),
            listeners: RefCell::default(),
            clients: RefCell::default(),
            changed: WaitList::new(),
        }))
    }

    /// Accepts connections until [`ControlServer::shutdown`].
    pub async fn serve(&self, listener: Listener) {
        let server = &self.0;
        server.listeners.borrow_mut().push(listener.clone());
        while !server.stopping.get() {
            match listener.accept().await {
                Ok(socket) => {
                    let connection = self.clone();
                    server.io.spawn(async move { connection.converse(socket).await });
                }
                Err(_) if server.stopping.get() => return,
                Err(_) => server.io.sleep(ACCEPT_PAUSE_NS).await,
            }
        }
    }

    /// Connections now.
    pub fn clients(&self) -> usize {
        self.0.clients.borrow().len()
    }

    /// Stops accepting, ends idle connections, and waits (2 s at most) for replies that are being
    /// worked on to reach their clients. Must not be awaited by the handler itself: its own reply
    /// is one of those.
    pub async fn shutdown(&self) {
        let server = &self.0;
        server.stopping.set(true);
        server.listeners.borrow_mut().drain(..).for_each(|listener| listener.shutdown());
        let idle: Vec<_> =
            server.clients.borrow().iter().filter(|client| !client.busy.get()).cloned().collect();
        idle.iter().for_each(|client| client.socket.shutdown());
        let deadline_ns = server.io.now_ns() + SHUTDOWN_PATIENCE_NS;
        let alarm = self.clone();
        server.io.spawn(async move {
            alarm.0.io.sleep(SHUTDOWN_PATIENCE_NS).await;
            alarm.0.changed.wake_all();
        });
        server
            .changed
            .until(|| {
                let over = server.io.now_ns() >= deadline_ns;
                (over || server.clients.borrow().is_empty()).then_some(())
            })
            .await;
        let late = std::mem::take(&mut *server.clients.borrow_mut());
        late.iter().for_each(|client| client.socket.shutdown());
    }

    async fn converse(&self, socket: Socket) {
        let server = &self.0;
        if self.clients() >= CLIENTS_MAX {
            let message = format!("{CLIENTS_MAX} control connections are open already");
            let _ = self.send(&socket, &ControlReply::failed("too_many_clients", message)).await;
            return;
        }
        let client = Rc::new(Client { socket, busy: Cell::new(false) });
        server.clients.borrow_mut().push(client.clone());
        self.answer_lines(&client).await;
        server.clients.borrow_mut().retain(|other| !Rc::ptr_eq(other, &client));
        server.changed.wake_all();
    }

    /// Receives and answers until either side ends it.
    async fn answer_lines(&self, client: &Client) {
        let server = &self.0;
        let mut pending = Vec::new();
        let mut buf = server.io.pool().take(RECEIVE_BYTES);
        while !server.stopping.get() {
            let (returned, outcome) = client.socket.receive(buf).await;
            buf = returned;
            let Ok(count @ 1..) = outcome else { return };
            pending.extend_from_slice(&buf[..count]);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                client.busy.set(true);
                let reply = self.answer(&line).await;
                let sent = self.send(&client.socket, &reply).await;
                client.busy.set(false);
                if !sent || server.stopping.get() {
                    return;
                }
            }
            if pending.len() >= REQUEST_BYTES_MAX {
                let message = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
                let _ = self.send(&client.socket, &ControlReply::failed("too_long", message)).await;
                return;
            }
        }
    }

    async fn answer(&self, line: &[u8]) -> ControlReply {
        if line.len() > REQUEST_BYTES_MAX {
            let message = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
            return ControlReply::failed("too_long", message);
        }
        match serde_json::from_slice(line) {
            Ok(request) => (self.0.handler)(request).await,
            Err(cause) => {
                ControlReply::failed("bad_request", format!("this is not a request: {cause}"))
            }
        }
    }

    /// Sends one line; `false` when the peer is gone.
    async fn send(&self, socket: &Socket, reply: &ControlReply) -> bool {
        let mut line = serde_json::to_vec(reply).expect("a JSON value has a text");
        line.push(b'\n');
        let mut buf = self.0.io.pool().take(line.len());
        buf.copy_from_slice(&line);
        let (buf, outcome) = socket.send(buf).await;
        outcome.is_ok_and(|count| count == buf.len())
    }
}
