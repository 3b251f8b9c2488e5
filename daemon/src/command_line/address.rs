//! Parses the addresses on which programs listen.

use std::net::SocketAddr;

/// Parses a listen address for clap. The error message contains an example, because a plausible
/// text such as `:9911` is invalid. The message of the standard library only says that the syntax
/// is wrong.
pub fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    let error_message = "give an IP address and a port, such as 127.0.0.1:9911 or [::]:9911";
    text.parse().map_err(|_| error_message.to_owned())
}
