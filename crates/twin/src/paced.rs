//! A twin in real time: a volume whose requests end when the drive's would.
//!
//! * It runs on any executor. Behind the kernel's clock any program can be put on it through a door;
//!   in a simulation it is as fast as the rest.
//! * Content is kept in memory, sparsely, or not at all.
//! * A request takes effect when it ends. Power cuts and faults belong to the simulation, not here.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use io::{
    Buf, Durability, ErrorKind, Io, IoError, Place, Sleep, Span, Volume, VolumeInfo, WaitList,
    ZeroMode,
};

use crate::medium::{BLOCK_BYTES, Medium};
use crate::model::{Finished, Kind, Model, Request};
use crate::profile::Profile;
use crate::random::Random;

/// Largest request a door hands over at once.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// The physics, and who waits for it.
struct Desk {
    model: Box<dyn Model>,
    /// When the drive was switched on, by the executor's clock (ns).
    begun_ns: u64,
    tag: u64,
    /// Requests that have ended and whose tasks have not heard of it.
    ended: Vec<Finished>,
}

/// See the head of the file.
pub struct Paced {
    io: Io,
    info: VolumeInfo,
    desk: RefCell<Desk>,
    /// Requests whose end only physics knows.
    waiting: WaitList,
    medium: Option<RefCell<Medium>>,
}

impl Paced {
    /// Switches on a twin of `profile`. Without content reads give zeros.
    pub fn new(io: &Io, profile: &Profile, keeps_content: bool) -> Paced {
        let model = profile.model(Random::new(1));
        let desk = Desk { model, begun_ns: io.now_ns(), tag: 0, ended: Vec::new() };
        let info = VolumeInfo {
            size_bytes: profile.size_bytes() / BLOCK_BYTES as u64 * BLOCK_BYTES as u64,
            sector_bytes: 512,
            preferred_bytes: BLOCK_BYTES as u32,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            read_only: false,
        };
        Paced {
            io: io.clone(),
            info,
            desk: RefCell::new(desk),
            waiting: WaitList::new(),
            medium: keeps_content.then(RefCell::default),
        }
    }

    /// Waits as long as the drive takes.
    async fn serve(&self, kind: Kind, at: u64, length: u64) -> Result<(), IoError> {
        let inside = at.checked_add(length).is_some_and(|end| end <= self.info.size_bytes);
        let sector_bytes = u64::from(self.info.sector_bytes);
        if !inside || !at.is_multiple_of(sector_bytes) || !length.is_multiple_of(sector_bytes) {
            let message = format!(
                "{kind:?} of {length} bytes at {at}: outside the twin's {} bytes or not in sectors \
                 of {sector_bytes}",
                self.info.size_bytes
            );
            return Err(IoError::new(ErrorKind::Range, message));
        }
        match self.submit(Request { kind, at, length }) {
            Ok(sleep) => sleep.await,
            Err(tag) => self.end_of(tag).await,
        }
        Ok(())
    }

    /// Gives a request to physics: how long it takes, or the name it has until that is known.
    fn submit(&self, request: Request) -> Result<Sleep, u64> {
        self.live();
        let mut desk = self.desk.borrow_mut();
        desk.tag += 1;
        let (now_ns, tag) = (self.io.now_ns() - desk.begun_ns, desk.tag);
        match desk.model.submit(now_ns, tag, &request) {
            Some(at_ns) => Ok(self.io.sleep(at_ns.saturating_sub(now_ns))),
            None => Err(tag),
        }
    }

    /// Waits until physics has ended the request. Each request that waits also keeps the clockwork
    /// going: whoever comes first to the next moment lets the drive live on to it.
    async fn end_of(&self, tag: u64) {
        let mut place = None;
        let mut sleep: Option<(u64, Sleep)> = None;
        poll_fn(|context| {
            loop {
                if self.has_ended(tag) {
                    return Poll::Ready(());
                }
                let next_ns = {
                    let desk = self.desk.borrow();
                    desk.begun_ns + desk.model.next_ns().expect("a request is under way")
                };
                if sleep.as_ref().is_none_or(|(until_ns, _)| *until_ns != next_ns) {
                    let for_ns = next_ns.saturating_sub(self.io.now_ns());
                    sleep = Some((next_ns, self.io.sleep(for_ns)));
                }
                let (_, alarm) = sleep.as_mut().expect("just set");
                if Pin::new(alarm).poll(context).is_pending() {
                    self.waiting.register(&mut place, context);
                    return Poll::Pending;
                }
                sleep = None;
                self.live();
            }
        })
        .await;
    }

    /// The drive lives on until now.
    fn live(&self) {
        let mut desk = self.desk.borrow_mut();
        let now_ns = self.io.now_ns() - desk.begun_ns;
        let Desk { model, ended, .. } = &mut *desk;
        let before = ended.len();
        model.advance(now_ns, ended);
        let news = ended.len() > before;
        drop(desk);
        if news {
            self.waiting.wake_all();
        }
    }

    fn has_ended(&self, tag: u64) -> bool {
        let ended = &mut self.desk.borrow_mut().ended;
        let place = ended.iter().position(|finished| finished.tag == tag);
        place.map(|place| ended.swap_remove(place)).is_some()
    }

    async fn flush_if(&self, durability: Durability) -> Result<(), IoError> {
        match durability {
            Durability::Volatile => Ok(()),
            Durability::Durable => self.flush().await,
        }
    }

    /// Makes the range zeros: whole blocks become holes.
    fn clear(&self, at: u64, length: u64) {
        let Some(medium) = &self.medium else { return };
        let mut medium = medium.borrow_mut();
        let (first, end) = (at / BLOCK_BYTES as u64, (at + length).div_ceil(BLOCK_BYTES as u64));
        for block in medium.present(first..end) {
            let start = block * BLOCK_BYTES as u64;
            let (from, to) = (at.max(start), (at + length).min(start + BLOCK_BYTES as u64));
            if to - from == BLOCK_BYTES as u64 {
                medium.set(block, None);
            } else {
                medium.write(from, &[0; BLOCK_BYTES][..(to - from) as usize]);
            }
        }
    }
}

impl Volume for Paced {
    fn info(&self) -> VolumeInfo {
        self.info.clone()
    }

    async fn read(&self, at: u64, mut buf: Buf) -> (Buf, Result<(), IoError>) {
        let outcome = self.serve(Kind::Read, at, buf.len() as u64).await;
        if outcome.is_ok() {
            match &self.medium {
                Some(medium) => medium.borrow().read(at, &mut buf),
                None => buf.fill(0),
            }
        }
        (buf, outcome)
    }

    async fn write(&self, at: u64, buf: Buf, durability: Durability) -> (Buf, Result<(), IoError>) {
        let mut outcome = self.serve(Kind::Write, at, buf.len() as u64).await;
        if outcome.is_ok() {
            if let Some(medium) = &self.medium {
                medium.borrow_mut().write(at, &buf);
            }
            outcome = self.flush_if(durability).await;
        }
        (buf, outcome)
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.serve(Kind::Flush, 0, 0).await
    }

    async fn trim(&self, at: u64, length: u64, durability: Durability) -> Result<(), IoError> {
        self.serve(Kind::Trim, at, length).await?;
        self.clear(at, length);
        self.flush_if(durability).await
    }

    async fn write_zeroes(
        &self,
        at: u64,
        length: u64,
        _: ZeroMode,
        durability: Durability,
    ) -> Result<(), IoError> {
        self.serve(Kind::WriteZeroes, at, length).await?;
        self.clear(at, length);
        self.flush_if(durability).await
    }

    async fn cache(&self, _: u64, _: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn places(&self, _: u64, length: u64, _: usize) -> Vec<Span> {
        vec![Span { length, place: Place::Slow }]
    }
}
