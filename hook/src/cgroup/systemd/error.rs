//! Errors of systemd.

use std::io;

use super::unit::Unit;

/// A unit's rules could not be set, so they will be lost when systemd
/// regenerates the unit's device rules.
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
    TooSlow,
    #[error("systemd closed the connection")]
    Closed,
    #[error("systemd rejected the authentication of this user")]
    Rejected,
    #[error("malformed reply from systemd")]
    Garbage,
    #[error("systemd refused: {message} ({name})")]
    Call { name: String, message: String },
}

impl From<io::Error> for BusError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // A timeout on a socket is either, by platform.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TooSlow,
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}
