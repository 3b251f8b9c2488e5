//! Addresses to listen on.

use std::net::SocketAddr;

/// Parses an address for clap. The error has an example, because the error of the standard
/// library only says that the syntax is wrong, even for `:9911` and `localhost:9911`.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let example = "give an IP address and a port, such as 127.0.0.1:9911 or [::]:9911";
    text.parse().map_err(|_| example.to_owned())
}
