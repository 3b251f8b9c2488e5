//! Sends netlink messages (netlink(7)), such as the requests that find, move and change network
//! interfaces (rtnetlink(7)).

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::Result;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// The flag that marks a netlink message as a request (include/uapi/linux/netlink.h).
const NLM_F_REQUEST: u16 = 0x1;

/// The flag of a request that asks the kernel for an acknowledgement.
const NLM_F_ACK: u16 = 0x4;

/// The type of an answer that contains an error number. In an acknowledgement, this number is 0.
const NLMSG_ERROR: u16 = 0x2;

/// The size in bytes of the header of a netlink message. The payload follows the header. In an
/// acknowledgement, the payload begins with the error number.
const NLMSG_HDRLEN: usize = 16;

/// The size in bytes of an attribute's header (`struct rtattr`), and of `struct ifinfomsg`.
const RTATTR_HEADER_BYTES: usize = 4;
const IFINFOMSG_BYTES: usize = 16;

/// A netlink socket. A request that is sent on it applies to the network namespace in which the
/// socket was opened.
pub(crate) struct NetlinkSocket(OwnedFd);

impl NetlinkSocket {
    pub(crate) fn open(protocol: SockProtocol) -> Result<Self> {
        let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
        let socket = socket(family, SockType::Datagram, flags, protocol)?;
        // The kernel normally answers at once. The timeout of one second ensures that this process
        // does not wait forever.
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(1))?;
        Ok(NetlinkSocket(socket))
    }

    /// Sends a message to all sockets in this network namespace that are members of a multicast
    /// group.
    pub(crate) fn send_to_group(&self, message: &[u8], group: u32) -> Result<()> {
        let group = NetlinkAddr::new(0, group);
        sendto(self.0.as_raw_fd(), message, &group, MsgFlags::empty()).map(drop)
    }

    /// Sends a request, and waits until the kernel acknowledges it. If the kernel answers with an
    /// error, returns this error.
    pub(crate) fn send_request(&self, message_type: u16, payload: &[u8]) -> Result<()> {
        let answer = self.send_and_receive(message_type, NLM_F_REQUEST | NLM_F_ACK, payload)?;
        match parse_error_number(&answer) {
            Some(0) => Ok(()),
            Some(error) => Err(Errno::from_raw(-error)),
            None => Err(Errno::EBADMSG),
        }
    }

    /// Sends a request. Returns the first 1024 bytes of the kernel's answer.
    fn send_and_receive(&self, message_type: u16, flags: u16, payload: &[u8]) -> Result<Vec<u8>> {
        let length = u32::try_from(NLMSG_HDRLEN + payload.len()).map_err(|_| Errno::EMSGSIZE)?;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(message_type.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        // The sequence number and the sender's address (pid) are 0. Only one request is sent at a
        // time, and the kernel knows the sender.
        bytes.extend([0; 8]);
        bytes.extend(payload);
        let (fd, kernel_address) = (self.0.as_raw_fd(), NetlinkAddr::new(0, 0));
        sendto(fd, &bytes, &kernel_address, MsgFlags::empty())?;
        let mut answer = vec![0; 1024];
        let length = recv(fd, &mut answer, MsgFlags::empty())?;
        answer.truncate(length);
        Ok(answer)
    }
}

fn parse_error_number(answer: &[u8]) -> Option<i32> {
    let error = answer.get(NLMSG_HDRLEN..NLMSG_HDRLEN + 4)?;
    error.try_into().ok().map(i32::from_ne_bytes)
}

/// The type of a request that changes an existing network interface
/// (include/uapi/linux/rtnetlink.h).
const RTM_NEWLINK: u16 = 16;

/// The type of a request for the properties of one network interface.
const RTM_GETLINK: u16 = 18;

/// The types of the attributes that contain an interface's name and its new network namespace
/// (include/uapi/linux/if_link.h).
const IFLA_IFNAME: u16 = 3;
const IFLA_NET_NS_FD: u16 = 28;

/// The flag that says that a network interface is up (netdevice(7)).
const IFF_UP: u32 = 0x1;

/// The properties of a network interface. They are valid in the network namespace of the
/// [`LinkSocket`] that found the interface.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkInfo {
    pub(crate) index: i32,
    pub(crate) is_up: bool,
}

/// A socket for requests about the interfaces of one network namespace.
pub(crate) struct LinkSocket(NetlinkSocket);

impl LinkSocket {
    /// Opens a socket in the network namespace of this process. The socket keeps this namespace
    /// even if the process enters another one.
    pub(crate) fn open() -> Result<Self> {
        NetlinkSocket::open(SockProtocol::NetlinkRoute).map(LinkSocket)
    }

    /// Finds an interface by its name. Returns `None` if the socket's network namespace does not
    /// have it.
    pub(crate) fn find_link(&self, name: &str) -> Result<Option<LinkInfo>> {
        let payload = [encode_link_header(0, 0, 0), encode_name_attribute(name)].concat();
        let answer = self
            .0
            .send_and_receive(RTM_GETLINK, NLM_F_REQUEST, &payload)?;
        let message_type = answer
            .get(4..6)
            .and_then(|message_type| message_type.try_into().ok());
        if message_type.map(u16::from_ne_bytes) == Some(NLMSG_ERROR) {
            return match parse_error_number(&answer).map(|error| Errno::from_raw(-error)) {
                Some(Errno::ENODEV) => Ok(None),
                Some(errno) => Err(errno),
                None => Err(Errno::EBADMSG),
            };
        }
        // In `struct ifinfomsg`, the interface index is at byte 4, and the flags are at byte 8.
        let read_u32_bytes = |offset: usize| {
            let bytes = answer.get(NLMSG_HDRLEN + offset..NLMSG_HDRLEN + offset + 4)?;
            bytes.try_into().ok()
        };
        let index = read_u32_bytes(4)
            .map(i32::from_ne_bytes)
            .ok_or(Errno::EBADMSG)?;
        let flags = read_u32_bytes(8)
            .map(u32::from_ne_bytes)
            .ok_or(Errno::EBADMSG)?;
        let is_up = flags & IFF_UP != 0;
        Ok(Some(LinkInfo { index, is_up }))
    }

    /// Moves an interface into another network namespace and gives it the name `name`. The kernel
    /// sets the interface down and removes its addresses.
    ///
    /// # Errors
    /// EEXIST if the namespace already has an interface with this name. EINVAL if the driver does
    /// not allow its interfaces to be moved.
    pub(crate) fn move_link(
        &self,
        link: LinkInfo,
        namespace: BorrowedFd<'_>,
        name: &str,
    ) -> Result<()> {
        let namespace_fd = namespace.as_raw_fd().to_ne_bytes();
        let payload = [
            encode_link_header(link.index, 0, 0),
            encode_attribute(IFLA_NET_NS_FD, &namespace_fd),
            encode_name_attribute(name),
        ];
        self.0.send_request(RTM_NEWLINK, &payload.concat())
    }

    /// Brings a network interface up, as `ip link set NAME up` does.
    pub(crate) fn set_link_up(&self, link: LinkInfo) -> Result<()> {
        self.0
            .send_request(RTM_NEWLINK, &encode_link_header(link.index, IFF_UP, IFF_UP))
    }
}

/// Returns the bytes of a `struct ifinfomsg`. The kernel sets those interface flags that are in
/// `change_mask` to their value in `flags`.
fn encode_link_header(index: i32, flags: u32, change_mask: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(IFINFOMSG_BYTES);
    // The first four bytes are the address family and the hardware type of the interface. 0 means
    // any.
    bytes.extend([0; 4]);
    bytes.extend(index.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(change_mask.to_ne_bytes());
    bytes
}

fn encode_name_attribute(name: &str) -> Vec<u8> {
    encode_attribute(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat())
}

/// Returns the bytes of an attribute (`struct rtattr` and the value), and zero bytes up to a
/// multiple of 4, where the next attribute begins.
fn encode_attribute(attribute_type: u16, value: &[u8]) -> Vec<u8> {
    const ALIGNMENT: usize = 4;
    let length = RTATTR_HEADER_BYTES + value.len();
    // The length fits into 16 bits, because the value is a descriptor or the name of an interface.
    let mut bytes = u16::try_from(length)
        .unwrap_or(u16::MAX)
        .to_ne_bytes()
        .to_vec();
    bytes.extend(attribute_type.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length.next_multiple_of(ALIGNMENT), 0);
    bytes
}
