//! Requests of every kind over two connections until the server is killed, all of them entered
//! in the ledger; and the look at the whole volume afterwards.
//!
//! Requests in flight never overlap, so that a block's contents have one order. Reads while
//! serving are compared at once. A flush on one connection must cover both.

use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use crate::campaign::Dice;
use crate::ledger::{BLOCK_SECTORS, Ledger, SECTOR_BYTES, Verdict, fill};
use crate::nbd_client::{Command, NbdClient, Reply};

/// What a round's requests are like.
#[derive(Clone, Copy, Debug)]
pub enum Manner {
    /// 4 to 16 KiB all over the volume, most of them in an eighth of it.
    Small,
    /// 512 bytes to 12 KiB at any sector.
    Unaligned,
    /// 128 KiB to 1 MiB, one after the other, over and over the volume.
    Streams,
    /// A few blocks, again and again.
    Overwrites,
    /// Whole extents written, trimmed, zeroed and written to in part.
    Extents,
    /// Everything.
    Mixed,
}

/// All manners.
pub const MANNERS: [Manner; 6] = [
    Manner::Mixed,
    Manner::Small,
    Manner::Streams,
    Manner::Unaligned,
    Manner::Extents,
    Manner::Overwrites,
];

/// What was done until the server died.
#[derive(Default, Debug)]
pub struct Tally {
    /// Acknowledged changes.
    pub changes: u64,
    /// Acknowledged flushes, and changes forced to the drives.
    pub flushes: u64,
    /// Reads compared.
    pub reads: u64,
    /// Whatever was wrong while serving; empty when all was well.
    pub wrong: Vec<String>,
}

struct InFlight {
    command: Command,
    fua: bool,
    sectors: Range<u64>,
    /// A change's number, or the time a flush was sent.
    number: u64,
}

/// The client.
pub struct NbdLoad<'a> {
    ledger: &'a mut Ledger,
    dice: Dice,
    manner: Manner,
    /// One request in so many is a flush.
    flush_every: u64,
    /// Where the next streaming request goes, in sectors.
    stream: u64,
    slots: Vec<Option<InFlight>>,
    tally: Tally,
}

impl<'a> NbdLoad<'a> {
    /// Draws depth and flush rate from the dice.
    pub fn new(ledger: &'a mut Ledger, mut dice: Dice, manner: Manner) -> NbdLoad<'a> {
        let queue_depth = dice.pick(&[1, 4, 16, 64]);
        let flush_every = dice.pick(&[3, 12, 50, 400]);
        let stream = dice.below(ledger.sectors());
        let slots = (0..queue_depth).map(|_| None).collect();
        let tally = Tally::default();
        NbdLoad { ledger, dice, manner, flush_every, stream, slots, tally }
    }

    /// Sends requests until both connections are lost or something is wrong.
    pub fn run(mut self, socket: &Path) -> Tally {
        let (sender, replies) = channel();
        let clients = [(); 2].map(|()| NbdClient::connect(socket, sender.clone()));
        drop(sender);
        // A server killed while it greets: nothing was asked of it.
        let [Ok(first), Ok(second)] = clients else { return self.tally };
        let mut clients = [first, second];
        assert_eq!(
            first_size(&clients) / SECTOR_BYTES as u64,
            self.ledger.sectors(),
            "the size has changed"
        );
        let mut payload = vec![0; LARGEST_SECTORS as usize * SECTOR_BYTES];
        while self.tally.wrong.is_empty() {
            let free = self.slots.iter().position(Option::is_none);
            let sent = match free {
                Some(slot) => self.send(&mut clients, slot, &mut payload),
                None => true,
            };
            // Anything that has come is taken in at once; with nothing to send it is awaited.
            if !self.take_in(&replies, free.is_none() || !sent) {
                break;
            }
        }
        self.tally
    }

    /// Sends one request; false when none was found that overlaps nothing in flight, or when
    /// the connection is lost (which the receivers notice too).
    fn send(&mut self, clients: &mut [NbdClient], slot: usize, payload: &mut [u8]) -> bool {
        let Some((command, sectors)) = (0..8).find_map(|_| {
            let (command, sectors) = self.choose();
            (!self.overlaps(&sectors)).then_some((command, sectors))
        }) else {
            return false;
        };
        let changes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
        let fua = changes && self.dice.once_in(3 * self.flush_every);
        let bytes = (sectors.end - sectors.start) as usize * SECTOR_BYTES;
        let (number, data) = match command {
            Command::Write => {
                let number = self.ledger.begin(sectors.clone(), false);
                fill(&mut payload[..bytes], number, sectors.start);
                (number, &payload[..bytes])
            }
            Command::Trim | Command::WriteZeroes => {
                (self.ledger.begin(sectors.clone(), true), &payload[..0])
            }
            Command::Flush => (self.ledger.flushing(), &payload[..0]),
            Command::Read => (0, &payload[..0]),
        };
        let at = sectors.start * SECTOR_BYTES as u64;
        self.slots[slot] = Some(InFlight { command, fua, sectors, number });
        let client = &mut clients[self.dice.below(2) as usize];
        client.send(command, fua, slot as u32, at, bytes as u32, data).is_ok()
    }

    fn overlaps(&self, sectors: &Range<u64>) -> bool {
        // By whole blocks: two parts of one block are not in flight together either.
        let whole =
            |range: &Range<u64>| range.start / BLOCK_SECTORS..range.end.div_ceil(BLOCK_SECTORS);
        let wanted = whole(sectors);
        self.slots.iter().flatten().any(|in_flight| {
            let taken = whole(&in_flight.sectors);
            taken.start < wanted.end && wanted.start < taken.end
        })
    }

    /// Handles what has arrived, waiting for the first if told to; false when both connections
    /// are lost.
    fn take_in(&mut self, replies: &Receiver<Reply>, wait: bool) -> bool {
        if wait {
            match replies.recv() {
                Ok(reply) => self.settle(reply),
                Err(_) => return false,
            }
        }
        loop {
            match replies.try_recv() {
                Ok(reply) => self.settle(reply),
                Err(std::sync::mpsc::TryRecvError::Empty) => return true,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn settle(&mut self, reply: Reply) {
        let slot = self.slots.get_mut(reply.cookie as usize).and_then(Option::take);
        let Some(request) = slot else {
            return self.tally.wrong.push(format!("a reply to nothing: {}", reply.cookie));
        };
        if reply.error != 0 {
            let (command, sectors) = (request.command, request.sectors);
            let wrong = format!("{command:?} of sectors {sectors:?}: error {}", reply.error);
            return self.tally.wrong.push(wrong);
        }
        match request.command {
            Command::Read => {
                self.tally.reads += 1;
                let compared = self.ledger.compare(request.sectors, &reply.data);
                self.tally.wrong.extend(compared.err());
            }
            Command::Flush => {
                self.tally.flushes += 1;
                self.ledger.flushed(request.number);
            }
            Command::Write | Command::Trim | Command::WriteZeroes => {
                self.tally.changes += 1;
                self.tally.flushes += u64::from(request.fua);
                self.ledger.complete(request.number, request.sectors, request.fua);
            }
        }
    }

    fn choose(&mut self) -> (Command, Range<u64>) {
        if self.dice.once_in(self.flush_every) {
            return (Command::Flush, 0..0);
        }
        let manner = match self.manner {
            Manner::Mixed => self.dice.pick(&MANNERS[1..]),
            manner => manner,
        };
        let all = self.ledger.sectors();
        let (command, start, length) = match manner {
            Manner::Small | Manner::Mixed => {
                let within = if self.dice.once_in(4) { all } else { all / 8 };
                let start = self.dice.below(within / BLOCK_SECTORS) * BLOCK_SECTORS;
                (Command::Write, start, BLOCK_SECTORS * self.dice.pick(&[1, 1, 1, 2, 4]))
            }
            Manner::Unaligned => {
                (Command::Write, self.dice.below(all / 4), 1 + self.dice.below(24))
            }
            Manner::Streams => {
                let length = EXTENT_SECTORS * self.dice.pick(&[1, 2, 8]);
                let start = self.stream / EXTENT_SECTORS * EXTENT_SECTORS;
                self.stream = (start + length) % all;
                (Command::Write, start, length)
            }
            Manner::Overwrites => {
                let start = all / 2 + BLOCK_SECTORS * self.dice.below(64);
                (Command::Write, start, BLOCK_SECTORS)
            }
            Manner::Extents => {
                let start = EXTENT_SECTORS * self.dice.below(all.div_ceil(EXTENT_SECTORS));
                let kinds = [Command::Write, Command::Write, Command::Trim, Command::WriteZeroes];
                let length = EXTENT_SECTORS * self.dice.pick(&[1, 1, 2, 4]);
                // Half of them in part: from a block within, to a block within.
                match self.dice.below(2) {
                    0 => (self.dice.pick(&kinds), start, length),
                    _ => {
                        let skipped =
                            BLOCK_SECTORS * self.dice.below(EXTENT_SECTORS / BLOCK_SECTORS);
                        let length = BLOCK_SECTORS * (1 + self.dice.below(length / BLOCK_SECTORS));
                        (self.dice.pick(&kinds), start + skipped, length)
                    }
                }
            }
        };
        let command = if self.dice.once_in(8) { Command::Read } else { command };
        let start = start.min(all - BLOCK_SECTORS);
        (command, start..(start + length.min(LARGEST_SECTORS)).min(all))
    }
}

/// Sectors of a 128 KiB extent, the default.
const EXTENT_SECTORS: u64 = 256;
/// Sectors of the largest request, 1 MiB.
const LARGEST_SECTORS: u64 = 2048;

fn first_size(clients: &[NbdClient]) -> u64 {
    clients[0].size_bytes
}

/// Reads the whole volume and compares it with what may be there.
pub fn look(ledger: &mut Ledger, socket: &Path) -> (Verdict, Vec<String>) {
    let (sender, replies) = channel();
    let mut client = NbdClient::connect(socket, sender).expect("a served volume answers");
    let (mut verdict, mut wrong) = (Verdict::default(), Vec::new());
    let all = ledger.sectors();
    let mut at = 0;
    while at < all {
        let sectors = LARGEST_SECTORS.min(all - at);
        let bytes = (sectors * SECTOR_BYTES as u64) as u32;
        client
            .send(Command::Read, false, 0, at * SECTOR_BYTES as u64, bytes, &[])
            .and_then(|()| replies.recv().map_err(std::io::Error::other))
            .map(|reply| match reply.error {
                0 => wrong.extend(ledger.judge(at / BLOCK_SECTORS, &reply.data, &mut verdict)),
                error => wrong.push(format!("read of {bytes} bytes at sector {at}: error {error}")),
            })
            .expect("the server stays");
        at += sectors;
    }
    (verdict, wrong)
}
