//! Filters the kernel's uevents (lib/kobject_uevent.c). A uevent is a datagram with the header
//! `ACTION@DEVPATH`, a zero byte, and texts `KEY=VALUE`, each of which ends with a zero byte.

/// The device paths whose uevents are ignored begin with one of these prefixes. The kernel sends
/// such uevents whenever a container starts, and they never concern an accelerator.
const IGNORED_PATH_PREFIXES: [&str; 2] = ["/devices/virtual/net/", "/devices/virtual/bdi/"];

/// Returns whether a uevent may concern an accelerator. The device path in its header decides.
pub(super) fn may_concern_accelerator(message: &[u8]) -> bool {
    let header = message.split(|byte| *byte == 0).next().unwrap_or_default();
    let Ok(header) = std::str::from_utf8(header) else {
        return false;
    };
    let Some((action, path)) = header.split_once('@') else {
        return false;
    };
    let mut ignored_prefixes = IGNORED_PATH_PREFIXES.iter();
    !action.is_empty() && !ignored_prefixes.any(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_that_may_be_about_a_device_count() {
        let apex = b"add@/devices/pci0000:00/0000:00:04.0/apex/apex_0\0ACTION=add\0";
        let queue = b"add@/devices/virtual/net/veth1234/queues/rx-0\0ACTION=add\0";
        for (message, wanted) in [
            (&apex[..], true),
            (b"remove@/devices/pci0000:00/0000:00:04.0\0", true),
            (b"change@/devices/virtual/npu/npu3\0", true),
            (queue, false),
            (b"libudev\0\xfe\xed\xca\xfe", false),
            (b"\xff@\xff", false),
            (b"@/devices/x", false),
            (b"", false),
        ] {
            assert_eq!(
                may_concern_accelerator(message),
                wanted,
                "{}",
                message.escape_ascii()
            );
        }
    }
}
