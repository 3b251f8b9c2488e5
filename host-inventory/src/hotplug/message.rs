//! Filters the uevents of the kernel (lib/kobject_uevent.c). A uevent is a datagram:
//! `ACTION@DEVPATH` and any number of `KEY=VALUE` texts, each followed by a zero byte.

/// The device paths of subsystems that send events at every container start and have no
/// accelerators.
const NOISE: [&str; 2] = ["/devices/virtual/net/", "/devices/virtual/bdi/"];

/// Returns whether a message may be about an accelerator.
pub(super) fn is_relevant(message: &[u8]) -> bool {
    let head = message.split(|byte| *byte == 0).next().unwrap_or_default();
    let Ok(head) = std::str::from_utf8(head) else {
        return false;
    };
    let Some((action, path)) = head.split_once('@') else {
        return false;
    };
    !action.is_empty() && !NOISE.iter().any(|tree| path.starts_with(tree))
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
