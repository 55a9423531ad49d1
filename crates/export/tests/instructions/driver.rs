//! A world with the kernel's ublk driver and one drive, both without cost: the driver has a request for each
//! place that fetches one until there have been so many, and the drive has everything done in the next round.
//! The device's file is an empty one, in which requests and their data lie where the driver has them.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use io::{Completed, ErrorKind, Foreign, Io, IoError, Op, OpId, Park, Pool, SocketId, World};

use crate::wire::Asked;

/// Bytes of a request, as the driver lays it out.
const REQUEST_BYTES: usize = 24;
const BLOCK_SECTORS: u32 = 8;

/// What is asked for.
pub struct Script {
    pub writes: bool,
    pub count: u64,
}

struct Yard {
    now_ns: u64,
    script: Script,
    file: File,
    begun: u64,
    submitted: bool,
    done: Vec<Completed>,
    asked: Rc<RefCell<Asked>>,
}

/// An executor on such a world, and the device's file.
pub fn yard(script: Script) -> (Io, File, Rc<RefCell<Asked>>) {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(8 << 30).expect("a sparse file");
    let asked = Rc::new(RefCell::default());
    let yard = Yard {
        now_ns: 0,
        script,
        file: file.try_clone().expect("a second handle"),
        begun: 0,
        submitted: false,
        done: Vec::new(),
        asked: Rc::clone(&asked),
    };
    (Io::new(Box::new(yard), Pool::new(16 << 20)), file, asked)
}

/// Lays a request where the place looks for it. By this name it is left out of what is counted.
#[inline(never)]
fn driver_works(file: &File, payload: [u8; 16], writes: bool) {
    let tag = u16::from_ne_bytes([payload[2], payload[3]]);
    let mut request = [0; REQUEST_BYTES];
    request[..4].copy_from_slice(&u32::from(writes).to_ne_bytes());
    request[4..8].copy_from_slice(&BLOCK_SECTORS.to_ne_bytes());
    request[8..16].copy_from_slice(&72_u64.to_ne_bytes());
    file.write_all_at(&request, u64::from(tag) * REQUEST_BYTES as u64).expect("a file");
}

impl World for Yard {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn random(&mut self) -> u64 {
        4
    }

    fn submit(&mut self, id: OpId, op: Op) {
        self.submitted = true;
        let (buf, result) = match op {
            Op::Command { payload, .. } => {
                let answered = i32::from_ne_bytes(payload[4..8].try_into().expect("four bytes"));
                assert!(answered >= 0, "a request has failed: {answered}");
                let over = self.begun == self.script.count;
                let gone = || IoError::new(ErrorKind::Io, "the device is gone");
                if !over {
                    self.begun += 1;
                    driver_works(&self.file, payload, self.script.writes);
                }
                (None, if over { Err(gone()) } else { Ok(0) })
            }
            Op::Read { buf, .. } | Op::Write { buf, .. } => (Some(buf), Ok(0)),
            other => panic!("nobody asks for this here: {other:?}"),
        };
        self.done.push(Completed { id, buf, result });
    }

    fn poll(&mut self, park: Park, done: &mut Vec<Completed>) {
        self.now_ns += 1000;
        if std::mem::take(&mut self.submitted) {
            self.asked.borrow_mut().rounds += 1;
        }
        assert!(!self.done.is_empty() || park != Park::Forever, "the driver waits for ever");
        done.append(&mut self.done);
    }

    fn adopt(&mut self, _: OwnedFd, _: Foreign) -> Result<SocketId, IoError> {
        Ok(SocketId(0))
    }

    fn shutdown(&mut self, _: SocketId) {}

    fn close(&mut self, _: SocketId) {}
}
