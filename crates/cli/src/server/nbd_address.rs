//! Where an NBD door listens, as written on the command line, and the URI clients reach it by.

use std::fmt::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NbdAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port; port 0 takes any free one.
    Tcp(SocketAddr),
}

impl FromStr for NbdAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<NbdAddress, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(format!("'{text}' names no socket file"));
            }
            return Ok(NbdAddress::Unix(path.into()));
        }
        let Some(host_port) = text.strip_prefix("tcp:") else {
            return Err(format!("'{text}' is neither unix:PATH nor tcp:HOST:PORT"));
        };
        let addresses = host_port.to_socket_addrs().map_err(|error| {
            format!("'{text}' is not tcp:HOST:PORT, such as tcp:127.0.0.1:10809 ({error})")
        })?;
        // A name may stand for several addresses; the first is the one the resolver prefers.
        addresses
            .into_iter()
            .next()
            .map(NbdAddress::Tcp)
            .ok_or_else(|| format!("'{text}': the host has no address"))
    }
}

/// The URI of an export behind a unix socket.
pub fn unix_uri(socket: &Path, export: &str, tls: bool) -> String {
    let scheme = if tls { "nbds+unix" } else { "nbd+unix" };
    format!("{scheme}:///{export}?socket={}", percent_encoded(socket.as_os_str().as_bytes()))
}

/// The URI of an export behind a TCP port.
pub fn tcp_uri(address: SocketAddr, export: &str, tls: bool) -> String {
    let scheme = if tls { "nbds" } else { "nbd" };
    format!("{scheme}://{address}/{export}")
}

fn percent_encoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let plain = byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
        let written = match plain {
            true => text.write_char(char::from(*byte)),
            false => write!(text, "%{byte:02X}"),
        };
        written.expect("a string takes any text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_uris_are_written() {
        let unix: NbdAddress = "unix:/run/x y.sock".parse().unwrap();
        assert_eq!(unix, NbdAddress::Unix("/run/x y.sock".into()));
        let uri = unix_uri(Path::new("/run/x y.sock"), "vol0", false);
        assert_eq!(uri, "nbd+unix:///vol0?socket=/run/x%20y.sock");
        let tcp: NbdAddress = "tcp:127.0.0.1:10809".parse().unwrap();
        assert_eq!(tcp, NbdAddress::Tcp("127.0.0.1:10809".parse().unwrap()));
        let six = tcp_uri("[::1]:10809".parse().unwrap(), "vol0", true);
        assert_eq!(six, "nbds://[::1]:10809/vol0");
        for bad in ["", "unix:", "tcp:", "tcp:host", "udp:1.2.3.4:5", "tcp:127.0.0.1:99999"] {
            assert!(bad.parse::<NbdAddress>().is_err(), "{bad:?}");
        }
    }
}
