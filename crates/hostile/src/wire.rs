//! A world with one listener, one peer who says what the input says and hears everything, and a
//! clock of its own.

use std::cell::RefCell;
use std::rc::Rc;

use io::{
    Completed, ErrorKind, Io, IoError, Listener, Op, OpId, Park, Pool, Socket, SocketId, World,
};

const LISTENER: SocketId = SocketId(0);
const PEER: SocketId = SocketId(1);
/// Virtual time a round takes.
const ROUND_NS: u64 = 1000;

/// What the peer has been told.
#[derive(Default)]
pub(crate) struct Heard {
    /// All of it.
    pub(crate) bytes: Vec<u8>,
    /// The peer's end is closed.
    pub(crate) closed: bool,
}

struct Wire {
    now_ns: u64,
    /// What the peer says, and how much of it comes at once.
    input: Vec<u8>,
    said: usize,
    chunk_bytes: usize,
    accepted: bool,
    accepting: Option<OpId>,
    shut: bool,
    done: Vec<Completed>,
    heard: Rc<RefCell<Heard>>,
}

/// An executor on such a world. The peer says `input` in pieces of `chunk_bytes` and leaves.
pub(crate) fn talk(input: Vec<u8>, chunk_bytes: usize) -> (Io, Rc<RefCell<Heard>>) {
    let heard = Rc::new(RefCell::default());
    let wire = Wire {
        now_ns: 0,
        input,
        said: 0,
        chunk_bytes: chunk_bytes.max(1),
        accepted: false,
        accepting: None,
        shut: false,
        done: Vec::new(),
        heard: Rc::clone(&heard),
    };
    (Io::new(Box::new(wire), Pool::new(0)), heard)
}

/// The connection to the peer.
pub(crate) fn peer(io: &Io) -> Socket {
    Socket::new(io.clone(), PEER)
}

/// Where the peer connects once.
pub(crate) fn listener(io: &Io) -> Listener {
    Listener::new(io.clone(), LISTENER)
}

impl World for Wire {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn random(&mut self) -> u64 {
        4
    }

    fn submit(&mut self, id: OpId, op: Op) {
        let (buf, result) = match op {
            Op::Accept { .. } if !self.accepted => {
                self.accepted = true;
                (None, Ok(u64::from(PEER.0)))
            }
            Op::Accept { .. } => {
                self.accepting = Some(id);
                return;
            }
            Op::Receive { mut buf, .. } => {
                let left = if self.shut { 0 } else { self.input.len() - self.said };
                let count = left.min(buf.len()).min(self.chunk_bytes);
                buf[..count].copy_from_slice(&self.input[self.said..][..count]);
                self.said += count;
                (Some(buf), Ok(count as u64))
            }
            Op::Send { buf, .. } => {
                self.heard.borrow_mut().bytes.extend_from_slice(&buf);
                let count = buf.len() as u64;
                (Some(buf), Ok(count))
            }
            other => panic!("the doors have no drives: {other:?}"),
        };
        self.done.push(Completed { id, buf, result });
    }

    fn poll(&mut self, park: Park, done: &mut Vec<Completed>) {
        self.now_ns += ROUND_NS;
        if self.done.is_empty() {
            match park {
                Park::Never => {}
                Park::Until(moment_ns) => self.now_ns = self.now_ns.max(moment_ns),
                Park::Forever => panic!("the conversation hangs: nobody will ever say anything"),
            }
        }
        done.append(&mut self.done);
    }

    fn shutdown(&mut self, socket: SocketId) {
        if socket == PEER {
            self.shut = true;
        } else if let Some(id) = self.accepting.take() {
            let error = IoError::new(ErrorKind::Disconnected, "it listens no more");
            self.done.push(Completed { id, buf: None, result: Err(error) });
        }
    }

    fn close(&mut self, socket: SocketId) {
        self.shutdown(socket);
        if socket == PEER {
            self.heard.borrow_mut().closed = true;
        }
    }
}
