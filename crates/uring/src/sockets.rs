//! The sockets of a world, and other descriptors it has adopted, by number.
//!
//! Invariants:
//! * An entry lives until it is closed *and* no operation on it is under way, so a descriptor
//!   number is never reused while the kernel still works on the old one.
//! * An adopted listener is never shut down in the kernel: it belongs to whoever handed it over
//!   (a service manager keeps it open for our successor). Waiting accepts are cancelled instead.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use io::SocketId;

/// What kind of socket an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A connection.
    Stream,
    /// A listener that is ours.
    Listener,
    /// A listener that others hold as well.
    AdoptedListener,
    /// An eventfd, which others hold as well.
    Event,
    /// A driver's file.
    Driver,
    /// What becomes readable and is read by its owner.
    Watched,
}

struct Entry {
    fd: OwnedFd,
    role: Role,
    /// How messages name it.
    label: Rc<str>,
    /// Operations under way.
    in_flight: u32,
    shut: bool,
    closing: bool,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Sockets {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
}

impl Sockets {
    pub(crate) fn add(&mut self, fd: OwnedFd, role: Role, label: Rc<str>) -> SocketId {
        let entry = Some(Entry { fd, role, label, in_flight: 0, shut: false, closing: false });
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        SocketId(index)
    }

    fn entry(&mut self, id: SocketId) -> &mut Entry {
        self.entries[id.0 as usize].as_mut().expect("a handle keeps its socket's entry alive")
    }

    /// Counts one more operation on the socket and gives its descriptor.
    pub(crate) fn enter(&mut self, id: SocketId) -> RawFd {
        let entry = self.entry(id);
        entry.in_flight += 1;
        entry.fd.as_raw_fd()
    }

    /// Counts one operation less; releases a closed socket after its last.
    pub(crate) fn leave(&mut self, id: SocketId) {
        let entry = self.entry(id);
        entry.in_flight -= 1;
        if entry.in_flight == 0 && entry.closing {
            self.release(id);
        }
    }

    pub(crate) fn label(&mut self, id: SocketId) -> Rc<str> {
        self.entry(id).label.clone()
    }

    pub(crate) fn is_shut(&mut self, id: SocketId) -> bool {
        self.entry(id).shut
    }

    pub(crate) fn role(&mut self, id: SocketId) -> Role {
        self.entry(id).role
    }

    pub(crate) fn fd(&mut self, id: SocketId) -> RawFd {
        self.entry(id).fd.as_raw_fd()
    }

    /// Ends the socket in both directions; tells whether operations may wait on it that the caller
    /// must cancel.
    pub(crate) fn shutdown(&mut self, id: SocketId) -> bool {
        let entry = self.entry(id);
        let first = !std::mem::replace(&mut entry.shut, true);
        if first && matches!(entry.role, Role::Stream | Role::Listener) {
            // Fails only where the peer has already gone, which is what we want.
            let _ = rustix::net::shutdown(entry.fd.as_fd(), rustix::net::Shutdown::Both);
        }
        matches!(entry.role, Role::Listener | Role::AdoptedListener | Role::Event | Role::Watched)
    }

    /// The handle is gone: releases the socket now, or after its last operation.
    pub(crate) fn close(&mut self, id: SocketId) {
        let entry = self.entry(id);
        entry.closing = true;
        if entry.in_flight == 0 {
            self.release(id);
        }
    }

    /// Every socket there is.
    pub(crate) fn ids(&self) -> Vec<SocketId> {
        let taken = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_some());
        taken.map(|(index, _)| SocketId(index as u32)).collect()
    }

    fn release(&mut self, id: SocketId) {
        self.entries[id.0 as usize] = None;
        self.free.push(id.0);
    }
}
