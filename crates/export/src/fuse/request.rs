//! One message of the kernel, taken apart.

use io::{Durability, ZeroMode};

use super::protocol::{Fields, HEADER_BYTES, change, operation, seek};

/// What the kernel asks. Offsets and lengths are bytes, any alignment, not yet checked against the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// Which node has the name.
    Lookup {
        parent: u64,
        name: &'a [u8],
    },
    Attributes {
        node: u64,
    },
    /// `others`: owner or permissions, too. Times are not among them.
    SetAttributes {
        node: u64,
        size_bytes: Option<u64>,
        others: bool,
    },
    Access {
        node: u64,
    },
    Open {
        node: u64,
        flags: u32,
    },
    OpenDirectory {
        node: u64,
    },
    /// The names from this place on, in so many bytes at most.
    List {
        node: u64,
        from: u64,
        room_bytes: u32,
    },
    FileSystem,
    Read {
        at: u64,
        length: u32,
    },
    /// The data follows.
    Write {
        at: u64,
        length: u32,
        durability: Durability,
    },
    Flush,
    /// `keeps_size`: what is behind the end stays away.
    Zero {
        at: u64,
        length: u64,
        mode: ZeroMode,
        keeps_size: bool,
    },
    Seek {
        node: u64,
        at: u64,
        target: SeekTarget,
    },
    /// Somebody lets go of something: nothing to do.
    Release,
    /// Names are forgotten: not even an answer is wanted.
    Forget,
    /// The last message there is.
    Destroy,
    /// It cannot be done here, or nobody knows what it is: this errno.
    Refused(i32),
}

/// What `lseek` looks for from an offset on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeekTarget {
    Hole,
    Data,
}

/// A message's number, by which it is answered, and what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) number: u64,
    pub(super) request: Request<'a>,
}

impl Message<'_> {
    /// Takes a message apart, of which only a write's data may be missing. `None`: it is none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Message<'_>> {
        let mut fields = Fields(bytes);
        fields.skip(4)?;
        let (what, number, node) = (fields.u32()?, fields.u64()?, fields.u64()?);
        let mut arguments = Fields(bytes.get(HEADER_BYTES..)?);
        let request = request(what, node, &mut arguments).unwrap_or(Request::Refused(libc::EINVAL));
        Some(Message { number, request })
    }
}

/// `None`: the arguments are too short.
fn request<'a>(what: u32, node: u64, arguments: &mut Fields<'a>) -> Option<Request<'a>> {
    Some(match what {
        operation::LOOKUP => Request::Lookup { parent: node, name: arguments.name()? },
        operation::GET_ATTRIBUTES => Request::Attributes { node },
        operation::SET_ATTRIBUTES => {
            let what = arguments.u32()?;
            arguments.skip(4 + 8)?;
            let size_bytes = arguments.u64()?;
            Request::SetAttributes {
                node,
                size_bytes: (what & change::SIZE != 0).then_some(size_bytes),
                others: what & (change::MODE | change::USER | change::GROUP) != 0,
            }
        }
        operation::ACCESS => Request::Access { node },
        operation::OPEN => Request::Open { node, flags: arguments.u32()? },
        operation::OPEN_DIRECTORY => Request::OpenDirectory { node },
        operation::READ_DIRECTORY => {
            let (from, room_bytes) = place(arguments)?;
            Request::List { node, from, room_bytes }
        }
        operation::FILE_SYSTEM => Request::FileSystem,
        operation::READ => {
            let (at, length) = place(arguments)?;
            Request::Read { at, length }
        }
        operation::WRITE => {
            let (at, length) = place(arguments)?;
            arguments.skip(4 + 8)?;
            // O_SYNC contains O_DSYNC. The kernel leaves both to the file system.
            let durable = arguments.u32()? & libc::O_DSYNC as u32 != 0;
            let durability = if durable { Durability::Durable } else { Durability::Volatile };
            Request::Write { at, length, durability }
        }
        // Each close of the file. Only `fsync` promises anything; doing it here too costs little
        // and saves the data of programs that forget.
        operation::CLOSE | operation::SYNC | operation::SYNC_DIRECTORY => Request::Flush,
        operation::ALLOCATE => {
            arguments.skip(8)?;
            let (at, length, mode) = (arguments.u64()?, arguments.u64()?, arguments.u32()? as i32);
            zero(at, length, mode)
        }
        operation::SEEK => {
            arguments.skip(8)?;
            let (at, whence) = (arguments.u64()?, arguments.u32()?);
            match whence {
                // Of negative offsets the kernel's highest bit is set: they lie behind any end.
                seek::HOLE => Request::Seek { node, at, target: SeekTarget::Hole },
                seek::DATA => Request::Seek { node, at, target: SeekTarget::Data },
                _ => Request::Refused(libc::EINVAL),
            }
        }
        operation::RELEASE | operation::RELEASE_DIRECTORY => Request::Release,
        operation::FORGET | operation::FORGET_SEVERAL => Request::Forget,
        operation::DESTROY => Request::Destroy,
        // One directory, one file, and it stays like that.
        operation::SYMLINK
        | operation::MAKE_NODE
        | operation::MAKE_DIRECTORY
        | operation::UNLINK
        | operation::REMOVE_DIRECTORY
        | operation::RENAME
        | operation::RENAME_2
        | operation::LINK
        | operation::CREATE => Request::Refused(libc::EPERM),
        _ => Request::Refused(libc::ENOSYS),
    })
}

/// Offset and length, as reads and writes give them.
fn place(arguments: &mut Fields<'_>) -> Option<(u64, u32)> {
    arguments.skip(8)?;
    Some((arguments.u64()?, arguments.u32()?))
}

fn zero(at: u64, length: u64, mode: i32) -> Request<'static> {
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    let (mode, keeps_size) = match mode {
        PUNCH => (ZeroMode::Deallocate, true),
        ZERO_KEEP => (ZeroMode::Allocate, true),
        libc::FALLOC_FL_ZERO_RANGE => (ZeroMode::Allocate, false),
        _ => return Request::Refused(libc::EOPNOTSUPP),
    };
    if at.checked_add(length).is_none() {
        return Request::Refused(libc::EFBIG);
    }
    Request::Zero { at, length, mode, keeps_size }
}

#[cfg(test)]
mod tests {
    use Number::{Eight, Four};

    use super::*;
    use crate::fuse::protocol::Answer;

    /// A message as the kernel would send it.
    fn message(what: u32, node: u64, arguments: &[u8]) -> Vec<u8> {
        let mut bytes = Answer::default();
        let length = HEADER_BYTES + arguments.len();
        bytes.u32(length as u32).u32(what).u64(77).u64(node);
        // User, group, process, and nothing behind it.
        bytes.u32(0).u32(0).u32(1234).u32(0);
        bytes.0.extend_from_slice(arguments);
        bytes.0
    }

    fn asks(what: u32, arguments: &[u8]) -> Request<'static> {
        let bytes = message(what, 2, arguments).leak();
        let message = Message::parse(bytes).unwrap();
        assert_eq!(message.number, 77);
        message.request
    }

    #[derive(Clone, Copy)]
    enum Number {
        Four(u32),
        Eight(u64),
    }

    fn numbers(values: &[Number]) -> Vec<u8> {
        let mut answer = Answer::default();
        for value in values {
            match *value {
                Four(value) => answer.u32(value),
                Eight(value) => answer.u64(value),
            };
        }
        answer.0
    }

    #[test]
    fn reads_and_writes_say_where_and_how_much() {
        let read =
            numbers(&[Eight(0), Eight(4096), Four(512), Four(0), Eight(0), Four(0), Four(0)]);
        assert_eq!(asks(operation::READ, &read), Request::Read { at: 4096, length: 512 });
        for (flags, durability) in [
            (0, Durability::Volatile),
            (libc::O_RDWR | libc::O_DIRECT, Durability::Volatile),
            (libc::O_DSYNC, Durability::Durable),
            (libc::O_SYNC, Durability::Durable),
        ] {
            let (at, flags) = (Eight(1 << 40), Four(flags as u32));
            let write = numbers(&[Eight(0), at, Four(70_000), Four(0), Eight(9), flags, Four(0)]);
            let expected = Request::Write { at: 1 << 40, length: 70_000, durability };
            assert_eq!(asks(operation::WRITE, &write), expected);
        }
    }

    #[test]
    fn zeroing_keeps_the_size_only_if_it_says_so() {
        let ask = |at: u64, length: u64, mode: i32| {
            let range = [Eight(0), Eight(at), Eight(length), Four(mode as u32), Four(0)];
            asks(operation::ALLOCATE, &numbers(&range))
        };
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let zeroed = |mode, keeps_size| Request::Zero { at: 5, length: 6, mode, keeps_size };
        assert_eq!(ask(5, 6, punch), zeroed(ZeroMode::Deallocate, true));
        assert_eq!(ask(5, 6, libc::FALLOC_FL_ZERO_RANGE), zeroed(ZeroMode::Allocate, false));
        assert_eq!(ask(5, 6, 0), Request::Refused(libc::EOPNOTSUPP));
        assert_eq!(ask(u64::MAX, 2, punch), Request::Refused(libc::EFBIG));
    }

    #[test]
    fn names_are_found_by_their_end() {
        assert_eq!(asks(operation::LOOKUP, b"vol\0"), Request::Lookup { parent: 2, name: b"vol" });
        assert_eq!(asks(operation::LOOKUP, b"vol"), Request::Refused(libc::EINVAL));
        assert_eq!(asks(operation::CREATE, b""), Request::Refused(libc::EPERM));
        assert_eq!(asks(4_000_000, b""), Request::Refused(libc::ENOSYS));
    }

    #[test]
    fn any_bytes_are_taken_apart_or_refused() {
        let full = message(operation::SET_ATTRIBUTES, 1, &[0xff; 88]);
        for what in 0..64 {
            for length in 0..full.len() {
                let mut bytes = full[..length].to_vec();
                if let Some(place) = bytes.get_mut(4..8) {
                    place.copy_from_slice(&u32::to_ne_bytes(what));
                }
                let parsed = Message::parse(&bytes);
                assert_eq!(parsed.is_some(), length >= HEADER_BYTES, "{what} of {length} bytes");
            }
        }
    }
}
