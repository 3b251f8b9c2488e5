//! Netlink requests to the kernel (netlink(7)), and those of rtnetlink(7) for network interfaces.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::Result;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// `NLM_F_REQUEST`: the message is a request.
const IS_REQUEST: u16 = 0x1;

/// `NLM_F_ACK`: the kernel acknowledges the request.
const WITH_ACK: u16 = 0x4;

/// `NLMSG_ERROR`: the type of an answer with an error number, which is 0 in an acknowledgement.
const ERROR: u16 = 0x2;

/// The size in bytes of a netlink message header. The payload follows it, in an acknowledgement
/// the error number.
const HEADER_SIZE: usize = 16;

/// The size in bytes of an attribute's header (`struct rtattr`), and of `struct ifinfomsg`.
const ATTRIBUTE_HEADER_SIZE: usize = 4;
const LINK_HEADER_SIZE: usize = 16;

/// A socket for requests to the kernel, in the network namespace in which it was opened.
pub(crate) struct NetlinkSocket(OwnedFd);

impl NetlinkSocket {
    pub(crate) fn open(protocol: SockProtocol) -> Result<Self> {
        let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
        let socket = socket(family, SockType::Datagram, flags, protocol)?;
        // The kernel answers at once. The timeout only protects against waiting for ever.
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(1))?;
        Ok(NetlinkSocket(socket))
    }

    /// Sends bytes to a multicast group.
    pub(crate) fn send_to_group(&self, bytes: &[u8], group: u32) -> Result<()> {
        let group = NetlinkAddr::new(0, group);
        sendto(self.0.as_raw_fd(), bytes, &group, MsgFlags::empty()).map(drop)
    }

    /// Sends a request that the kernel acknowledges.
    pub(crate) fn request(&self, kind: u16, payload: &[u8]) -> Result<()> {
        let answer = self.exchange(kind, IS_REQUEST | WITH_ACK, payload)?;
        match error_number(&answer) {
            Some(0) => Ok(()),
            Some(error) => Err(Errno::from_raw(-error)),
            None => Err(Errno::EBADMSG),
        }
    }

    /// Sends a request and returns the beginning of the kernel's answer.
    fn exchange(&self, kind: u16, flags: u16, payload: &[u8]) -> Result<Vec<u8>> {
        let length = u32::try_from(HEADER_SIZE + payload.len()).map_err(|_| Errno::EMSGSIZE)?;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        // The sequence number and the sender's address are 0; the kernel knows the sender.
        bytes.extend([0; 8]);
        bytes.extend(payload);
        let (number, kernel) = (self.0.as_raw_fd(), NetlinkAddr::new(0, 0));
        sendto(number, &bytes, &kernel, MsgFlags::empty())?;
        let mut answer = vec![0; 1024];
        let length = recv(number, &mut answer, MsgFlags::empty())?;
        answer.truncate(length);
        Ok(answer)
    }
}

fn error_number(answer: &[u8]) -> Option<i32> {
    let error = answer.get(HEADER_SIZE..HEADER_SIZE + 4)?;
    error.try_into().ok().map(i32::from_ne_bytes)
}

/// `RTM_NEWLINK`: changes an interface that exists.
const CHANGE_LINK: u16 = 16;

/// `RTM_GETLINK`: returns one interface.
const GET_LINK: u16 = 18;

/// `IFLA_IFNAME` and `IFLA_NET_NS_FD` (include/uapi/linux/if_link.h).
const NAME: u16 = 3;
const NAMESPACE: u16 = 28;

/// `IFF_UP`: the interface is up.
const UP: u32 = 0x1;

/// A network interface of the namespace of a [`LinkSocket`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) index: i32,
    pub(crate) is_up: bool,
}

/// A socket for requests about the interfaces of one network namespace.
pub(crate) struct LinkSocket(NetlinkSocket);

impl LinkSocket {
    /// Opens a socket in the network namespace of this process.
    pub(crate) fn open() -> Result<Self> {
        NetlinkSocket::open(SockProtocol::NetlinkRoute).map(LinkSocket)
    }

    /// Finds an interface by its name. Returns `None` if the namespace does not have it.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Link>> {
        let payload = [link_header(0, 0, 0), name_attribute(name)].concat();
        let answer = self.0.exchange(GET_LINK, IS_REQUEST, &payload)?;
        let kind = answer.get(4..6).and_then(|kind| kind.try_into().ok());
        if kind.map(u16::from_ne_bytes) == Some(ERROR) {
            return match error_number(&answer).map(|error| Errno::from_raw(-error)) {
                Some(Errno::ENODEV) => Ok(None),
                Some(errno) => Err(errno),
                None => Err(Errno::EBADMSG),
            };
        }
        // In `struct ifinfomsg` the index is at byte 4, and the flags are at byte 8.
        let word = |at: usize| {
            let bytes = answer.get(HEADER_SIZE + at..HEADER_SIZE + at + 4)?;
            bytes.try_into().ok()
        };
        let index = word(4).map(i32::from_ne_bytes).ok_or(Errno::EBADMSG)?;
        let flags = word(8).map(u32::from_ne_bytes).ok_or(Errno::EBADMSG)?;
        let is_up = flags & UP != 0;
        Ok(Some(Link { index, is_up }))
    }

    /// Moves an interface into another network namespace, under this name. The kernel sets it down
    /// and removes its addresses.
    ///
    /// # Errors
    /// EEXIST if the namespace has an interface of the name, and EINVAL if the driver keeps its
    /// interfaces in one namespace.
    pub(crate) fn move_to(&self, link: Link, namespace: BorrowedFd<'_>, name: &str) -> Result<()> {
        let number = namespace.as_raw_fd().to_ne_bytes();
        let payload = [
            link_header(link.index, 0, 0),
            attribute(NAMESPACE, &number),
            name_attribute(name),
        ];
        self.0.request(CHANGE_LINK, &payload.concat())
    }

    /// Sets an interface up.
    pub(crate) fn set_up(&self, link: Link) -> Result<()> {
        self.0
            .request(CHANGE_LINK, &link_header(link.index, UP, UP))
    }
}

/// Returns a `struct ifinfomsg`. Of `flags` only those in `change` count.
fn link_header(index: i32, flags: u32, change: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LINK_HEADER_SIZE);
    // The address family and the type of the hardware, of which any is meant.
    bytes.extend([0; 4]);
    bytes.extend(index.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(change.to_ne_bytes());
    bytes
}

fn name_attribute(name: &str) -> Vec<u8> {
    attribute(NAME, &[name.as_bytes(), &[0]].concat())
}

/// Returns an attribute, with the zero bytes that align the next one.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    const ALIGNMENT: usize = 4;
    let length = ATTRIBUTE_HEADER_SIZE + value.len();
    // The values are a number and the name of an interface, so the length fits.
    let mut bytes = u16::try_from(length)
        .unwrap_or(u16::MAX)
        .to_ne_bytes()
        .to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length.next_multiple_of(ALIGNMENT), 0);
    bytes
}
