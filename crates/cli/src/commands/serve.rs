//! `bimetal serve`: brings a volume up in the foreground.

use std::path::PathBuf;

use clap::Args;
use engine::{CacheMode, FlushMode};

use crate::failure::{Failure, Outcome};
use crate::selection::VolumeArgument;
use crate::server::{self, DoorOptions, NbdAddress, ServeOptions, TlsOptions};
use crate::settings::Settings;

/// Serve a volume in the foreground until SIGTERM or SIGINT
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal serve vol0 --print-uri
  bimetal serve vol0 --nbd unix:/run/vol0.sock --nbd tcp:127.0.0.1:10809
  bimetal serve vol0 --run 'nbdinfo $uri'         (serves while the command runs)
  bimetal serve vol0 --nbd tcp:0.0.0.0:10809 --tls-certificates /etc/pki/bimetal
  bimetal serve vol0 --fuse /mnt/vol0             (the volume is the file /mnt/vol0/vol0)
  bimetal serve vol0 --vhost-user /run/vol0.vhost (a virtio disk for a virtual machine)
  bimetal serve vol0 --ublk                       (a block device, /dev/ublkbN; needs root)
  bimetal serve vol0 --degraded                   (a drive is gone: what can be read, read-only)
  bimetal serve vol0 --rescue                     (it is damaged: what is certain, read-only)

Without any of these doors (and without sockets from a service manager) the volume is served on a unix
socket in the runtime directory. --run sets $uri, $BIMETAL_FUSE_FILE and $BIMETAL_SIZE_BYTES.
SIGTERM lets requests end and closes the volume in order; a second one ends at once.")]
pub struct ServeArguments {
    #[command(flatten)]
    volume: VolumeArgument,
    /// Serve NBD at unix:PATH or tcp:HOST:PORT; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<NbdAddress>,
    /// Mount the volume as one file in this directory (made when missing)
    #[arg(long, value_name = "DIR")]
    fuse: Option<PathBuf>,
    /// Offer the volume as a virtio disk (vhost-user-blk) on a socket at this path
    #[arg(long, value_name = "PATH")]
    vhost_user: Option<PathBuf>,
    /// Offer the volume as a block device through the kernel's ublk driver; one that an earlier
    /// server has left is taken over
    #[arg(long)]
    ublk: bool,
    /// Run a shell command when ready, and end with it and its exit code
    #[arg(long, value_name = "COMMAND")]
    run: Option<String>,
    /// Print where clients find the volume, a line each
    #[arg(long)]
    print_uri: bool,
    /// End when the process that started this one ends
    #[arg(long)]
    exit_with_parent: bool,
    /// What a flush promises from now on: strict or deferred=MS[,BYTES]; kept, as by 'set'
    #[arg(long, value_name = "MODE", conflicts_with = "read_only")]
    durability: Option<FlushMode>,
    /// Class cache: set when writes are home, writethrough, writearound or writeback, before
    /// the doors open
    #[arg(long, value_name = "MODE", conflicts_with_all = ["read_only", "rescue"])]
    mode: Option<CacheMode>,
    /// Refuse writes; nothing is written to the drives either
    #[arg(long)]
    read_only: bool,
    /// When a drive is gone, serve what the other one has, read-only; nothing is written
    #[arg(long)]
    degraded: bool,
    /// When the volume is damaged, serve what is certain and errors for the rest, read-only; nothing
    /// is written. Covers a drive that is gone, as --degraded does
    #[arg(long, conflicts_with = "durability")]
    rescue: bool,
    /// Require TLS of NBD clients; the directory holds server-cert.pem, server-key.pem and, with
    /// --tls-verify-peer, ca-cert.pem
    #[arg(long, value_name = "DIR", group = "tls")]
    tls_certificates: Option<PathBuf>,
    /// Require TLS with a shared key of NBD clients; the file holds USER:HEXKEY lines
    #[arg(long, value_name = "FILE", group = "tls")]
    tls_psk: Option<PathBuf>,
    /// Clients must show a certificate signed by ca-cert.pem
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,
    /// Clients may also connect without TLS
    #[arg(long, requires = "tls")]
    tls_optional: bool,
    /// Serve plain NBD on addresses that other machines reach, without encryption or
    /// authentication
    #[arg(long)]
    allow_remote_plain_tcp: bool,
    /// Started by 'attach'
    #[arg(long, hide = true)]
    background: bool,
}

/// Runs the command.
pub fn run(arguments: &ServeArguments, settings: &Settings) -> Outcome {
    if arguments.exit_with_parent {
        die_with_parent()?;
    }
    if arguments.background {
        // A session of its own: a terminal that closes must not take the volume with it.
        rustix::process::setsid()
            .map_err(|error| Failure::failed(format!("cannot leave the session: {error}")))?;
    }
    let options = ServeOptions {
        doors: DoorOptions {
            nbd: arguments.nbd.clone(),
            fuse: arguments.fuse.clone(),
            vhost_user: arguments.vhost_user.clone(),
            ublk: arguments.ublk,
            tls: TlsOptions {
                certificates: arguments.tls_certificates.clone(),
                verify_peer: arguments.tls_verify_peer,
                psk: arguments.tls_psk.clone(),
                optional: arguments.tls_optional,
            },
            allow_remote_plain_tcp: arguments.allow_remote_plain_tcp,
        },
        read_only: arguments.read_only,
        durability: arguments.durability,
        mode: arguments.mode,
        degraded: arguments.degraded,
        rescue: arguments.rescue,
        run: arguments.run.clone(),
        print_uri: arguments.print_uri,
        background: arguments.background,
    };
    let selection = arguments.volume.select(settings)?;
    server::serve(settings, &selection, &options)
}

fn die_with_parent() -> Result<(), Failure> {
    let parent = rustix::process::getppid();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM)).map_err(
        |error| Failure::failed(format!("cannot tie this process to its parent: {error}")),
    )?;
    // It may have ended before the kernel was told.
    if rustix::process::getppid() != parent {
        return Err(Failure::failed("the process that started this one has ended already"));
    }
    Ok(())
}
