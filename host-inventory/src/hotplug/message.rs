//! Filters the kernel's uevents (lib/kobject_uevent.c). A uevent is a datagram that has
//! `ACTION@DEVPATH`, a zero byte, and `KEY=VALUE` texts that each end with a zero byte.

/// The device paths of subsystems that send uevents at every container start and have no
/// accelerators.
const IGNORED_PATHS: [&str; 2] = ["/devices/virtual/net/", "/devices/virtual/bdi/"];

/// Returns whether a uevent may concern an accelerator.
pub(super) fn is_relevant(message: &[u8]) -> bool {
    let head = message.split(|byte| *byte == 0).next().unwrap_or_default();
    let Ok(head) = std::str::from_utf8(head) else {
        return false;
    };
    let Some((action, path)) = head.split_once('@') else {
        return false;
    };
    !action.is_empty() && !IGNORED_PATHS.iter().any(|tree| path.starts_with(tree))
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
            assert_eq!(is_relevant(message), wanted, "{}", message.escape_ascii());
        }
    }
}
