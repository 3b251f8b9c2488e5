//! Uevents: netlink messages of the kernel and of udev about devices (lib/kobject_uevent.c,
//! netlink(7)).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::Result;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// The multicast groups of the kernel's messages, and of those that udev sends when it has
/// made its links.
const GROUPS: u32 = 1 | UDEV;
const UDEV: u32 = 2;

/// The longest message in bytes: the kernel's `UEVENT_BUFFER_SIZE` is 2048, and udev adds a
/// header.
const MAX_MESSAGE: usize = 8192;

/// Subsystems without device nodes whose messages arrive whenever any container starts. They
/// are ignored.
const IGNORED_SUBSYSTEMS: [&[u8]; 3] = [
    b"\0SUBSYSTEM=net\0",
    b"\0SUBSYSTEM=queues\0",
    b"\0SUBSYSTEM=bdi\0",
];

pub(crate) struct Uevents(OwnedFd);

impl Uevents {
    pub(crate) fn open() -> Result<Self> {
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
        let socket = socket(family, SockType::Datagram, flags, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(Uevents(socket))
    }

    /// Receives all waiting messages, and returns whether one of them may concern a device.
    /// Any process can send messages, so their content only triggers a new scan and is not
    /// trusted.
    pub(crate) fn take(&self) -> Result<bool> {
        let mut buffer = [0; MAX_MESSAGE];
        let mut relevant = false;
        loop {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => relevant |= is_relevant(&buffer[..length]),
                // The kernel dropped messages, and a dropped message may have concerned a
                // device.
                Err(Errno::ENOBUFS) => relevant = true,
                Err(Errno::EAGAIN) => return Ok(relevant),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl AsFd for Uevents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket that sends messages in the network namespace of this process.
pub(crate) struct UeventSender(OwnedFd);

/// The type of a request to the kernel: the first number that is not a control message
/// (`NLMSG_MIN_TYPE`).
const REQUEST: u16 = 0x10;

/// `NLM_F_REQUEST` and `NLM_F_ACK`: the kernel acknowledges the request.
const FLAGS: u16 = 0x1 | 0x4;

/// The size in bytes of a netlink message header (netlink(7)). In an acknowledgement, the
/// error number follows it.
const HEADER_SIZE: usize = 16;

impl UeventSender {
    pub(crate) fn open() -> Result<Self> {
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
        let socket = socket(family, SockType::Datagram, flags, protocol)?;
        // The kernel answers at once. The timeout only protects against waiting for ever.
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(1))?;
        Ok(UeventSender(socket))
    }

    /// Makes the kernel send `message` as one of its own, with its sequence number
    /// (`uevent_net_rcv_skb`, Linux 4.18). The call needs CAP_SYS_ADMIN over the network
    /// namespace.
    ///
    /// # Errors
    /// ECONNREFUSED from an older kernel.
    pub(crate) fn send_as_kernel(&self, message: &[u8]) -> Result<()> {
        let length = u32::try_from(HEADER_SIZE + message.len()).map_err(|_| Errno::EMSGSIZE)?;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(REQUEST.to_ne_bytes());
        bytes.extend(FLAGS.to_ne_bytes());
        // The sequence number and the sender's address are 0; the kernel knows the sender.
        bytes.extend([0; 8]);
        bytes.extend(message);
        let (number, kernel) = (self.0.as_raw_fd(), NetlinkAddr::new(0, 0));
        sendto(number, &bytes, &kernel, MsgFlags::empty())?;
        let mut answer = [0; 1024];
        let length = recv(number, &mut answer, MsgFlags::empty())?;
        let error = answer[..length].get(HEADER_SIZE..HEADER_SIZE + 4);
        match error
            .and_then(|error| error.try_into().ok())
            .map(i32::from_ne_bytes)
        {
            Some(0) => Ok(()),
            Some(error) => Err(Errno::from_raw(-error)),
            None => Err(Errno::EBADMSG),
        }
    }

    /// Sends `message` as udev does. The call needs CAP_NET_ADMIN over the network namespace.
    pub(crate) fn send_as_udev(&self, message: &[u8]) -> Result<()> {
        let group = NetlinkAddr::new(0, UDEV);
        match sendto(self.0.as_raw_fd(), message, &group, MsgFlags::empty()) {
            // A kernel before Linux 4.18 returns ECONNREFUSED, although the members of the
            // group have received the message.
            Ok(_) | Err(Errno::ECONNREFUSED) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

fn is_relevant(message: &[u8]) -> bool {
    let has = |noise: &&[u8]| message.windows(noise.len()).any(|part| part == *noise);
    !IGNORED_SUBSYSTEMS.iter().any(has)
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
            assert_eq!(is_relevant(message), counts, "{}", message.escape_ascii());
        }
    }
}
