//! A world with one NBD client and one drive, both without cost: the client keeps so many requests under
//! way, and the drive has everything done in the next round.

use std::cell::RefCell;
use std::rc::Rc;

use io::{Buf, Completed, DeviceId, DeviceInfo, Io, Op, OpId, Park, Pool, Socket, SocketId, World};
use io::{Device, units::MIB};

const CLIENT: SocketId = SocketId(0);
/// What the server says before the first reply: its greeting, and the export's size and flags.
const GREETING_BYTES: u64 = 18 + 10;

/// What was asked of the world.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    pub receives: u64,
    pub sends: u64,
    /// Rounds in which something was submitted: so often the kernel is entered.
    pub rounds: u64,
}

/// What the client does.
pub struct Script {
    /// What it says first.
    pub handshake: Vec<u8>,
    /// One request, again and again.
    pub request: Vec<u8>,
    pub count: u64,
    pub depth: u64,
    /// Bytes of a reply.
    pub reply_bytes: u64,
}

struct Wire {
    now_ns: u64,
    script: Script,
    input: Vec<u8>,
    said: usize,
    heard_bytes: u64,
    waiting: Option<(OpId, Buf)>,
    submitted: bool,
    done: Vec<Completed>,
    asked: Rc<RefCell<Asked>>,
}

/// An executor on such a world.
pub fn talk(script: Script) -> (Io, Rc<RefCell<Asked>>) {
    let asked = Rc::new(RefCell::default());
    let requests = script.request.repeat(script.count as usize);
    let wire = Wire {
        now_ns: 0,
        input: [script.handshake.clone(), requests].concat(),
        script,
        said: 0,
        heard_bytes: 0,
        waiting: None,
        submitted: false,
        done: Vec::new(),
        asked: Rc::clone(&asked),
    };
    (Io::new(Box::new(wire), Pool::new(16 << 20)), asked)
}

/// The connection to the client.
pub fn client(io: &Io) -> Socket {
    Socket::new(io.clone(), CLIENT)
}

/// The drive.
pub fn drive(io: &Io) -> Device {
    let info = DeviceInfo {
        path: "drive".to_owned(),
        size_bytes: 64 * MIB,
        sector_bytes: 512,
        atomic_write_bytes: 4096,
        rotational: None,
        read_only: false,
    };
    Device::new(io.clone(), DeviceId(0), info)
}

impl Wire {
    /// Bytes that the client has said by now or would say: as many requests as replies have come, and those
    /// under way.
    fn sayable(&self) -> usize {
        let replies = self.heard_bytes.saturating_sub(GREETING_BYTES) / self.script.reply_bytes;
        let requests = (replies + self.script.depth).min(self.script.count);
        self.script.handshake.len() + self.script.request.len() * requests as usize
    }

    /// Fills a receive, if there is something to say, or nothing more to come.
    fn say(&mut self) {
        let over = self.said == self.input.len();
        let left = self.sayable() - self.said;
        if left == 0 && !over {
            return;
        }
        let Some((id, mut buf)) = self.waiting.take() else { return };
        let count = left.min(buf.len());
        buf[..count].copy_from_slice(&self.input[self.said..][..count]);
        self.said += count;
        self.done.push(Completed { id, buf: Some(buf), result: Ok(count as u64) });
    }
}

impl World for Wire {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn random(&mut self) -> u64 {
        4
    }

    fn submit(&mut self, id: OpId, op: Op) {
        self.submitted = true;
        let (buf, bytes) = match op {
            Op::Receive { buf, .. } => {
                self.asked.borrow_mut().receives += 1;
                self.waiting = Some((id, buf));
                return;
            }
            Op::Send { buf, .. } => {
                self.asked.borrow_mut().sends += 1;
                self.heard_bytes += buf.len() as u64;
                let bytes = buf.len() as u64;
                (Some(buf), bytes)
            }
            Op::Read { buf, .. } | Op::Write { buf, .. } => (Some(buf), 0),
            other => panic!("nobody asks for this here: {other:?}"),
        };
        self.done.push(Completed { id, buf, result: Ok(bytes) });
    }

    fn poll(&mut self, park: Park, done: &mut Vec<Completed>) {
        self.now_ns += 1000;
        if std::mem::take(&mut self.submitted) {
            self.asked.borrow_mut().rounds += 1;
        }
        self.say();
        if self.done.is_empty() {
            match park {
                Park::Never => {}
                Park::Until(moment_ns) => self.now_ns = self.now_ns.max(moment_ns),
                Park::Forever => panic!("the conversation hangs"),
            }
        }
        done.append(&mut self.done);
    }

    fn shutdown(&mut self, _: SocketId) {}

    fn close(&mut self, _: SocketId) {}
}
