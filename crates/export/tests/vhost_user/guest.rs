//! A guest with a virtio disk, and the front-end that connects it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserInflight};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Address, Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

pub const IN: u32 = 0;
pub const OUT: u32 = 1;
pub const FLUSH: u32 = 4;
pub const GET_ID: u32 = 8;
pub const DISCARD: u32 = 11;
pub const WRITE_ZEROES: u32 = 13;

pub const FEATURE_FLUSH: u64 = 1 << 9;
pub const FEATURE_INDIRECT: u64 = 1 << 28;
pub const FEATURE_EVENT_INDEX: u64 = 1 << 29;
const FEATURE_PROTOCOL: u64 = 1 << 30;

pub const QUEUE_SIZE: u16 = 256;
/// Requests under way at most: each may take four of the queue's own descriptors.
pub const HEADS: u16 = QUEUE_SIZE / 4;

/// What one queue has of the guest's memory: descriptors, rings, then a place for each head.
const QUEUE_BYTES: u64 = 32 << 20;
const AVAILABLE_AT: u64 = 0x1000;
const USED_AT: u64 = 0x2000;
const PLACES_AT: u64 = 0x1_0000;
/// Header, status and table first, then data.
const PLACE_BYTES: u64 = 256 << 10;
const STATUS_AT: u64 = 16;
const INDIRECT_AT: u64 = 64;
const DATA_AT: u64 = 4096;

/// A loaded machine answers within this.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answered request.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub head: u16,
    pub status: u8,
    pub written: u32,
}

pub struct Guest {
    pub memory: GuestMemoryMmap<()>,
    pub front_end: Frontend,
    pub queues: Vec<Queue>,
    features: u64,
    in_flight: Option<(VhostUserInflight, File)>,
    /// The back-end may be another's, with fewer features.
    tolerant: bool,
}

pub struct Queue {
    base: u64,
    available: u16,
    used: u16,
    free: Vec<u16>,
    pub kick: EventFd,
    pub call: EventFd,
    pub error: EventFd,
}

impl Guest {
    /// Connects with all features that are offered but those `without`.
    pub fn connect(path: &Path, queues: usize, without: u64) -> Guest {
        Guest::connect_to(path, queues, without, false)
    }

    /// Connects to a back-end of any make: one that is not ours may lack what ours has (`tolerant`).
    pub fn connect_to(path: &Path, queues: usize, without: u64, tolerant: bool) -> Guest {
        let half = (queues as u64 * QUEUE_BYTES).next_multiple_of(4096) as usize;
        let file = || {
            let file = tempfile::tempfile().unwrap();
            file.set_len(half as u64).unwrap();
            file
        };
        // Two regions, as guests with much memory have; the queues lie in the upper one.
        let ranges = [
            (GuestAddress(0), 1 << 20, Some(FileOffset::new(file(), 0))),
            (GuestAddress(1 << 32), half, Some(FileOffset::new(file(), 0))),
        ];
        let memory = GuestMemoryMmap::from_ranges_with_files(ranges).unwrap();
        let queues = (0..queues as u64)
            .map(|index| Queue {
                base: (1 << 32) + index * QUEUE_BYTES,
                available: 0,
                used: 0,
                free: (0..HEADS).rev().collect(),
                kick: EventFd::new(libc::EFD_NONBLOCK).unwrap(),
                call: EventFd::new(libc::EFD_NONBLOCK).unwrap(),
                error: EventFd::new(libc::EFD_NONBLOCK).unwrap(),
            })
            .collect::<Vec<_>>();
        let front_end = Frontend::connect(path, queues.len() as u64).unwrap();
        let in_flight = None;
        let mut guest = Guest { memory, front_end, queues, features: 0, in_flight, tolerant };
        guest.introduce(without);
        guest.start();
        guest
    }

    /// Connects again, as a front-end does whose back-end has gone.
    pub fn reconnect(&mut self, path: &Path) {
        let deadline = Instant::now() + PATIENCE;
        self.front_end = loop {
            match Frontend::connect(path, self.queues.len() as u64) {
                Ok(front_end) => break front_end,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let without = !self.features;
        self.introduce(without);
        self.start();
    }

    fn introduce(&mut self, without: u64) {
        let front_end = &mut self.front_end;
        front_end.set_owner().unwrap();
        let offered = front_end.get_features().unwrap();
        self.features = offered & !without;
        assert_ne!(offered & FEATURE_PROTOCOL, 0);
        let protocol = front_end.get_protocol_features().unwrap();
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        assert!(protocol.contains(wanted) || self.tolerant, "{protocol:?}");
        front_end.set_protocol_features(wanted & protocol).unwrap();
        // Every message is answered from here on, so that failures are seen where they happen.
        let flags = vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY;
        front_end.set_hdr_flags(flags);
        assert!(front_end.get_queue_num().unwrap() >= self.queues.len() as u64);
        front_end.set_features(self.features | FEATURE_PROTOCOL).unwrap();
    }

    /// Hands memory and queues over.
    pub fn start(&mut self) {
        let regions: Vec<_> = self
            .memory
            .iter()
            .map(|region| VhostUserMemoryRegionInfo::from_guest_region(region).unwrap())
            .collect();
        self.front_end.set_mem_table(&regions).unwrap();
        if !self.tolerant {
            self.hand_in_flight_over();
        }
        for index in 0..self.queues.len() {
            let used = self.used_index(index);
            self.start_queue(index, used);
        }
    }

    fn hand_in_flight_over(&mut self) {
        let count = self.queues.len() as u16;
        let (shape, file) = self.in_flight.take().unwrap_or_else(|| {
            let asked = VhostUserInflight::new(0, 0, count, QUEUE_SIZE);
            self.front_end.get_inflight_fd(&asked).unwrap()
        });
        self.front_end.set_inflight_fd(&shape, file.as_raw_fd()).unwrap();
        self.in_flight = Some((shape, file));
    }

    /// Where the front-end itself has this guest address.
    pub fn own_address(&self, at: u64) -> u64 {
        self.memory.get_host_address(GuestAddress(at)).unwrap() as u64
    }

    pub fn start_queue(&mut self, index: usize, base: u16) {
        let queue = &self.queues[index];
        let config = VringConfigData {
            queue_max_size: QUEUE_SIZE,
            queue_size: QUEUE_SIZE,
            flags: 0,
            desc_table_addr: self.own_address(queue.base),
            used_ring_addr: self.own_address(queue.base + USED_AT),
            avail_ring_addr: self.own_address(queue.base + AVAILABLE_AT),
            log_addr: None,
        };
        self.front_end.set_vring_num(index, QUEUE_SIZE).unwrap();
        self.front_end.set_vring_base(index, base).unwrap();
        self.front_end.set_vring_addr(index, &config).unwrap();
        self.front_end.set_vring_err(index, &queue.error).unwrap();
        self.front_end.set_vring_call(index, &queue.call).unwrap();
        self.front_end.set_vring_kick(index, &queue.kick).unwrap();
        self.front_end.set_vring_enable(index, true).unwrap();
    }

    pub fn stop_queue(&mut self, index: usize) -> u16 {
        self.front_end.get_vring_base(index).unwrap() as u16
    }

    pub fn config(&mut self, bytes: u32) -> Vec<u8> {
        let flags = VhostUserConfigFlags::empty();
        let buf = vec![0; bytes as usize];
        self.front_end.get_config(0, bytes, flags, &buf).unwrap().1
    }

    pub fn indirect(&self) -> bool {
        self.features & FEATURE_INDIRECT != 0
    }

    fn place(&self, queue: usize, head: u16) -> u64 {
        self.queues[queue].base + PLACES_AT + u64::from(head) * PLACE_BYTES
    }

    /// Puts a request into the queue without telling anybody; gives its head. Data is cut into
    /// segments of `segment` bytes.
    pub fn put(
        &mut self,
        queue: usize,
        (kind, sector): (u32, u64),
        given: &[u8],
        wanted: usize,
        segment: usize,
    ) -> u16 {
        let head = self.queues[queue].free.pop().expect("the test keeps within the queue");
        let place = self.place(queue, head);
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.write(place, &header);
        self.write(place + STATUS_AT, &[0xff]);
        self.write(place + DATA_AT, given);
        let mut chain = vec![(place, 16, false)];
        for from in (0..given.len()).step_by(segment) {
            let length = segment.min(given.len() - from);
            chain.push((place + DATA_AT + from as u64, length as u32, false));
        }
        for from in (0..wanted).step_by(segment) {
            let length = segment.min(wanted - from);
            chain.push((place + DATA_AT + from as u64, length as u32, true));
        }
        chain.push((place + STATUS_AT, 1, true));
        if self.indirect() {
            let table = place + INDIRECT_AT;
            for (index, (at, length, writable)) in chain.iter().enumerate() {
                let next = (index + 1 < chain.len()).then_some(index as u16 + 1);
                self.descriptor(table, index as u16, (*at, *length, *writable, next));
            }
            let table_bytes = chain.len() as u32 * 16;
            self.raw_descriptor(queue, head, (table, table_bytes, 4, 0));
        } else {
            // Four descriptors belong to each head: more segments than that need a table.
            assert!(chain.len() <= 4, "too many segments for a queue without tables");
            let first = head * 4;
            for (index, (at, length, writable)) in chain.iter().enumerate() {
                let next = (index + 1 < chain.len()).then_some(first + index as u16 + 1);
                let base = self.queues[queue].base;
                self.descriptor(base, first + index as u16, (*at, *length, *writable, next));
            }
        }
        let first = if self.indirect() { head } else { head * 4 };
        self.make_available(queue, first);
        head
    }

    fn descriptor(&self, table: u64, index: u16, part: (u64, u32, bool, Option<u16>)) {
        let (at, length, writable, next) = part;
        let flags = u16::from(next.is_some()) | if writable { 2 } else { 0 };
        self.write_descriptor(table, index, (at, length, flags, next.unwrap_or(0)));
    }

    /// Any descriptor of the queue's own table.
    pub fn raw_descriptor(&self, queue: usize, index: u16, descriptor: (u64, u32, u16, u16)) {
        self.write_descriptor(self.queues[queue].base, index, descriptor);
    }

    fn write_descriptor(&self, table: u64, index: u16, descriptor: (u64, u32, u16, u16)) {
        let (at, length, flags, next) = descriptor;
        let bytes = [
            &at.to_le_bytes()[..],
            &length.to_le_bytes(),
            &flags.to_le_bytes(),
            &next.to_le_bytes(),
        ];
        self.write(table + u64::from(index) * 16, &bytes.concat());
    }

    pub fn make_available(&mut self, queue: usize, head: u16) {
        let base = self.queues[queue].base + AVAILABLE_AT;
        let available = self.queues[queue].available;
        let slot = base + 4 + u64::from(available % QUEUE_SIZE) * 2;
        self.write(slot, &head.to_le_bytes());
        self.queues[queue].available = available.wrapping_add(1);
        self.set_available(queue, available.wrapping_add(1));
    }

    /// The index alone, which a hostile guest sets to what it likes.
    pub fn set_available(&self, queue: usize, index: u16) {
        let at = GuestAddress(self.queues[queue].base + AVAILABLE_AT + 2);
        self.memory.store(index.to_le(), at, Ordering::Release).unwrap();
    }

    /// Kicks, unless the other side has said that it is looking anyway.
    pub fn kick(&self, queue: usize) {
        fence(Ordering::SeqCst);
        self.queues[queue].kick.write(1).unwrap();
    }

    fn used_index(&self, queue: usize) -> u16 {
        let at = GuestAddress(self.queues[queue].base + USED_AT + 2);
        u16::from_le(self.memory.load(at, Ordering::Acquire).unwrap())
    }

    /// What has been answered since the last look.
    pub fn answers(&mut self, queue: usize) -> Vec<Answer> {
        let mut answers = Vec::new();
        loop {
            while self.queues[queue].used != self.used_index(queue) {
                let used = self.queues[queue].used;
                let slot = self.queues[queue].base + USED_AT + 4 + u64::from(used % QUEUE_SIZE) * 8;
                let [id, written]: [u32; 2] = self.memory.read_obj(GuestAddress(slot)).unwrap();
                let head = if self.indirect() { id as u16 } else { id as u16 / 4 };
                let status = GuestAddress(self.place(queue, head) + STATUS_AT);
                let status = self.memory.read_obj(status).unwrap();
                answers.push(Answer { head, status, written });
                self.queues[queue].free.push(head);
                self.queues[queue].used = used.wrapping_add(1);
            }
            // Tell when to be called, and look once more: as drivers do.
            let event = self.queues[queue].base + AVAILABLE_AT + 4 + u64::from(QUEUE_SIZE) * 2;
            let used = self.queues[queue].used;
            self.memory.store(used.to_le(), GuestAddress(event), Ordering::SeqCst).unwrap();
            fence(Ordering::SeqCst);
            if used == self.used_index(queue) {
                return answers;
            }
        }
    }

    /// Waits for `count` answers, by being called.
    pub fn await_answers(&mut self, queue: usize, count: usize) -> Vec<Answer> {
        let deadline = Instant::now() + PATIENCE;
        let mut answers = self.answers(queue);
        while answers.len() < count {
            let got = answers.len();
            assert!(Instant::now() < deadline, "{got} of {count} answers");
            let call = &self.queues[queue].call;
            if call.read().is_err() {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            answers.extend(self.answers(queue));
        }
        answers
    }

    /// The data of an answered request.
    pub fn data(&self, queue: usize, head: u16, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        let at = GuestAddress(self.place(queue, head) + DATA_AT);
        self.memory.read_slice(&mut data, at).unwrap();
        data
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    }

    /// One request, answered: its status, and what came back.
    pub fn ask(
        &mut self,
        queue: usize,
        what: (u32, u64),
        given: &[u8],
        wanted: usize,
    ) -> (u8, Vec<u8>) {
        let head = self.put(queue, what, given, wanted, 1 << 20);
        self.kick(queue);
        let answers = self.await_answers(queue, 1);
        assert_eq!(answers[0].head, head);
        let bytes = (answers[0].written as usize).saturating_sub(1);
        (answers[0].status, self.data(queue, head, bytes))
    }

    pub fn read(&mut self, queue: usize, sector: u64, bytes: usize) -> Vec<u8> {
        let (status, data) = self.ask(queue, (IN, sector), &[], bytes);
        assert_eq!((status, data.len()), (0, bytes));
        data
    }

    /// All of the queue's memory, for who wants to fill it with anything.
    pub fn queue_at(&self, queue: usize) -> u64 {
        GuestAddress(self.queues[queue].base).raw_value()
    }

    pub fn regions(&self) -> Vec<VhostUserMemoryRegionInfo> {
        let regions = self.memory.iter();
        regions.map(|one| VhostUserMemoryRegionInfo::from_guest_region(one).unwrap()).collect()
    }
}

/// What one range of a trim or zeroing looks like.
pub fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
}
