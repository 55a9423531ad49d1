//! The transmission phase of one connection.
//!
//! One task does it all, in rounds: take what the volume finished, parse what arrived and begin
//! it at once, send all replies that are ready in as few sends as can be, receive again. Requests
//! run side by side and are answered as they end.
//!
//! * At most [`Limits::requests_max`] requests and [`Limits::bytes_max`] payload bytes are between
//!   their arrival and the sending of their reply; beyond that the socket is not read. A peer that
//!   does not read its replies therefore costs a bounded amount of memory.
//! * Payload buffers are taken piece by piece as the payload arrives, never for what a header
//!   claims.
//! * Calls into the volume are never abandoned: the connection ends after the last one has.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use io::{Buf, Durability, Io, Place, Sleep, Span, Volume};

use super::crew::{Crew, Deed, Done, Job, Ticket};
use super::in_flight::{Entry, InFlight, Shape, error_frame, payload_frame};
use super::inbox::Inbox;
use super::link::Link;
use super::outgoing::{Frame, Outgoing, Release};
use super::protocol::{REQUEST_BYTES, chunk, error};
use super::reply::{Head, status_payload};
use super::request::{Request, Terms, Work};
use super::roster::Seat;
use super::transport::Transport;

/// A payload with at least this many bytes missing is received straight into its buffer. Below,
/// it is cheaper to copy it out of a batch that also brings the next requests.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// The payload of a refused write is read and dropped up to this many bytes, so that the
/// connection stays usable; beyond it the peer is not serious and the connection ends.
const SKIPPED_BYTES_MAX: u32 = 128 << 20;

/// Reads from this size on are looked up for holes, which are then not transferred.
const HOLE_SEARCH_BYTES_MIN: u32 = 64 << 10;

/// Runs looked at in one hole search: more would rather be sent as data.
const HOLE_SPANS_MAX: usize = 16;

/// Runs looked at for one `BLOCK_STATUS`: the reply stays within two buffers of 16 KiB.
const STATUS_SPANS_MAX: usize = 2000;

/// Runs looked at when the client wants one: enough to merge some neighbours.
const STATUS_SPANS_ONE: usize = 64;

/// A peer gets this long to take its last replies once the connection is ending.
const LINGER_NS: u64 = 5 * io::units::SECOND_NS;

/// Bounds of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) requests_max: usize,
    pub(super) bytes_max: u64,
}

/// What the next received bytes are.
enum Incoming {
    Header,
    Payload(Payload),
    /// Bytes of a refused write to drop, and the answer that follows them.
    Skipped(u32, Option<Frame>),
}

/// A write whose data is arriving.
struct Payload {
    request: u32,
    part: u32,
    durability: Durability,
    /// Where the current part goes on the volume.
    at: u64,
    /// Bytes of the request after the current part.
    left_after: u32,
    /// The current part; elsewhere while a receive fills it.
    buf: Option<Buf>,
    filled: usize,
}

/// Where the receive in flight goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiving {
    Nothing,
    Inbox,
    Payload,
}

/// One connection after its handshake.
pub(super) struct Connection<V, T> {
    io: Io,
    seat: Seat,
    terms: Terms,
    limits: Limits,
    volume: Rc<V>,
    transport: T,
    inbox: Inbox,
    incoming: Incoming,
    receiving: Receiving,
    crew: Crew<V>,
    /// Jobs that wait for a free member.
    backlog: VecDeque<Job>,
    in_flight: InFlight,
    outgoing: Outgoing,
    /// What the send in flight releases.
    sending: Option<Release>,
    requests: usize,
    bytes: u64,
    /// No more requests are taken; set once, for whatever reason.
    ending: bool,
    /// The peer does not take replies any more.
    peer_gone: bool,
    linger: Option<Sleep>,
    /// Kept for its allocation.
    done: Vec<Done>,
}

impl<V: Volume, T: Transport> Connection<V, T> {
    pub(super) fn new(
        io: Io,
        seat: Seat,
        terms: Terms,
        limits: Limits,
        volume: Rc<V>,
        link: Link<T>,
    ) -> Connection<V, T> {
        Connection {
            crew: Crew::new(volume.clone(), limits.requests_max),
            io,
            seat,
            terms,
            limits,
            volume,
            transport: link.transport,
            inbox: link.inbox,
            incoming: Incoming::Header,
            receiving: Receiving::Nothing,
            backlog: VecDeque::new(),
            in_flight: InFlight::default(),
            outgoing: Outgoing::default(),
            sending: None,
            requests: 0,
            bytes: 0,
            ending: false,
            peer_gone: false,
            linger: None,
            done: Vec::new(),
        }
    }

    /// Serves requests until the connection ends.
    pub(super) async fn run(mut self) {
        poll_fn(|context| self.poll(context)).await;
        if self.peer_gone {
            return;
        }
        poll_fn(|context| {
            // The linger time also bounds the goodbye.
            self.poll_linger(context);
            if self.peer_gone { Poll::Ready(()) } else { self.transport.poll_close(context) }
        })
        .await;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.seat.must_leave(context) {
            self.end();
        }
        loop {
            let mut moved = self.collect(context);
            moved |= self.poll_receive(context);
            moved |= self.parse();
            moved |= self.poll_send(context);
            moved |= self.send_next();
            moved |= self.receive_next();
            moved |= self.poll_linger(context);
            if self.is_over() {
                return Poll::Ready(());
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    /// The first poll after the timer was set arms it.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> bool {
        let Some(linger) = &mut self.linger else { return false };
        if Pin::new(linger).poll(context).is_pending() {
            return false;
        }
        self.linger = None;
        self.give_up();
        true
    }

    fn is_over(&self) -> bool {
        let quiet = self.crew.is_idle() && self.backlog.is_empty();
        let sent = self.outgoing.is_empty() && self.sending.is_none();
        self.ending && quiet && sent
    }

    /// Takes no more requests. Replies to those under way still leave, within the linger time.
    fn end(&mut self) {
        if self.ending {
            return;
        }
        self.ending = true;
        self.linger = Some(self.io.sleep(LINGER_NS));
    }

    /// The peer is gone, or treated so: nothing leaves any more.
    fn give_up(&mut self) {
        self.peer_gone = true;
        self.outgoing = Outgoing::default();
        self.transport.shutdown();
        self.end();
    }

    fn collect(&mut self, context: &mut Context<'_>) -> bool {
        let mut done = std::mem::take(&mut self.done);
        self.crew.collect(context, &mut done, usize::MAX);
        let moved = !done.is_empty();
        for finished in done.drain(..) {
            self.settle(finished);
        }
        self.done = done;
        while self.crew.has_room()
            && let Some(job) = self.backlog.pop_front()
        {
            self.launch(job);
        }
        moved
    }

    fn launch(&mut self, job: Job) {
        if !self.crew.has_room() {
            self.backlog.push_back(job);
        } else if let Some(finished) = self.crew.start(job) {
            self.settle(finished);
        }
    }

    fn settle(&mut self, done: Done) {
        self.in_flight.end_part(done, self.terms.structured, self.io.pool(), &mut self.outgoing);
        if self.peer_gone {
            self.outgoing = Outgoing::default();
        }
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> bool {
        if self.receiving == Receiving::Nothing {
            return false;
        }
        let Poll::Ready((buf, outcome)) = self.transport.poll_receive(context) else {
            return false;
        };
        let count = *outcome.as_ref().unwrap_or(&0);
        match (self.receiving, &mut self.incoming) {
            (Receiving::Payload, Incoming::Payload(payload)) => {
                payload.buf.as_mut().expect("its front stayed").unsplit(buf);
                payload.filled += count;
            }
            _ => self.inbox.arrived(buf, count),
        }
        self.receiving = Receiving::Nothing;
        if count == 0 {
            // The end of the stream, in the middle of a request or not. What is under way goes on.
            self.end();
        }
        true
    }

    fn receive_next(&mut self) -> bool {
        if self.receiving != Receiving::Nothing || self.ending {
            return false;
        }
        if let Incoming::Payload(payload) = &mut self.incoming {
            let buf = payload.buf.as_mut().expect("no receive is in flight");
            if buf.len() - payload.filled >= DIRECT_BYTES_MIN {
                let front = buf.split_to(payload.filled);
                let rest = std::mem::replace(buf, front);
                self.receiving = Receiving::Payload;
                self.transport.start_receive(rest);
                return true;
            }
        } else if matches!(self.incoming, Incoming::Header)
            && (self.is_full() || self.inbox.unread().len() >= REQUEST_BYTES)
        {
            return false;
        }
        let buf = self.inbox.prepare(REQUEST_BYTES);
        self.receiving = Receiving::Inbox;
        self.transport.start_receive(buf);
        true
    }

    /// Whether a further request must wait, whatever it is.
    fn is_full(&self) -> bool {
        self.requests >= self.limits.requests_max || !self.backlog.is_empty()
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> bool {
        let Some(release) = self.sending else { return false };
        let Poll::Ready((_, outcome)) = self.transport.poll_send(context) else { return false };
        self.sending = None;
        self.requests -= release.requests;
        self.bytes -= release.bytes;
        if outcome.is_err() {
            self.give_up();
        }
        true
    }

    fn send_next(&mut self) -> bool {
        if self.sending.is_some() || self.peer_gone {
            return false;
        }
        let Some((buf, release)) = self.outgoing.next(self.io.pool()) else { return false };
        self.transport.start_send(buf);
        self.sending = Some(release);
        true
    }

    /// Understands what has arrived, as far as there is room for it.
    fn parse(&mut self) -> bool {
        let mut moved = false;
        while !self.ending && self.receiving == Receiving::Nothing && self.parse_one() {
            moved = true;
        }
        moved
    }

    fn parse_one(&mut self) -> bool {
        match &mut self.incoming {
            Incoming::Header => self.parse_header(),
            Incoming::Skipped(left, refusal) => {
                let count = self.inbox.unread().len().min(*left as usize);
                self.inbox.consume(count);
                *left -= count as u32;
                if *left > 0 {
                    return false;
                }
                let frame = refusal.take().expect("answered once");
                self.outgoing.push(frame);
                self.incoming = Incoming::Header;
                true
            }
            Incoming::Payload(payload) => {
                let buf = payload.buf.as_mut().expect("no receive is in flight");
                let unread = self.inbox.unread();
                let count = unread.len().min(buf.len() - payload.filled);
                buf[payload.filled..payload.filled + count].copy_from_slice(&unread[..count]);
                self.inbox.consume(count);
                payload.filled += count;
                let complete = payload.filled == buf.len();
                if complete {
                    self.end_payload_part();
                }
                complete
            }
        }
    }

    fn parse_header(&mut self) -> bool {
        if self.is_full() {
            return false;
        }
        let Some(bytes) = self.inbox.unread().first_chunk::<REQUEST_BYTES>() else { return false };
        let Some(request) = Request::decode(bytes) else {
            self.end();
            return false;
        };
        match request.check(&self.terms) {
            Ok(Work::Disconnect) => {
                self.inbox.consume(REQUEST_BYTES);
                self.end();
            }
            Ok(work) => {
                let bytes = match work {
                    Work::Read { .. } | Work::Write(_) => u64::from(request.length),
                    _ => 0,
                };
                // Alone it may be longer than the limit, or it could never be served.
                if self.bytes > 0 && self.bytes + bytes > self.limits.bytes_max {
                    return false;
                }
                self.inbox.consume(REQUEST_BYTES);
                self.admit(bytes);
                self.begin(request, work, Release { requests: 1, bytes });
            }
            Err(refusal) => {
                if request.payload_bytes() > SKIPPED_BYTES_MAX {
                    self.end();
                    return false;
                }
                self.inbox.consume(REQUEST_BYTES);
                self.admit(0);
                let frame = self.refusal(request.cookie, refusal.error, refusal.message);
                match request.payload_bytes() {
                    0 => self.outgoing.push(frame),
                    // Answered behind it: clients do not expect an answer to what they are still sending.
                    bytes => self.incoming = Incoming::Skipped(bytes, Some(frame)),
                }
            }
        }
        true
    }

    fn admit(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
    }

    fn refusal(&self, cookie: u64, error: u32, message: &str) -> Frame {
        let release = Release { requests: 1, bytes: 0 };
        let frame = if self.terms.structured {
            error_frame(cookie, true, error, message, None, self.io.pool())
        } else {
            Frame { head: Head::simple(cookie, error), body: None, release }
        };
        Frame { release, ..frame }
    }

    fn begin(&mut self, request: Request, work: Work, release: Release) {
        let Request { cookie, at, length, .. } = request;
        let range = u64::from(length);
        let deed = match work {
            Work::Read { dont_fragment } => {
                return self.begin_read(request, dont_fragment, release);
            }
            Work::Write(durability) => return self.begin_write(request, durability, release),
            Work::BlockStatus { one } => return self.describe(request, one, release),
            Work::Flush => Deed::Flush,
            _ if length == 0 => {
                let head = Head::simple(cookie, 0);
                return self.outgoing.push(Frame { head, body: None, release });
            }
            Work::Trim(durability) => Deed::Trim { at, length: range, durability },
            Work::Cache => Deed::Cache { at, length: range },
            Work::WriteZeroes(mode, durability) => {
                Deed::WriteZeroes { at, length: range, mode, durability }
            }
            Work::Disconnect => unreachable!("ends the connection, never begins"),
        };
        let index = self.file(request, Shape::Bare, 1, release);
        self.launch(Job { ticket: Ticket { request: index, part: 0, at }, deed });
    }

    fn file(&mut self, request: Request, shape: Shape, parts: u32, release: Release) -> u32 {
        let mut gathered = Vec::new();
        if parts > 1 && matches!(shape, Shape::Simple | Shape::Whole) {
            gathered.resize_with(parts as usize, || None);
        }
        self.in_flight.insert(Entry {
            cookie: request.cookie,
            shape,
            at: request.at,
            length: request.length,
            parts_left: parts,
            failure: None,
            gathered,
            release,
        })
    }

    fn begin_read(&mut self, request: Request, dont_fragment: bool, release: Release) {
        let Request { cookie, at, length, .. } = request;
        if length == 0 {
            let structured = self.terms.structured;
            let head = if structured { Head::none(cookie) } else { Head::simple(cookie, 0) };
            return self.outgoing.push(Frame { head, body: None, release });
        }
        let shape = match (self.terms.structured, dont_fragment) {
            (false, _) => Shape::Simple,
            (true, true) => Shape::Whole,
            (true, false) => Shape::Chunks,
        };
        if shape == Shape::Chunks && length >= HOLE_SEARCH_BYTES_MIN {
            let spans = self.volume.places(at, u64::from(length), HOLE_SPANS_MAX);
            if spans.iter().any(|span| span.place == Place::Hole) {
                return self.read_around_holes(request, &spans, release);
            }
        }
        let parts = length.div_ceil(self.terms.transfer_bytes_max);
        let index = self.file(request, shape, parts, release);
        self.read_run(index, 0, at, length);
    }

    /// Answers a structured read whose range has holes: these are named, the rest is read.
    fn read_around_holes(&mut self, request: Request, spans: &[Span], release: Release) {
        let (runs, parts) = self.runs_to_read(request, spans);
        let last_hole = runs.iter().rposition(|run| run.hole);
        for (position, run) in runs.iter().enumerate().filter(|(_, run)| run.hole) {
            // Data still to come ends the reply; without any, the last hole does.
            let done = parts == 0 && Some(position) == last_hole;
            let head = Head::hole(request.cookie, done, run.at, run.length);
            let release = if done { release } else { Release::default() };
            self.outgoing.push(Frame { head, body: None, release });
        }
        if parts == 0 {
            return;
        }
        let index = self.file(request, Shape::Chunks, parts, release);
        let mut first_part = 0;
        for run in runs.iter().filter(|run| !run.hole) {
            first_part = self.read_run(index, first_part, run.at, run.length);
        }
    }

    /// Cuts the range of a read into holes and data, and counts the parts of the data. What the
    /// spans do not cover is data.
    fn runs_to_read(&self, request: Request, spans: &[Span]) -> (Vec<Run>, u32) {
        let sector = u64::from(self.terms.sector_bytes);
        let end = request.at + u64::from(request.length);
        let mut runs: Vec<Run> = Vec::with_capacity(spans.len() + 1);
        let mut at = request.at;
        let beyond = Span { length: end - at, place: Place::Fast };
        for span in spans.iter().chain(std::iter::once(&beyond)) {
            // Floor to sectors: a volume's spans are aligned, but a read must be, whatever comes.
            let length = span.length.min(end - at) / sector * sector;
            if length == 0 {
                continue;
            }
            let hole = span.place == Place::Hole;
            match runs.last_mut() {
                Some(run) if run.hole == hole => run.length += length as u32,
                _ => runs.push(Run { at, length: length as u32, hole }),
            }
            at += length;
        }
        let data = runs.iter().filter(|run| !run.hole);
        let parts = data.map(|run| run.length.div_ceil(self.terms.transfer_bytes_max)).sum();
        (runs, parts)
    }

    /// Begins the reads of one run, numbering parts from `first_part`; gives the next number.
    fn read_run(&mut self, request: u32, first_part: u32, at: u64, length: u32) -> u32 {
        let part_bytes = self.terms.transfer_bytes_max;
        let parts = length.div_ceil(part_bytes);
        for part in 0..parts {
            let offset = part * part_bytes;
            let buf = self.io.pool().take(part_bytes.min(length - offset) as usize);
            let at = at + u64::from(offset);
            let ticket = Ticket { request, part: first_part + part, at };
            self.launch(Job { ticket, deed: Deed::Read { at, buf } });
        }
        first_part + parts
    }

    fn begin_write(&mut self, request: Request, durability: Durability, release: Release) {
        let Request { cookie, at, length, .. } = request;
        if length == 0 {
            let head = Head::simple(cookie, 0);
            return self.outgoing.push(Frame { head, body: None, release });
        }
        if length as usize >= 2 * DIRECT_BYTES_MIN {
            self.inbox.expect_payloads();
        }
        let part_bytes = self.terms.transfer_bytes_max;
        let request = self.file(request, Shape::Bare, length.div_ceil(part_bytes), release);
        let first = part_bytes.min(length);
        self.incoming = Incoming::Payload(Payload {
            request,
            part: 0,
            durability,
            at,
            left_after: length - first,
            buf: Some(self.io.pool().take(first as usize)),
            filled: 0,
        });
    }

    /// A part of a write has arrived: begins it, and gets ready for the next part.
    fn end_payload_part(&mut self) {
        let Incoming::Payload(payload) = std::mem::replace(&mut self.incoming, Incoming::Header)
        else {
            unreachable!("called with a payload");
        };
        let Payload { request, part, durability, at, left_after, buf, .. } = payload;
        let buf = buf.expect("no receive is in flight");
        let at_next = at + buf.len() as u64;
        if left_after > 0 {
            let next = self.terms.transfer_bytes_max.min(left_after);
            self.incoming = Incoming::Payload(Payload {
                request,
                part: part + 1,
                durability,
                at: at_next,
                left_after: left_after - next,
                buf: Some(self.io.pool().take(next as usize)),
                filled: 0,
            });
        }
        let ticket = Ticket { request, part, at };
        self.launch(Job { ticket, deed: Deed::Write { at, buf, durability } });
    }

    fn describe(&mut self, request: Request, one: bool, release: Release) {
        let Request { cookie, at, length, .. } = request;
        let spans_max = if one { STATUS_SPANS_ONE } else { STATUS_SPANS_MAX };
        let last = self.terms.contexts.selected().last();
        for context in self.terms.contexts.selected() {
            let done = Some(context) == last;
            let runs = context.describe(&*self.volume, at, length, spans_max, one);
            if runs.is_empty() {
                let message = "the volume does not know where this range is";
                return self.outgoing.push(self.refusal(cookie, error::EIO, message));
            }
            let payload = status_payload(context.id(), &runs);
            let kind = chunk::BLOCK_STATUS;
            let frame = payload_frame(cookie, done, kind, &payload, self.io.pool());
            let release = if done { release } else { Release::default() };
            self.outgoing.push(Frame { release, ..frame });
        }
    }
}

/// A piece of a read: zeros, or data to fetch.
struct Run {
    at: u64,
    length: u32,
    hole: bool,
}
