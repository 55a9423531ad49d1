//! `bimetal twin serve`: a twin as a drive in real time, for any program that speaks NBD or uses a block device.

use std::rc::Rc;

use clap::{ArgGroup, Args};
use export::nbd::{NbdOptions, NbdServer};
use export::ublk::{UblkDoor, UblkOptions};
use io::units::SECOND_NS;
use io::{Io, Listener};
use twin::{Paced, Profile};
use uring::{Kernel, KernelOptions};

use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::server::{
    BUSY_PAUSE_NS, Event, Events, First, NbdAddress, become_io_flusher, first_of, tcp_uri,
    tell_unless_flusher, unix_uri,
};
use crate::settings::Settings;

/// The driver ends a device at once but waits for whoever has it open; so long do we, for who lets go of
/// what gives errors.
const LET_GO_PATIENCE_NS: u64 = SECOND_NS;

/// Serve a twin over NBD or as a block device, as slow as the drive
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal twin serve wd5002abys --nbd unix:/tmp/twin.sock
  bimetal twin serve imac-fusion-disk --nbd unix:/tmp/twin.sock --scale 1/64
  bimetal twin serve apple-ans-m1 --nbd tcp:127.0.0.1:10809 --no-content
  bimetal twin serve wd5002abys --ublk            (a block device, /dev/ublkbN; needs root)

Prints where the twin is found, a line for each door, and serves it in the foreground until SIGTERM or SIGINT. What is
written is kept in memory; it is gone at the end, and so is the block device: while somebody uses it the end waits, and a
second signal ends it at once, with errors for them. The door adds some 50 µs to each request.")]
#[command(group = ArgGroup::new("doors").args(["nbd", "ublk"]).required(true).multiple(true))]
pub struct ServeArguments {
    /// A name of 'twin list' with conditions, or a file
    #[arg(value_name = "NAME")]
    name: String,
    /// Serve NBD at unix:PATH or tcp:HOST:PORT (this machine only)
    #[arg(long, value_name = "ADDRESS")]
    nbd: Option<NbdAddress>,
    /// Offer a block device through the kernel's ublk driver
    #[arg(long)]
    ublk: bool,
    /// A smaller drive with the same times and rates, such as 1/64
    #[arg(long, value_name = "1/N", default_value = "1/1", value_parser = parse_scale)]
    scale: u64,
    /// Keep nothing of what is written; reads give zeros
    #[arg(long)]
    no_content: bool,
}

fn parse_scale(text: &str) -> Result<u64, String> {
    let times = text.strip_prefix("1/").and_then(|times| times.parse().ok());
    times.filter(|times| *times > 0).ok_or_else(|| format!("'{text}' is not like 1/64"))
}

/// Runs the command.
pub fn run(arguments: &ServeArguments, _: &Settings) -> Outcome {
    let profile = super::profile(&arguments.name)?;
    let profile = profile.shrunk(arguments.scale).map_err(Failure::usage)?;
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let listening = match &arguments.nbd {
        Some(address) => Some(listen(&kernel, address, profile.name())?),
        None => None,
    };
    let outcome = match Events::start() {
        Ok(mut events) => io.block_on(serve(&io, &profile, arguments, listening, &mut events)),
        Err(failure) => Err(failure),
    };
    if let Some(NbdAddress::Unix(path)) = &arguments.nbd {
        // What cannot be removed is a socket nobody listens to.
        let _ = std::fs::remove_file(path);
    }
    outcome
}

/// Listens for NBD clients, and where they find the twin.
fn listen(
    kernel: &Kernel,
    address: &NbdAddress,
    name: &str,
) -> Result<(Listener, String), Failure> {
    match address {
        NbdAddress::Unix(path) => {
            let path = std::path::absolute(path).on_path("find", path)?;
            Ok((kernel.listen_unix(&path)?, unix_uri(&path, name, false)))
        }
        NbdAddress::Tcp(address) if address.ip().is_loopback() => {
            let (listener, bound) = kernel.listen_tcp(*address)?;
            Ok((listener, tcp_uri(bound, name, false)))
        }
        NbdAddress::Tcp(address) => {
            Err(Failure::refused(format!("{address} is reached from other machines"))
                .hint("a twin is served on this machine only: tcp:127.0.0.1:PORT"))
        }
    }
}

/// Opens the doors, and closes them when told to.
async fn serve(
    io: &Io,
    profile: &Profile,
    arguments: &ServeArguments,
    listening: Option<(Listener, String)>,
    events: &mut Events,
) -> Outcome {
    let paced = Rc::new(Paced::new(io, profile, !arguments.no_content));
    let rotational = profile.rotational();
    let device = match arguments.ublk {
        true => {
            let flusher = become_io_flusher();
            // No mark: what was written is gone with this process, so nobody may take the device over.
            let options = UblkOptions { mark: None, rotational };
            let door = UblkDoor::open(io.clone(), paced.clone(), options).await?;
            tell_unless_flusher(flusher);
            Some(door)
        }
        false => None,
    };
    let server = listening.map(|(listener, uri)| {
        let options = NbdOptions {
            export_name: profile.name().to_owned(),
            description: format!("twin of {}", profile.title()),
            rotational,
            ..NbdOptions::default()
        };
        let server = NbdServer::new(io.clone(), paced, options);
        let serving = server.clone();
        io.spawn(async move { serving.serve(listener).await });
        println!("{uri}");
        server
    });
    if let Some(device) = &device {
        println!("{}", device.path().display());
    }
    events.next().await;
    let exit = match &device {
        Some(device) => end(io, device, events).await?,
        None => Exit::Done,
    };
    if let Some(server) = &server {
        server.shutdown().await;
    }
    Ok(exit)
}

/// Takes the device away once nobody uses it, or at a second signal.
async fn end(io: &Io, device: &UblkDoor, events: &mut Events) -> Outcome {
    let path = device.path().display();
    let unused = async {
        let mut said = false;
        // One that cannot be asked about is not waited for.
        while device.is_used().await.unwrap_or(false) {
            if !said {
                eprintln!("bimetal: waiting to take {path} away: it is in use");
                eprintln!(
                    "bimetal: a second SIGTERM or SIGINT stops at once, and its users get errors"
                );
                said = true;
            }
            io.sleep(BUSY_PAUSE_NS).await;
        }
    };
    let stopped = async { while events.next().await != Event::StopAtOnce {} };
    if first_of(unused, stopped).await == First::One {
        device.shutdown().await?;
        return Ok(Exit::Done);
    }
    eprintln!("bimetal: stopping at once; whoever uses {path} gets errors");
    let ended = async {
        if let Err(error) = device.shutdown().await {
            eprintln!("bimetal: {path} stays: {error}");
        }
    };
    // When we have ended the driver goes on alone: the device is gone when the last one has closed it.
    first_of(ended, io.sleep(LET_GO_PATIENCE_NS)).await;
    Ok(Exit::Failed)
}
