//! Receives and sends uevents, which are netlink messages of the kernel and of udev about devices
//! (lib/kobject_uevent.c, netlink(7)).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::Result;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use super::netlink::NetlinkSocket;

/// The bit mask of the multicast groups whose messages are received: group 1 of the kernel, and
/// [`UDEV_GROUP`], to which udev sends after it has created the device's links.
const RECEIVED_GROUP_MASK: u32 = 1 | UDEV_GROUP;
/// The bit mask of udev's multicast group.
const UDEV_GROUP: u32 = 2;

/// The size of the receive buffer in bytes. A message of the kernel has at most 2048 bytes
/// (`UEVENT_BUFFER_SIZE`), and udev adds a header.
const MAX_MESSAGE_BYTES: usize = 8192;

/// The subsystems whose messages are ignored. They have no device nodes, and the kernel sends
/// messages about them at the start of every container.
const IGNORED_SUBSYSTEMS: [&[u8]; 3] = [
    b"\0SUBSYSTEM=net\0",
    b"\0SUBSYSTEM=queues\0",
    b"\0SUBSYSTEM=bdi\0",
];

/// A socket that receives the uevents of the kernel and of udev.
pub(crate) struct UeventReceiver(OwnedFd);

impl UeventReceiver {
    pub(crate) fn open() -> Result<Self> {
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
        let socket = socket(family, SockType::Datagram, flags, protocol)?;
        bind(
            socket.as_raw_fd(),
            &NetlinkAddr::new(0, RECEIVED_GROUP_MASK),
        )?;
        Ok(UeventReceiver(socket))
    }

    /// Receives all pending messages without waiting, and returns whether one of them may be about
    /// a device. The content of a message is not trusted, because any process can send messages. A
    /// message only causes a new scan.
    pub(crate) fn receive_pending(&self) -> Result<bool> {
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        let mut has_device_event = false;
        loop {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => has_device_event |= may_concern_device(&buffer[..length]),
                // ENOBUFS means that the kernel has dropped messages. One of them may have been
                // about a device.
                Err(Errno::ENOBUFS) => has_device_event = true,
                Err(Errno::EAGAIN) => return Ok(has_device_event),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl AsFd for UeventReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket that sends uevents in the network namespace of this process.
pub(crate) struct UeventSender(NetlinkSocket);

/// The type of a netlink message with a uevent. It can be any number that is no control message
/// (`NLMSG_MIN_TYPE`).
const UEVENT_MESSAGE_TYPE: u16 = 0x10;

impl UeventSender {
    pub(crate) fn open() -> Result<Self> {
        NetlinkSocket::open(SockProtocol::NetlinkKObjectUEvent).map(UeventSender)
    }

    /// Makes the kernel send `message` to the network namespace as one of its own uevents, with a
    /// sequence number (`uevent_net_rcv_skb`, Linux 4.18). This needs CAP_SYS_ADMIN in the user
    /// namespace that owns the network namespace.
    ///
    /// # Errors
    /// ECONNREFUSED on an older kernel.
    pub(crate) fn send_as_kernel(&self, message: &[u8]) -> Result<()> {
        self.0.send_request(UEVENT_MESSAGE_TYPE, message)
    }

    /// Sends `message` to the multicast group of udev. This needs CAP_NET_ADMIN in the user
    /// namespace that owns the network namespace.
    pub(crate) fn send_as_udev(&self, message: &[u8]) -> Result<()> {
        match self.0.send_to_group(message, UDEV_GROUP) {
            // A kernel before Linux 4.18 returns ECONNREFUSED, although the members of the
            // group have received the message.
            Err(Errno::ECONNREFUSED) => Ok(()),
            result => result,
        }
    }
}

fn may_concern_device(message: &[u8]) -> bool {
    let contains = |field: &&[u8]| message.windows(field.len()).any(|window| window == *field);
    !IGNORED_SUBSYSTEMS.iter().any(contains)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_networks_do_not_count() {
        for (message, counts) in [
            (
                &b"add@/devices/usb1/ttyUSB0\0SUBSYSTEM=tty\0SEQNUM=1\0"[..],
                true,
            ),
            (
                b"libudev\0DEVPATH=/devices/virtual/net/veth1\0SUBSYSTEM=net\0",
                false,
            ),
            (
                b"add@/devices/virtual/net/v/queues/rx-0\0SUBSYSTEM=queues\0",
                false,
            ),
            (
                b"add@/devices/virtual/net/m/tap9\0SUBSYSTEM=macvtap\0",
                true,
            ),
            (b"remove@/devices/virtual/bdi/0:51\0SUBSYSTEM=bdi\0", false),
            (b"", true),
        ] {
            assert_eq!(
                may_concern_device(message),
                counts,
                "{}",
                message.escape_ascii()
            );
        }
    }
}
