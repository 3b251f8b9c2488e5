//! What can go wrong with systemd.

use std::io;

use super::unit::Unit;

/// A unit's rules could not be set, so they will be lost when systemd makes the
/// unit's device rules anew.
#[derive(Debug, thiserror::Error)]
#[error("cannot allow devices in systemd unit {unit}, rules may be lost on daemon-reload")]
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
    #[error("cannot talk to systemd")]
    Io(#[source] io::Error),
    /// systemd did not answer in time.
    #[error("systemd does not answer")]
    TooSlow,
    /// systemd has closed the connection.
    #[error("systemd closed the connection")]
    Closed,
    /// systemd did not accept our user.
    #[error("systemd refuses to talk to this user")]
    Rejected,
    /// What came was no D-Bus, or far too much of it.
    #[error("systemd's answer makes no sense")]
    Garbage,
    /// systemd refused.
    #[error("systemd refuses: {message} ({name})")]
    Call {
        /// D-Bus name of the error.
        name: String,
        /// systemd's words.
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
