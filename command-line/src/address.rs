//! Parses the addresses at which programs listen.

use std::net::SocketAddr;

/// Parses a listen address for clap. The error has an example, because that of the standard library
/// only says that the syntax is wrong, even for plausible texts such as `:9911`.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let example = "give an IP address and a port, such as 127.0.0.1:9911 or [::]:9911";
    text.parse().map_err(|_| example.to_owned())
}
