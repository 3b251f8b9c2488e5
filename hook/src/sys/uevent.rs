//! Receives and sends uevents. A uevent is a netlink message that the kernel or udev sends when a
//! device appears, changes or disappears (lib/kobject_uevent.c, netlink(7)).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::Result;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use super::netlink::NetlinkSocket;

/// The bit mask of the multicast groups from which messages are received. The kernel's group has
/// the bit 1. udev sends to [`UDEV_GROUP`] after it has created the links of the device.
const RECEIVED_GROUP_MASK: u32 = 1 | UDEV_GROUP;
/// The bit mask of the multicast group in which udev sends messages to its listeners.
const UDEV_GROUP: u32 = 2;

/// The size of the receive buffer in bytes. A message of the kernel has at most 2048 bytes
/// (`UEVENT_BUFFER_SIZE`). udev adds a header to it.
const MAX_MESSAGE_BYTES: usize = 8192;
/// The maximum number of messages that one call receives. A process with CAP_NET_ADMIN can send
/// messages faster than they are received.
const MAX_MESSAGES_PER_CALL: usize = 1024;

/// The kernel's subsystems whose uevents are ignored. They have no device nodes, and the kernel
/// sends such uevents at every start of a container.
const IGNORED_SUBSYSTEMS: [&[u8]; 3] = [
    b"\0SUBSYSTEM=net\0",
    b"\0SUBSYSTEM=queues\0",
    b"\0SUBSYSTEM=bdi\0",
];

/// A socket that receives the uevents of the kernel and of udev, for example when a device is
/// plugged in.
pub struct UeventReceiver(OwnedFd);

impl UeventReceiver {
    pub fn open() -> Result<Self> {
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
        let socket = socket(family, SockType::Datagram, flags, protocol)?;
        bind(
            socket.as_raw_fd(),
            &NetlinkAddr::new(0, RECEIVED_GROUP_MASK),
        )?;
        Ok(UeventReceiver(socket))
    }

    /// Receives the pending messages without waiting, but not more than 1024. Returns whether one
    /// of them may be about a device, so that the caller must scan the host again. If more messages
    /// may be pending, one of these could be about a device.
    ///
    /// A message causes nothing but this scan. Its content is not trusted, because any process can
    /// send messages.
    pub fn receive_pending(&self) -> Result<bool> {
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        let mut has_device_event = false;
        for _ in 0..MAX_MESSAGES_PER_CALL {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => has_device_event |= may_concern_device(&buffer[..length]),
                // ENOBUFS means that the kernel has dropped messages. A dropped message may have
                // been about a device.
                Err(Errno::ENOBUFS) => has_device_event = true,
                Err(Errno::EAGAIN) => return Ok(has_device_event),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(true)
    }
}

impl AsFd for UeventReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket that sends uevents in the network namespace of this process.
pub struct UeventSender(NetlinkSocket);

/// The type of a netlink message that contains a uevent. Any number that is not the type of a
/// control message (`NLMSG_MIN_TYPE`) is allowed.
const UEVENT_MESSAGE_TYPE: u16 = 0x10;

impl UeventSender {
    pub fn open() -> Result<Self> {
        NetlinkSocket::open(SockProtocol::NetlinkKObjectUEvent).map(UeventSender)
    }

    /// Makes the kernel send `message` to the network namespace as if it were one of the kernel's
    /// own uevents. The kernel adds a sequence number (`uevent_net_rcv_skb`, Linux 4.18). The
    /// process needs CAP_SYS_ADMIN in the user namespace that owns the network namespace.
    ///
    /// # Errors
    /// ECONNREFUSED before Linux 4.18.
    pub fn send_as_kernel(&self, message: &[u8]) -> Result<()> {
        self.0.send_request(UEVENT_MESSAGE_TYPE, message)
    }

    /// Sends `message` to the multicast group of udev. The process needs CAP_NET_ADMIN in the user
    /// namespace that owns the network namespace.
    pub fn send_as_udev(&self, message: &[u8]) -> Result<()> {
        match self.0.send_to_group(message, UDEV_GROUP) {
            // Before Linux 4.18, the kernel returns ECONNREFUSED here, although the members of the
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
