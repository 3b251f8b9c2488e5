//! Builds the messages that tell the programs of a container about a device. Each device has two
//! messages: a uevent in the kernel's format (lib/kobject_uevent.c), and a message in udev's
//! format, which libudev reads (struct `monitor_netlink_header` in systemd's
//! sd-device/device-monitor.c).

use hook::attachment::Announcement;

/// The maximum size in bytes of a message that libudev reads. Properties of udev that do not fit
/// are left out.
const MAX_MESSAGE_BYTES: usize = 8192;

/// The magic number in the header of a udev message, which is in big-endian byte order there.
const UDEV_MONITOR_MAGIC: u32 = 0xfeed_cafe;
/// The size in bytes of the header of a udev message.
const HEADER_BYTES: u32 = 40;

/// The change of the device that a message reports, as the value of `ACTION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UeventAction {
    Remove,
    Add,
    /// The properties of the device, such as its links, have changed.
    Change,
}

/// Returns the message in the kernel's format, without the sequence number. The kernel adds the
/// sequence number when the message is sent.
pub(crate) fn format_kernel_message(announcement: &Announcement, action: UeventAction) -> Vec<u8> {
    let mut message = format!("{}@{}\0", action.as_str(), announcement.devpath);
    message += &format_common_properties(announcement, action);
    for (name, value) in &announcement.kernel_properties {
        message += &format!("{name}={value}\0");
    }
    message.into_bytes()
}

/// Returns the message in udev's format. `boot_micros` is the time since the boot in
/// microseconds.
pub(crate) fn format_udev_message(
    announcement: &Announcement,
    action: UeventAction,
    sequence_number: u64,
    boot_micros: i64,
) -> Vec<u8> {
    let mut properties = format_common_properties(announcement, action);
    for (name, value) in &announcement.kernel_properties {
        match name.as_str() {
            "DEVNAME" => properties += &format!("DEVNAME={}\0", announcement.node_path.display()),
            _ => properties += &format!("{name}={value}\0"),
        }
    }
    properties += &format!("SEQNUM={sequence_number}\0USEC_INITIALIZED={boot_micros}\0");
    for (name, value) in &announcement.udev_properties {
        let property = format!("{name}={value}\0");
        let is_known = announcement.kernel_properties.contains_key(name) || value.is_empty();
        if !is_known
            && HEADER_BYTES as usize + properties.len() + property.len() <= MAX_MESSAGE_BYTES
        {
            properties += &property;
        }
    }
    let devtype = announcement
        .kernel_properties
        .get("DEVTYPE")
        .map(String::as_str);
    let mut message = b"libudev\0".to_vec();
    message.extend(UDEV_MONITOR_MAGIC.to_be_bytes());
    let length = u32::try_from(properties.len()).unwrap_or_default();
    for number in [HEADER_BYTES, HEADER_BYTES, length] {
        message.extend(number.to_ne_bytes());
    }
    // The first two numbers are hashes of the subsystem and the device type. The socket filters
    // of libudev compare them. The last two are the Bloom filter of the tags. They are zero,
    // because the message has no tags.
    let hashes = [
        murmur_hash2(&announcement.subsystem),
        devtype.map_or(0, murmur_hash2),
        0,
        0,
    ];
    message.extend(hashes.into_iter().flat_map(u32::to_be_bytes));
    message.extend(properties.into_bytes());
    message
}

/// Returns the properties with which every message begins, in the kernel's format as well as in
/// udev's.
fn format_common_properties(announcement: &Announcement, action: UeventAction) -> String {
    let (action_name, devpath, subsystem) = (
        action.as_str(),
        &announcement.devpath,
        &announcement.subsystem,
    );
    format!("ACTION={action_name}\0DEVPATH={devpath}\0SUBSYSTEM={subsystem}\0")
}

impl UeventAction {
    fn as_str(self) -> &'static str {
        match self {
            UeventAction::Remove => "remove",
            UeventAction::Add => "add",
            UeventAction::Change => "change",
        }
    }
}

/// Computes MurmurHash2 with the seed 0 (A. Appleby, public domain). libudev compares the hashes of
/// names in its socket filters.
fn murmur_hash2(name: &str) -> u32 {
    const MULTIPLIER: u32 = 0x5bd1_e995;
    let mix_block = |block: u32| {
        let product = block.wrapping_mul(MULTIPLIER);
        (product ^ (product >> 24)).wrapping_mul(MULTIPLIER)
    };
    let (blocks, last_bytes) = name.as_bytes().as_chunks::<4>();
    let mut hash = u32::try_from(name.len()).unwrap_or_default();
    for block in blocks {
        hash = hash.wrapping_mul(MULTIPLIER) ^ mix_block(u32::from_ne_bytes(*block));
    }
    if !last_bytes.is_empty() {
        let reversed_bytes = last_bytes.iter().rev();
        hash ^= reversed_bytes.fold(0, |block, byte| (block << 8) | u32::from(*byte));
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}
