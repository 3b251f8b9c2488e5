//! Receives the kernel's uevents from a netlink socket.

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket,
};
use tokio::net::UnixDatagram;

use super::message::may_concern_accelerator;
use crate::host_inventory::notify::Notifier;

/// The netlink multicast group to which the kernel sends uevents. udev sends its messages to
/// another group.
const KERNEL_MULTICAST_GROUP: u32 = 1;

/// The size in bytes of the buffer for one uevent. A uevent is shorter, because the kernel limits
/// it to its header and `UEVENT_BUFFER_SIZE` (2048) bytes.
const BUFFER_SIZE_BYTES: usize = 8192;

/// A netlink socket that receives uevents. tokio has no type for netlink sockets. So its type for
/// Unix datagram sockets owns the descriptor, because `recv` is the same system call for both.
pub(super) struct Uevents(UnixDatagram);

impl Uevents {
    /// Opens the socket and subscribes to the kernel's uevents.
    ///
    /// # Errors
    /// Returns an error if the socket cannot be opened, for example in a sandbox.
    pub(super) fn new() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        let socket = socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol)?;
        bind(
            socket.as_raw_fd(),
            &NetlinkAddr::new(0, KERNEL_MULTICAST_GROUP),
        )?;
        Ok(Uevents(UnixDatagram::from_std(socket.into())?))
    }

    /// Sends a notification for each uevent that may concern an accelerator. Returns only if the
    /// socket cannot be read.
    pub(super) async fn run(self, notifier: &Notifier) -> io::Result<()> {
        let mut buffer = [0; BUFFER_SIZE_BYTES];
        loop {
            match self.0.recv(&mut buffer).await {
                Ok(length) if may_concern_accelerator(&buffer[..length]) => notifier.notify(),
                Ok(_) => {}
                // ENOBUFS means that the socket's buffer overflowed. One of the uevents that were
                // lost may have concerned an accelerator.
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                    notifier.notify()
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn uevents_can_be_received() {
        match Uevents::new() {
            Ok(uevents) => {
                let (notifier, _notified) = Notifier::new();
                let moment = std::time::Duration::from_millis(10);
                let ended = tokio::time::timeout(moment, uevents.run(&notifier)).await;
                assert!(ended.is_err(), "{ended:?}");
            }
            Err(error) => skip::report("uevents", &format!("no uevent socket: {error}")),
        }
    }
}
