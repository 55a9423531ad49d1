//! An NBD server of a volume in memory, to try clients against and to measure the door with.
//!
//! ```text
//! nbd_memory SOCKET [SIZE] [read-only] [certificates=DIR] [psk=FILE] [verify] [offered]
//! ```
//!
//! SIZE is like `64M` (the default). `verify` asks clients for certificates, `offered` leaves TLS
//! to the client. Runs until it is killed.

use std::path::Path;
use std::rc::Rc;

use export::nbd::{ClientCertificates, NbdOptions, NbdServer, Tls};
use uring::{Kernel, KernelOptions};

#[path = "../tests/memory/mod.rs"]
mod memory;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let socket = arguments.first().ok_or("which socket? nbd_memory SOCKET [SIZE] [SETTING]…")?;
    let size = arguments.get(1).map_or("64M", String::as_str);
    let size_bytes = io::units::parse_bytes(size)?.next_multiple_of(4096);
    let is_set = |name: &str| arguments.iter().any(|argument| argument == name);

    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let listener = kernel.listen_unix(Path::new(socket))?;
    let volume = Rc::new(memory::MemoryVolume::new(io.clone(), size_bytes));
    let tls = load_tls(&arguments, is_set("verify"))?;
    let options = NbdOptions {
        export_name: "memory".into(),
        description: "a volume in memory".into(),
        read_only: is_set("read-only"),
        tls: if is_set("offered") { tls.map(Tls::offered) } else { tls },
        ..NbdOptions::default()
    };
    let server = NbdServer::new(io.clone(), volume, options);
    eprintln!("{} on {socket}, {}", size, kernel.describe());
    io.block_on(server.serve(listener));
    Ok(())
}

fn load_tls(arguments: &[String], verify: bool) -> Result<Option<Tls>, Box<dyn std::error::Error>> {
    let clients = if verify { ClientCertificates::Required } else { ClientCertificates::NotAsked };
    for argument in arguments {
        if let Some(directory) = argument.strip_prefix("certificates=") {
            return Ok(Some(Tls::from_certificates(Path::new(directory), clients)?));
        }
        #[cfg(feature = "tls-psk")]
        if let Some(file) = argument.strip_prefix("psk=") {
            return Ok(Some(Tls::from_psk_file(Path::new(file))?));
        }
    }
    Ok(None)
}
