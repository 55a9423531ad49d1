//! The handshake: options until the client goes over to transmission.
//!
//! * [`Haggler::answer`] is a pure function of the state and the bytes of one option: any bytes
//!   give an answer, never a panic.
//! * Sizes are bounded: an option's data by [`OPTION_BYTES_MAX`], what is skipped politely by
//!   [`OPTION_BYTES_SKIPPED_MAX`], and the number of options by [`OPTIONS_MAX`]. The time is
//!   bounded by the server.
//! * Where TLS is required nothing is told before it stands, and what was agreed before it is
//!   forgotten when it does.

use io::IoError;

use super::context::{Context, Contexts};
use super::export::Export;
use super::link::Link;
use super::protocol::{
    GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, handshake_flag, info, option, option_reply,
};
use super::transport::Transport;

/// Largest data of an option that is looked at, in bytes. A name may have 4096; a metadata query
/// list with some hundred names still fits.
const OPTION_BYTES_MAX: u32 = 64 << 10;

/// Longer data up to this many bytes is skipped and refused; beyond it the client is not serious.
const OPTION_BYTES_SKIPPED_MAX: u32 = 1 << 20;

/// Options in one handshake. Clients send about ten; a few hundred could list many contexts.
const OPTIONS_MAX: usize = 512;

/// Zeros after the reply to `EXPORT_NAME` unless the client renounced them.
const EXPORT_NAME_ZEROES: usize = 124;

/// Whether the connection may, must or does use TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Security {
    /// There is none to be had.
    None,
    /// The client may ask for it.
    Offered,
    /// Nothing else is answered before it.
    Required,
    /// It stands.
    Active,
}

/// How a handshake ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Haggled {
    /// The client wants to read and write.
    Transmit { structured: bool, contexts: Contexts },
    /// The client waits for the TLS handshake.
    StartTls,
    /// It is over, properly or not.
    End,
}

/// What follows an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Option,
    Transmit,
    StartTls,
    End,
}

/// Greets the client. `Some(no_zeroes)` with its flags, `None` if it is not to be served.
pub(super) async fn greet<T: Transport>(link: &mut Link<T>) -> Result<Option<bool>, IoError> {
    const FLAGS: u16 = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
    let mut greeting = Vec::with_capacity(18);
    greeting.extend_from_slice(&GREETING_MAGIC.to_be_bytes());
    greeting.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    greeting.extend_from_slice(&FLAGS.to_be_bytes());
    link.send(&greeting).await?;
    let flags = u32::from_be_bytes(link.take().await?);
    // An unknown flag may change what follows: the protocol wants us to give up.
    let known = flags & !u32::from(FLAGS) == 0;
    Ok(known.then_some(flags & u32::from(handshake_flag::NO_ZEROES) != 0))
}

/// Answers options until the client is through.
pub(super) async fn haggle<T: Transport>(
    link: &mut Link<T>,
    export: &Export,
    security: Security,
    no_zeroes: bool,
) -> Result<Haggled, IoError> {
    let mut haggler = Haggler::new(export, security, no_zeroes);
    let mut answer = Vec::new();
    for _ in 0..OPTIONS_MAX {
        let Some((option, length)) = decode_header(&link.take().await?) else {
            return Ok(Haggled::End);
        };
        answer.clear();
        let next = if length > OPTION_BYTES_MAX {
            if length > OPTION_BYTES_SKIPPED_MAX || option == option::EXPORT_NAME {
                return Ok(Haggled::End);
            }
            link.skip(length as usize).await?;
            let message = b"this much option data is not taken";
            put_reply(&mut answer, option, option_reply::ERR_TOO_BIG, message);
            Next::Option
        } else {
            let length = length as usize;
            link.need(length).await?;
            let next = haggler.answer(option, &link.unread()[..length], &mut answer);
            link.consume(length);
            next
        };
        if !answer.is_empty() {
            link.send(&answer).await?;
        }
        match next {
            Next::Option => {}
            Next::Transmit => {
                let (structured, contexts) = (haggler.structured, haggler.contexts);
                return Ok(Haggled::Transmit { structured, contexts });
            }
            Next::StartTls => return Ok(Haggled::StartTls),
            Next::End => return Ok(Haggled::End),
        }
    }
    Ok(Haggled::End)
}

/// What has been agreed on so far.
pub(super) struct Haggler<'a> {
    export: &'a Export,
    security: Security,
    no_zeroes: bool,
    structured: bool,
    contexts: Contexts,
}

impl<'a> Haggler<'a> {
    pub(super) fn new(export: &'a Export, security: Security, no_zeroes: bool) -> Haggler<'a> {
        let contexts = Contexts::NONE;
        Haggler { export, security, no_zeroes, structured: false, contexts }
    }

    /// Appends the answer to one option and says what follows it.
    pub(super) fn answer(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
        let hidden = self.security == Security::Required;
        match option {
            option::EXPORT_NAME if hidden || !self.export.is_named(data) => Next::End,
            option::EXPORT_NAME => {
                out.extend_from_slice(&self.export.info.size_bytes.to_be_bytes());
                out.extend_from_slice(&self.export.flags(self.structured).to_be_bytes());
                if !self.no_zeroes {
                    out.resize(out.len() + EXPORT_NAME_ZEROES, 0);
                }
                Next::Transmit
            }
            option::ABORT => {
                put_reply(out, option, option_reply::ACK, &[]);
                Next::End
            }
            option::STARTTLS => self.answer_tls(data, out),
            _ if hidden => refuse(out, option, option_reply::ERR_TLS_REQD, "start TLS first"),
            option::LIST if !data.is_empty() => invalid(out, option),
            option::LIST => {
                let name = self.export.name.as_bytes();
                let mut entry = Vec::with_capacity(4 + name.len() + self.export.description.len());
                put_string(&mut entry, name);
                entry.extend_from_slice(self.export.description.as_bytes());
                put_reply(out, option, option_reply::SERVER, &entry);
                put_reply(out, option, option_reply::ACK, &[]);
                Next::Option
            }
            option::INFO | option::GO => self.answer_info(option, data, out),
            option::STRUCTURED_REPLY if !data.is_empty() => invalid(out, option),
            option::STRUCTURED_REPLY => {
                self.structured = true;
                put_reply(out, option, option_reply::ACK, &[]);
                Next::Option
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.answer_contexts(option, data, out)
            }
            _ => refuse(out, option, option_reply::ERR_UNSUP, "unknown option"),
        }
    }

    fn answer_tls(&self, data: &[u8], out: &mut Vec<u8>) -> Next {
        let option = option::STARTTLS;
        match self.security {
            _ if !data.is_empty() => invalid(out, option),
            Security::None => {
                refuse(out, option, option_reply::ERR_UNSUP, "this server has no TLS")
            }
            Security::Active => {
                refuse(out, option, option_reply::ERR_INVALID, "TLS is already in use")
            }
            Security::Offered | Security::Required => {
                put_reply(out, option, option_reply::ACK, &[]);
                Next::StartTls
            }
        }
    }

    fn answer_info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
        let Some(query) = InfoQuery::decode(data) else { return invalid(out, option) };
        if !self.export.is_named(query.name) {
            return refuse(out, option, option_reply::ERR_UNKNOWN, "no export has this name");
        }
        let mut entry = Vec::new();
        entry.extend_from_slice(&info::EXPORT.to_be_bytes());
        entry.extend_from_slice(&self.export.info.size_bytes.to_be_bytes());
        entry.extend_from_slice(&self.export.flags(self.structured).to_be_bytes());
        put_reply(out, option, option_reply::INFO, &entry);
        for (kind, text) in
            [(info::NAME, &self.export.name), (info::DESCRIPTION, &self.export.description)]
        {
            if query.wants(kind) {
                entry.clear();
                entry.extend_from_slice(&kind.to_be_bytes());
                entry.extend_from_slice(text.as_bytes());
                put_reply(out, option, option_reply::INFO, &entry);
            }
        }
        // Also to clients that did not ask: they need it to stay aligned, or may ignore it.
        entry.clear();
        entry.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        for size in self.export.block_sizes() {
            entry.extend_from_slice(&size.to_be_bytes());
        }
        put_reply(out, option, option_reply::INFO, &entry);
        put_reply(out, option, option_reply::ACK, &[]);
        if option == option::GO { Next::Transmit } else { Next::Option }
    }

    fn answer_contexts(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
        let listing = option == option::LIST_META_CONTEXT;
        if !listing {
            // Each request replaces the selection, a failed one too.
            self.contexts = Contexts::NONE;
        }
        if !self.structured {
            let message = "structured replies must be negotiated first";
            return refuse(out, option, option_reply::ERR_INVALID, message);
        }
        let Some(query) = ContextQuery::decode(data) else { return invalid(out, option) };
        if !self.export.is_named(query.name) {
            return refuse(out, option, option_reply::ERR_UNKNOWN, "no export has this name");
        }
        for context in Context::ALL {
            let meant = if listing {
                query.count == 0 || query.names().any(|name| context.is_listed_by(name))
            } else {
                query.names().any(|name| name == context.name().as_bytes())
            };
            if !meant {
                continue;
            }
            // A listing promises no id.
            let id = if listing { 0 } else { context.id() };
            if !listing {
                self.contexts.select(context);
            }
            let mut entry = Vec::with_capacity(4 + context.name().len());
            entry.extend_from_slice(&id.to_be_bytes());
            entry.extend_from_slice(context.name().as_bytes());
            put_reply(out, option, option_reply::META_CONTEXT, &entry);
        }
        put_reply(out, option, option_reply::ACK, &[]);
        Next::Option
    }
}

/// The header of an option: which, and how many bytes of data follow. `None`: wrong magic.
fn decode_header(bytes: &[u8; 16]) -> Option<(u32, u32)> {
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let (option, rest) = rest.split_first_chunk::<4>()?;
    let (length, _) = rest.split_first_chunk::<4>()?;
    (u64::from_be_bytes(*magic) == OPTION_MAGIC)
        .then_some((u32::from_be_bytes(*option), u32::from_be_bytes(*length)))
}

/// A string with its 32-bit length in front; gives it and what follows.
fn split_string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

/// The data of `INFO` and `GO`.
struct InfoQuery<'a> {
    name: &'a [u8],
    /// Kinds of information asked for, two bytes each.
    kinds: &'a [u8],
}

impl InfoQuery<'_> {
    fn decode(data: &[u8]) -> Option<InfoQuery<'_>> {
        let (name, rest) = split_string(data)?;
        let (count, kinds) = rest.split_first_chunk::<2>()?;
        (kinds.len() == usize::from(u16::from_be_bytes(*count)) * 2)
            .then_some(InfoQuery { name, kinds })
    }

    fn wants(&self, kind: u16) -> bool {
        self.kinds.chunks_exact(2).any(|bytes| bytes == kind.to_be_bytes())
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
struct ContextQuery<'a> {
    name: &'a [u8],
    count: u32,
    /// Known to be `count` strings.
    queries: &'a [u8],
}

impl<'a> ContextQuery<'a> {
    fn decode(data: &'a [u8]) -> Option<ContextQuery<'a>> {
        let (name, rest) = split_string(data)?;
        let (count, queries) = rest.split_first_chunk::<4>()?;
        let query = ContextQuery { name, count: u32::from_be_bytes(*count), queries };
        // Each string takes 4 bytes at least, so a lying count cannot make this long.
        let mut left = query.queries;
        for _ in 0..query.count {
            left = split_string(left)?.1;
        }
        left.is_empty().then_some(query)
    }

    fn names(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut left = self.queries;
        std::iter::from_fn(move || {
            let (name, rest) = split_string(left)?;
            left = rest;
            Some(name)
        })
    }
}

fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text);
}

fn put_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    put_string(out, data);
}

fn refuse(out: &mut Vec<u8>, option: u32, error: u32, message: &str) -> Next {
    put_reply(out, option, error, message.as_bytes());
    Next::Option
}

fn invalid(out: &mut Vec<u8>, option: u32) -> Next {
    refuse(out, option, option_reply::ERR_INVALID, "the option's data is malformed")
}

#[cfg(test)]
mod tests;
