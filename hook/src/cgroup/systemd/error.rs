//! What can go wrong with systemd.

use std::io;

use super::unit::Unit;

/// A unit's rules could not be set, so they will be lost when systemd
/// regenerates the unit's device rules.
#[derive(Debug, thiserror::Error)]
#[error("cannot allow devices in systemd unit {unit}, they are lost when systemd reloads")]
pub struct SystemdError {
    /// The unit.
    pub unit: Unit,
    /// The cause.
    pub source: BusError,
}

/// A conversation with systemd failed.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The socket failed.
    #[error("cannot communicate with systemd")]
    Io(#[source] io::Error),
    /// systemd did not answer in time.
    #[error("systemd does not answer")]
    TooSlow,
    /// systemd has closed the connection.
    #[error("systemd closed the connection")]
    Closed,
    /// systemd did not accept our user.
    #[error("systemd rejected the authentication of this user")]
    Rejected,
    /// The reply was not D-Bus, or far too long.
    #[error("malformed reply from systemd")]
    Garbage,
    /// systemd refused.
    #[error("systemd refused: {message} ({name})")]
    Call {
        /// D-Bus name of the error.
        name: String,
        /// systemd's message.
        message: String,
    },
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
