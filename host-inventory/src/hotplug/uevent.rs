//! The socket on which the kernel announces devices.

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket,
};
use tokio::net::UnixDatagram;

use super::message::is_relevant;
use crate::notify::Notifier;

/// The multicast group of the kernel's own messages; udev's are in another.
const KERNEL_GROUP: u32 = 1;

/// The kernel's messages are no longer than this (`UEVENT_BUFFER_SIZE`, 2048,
/// and the header).
const LONGEST: usize = 8192;

/// A socket that receives uevents. Its type is that of another family, whose
/// `recv` is the same system call: there is no asynchronous one for netlink.
pub(super) struct Uevents(UnixDatagram);

impl Uevents {
    /// Subscribes.
    ///
    /// # Errors
    /// The socket cannot be opened, for example in a sandbox.
    pub(super) fn new() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        let socket = socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP))?;
        Ok(Uevents(UnixDatagram::from_std(socket.into())?))
    }

    /// Notifies of every message that may concern an accelerator.
    pub(super) async fn run(self, notifier: &Notifier) -> io::Result<()> {
        let mut buffer = [0; LONGEST];
        loop {
            match self.0.recv(&mut buffer).await {
                Ok(length) if is_relevant(&buffer[..length]) => notifier.notify(),
                Ok(_) => {}
                // Messages were lost.
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
