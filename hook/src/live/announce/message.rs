//! The messages that announce a device to programs in a container: the kernel's
//! (lib/kobject_uevent.c), and the one of udev, which libudev reads (struct
//! `monitor_netlink_header` in systemd's sd-device/device-monitor.c).

use crate::live::record::Announcement;

/// The size in bytes of the longest message that libudev reads.
const MAX_MESSAGE: usize = 8192;

/// The magic number in a message's header.
const MAGIC: u32 = 0xfeed_cafe;
/// The size of the header in bytes.
const HEADER_SIZE: u32 = 40;

/// The event of a device, which is `ACTION` in a message of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::live) enum UeventAction {
    Remove,
    Add,
    /// The device's properties changed, such as its links.
    Change,
}

impl Announcement {
    /// Returns the kernel's message, without the sequence number, which the kernel adds.
    pub(in crate::live) fn kernel_message(&self, action: UeventAction) -> Vec<u8> {
        let mut text = format!("{}@{}\0", action.word(), self.devpath);
        text += &self.head(action);
        for (name, value) in &self.kernel {
            text += &format!("{name}={value}\0");
        }
        text.into_bytes()
    }

    /// Returns the message of udev. `micros` is the time since the boot in microseconds.
    pub(in crate::live) fn udev_message(
        &self,
        action: UeventAction,
        sequence: u64,
        micros: i64,
    ) -> Vec<u8> {
        let mut text = self.head(action);
        for (name, value) in &self.kernel {
            match name.as_str() {
                "DEVNAME" => text += &format!("DEVNAME={}\0", self.node.display()),
                _ => text += &format!("{name}={value}\0"),
            }
        }
        text += &format!("SEQNUM={sequence}\0USEC_INITIALIZED={micros}\0");
        for (name, value) in &self.udev {
            let property = format!("{name}={value}\0");
            let is_known = self.kernel.contains_key(name) || value.is_empty();
            if !is_known && HEADER_SIZE as usize + text.len() + property.len() <= MAX_MESSAGE {
                text += &property;
            }
        }
        let devtype = self.kernel.get("DEVTYPE").map(String::as_str);
        let mut message = b"libudev\0".to_vec();
        message.extend(MAGIC.to_be_bytes());
        let length = u32::try_from(text.len()).unwrap_or_default();
        for number in [HEADER_SIZE, HEADER_SIZE, length] {
            message.extend(number.to_ne_bytes());
        }
        // The filters of libudev's sockets compare these hashes. The message has no tags.
        let hashes = [hash(&self.subsystem), devtype.map_or(0, hash), 0, 0];
        message.extend(hashes.into_iter().flat_map(u32::to_be_bytes));
        message.extend(text.into_bytes());
        message
    }

    fn head(&self, action: UeventAction) -> String {
        let (word, devpath, subsystem) = (action.word(), &self.devpath, &self.subsystem);
        format!("ACTION={word}\0DEVPATH={devpath}\0SUBSYSTEM={subsystem}\0")
    }
}

impl UeventAction {
    fn word(self) -> &'static str {
        match self {
            UeventAction::Remove => "remove",
            UeventAction::Add => "add",
            UeventAction::Change => "change",
        }
    }
}

/// Computes MurmurHash2 with the seed 0 (A. Appleby, public domain), by which libudev compares
/// names.
fn hash(text: &str) -> u32 {
    const FACTOR: u32 = 0x5bd1_e995;
    let mixed = |part: u32| {
        let part = part.wrapping_mul(FACTOR);
        (part ^ (part >> 24)).wrapping_mul(FACTOR)
    };
    let (parts, rest) = text.as_bytes().as_chunks::<4>();
    let mut hash = u32::try_from(text.len()).unwrap_or_default();
    for part in parts {
        hash = hash.wrapping_mul(FACTOR) ^ mixed(u32::from_ne_bytes(*part));
    }
    if !rest.is_empty() {
        let rest = rest.iter().rev();
        hash ^= rest.fold(0, |sum, byte| (sum << 8) | u32::from(*byte));
        hash = hash.wrapping_mul(FACTOR);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(FACTOR);
    hash ^ (hash >> 15)
}
