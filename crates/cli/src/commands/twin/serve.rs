//! `bimetal twin serve`: a twin as a drive in real time, for any program that speaks NBD.

use std::rc::Rc;

use clap::Args;
use export::nbd::{NbdOptions, NbdServer};
use twin::Paced;
use uring::{Kernel, KernelOptions};

use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::server::{Events, NbdAddress, tcp_uri, unix_uri};
use crate::settings::Settings;

/// Serve a twin over NBD, as slow as the drive
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal twin serve wd5002abys --nbd unix:/tmp/twin.sock
  bimetal twin serve imac-fusion-disk --nbd unix:/tmp/twin.sock --scale 1/64
  bimetal twin serve apple-ans-m1 --nbd tcp:127.0.0.1:10809 --no-content

Prints the URI of the twin and serves it in the foreground until SIGTERM or SIGINT. What is written is kept in
memory; it is gone at the end. The door adds some 50 µs to each request.")]
pub struct ServeArguments {
    /// A name of 'twin list' with conditions, or a file
    #[arg(value_name = "NAME")]
    name: String,
    /// Serve NBD at unix:PATH or tcp:HOST:PORT (this machine only)
    #[arg(long, value_name = "ADDRESS")]
    nbd: NbdAddress,
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
    let name = profile.name().to_owned();
    let (listener, uri) = match &arguments.nbd {
        NbdAddress::Unix(path) => {
            let path = std::path::absolute(path).on_path("find", path)?;
            (kernel.listen_unix(&path)?, unix_uri(&path, &name, false))
        }
        NbdAddress::Tcp(address) if address.ip().is_loopback() => {
            let (listener, bound) = kernel.listen_tcp(*address)?;
            (listener, tcp_uri(bound, &name, false))
        }
        NbdAddress::Tcp(address) => {
            return Err(Failure::refused(format!("{address} is reached from other machines"))
                .hint("a twin is served on this machine only: tcp:127.0.0.1:PORT"));
        }
    };
    let mut events = Events::start()?;
    let paced = Rc::new(Paced::new(&io, &profile, !arguments.no_content));
    let options = NbdOptions {
        export_name: name,
        description: format!("twin of {}", profile.title()),
        rotational: profile.rotational(),
        ..NbdOptions::default()
    };
    let server = NbdServer::new(io.clone(), paced, options);
    let serving = server.clone();
    io.spawn(async move { serving.serve(listener).await });
    println!("{uri}");
    io.block_on(async {
        events.next().await;
        server.shutdown().await;
    });
    if let NbdAddress::Unix(path) = &arguments.nbd {
        // What cannot be removed is a socket nobody listens to.
        let _ = std::fs::remove_file(path);
    }
    Ok(Exit::Done)
}
