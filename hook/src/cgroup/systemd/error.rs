use std::io;

use super::unit::Unit;

/// An error that prevented a change of a unit's `DeviceAllow=`. The container can still use the
/// device, but only until systemd writes the device rules of the unit to the cgroup again.
#[derive(Debug, thiserror::Error)]
#[error("cannot allow devices in systemd unit {unit}, they are lost when systemd reloads")]
pub struct SystemdError {
    pub unit: Unit,
    pub source: BusError,
}

#[derive(Debug, thiserror::Error)]
pub enum BusError {
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
            // After a timeout of a read or write, the error has one of these two kinds. It depends
            // on the platform which one (`UnixStream::set_read_timeout`).
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}
