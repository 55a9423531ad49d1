//! Which addresses plain NBD may be served on without thinking twice.

use std::net::SocketAddr;

/// Whether only this machine can reach `address`.
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Refuses an address that others can reach when there is no TLS. NBD itself knows neither
/// passwords nor encryption.
///
/// # Errors
/// A sentence for the user: what is wrong and what to do.
pub fn check_plain_address(address: &SocketAddr) -> Result<(), String> {
    if is_loopback(address) {
        return Ok(());
    }
    Err(format!(
        "{address} can be reached by other machines, and NBD without TLS lets everyone read and \
         write the volume: set up TLS, or bind to 127.0.0.1 or a unix socket"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_may_go_without_tls() {
        for good in ["127.0.0.1:10809", "127.8.8.8:1", "[::1]:10809", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(check_plain_address(&good.parse().unwrap()), Ok(()), "{good}");
        }
        for bad in ["0.0.0.0:10809", "[::]:10809", "192.168.1.2:1", "[fe80::1]:1"] {
            let message = check_plain_address(&bad.parse().unwrap()).unwrap_err();
            assert!(message.contains("TLS"), "{message}");
        }
    }
}
