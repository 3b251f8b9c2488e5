//! Errors of the conversation with systemd.

use std::io;

use super::unit::Unit;

/// The rules of a unit could not be set. The device works, but the rules are lost when systemd
/// regenerates the device rules of the unit.
#[derive(Debug, thiserror::Error)]
#[error("cannot allow devices in systemd unit {unit}, they are lost when systemd reloads")]
pub(crate) struct SystemdError {
    pub unit: Unit,
    pub source: BusError,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BusError {
    #[error("cannot communicate with systemd")]
    Io(#[source] io::Error),
    #[error("systemd does not answer")]
    Timeout,
    #[error("systemd closed the connection")]
    Closed,
    #[error("systemd rejected the authentication of this user")]
    Rejected,
    #[error("malformed reply from systemd")]
    InvalidMessage,
    #[error("systemd refused: {message} ({name})")]
    Call { name: String, message: String },
}

impl From<io::Error> for BusError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The kind of a socket timeout depends on the platform.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}
