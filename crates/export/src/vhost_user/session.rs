//! One front-end's conversation with us, on the thread that listens to its socket.
//!
//! The protocol's library reads and checks the messages; here they become orders to the executor,
//! which has the queues. A message is answered when its order has been carried out, so that a
//! queue has stopped when the front-end hears that it has.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use io::{IoError, Sender};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Backend, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
};

use super::guest_memory::{GuestMemory, MemoryTable, REGIONS_MAX, Region};
use super::in_flight::{self, Area, Shape};
use super::protocol::{QUEUE_SIZE_MAX, QUEUES_MAX, feature};
use super::queue::Layout;

/// Largest part of the configuration space that is given out; the standard's bound.
const CONFIG_BYTES_MAX: usize = 256;

/// What a session tells the executor to do. Each is answered when it is done.
pub(super) enum Order {
    /// Begin a queue.
    Start {
        layout: Box<Layout>,
        fds: Fds,
        enabled: bool,
        answer: SyncSender<Outcome>,
    },
    /// End what a queue has taken; the answer is where in its available ring to go on.
    Stop {
        index: u16,
        answer: SyncSender<u16>,
    },
    Enable {
        index: u16,
        enabled: bool,
        answer: SyncSender<Outcome>,
    },
    /// A queue has another descriptor for calls.
    Call {
        index: u16,
        call: Option<OwnedFd>,
        answer: SyncSender<Outcome>,
    },
    /// All queues have other memory.
    Memory {
        memory: Arc<GuestMemory>,
        answer: SyncSender<Outcome>,
    },
    /// The front-end is gone: stop all queues.
    Leave {
        answer: SyncSender<Outcome>,
    },
}

/// Done, or why not.
pub(super) type Outcome = std::result::Result<(), String>;

/// The eventfds of a queue.
pub(super) struct Fds {
    pub(super) kick: OwnedFd,
    pub(super) call: Option<OwnedFd>,
    pub(super) error: Option<OwnedFd>,
}

/// What every session is offered.
pub(super) struct Offer {
    pub(super) features: u64,
    pub(super) config: Vec<u8>,
}

/// What the front-end has said of a queue.
#[derive(Default)]
struct Ring {
    size: u16,
    /// In the front-end's addresses: descriptors, available, used.
    places: Option<[u64; 3]>,
    base: u16,
    call: Option<File>,
    error: Option<File>,
    enabled: bool,
    running: bool,
}

/// See the head of the file.
pub(super) struct Session {
    offer: Arc<Offer>,
    orders: Sender<Order>,
    report: Arc<dyn Fn(&str) + Send + Sync>,
    features: u64,
    table: MemoryTable,
    rings: Vec<Ring>,
    in_flight: Option<Arc<Area>>,
}

impl Session {
    pub(super) fn new(
        offer: Arc<Offer>,
        orders: Sender<Order>,
        report: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Session {
        let rings = (0..QUEUES_MAX).map(|_| Ring::default()).collect();
        Session {
            offer,
            orders,
            report,
            features: 0,
            table: MemoryTable::default(),
            rings,
            in_flight: None,
        }
    }

    /// The front-end has gone: its queues end what they have taken.
    pub(super) fn leave(&mut self) {
        // Nobody is left to be told of a failure.
        let _ = self.order(|answer| Order::Leave { answer });
    }

    /// Gives an order and waits for its answer.
    fn ask<T>(&self, order: impl FnOnce(SyncSender<T>) -> Order) -> Result<T> {
        let (answer, answered) = sync_channel(1);
        // It fails when the server is ending; so does the session then.
        self.orders.send(order(answer)).map_err(|_| Error::BackendInternalError)?;
        answered.recv().map_err(|_| Error::BackendInternalError)
    }

    fn order(&self, order: impl FnOnce(SyncSender<Outcome>) -> Order) -> Result<()> {
        self.ask(order)?.map_err(|why| self.refuse(&why))
    }

    fn refuse(&self, why: &str) -> Error {
        (self.report)(why);
        Error::InvalidParam
    }

    fn refused(&self, error: IoError) -> Error {
        self.refuse(&error.message)
    }

    fn ring(&mut self, index: u32) -> Result<&mut Ring> {
        self.rings.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    fn replace_memory(&mut self, table: MemoryTable) -> Result<()> {
        let memory = table.memory();
        self.table = table;
        self.order(|answer| Order::Memory { memory, answer })
    }

    fn start(&mut self, index: u16, kick: File) -> Result<()> {
        // Without features of the protocol there is no message to enable a queue.
        let always = !self.has(feature::PROTOCOL);
        let ring = &mut self.rings[usize::from(index)];
        let [table, available, used] = ring.places.ok_or(Error::InvalidParam)?;
        let of = |what: &str, place: u64| {
            self.table.guest_address(place).ok_or_else(|| {
                (self.report)(&format!("queue {index}: its {what} is in no memory of the guest"));
                Error::InvalidParam
            })
        };
        let layout = Layout {
            index,
            size: ring.size,
            table: of("table of descriptors", table)?,
            available: of("available ring", available)?,
            used: of("used ring", used)?,
            base: ring.base,
            memory: self.table.memory(),
            in_flight: self.in_flight.clone(),
            event_index: self.features & feature::EVENT_INDEX != 0,
            indirect: self.features & feature::INDIRECT != 0,
            write_through: self.features & feature::FLUSH == 0,
        };
        let clone = |file: &Option<File>| file.as_ref().map(File::try_clone).transpose();
        let call = clone(&ring.call).map_err(Error::ReqHandlerError)?.map(OwnedFd::from);
        let error = clone(&ring.error).map_err(Error::ReqHandlerError)?.map(OwnedFd::from);
        let fds = Fds { kick: kick.into(), call, error };
        let enabled = ring.enabled || always;
        let layout = Box::new(layout);
        self.order(|answer| Order::Start { layout, fds, enabled, answer })?;
        self.rings[usize::from(index)].running = true;
        Ok(())
    }

    /// Stops a queue if it runs; its base is then where to go on.
    fn stop(&mut self, index: u16) -> Result<()> {
        if !self.rings[usize::from(index)].running {
            return Ok(());
        }
        let base = self.ask(|answer| Order::Stop { index, answer })?;
        let ring = &mut self.rings[usize::from(index)];
        ring.running = false;
        ring.base = base;
        Ok(())
    }
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.order(|answer| Order::Leave { answer })?;
        for ring in &mut self.rings {
            *ring = Ring::default();
        }
        self.features = 0;
        self.in_flight = None;
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.offer.features)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let strange = features & !self.offer.features;
        if strange != 0 {
            return Err(self.refuse(&format!("features that were not offered: {strange:#x}")));
        }
        self.features = features;
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let regions = regions.iter().map(region_of).zip(files);
        let table = MemoryTable::new(regions).map_err(|error| self.refused(error))?;
        self.replace_memory(table).map(|()| None)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        let places = u16::try_from(size).unwrap_or(0);
        if !places.is_power_of_two() || places > QUEUE_SIZE_MAX {
            let why = format!("queue {index} of {size} places; {QUEUE_SIZE_MAX} are the most");
            return Err(self.refuse(&why));
        }
        self.ring(index)?.size = places;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        self.ring(index)?.places = Some([descriptor, available, used]);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.ring(index)?.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.ring(index)?;
        self.stop(index as u16)?;
        Ok(VhostUserVringState::new(index, self.ring(index)?.base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let Some(kick) = file else {
            return Err(
                self.refuse("a queue without kicks would have to be looked at all the time")
            );
        };
        self.ring(index.into())?;
        self.stop(index.into())?;
        self.start(index.into(), kick)
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let call = file.as_ref().map(File::try_clone).transpose();
        let call = call.map_err(Error::ReqHandlerError)?.map(OwnedFd::from);
        let ring = self.ring(index.into())?;
        ring.call = file;
        if ring.running {
            return self.order(|answer| Order::Call { index: index.into(), call, answer });
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.ring(index.into())?.error = file;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::RESET_DEVICE)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX.into())
    }

    fn set_vring_enable(&mut self, index: u32, enabled: bool) -> Result<()> {
        let ring = self.ring(index)?;
        ring.enabled = enabled;
        if ring.running {
            let index = index as u16;
            return self.order(|answer| Order::Enable { index, enabled, answer });
        }
        Ok(())
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        let (from, length) = (offset as usize, size as usize);
        if from.saturating_add(length) > CONFIG_BYTES_MAX {
            return Err(Error::InvalidParam);
        }
        let known = self.offer.config.iter().copied();
        Ok(known.chain(std::iter::repeat(0)).skip(from).take(length).collect())
    }

    /// Nothing in it can be changed.
    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("the configuration cannot be changed"))
    }

    fn set_backend_req_fd(&mut self, _backend: Backend) {}

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("this is a block device"))
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("no objects are shared"))
    }

    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let shape = Shape::of(asked.num_queues, asked.queue_size);
        let made = shape.and_then(|shape| Ok((shape, in_flight::create(shape)?)));
        let (shape, file) = made.map_err(|error| self.refused(error))?;
        let Shape { file_at, bytes, queues, queue_size } = shape;
        Ok((VhostUserInflight::new(bytes, file_at, queues, queue_size), file))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        let shape = Shape {
            file_at: given.mmap_offset,
            bytes: given.mmap_size,
            queues: given.num_queues,
            queue_size: given.queue_size,
        };
        let area = Area::map(shape, file).map_err(|error| self.refused(error))?;
        self.in_flight = Some(Arc::new(area));
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        let table = self.table.with(region_of(region), file);
        let table = table.map_err(|error| self.refused(error))?;
        self.replace_memory(table).map(|()| None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let table = self.table.without(region_of(region));
        let table = table.map_err(|error| self.refused(error))?;
        self.replace_memory(table)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("there is no state to move"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("there is no state to move"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Ok(VhostUserShMemConfig::default())
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(Error::InvalidOperation("writes to the guest's memory are not logged"))
    }
}

fn region_of(region: &VhostUserMemoryRegion) -> Region {
    Region {
        guest_at: region.guest_phys_addr,
        length: region.memory_size,
        front_end_at: region.user_addr,
        file_at: region.mmap_offset,
    }
}
