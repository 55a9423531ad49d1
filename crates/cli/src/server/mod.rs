//! A running server: opens a volume and its doors, answers until told to stop, closes in order.
//!
//! * One server per volume: a lock file says who ([`ServerLock`]), and the drives are locked too.
//! * Ready means that recovery is over and every door answers.
//! * The first signal, or an order to stop, closes in order: the file is unmounted (waiting for
//!   whoever uses it), requests under way end, the volume is closed. So does a file that somebody has unmounted, where
//!   it is the only door. A second SIGTERM or SIGINT ends
//!   at once: the next server then replays the log, and nothing that was flushed is lost.

mod doors;
mod event;
mod nbd_address;
mod record;

use std::cell::Cell;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::rc::Rc;
use std::task::Poll;

use engine::{CacheMode, Engine, FlushMode, Member, OpenOptions, TuningChange, Wish};
use export::Metered;
use export::control::{self, ControlReply, ControlRequest, ControlServer, Refusal};
use export::nbd::NbdOptions;
use io::units::{MILLISECOND_NS, SECOND_NS, human_bytes};
use io::{Io, Sender, Volume};
use listenfd::ListenFd;
use sd_notify::NotifyState;
use uring::{Access, Kernel, KernelOptions};

pub use doors::{DoorOptions, TlsOptions, become_io_flusher, tell_unless_flusher};
use doors::{Doors, Served};
pub use event::{Event, Events};
pub use nbd_address::{NbdAddress, tcp_uri, unix_uri};
pub use record::{ServerLock, ServerRecord};

use crate::alone;
use crate::atlas;
use crate::commands;
use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::homecoming::Homecoming;
use crate::machine_memory;
use crate::opinions;
use crate::selection::Selection;
use crate::settings::Settings;
use crate::volume_name::VolumeName;
use crate::volume_status::{ServerStatus, VolumeStatus};
use crate::wishing::wished;

/// How often a file that is in use is looked at again while stopping.
pub const BUSY_PAUSE_NS: u64 = 300 * MILLISECOND_NS;

/// How a volume is served.
#[derive(Debug, Clone, Default)]
pub struct ServeOptions {
    /// The doors.
    pub doors: DoorOptions,
    /// Refuse writes.
    pub read_only: bool,
    /// What flushes promise from now on; `None` leaves it as it is.
    pub durability: Option<FlushMode>,
    /// Class cache: when writes are home from now on, if it shall be changed.
    pub mode: Option<CacheMode>,
    /// Serve what is left when a drive is gone, read-only.
    pub degraded: bool,
    /// Serve what is certain of a damaged volume, read-only.
    pub rescue: bool,
    /// A shell command to run while serving; the server ends with it.
    pub run: Option<String>,
    /// Print where clients find the volume.
    pub print_uri: bool,
    /// Started by `attach`: speaks to it over standard output until ready.
    pub background: bool,
}

/// Told to whoever waits for a background server, as one line of JSON.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Ready {
    /// NBD addresses.
    pub uris: Vec<String>,
    /// The volume as a file.
    pub fuse_file: Option<PathBuf>,
    /// The socket for virtual machines.
    pub vhost_user: Option<PathBuf>,
    /// The block device.
    pub ublk: Option<PathBuf>,
}

impl Ready {
    /// Everywhere the volume is to be found, in words.
    fn places(&self) -> impl Iterator<Item = String> {
        let file = self.fuse_file.iter().map(|file| file.display().to_string());
        let socket = self.vhost_user.iter().map(|path| format!("vhost-user:{}", path.display()));
        let device = self.ublk.iter().map(|path| path.display().to_string());
        self.uris.iter().cloned().chain(file).chain(socket).chain(device)
    }
}

/// Serves until stopped.
pub fn serve(settings: &Settings, selection: &Selection, options: &ServeOptions) -> Outcome {
    options.doors.verify()?;
    settings.verify_socket_paths(&selection.name)?;
    if options.doors.ublk {
        // Before the lock is taken: it then says who we are, and no more who was here before.
        ServerRecord::verify_device(settings, selection)?;
    }
    let mut lock = ServerLock::take(settings, &selection.name)?;
    let mut record = ServerRecord {
        pid: std::process::id(),
        background: options.background,
        fast: selection.fast.clone(),
        slow: selection.slow.clone(),
        ..ServerRecord::default()
    };
    lock.write(&record)?;
    // Before anything is opened: a signal from here on closes in order.
    let mut events = Events::start()?;
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let outcome = io.block_on(async {
        let server = Server::open(&io, &kernel, settings, selection, options).await?;
        let server = Rc::new(server);
        let control = server.open_control(&kernel, settings, selection, events.sender());
        let exit = match &control {
            Ok(_) => {
                record.uris.clone_from(&server.doors.uris);
                record.fuse_file = server.doors.fuse_file();
                record.vhost_user = server.doors.vhost_user();
                record.ublk = server.doors.ublk();
                record.read_only = server.read_only;
                record.ready = true;
                match lock
                    .write(&record)
                    .and_then(|()| server.announce(settings, selection, options))
                {
                    Ok(()) => server.wait(&mut events, options).await,
                    Err(failure) => Err(failure),
                }
            }
            Err(failure) => Err(failure.clone()),
        };
        record.ending = true;
        if let Err(failure) = lock.write(&record) {
            // No reason to end otherwise than in order: only who attaches meanwhile may be misled.
            eprintln!(
                "bimetal: cannot say that it ends; who attaches '{}' before it has ended may be given \
                 a device that goes away: {failure}",
                selection.name
            );
        }
        // Closed in order whatever happened, so that a wrong flag does not cost a recovery.
        server.close(&mut events, selection).await?;
        if let Ok(control) = control {
            control.shutdown().await;
            // Nobody is left to ask; a file that stays is replaced by the next server.
            let _ = std::fs::remove_file(settings.control_socket(&selection.name));
        }
        exit
    });
    io.drop_tasks();
    outcome
}

struct Server {
    io: Io,
    engine: Engine,
    volume: Rc<Served>,
    doors: Doors,
    describe: String,
    read_only: bool,
    ready_at_ns: Cell<u64>,
    homecoming: Rc<Homecoming>,
}

/// Says in the log of the server what clients only see as failing or slow requests.
async fn tell_when_stopped(engine: &Engine, volume: &str) {
    let cause = engine.stopped().await;
    match engine.status().alone {
        true => eprintln!(
            "bimetal: '{volume}' has lost its fast drive ({cause}) and goes on with the slow one, which has \
             everything"
        ),
        false => eprintln!(
            "bimetal: '{volume}' has stopped taking writes: {cause}. Everything flushed before is safe; \
             'bimetal status {volume}' says what to do"
        ),
    }
}

impl Server {
    async fn open(
        io: &Io,
        kernel: &Kernel,
        settings: &Settings,
        selection: &Selection,
        options: &ServeOptions,
    ) -> Result<Server, Failure> {
        let read_only = options.read_only || options.rescue;
        let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
        let members = selection.open(kernel, access)?;
        let rotational = match &members[1] {
            Member::Here(slow) => slow.info().rotational == Some(true),
            Member::Gone { .. } => false,
        };
        let ServeOptions { read_only, degraded, rescue, .. } = *options;
        let open_options = OpenOptions { read_only, degraded, rescue, ..OpenOptions::default() };
        let opened = Engine::open_members(io, members, open_options).await;
        let engine = opened.map_err(|error| refusal(&error, &selection.name))?;
        let engine_read_only = engine.info().read_only;
        if let Some(mode) = options.durability
            && let Err(error) = engine.set_flush_mode(mode).await
        {
            engine.close().await.map_err(Failure::failed)?;
            return Err(Failure::failed(error));
        }
        if let Some(mode) = options.mode
            && let Err(error) = engine.set_cache_mode(mode).await
        {
            engine.close().await.map_err(Failure::failed)?;
            return Err(Failure::failed(error));
        }
        if let Err(failure) = verify_durability(&engine, &options.doors, &selection.name) {
            engine.close().await.map_err(Failure::failed)?;
            return Err(failure);
        }
        let volume = Rc::new(Metered::new(io.clone(), Rc::new(engine.clone())));
        let mut door_options = options.doors.clone();
        let handed_over = ListenFd::from_env();
        if door_options.is_empty() && handed_over.len() == 0 {
            door_options.nbd.push(NbdAddress::Unix(settings.nbd_socket(&selection.name)));
        }
        let nbd_options = NbdOptions {
            export_name: selection.name.to_string(),
            rotational,
            ..NbdOptions::default()
        };
        let world = (io, kernel);
        let opened =
            Doors::open(world, volume.clone(), nbd_options, &door_options, handed_over).await;
        let doors = match opened {
            Ok(doors) => doors,
            Err(failure) => {
                // Closed in order, so that a wrong flag does not cost a recovery.
                engine.close().await.map_err(Failure::failed)?;
                return Err(failure);
            }
        };
        Ok(Server {
            io: io.clone(),
            engine,
            volume,
            doors,
            describe: kernel.describe(),
            read_only: engine_read_only,
            ready_at_ns: Cell::new(io.now_ns()),
            homecoming: Rc::default(),
        })
    }

    /// Opens the control socket: `status`, `lost`, `set`, `home`, `wish`, `where`, `heat`, `warm`, `why`, `trace` and
    /// `stop`.
    fn open_control(
        self: &Rc<Server>,
        kernel: &Kernel,
        settings: &Settings,
        selection: &Selection,
        events: Sender<Event>,
    ) -> Result<ControlServer, Failure> {
        let fd = control::bind(&settings.control_socket(&selection.name))?;
        let listener = kernel.adopt_listener(fd)?;
        let server = Rc::downgrade(self);
        let answer = move |request: ControlRequest| {
            let (server, events) = (server.clone(), events.clone());
            async move {
                match (request.command.as_str(), server.upgrade()) {
                    ("status", Some(server)) => match serde_json::to_value(server.status()) {
                        Ok(value) => ControlReply::Done(value),
                        Err(error) => ControlReply::failed("internal", error.to_string()),
                    },
                    ("lost", Some(server)) => {
                        let at = request.arguments.get("at").and_then(serde_json::Value::as_u64);
                        let part = commands::lost::part(&server.engine, at.unwrap_or(0));
                        match serde_json::to_value(part) {
                            Ok(value) => ControlReply::Done(value),
                            Err(error) => ControlReply::failed("internal", error.to_string()),
                        }
                    }
                    ("set", Some(server)) => server.set(&request).await,
                    ("home", Some(server)) => {
                        server.homecoming.answer(&server.io, &server.engine, &request)
                    }
                    ("wish", Some(server)) => server.wish(&request).await,
                    ("where", Some(server)) => atlas::answer(&server.engine, &request),
                    ("heat", Some(server)) => atlas::answer_heat(&server.engine, &request),
                    ("warm", Some(server)) => atlas::warm(&server.engine, &request).await,
                    ("why", Some(server)) => opinions::answer(&server.engine, &request),
                    ("trace", Some(server)) => server.record(&request),
                    ("stop", _) => {
                        // Room for far more than ever wait: this does not block.
                        drop(events.send(Event::Stop));
                        ControlReply::Done(serde_json::Value::Null)
                    }
                    (command, _) => ControlReply::failed(
                        "unknown_command",
                        format!("unknown command '{command}'"),
                    ),
                }
            }
        };
        let control = ControlServer::new(self.io.clone(), answer);
        let serving = control.clone();
        self.io.spawn(async move { serving.serve(listener).await });
        Ok(control)
    }

    /// Records what clients ask, for `bimetal trace record`.
    fn record(&self, request: &ControlRequest) -> ControlReply {
        match request.arguments.get("do").and_then(|value| value.as_str()) {
            Some("start") if self.volume.start_recording() => {
                ControlReply::Done(serde_json::Value::Null)
            }
            Some("start") => ControlReply::failed("busy", "somebody records this volume already"),
            Some("fetch") => match self.volume.fetch_recording().map(serde_json::to_value) {
                Some(Ok(batch)) => ControlReply::Done(batch),
                Some(Err(error)) => ControlReply::failed("internal", error.to_string()),
                None => ControlReply::failed("ended", "this volume is not being recorded"),
            },
            Some("stop") => {
                self.volume.stop_recording();
                ControlReply::Done(serde_json::Value::Null)
            }
            _ => ControlReply::failed("bad_order", "start, fetch or stop a recording"),
        }
    }

    /// Wishes something for a range while the volume is in use, and tells all that is wished.
    async fn wish(&self, request: &ControlRequest) -> ControlReply {
        let ranges = request.arguments.get("ranges").cloned();
        let ranges = ranges.map(serde_json::from_value::<Vec<(u64, u64)>>);
        let wish = request.arguments.get("wish").and_then(|value| value.as_str());
        let outcome = match (ranges, wish) {
            (None, None) => Ok(()),
            (Some(Ok(ranges)), Some("none")) => self.engine.wish(&ranges, None).await,
            (Some(Ok(ranges)), Some(name)) if Wish::named(name).is_some() => {
                self.engine.wish(&ranges, Wish::named(name)).await
            }
            _ => {
                return ControlReply::failed("bad_wish", "give ranges and what is wished for them");
            }
        };
        let wished = || wished(&self.engine.wishes(), self.engine.status().geometry.extent_bytes);
        match outcome.map(|()| serde_json::to_value(wished())) {
            Ok(Ok(value)) => ControlReply::Done(value),
            Ok(Err(error)) => ControlReply::failed("internal", error.to_string()),
            Err(error) => ControlReply::failed("failed", error.to_string()),
        }
    }

    /// Changes a setting while the volume is in use.
    async fn set(&self, request: &ControlRequest) -> ControlReply {
        if self.homecoming.is_running() {
            let text = "everything is being brought home, which changes of settings would wait for; \
                        'bimetal flush NAME --cancel' ends it";
            return ControlReply::failed("running", text);
        }
        let given = |name: &str| request.arguments.get(name).and_then(|value| value.as_str());
        let durability = given("durability").map(str::parse::<FlushMode>);
        let mode = given("mode").map(str::parse::<CacheMode>);
        let outcome = match (durability, mode) {
            (Some(Err(refusal)), _) | (_, Some(Err(refusal))) => {
                return ControlReply::failed("bad_setting", refusal);
            }
            (Some(Ok(mode)), None) => self.engine.set_flush_mode(mode).await,
            (None, Some(Ok(mode))) => self.engine.set_cache_mode(mode).await,
            _ => {
                let tuning = TuningChange::NAMES
                    .iter()
                    .find_map(|name| TuningChange::parse(name, given(name)?));
                match tuning {
                    Some(Ok(TuningChange::Behind(Some(_)))) if self.doors.outlive_server() => {
                        let why = format!("no write_behind while {BEHIND_REFUSED}");
                        return ControlReply::failed("refused", why);
                    }
                    // Whoever speaks to the socket need not be our command, which looks before it asks.
                    Some(Ok(change)) => match machine_memory::verify(change) {
                        Ok(()) => self.engine.tune(change).await,
                        Err(failure) => return refused("bad_setting", failure),
                    },
                    Some(Err(refusal)) => return ControlReply::failed("bad_setting", refusal),
                    None => return ControlReply::failed("bad_setting", "no such setting"),
                }
            }
        };
        match outcome {
            Ok(()) => ControlReply::Done(serde_json::Value::Null),
            Err(error) => ControlReply::failed("failed", error.to_string()),
        }
    }

    fn status(&self) -> VolumeStatus {
        let engine = self.engine.status();
        let server = ServerStatus {
            pid: std::process::id(),
            uptime_s: (self.io.now_ns() - self.ready_at_ns.get()) / SECOND_NS,
            io: self.describe.clone(),
            read_only: self.read_only,
            uris: self.doors.uris.clone(),
            nbd_connections: self.doors.nbd_connections(),
            fuse_file: self.doors.fuse_file(),
            vhost_user: self.doors.vhost_user(),
            ublk: self.doors.ublk(),
            ublk_uncopied_reads: self.doors.uncopied_reads(),
            generation: engine.generation,
        };
        VolumeStatus::live(engine, self.io.pool().usage(), self.volume.snapshot(), server)
    }

    /// Tells everyone who waits for it that the volume can be used.
    fn announce(
        &self,
        settings: &Settings,
        selection: &Selection,
        options: &ServeOptions,
    ) -> Result<(), Failure> {
        self.ready_at_ns.set(self.io.now_ns());
        let ready = Ready {
            uris: self.doors.uris.clone(),
            fuse_file: self.doors.fuse_file(),
            vhost_user: self.doors.vhost_user(),
            ublk: self.doors.ublk(),
        };
        if options.background || options.print_uri {
            settings
                .output
                .show("serve", &ready, |ready| ready.places().map(|line| line + "\n").collect())?;
        }
        if options.background {
            release_standard_output()?;
        }
        let size = human_bytes(self.volume.info().size_bytes);
        let recovery = self.engine.status().recovery;
        let recovered = if recovery.unclean {
            let ms = recovery.duration_ns / MILLISECOND_NS;
            format!("; it had not been closed in order, {ms} ms of recovery")
        } else {
            String::new()
        };
        let doors: Vec<String> = ready.places().collect();
        let name = &selection.name;
        eprintln!("bimetal: serving '{name}' ({size}) at {}{recovered}", doors.join(", "));
        eprintln!("bimetal: {}", self.describe);
        if let Some(loss) = self.engine.status().loss {
            let why = if loss.damage.is_empty() { "a drive is gone" } else { "it is damaged" };
            eprintln!("bimetal: '{name}' is read-only, {why}: {loss}");
            loss.damage.iter().for_each(|damage| eprintln!("bimetal: {damage}"));
            eprintln!("bimetal: 'bimetal lost {name}' lists what cannot be read");
        }
        if self.engine.status().alone {
            eprintln!("bimetal: {}", alone::warning(selection));
        }
        let (engine, volume) = (self.engine.clone(), name.clone());
        self.io.spawn(async move {
            loop {
                let cause = engine.woken().await;
                eprintln!("bimetal: '{volume}' woke its slow drive: {cause}");
            }
        });
        if !self.read_only && !self.engine.status().alone {
            let (engine, volume) = (self.engine.clone(), name.clone());
            self.io.spawn(async move { tell_when_stopped(&engine, &volume.to_string()).await });
        }
        let status = format!("serving {name} ({size})");
        // Not started by a service manager: then nobody listens, which is no failure.
        let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
        Ok(())
    }

    /// Runs the command, if there is one, and waits for the reason to stop.
    async fn wait(&self, events: &mut Events, options: &ServeOptions) -> Outcome {
        let mut command_pid = None;
        if let Some(line) = &options.run {
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(line).env("BIMETAL_SIZE_BYTES", self.size_text());
            if let Some(uri) = self.doors.uris.first() {
                command.env("uri", uri);
            }
            if let Some(file) = self.doors.fuse_file() {
                command.env("BIMETAL_FUSE_FILE", file);
            }
            let child = command
                .spawn()
                .map_err(|error| Failure::failed(format!("cannot run '{line}': {error}")));
            match child {
                Ok(child) => {
                    command_pid = Some(child.id());
                    events.watch(child)?;
                }
                // Returned as an outcome: the volume is still closed in order.
                Err(failure) => return Err(failure),
            }
        }
        if let Some(ended) = self.doors.fuse_ended() {
            let sender = events.sender();
            self.io.spawn(async move {
                ended.await;
                drop(sender.send(Event::FileGone));
            });
        }
        loop {
            match events.next().await {
                Event::CommandEnded(code) => return Ok(Exit::from_number(code)),
                Event::FileGone => {
                    let file = self.doors.fuse_file().unwrap_or_default();
                    eprintln!("bimetal: {} is not mounted any more", file.display());
                    if self.doors.only_fuse() && options.run.is_none() {
                        eprintln!("bimetal: nobody can reach the volume any more: closing it");
                        return Ok(self.exit());
                    }
                }
                Event::Stop if options.run.is_none() => return Ok(self.exit()),
                Event::Stop => {
                    // It is told to end too, and its end is ours.
                    if let Some(pid) = command_pid.take() {
                        terminate(pid);
                    }
                }
                Event::StopAtOnce => return Ok(self.exit()),
            }
        }
    }

    /// How a server ends that was told to.
    fn exit(&self) -> Exit {
        let status = self.engine.status();
        if status.loss.is_some() || status.alone { Exit::Degraded } else { Exit::Done }
    }

    fn size_text(&self) -> String {
        self.volume.info().size_bytes.to_string()
    }

    /// Closes everything in order. [`Event::StopAtOnce`] ends the waiting.
    async fn close(&self, events: &mut Events, selection: &Selection) -> Result<(), Failure> {
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        let closing = async {
            // First: whoever keeps the file busy may do so for ever, and the users of the other
            // doors need not stand still meanwhile.
            self.close_fuse_when_unused(selection).await;
            self.doors.close_nbd().await;
            self.doors.close_vhost_user().await;
            self.doors.close_ublk().await;
        };
        let stopped = async { while events.next().await != Event::StopAtOnce {} };
        let quick = first_of(closing, stopped).await == First::Other;
        if quick {
            eprintln!("bimetal: stopping at once; the next start replays the log");
            self.doors.abandon_fuse().await;
            // Nothing is closed: what is not durable yet was never promised.
            std::process::exit(i32::from(Exit::Failed.number()));
        }
        self.engine.close().await.map_err(Failure::failed)
    }

    /// Closes the file, waiting for whoever uses it.
    async fn close_fuse_when_unused(&self, selection: &Selection) {
        let mut said = false;
        if let Some(failure) = self.doors.fuse_failure() {
            eprintln!("bimetal: {failure}");
        }
        while let Err(failure) = self.doors.close_fuse().await {
            if !said {
                let name = &selection.name;
                eprintln!("bimetal: waiting to stop serving '{name}': {failure}");
                eprintln!(
                    "bimetal: a second SIGTERM or SIGINT stops at once, and its users get errors"
                );
                said = true;
            }
            self.io.sleep(BUSY_PAUSE_NS).await;
        }
    }
}

/// A failure as the control socket tells it.
fn refused(code: &str, failure: Failure) -> ControlReply {
    let Failure { message, hint, .. } = failure;
    ControlReply::Failed(Refusal { code: code.to_owned(), message, hint })
}

/// Why writes acknowledged from memory do not go with some doors.
const BEHIND_REFUSED: &str = "the volume is served through ublk or vhost-user: their users go on with \
    the next server after this one was killed, and would never learn that writes acknowledged from \
    memory are lost";

/// Refuses doors whose users would lose acknowledged writes with the server and not notice.
fn verify_durability(
    engine: &Engine,
    doors: &DoorOptions,
    name: &VolumeName,
) -> Result<(), Failure> {
    let behind = engine.status().policy.tuning.behind_bytes.filter(|_| !engine.info().read_only);
    let Some(bytes) = behind.filter(|_| doors.outlive_server()) else { return Ok(()) };
    let size = human_bytes(bytes);
    Err(Failure::refused(format!(
        "volume '{name}' has write_behind={size}, which is not possible while {BEHIND_REFUSED}"
    ))
    .hint(format!("'bimetal set {name} write_behind=off' first; or serve it through other doors")))
}

/// Why the volume was not opened, and what would override.
fn refusal(error: &engine::Error, name: &VolumeName) -> Failure {
    match error {
        engine::Error::DriveGone { .. } => Failure::refused(error).hint(format!(
            "bring the drive back and serve again. Until then 'bimetal serve {name} --degraded' \
             serves what can be read, read-only; 'bimetal lost {name}' lists what cannot"
        )),
        engine::Error::Superblock { .. } | engine::Error::Device(_) => {
            Failure::failed(error).hint(format!(
                "'bimetal lost {name}' says what could be read without that drive, and \
                 'bimetal serve {name} --rescue' serves it read-only"
            ))
        }
        engine::Error::Damaged(_) => Failure::failed(error).hint(format!(
            "'bimetal serve {name} --rescue' serves what is certain all the same, read-only; \
             'bimetal lost {name}' lists what is not"
        )),
        error => error.clone().into(),
    }
}

/// Which of two futures ended first.
#[derive(Debug, PartialEq, Eq)]
pub enum First {
    One,
    Other,
}

/// Waits for the first of two futures to end and drops the other.
pub async fn first_of(one: impl Future<Output = ()>, other: impl Future<Output = ()>) -> First {
    let mut one = pin!(one);
    let mut other = pin!(other);
    poll_fn(|context| {
        if one.as_mut().poll(context).is_ready() {
            return Poll::Ready(First::One);
        }
        other.as_mut().poll(context).map(|()| First::Other)
    })
    .await
}

/// Lets go of the pipe to `attach`: it reads to the end.
fn release_standard_output() -> Result<(), Failure> {
    let null = Path::new("/dev/null");
    let file = std::fs::OpenOptions::new().write(true).open(null).on_path("open", null)?;
    rustix::stdio::dup2_stdout(&file).on_path("write to", null)
}

/// Asks the command that we run to end.
fn terminate(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended this moment; then its end is on its way to us.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}
