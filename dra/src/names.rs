//! Builds the names of devices, pools and shares in ResourceSlices.

use device_class::name::{ClassName, DeviceId, fnv1a};

/// The name of the driver, of its directory at the kubelet, and of the domain of its attributes.
pub const DRIVER: &str = "boathook.dev";

/// The name of the capacity of a shared device: how many containers may have the device at the
/// same time.
pub(crate) const SHARES: &str = "shares";

/// The maximum length of a DNS label.
const MAX_LABEL: usize = 63;

/// The maximum length of a DNS subdomain.
const MAX_SUBDOMAIN: usize = 253;

/// Returns whether a text is a DNS label (RFC 1123), as the names of namespaces are.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_alphanumeric_with_hyphens(text)
}

/// Returns whether a text is a DNS subdomain as Kubernetes defines it, as the names of claims and
/// nodes are.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(is_alphanumeric_with_hyphens)
}

/// Returns whether a text consists of lower case letters, digits and hyphens, with a hyphen
/// neither at the beginning nor at the end.
fn is_alphanumeric_with_hyphens(text: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    !text.is_empty()
        && text.bytes().all(is_allowed)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Builds the name of a class's pool. Each class has its own pool, so that a new device changes
/// only the slices of its class.
pub fn pool_name(node: &str, class: &ClassName) -> String {
    format!("{node}/{}", dns_label(class.as_str()))
}

/// Builds the name of a device from its id. A hash is added if `is_taken` returns true because
/// several ids, such as `a.b` and `a:b`, result in the same DNS label.
pub fn device_name(id: &DeviceId, is_taken: impl Fn(&str) -> bool) -> String {
    let plain = dns_label(id.as_str());
    if is_taken(&plain) {
        with_hash(id.as_str(), &plain)
    } else {
        plain
    }
}

/// Builds the name of one share, for slices that list each share as a device.
pub fn share_name(device: &str, number: u16) -> String {
    let suffix = format!("-share-{number}");
    let start = &device[..device.len().min(MAX_LABEL - suffix.len())];
    format!("{start}{suffix}")
}

/// Returns whether a name is the name of a share of the device.
pub fn is_share(device: &str, name: &str) -> bool {
    let number = name
        .rsplit_once('-')
        .and_then(|(_, number)| number.parse().ok());
    number.is_some_and(|number| share_name(device, number) == name)
}

/// Builds the name of a part, whether or not the part exists.
pub fn part_name(
    device: &str,
    profile: &str,
    placement: u16,
    is_taken: impl Fn(&str) -> bool,
) -> String {
    let text = format!("{device}-{profile}-{placement}");
    let plain = dns_label(&text);
    if is_taken(&plain) {
        with_hash(&text, &plain)
    } else {
        plain
    }
}

/// Builds the names of a class's devices, in the order of `ids`.
pub fn device_names(ids: &[&DeviceId]) -> Vec<String> {
    let labels: Vec<String> = ids.iter().map(|id| dns_label(id.as_str())).collect();
    let name = |id: &&DeviceId| {
        device_name(id, |name| {
            labels.iter().filter(|label| *label == name).count() > 1
        })
    };
    ids.iter().map(name).collect()
}

/// Converts a text to a DNS label (RFC 1123): letters become lower case, and every other character
/// becomes a hyphen. A hash is added if the text is too long or has no letter or digit.
pub fn dns_label(text: &str) -> String {
    let fit = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '-',
    };
    let label: String = text.chars().map(fit).collect();
    let label = label.trim_matches('-');
    if label.is_empty() || label.len() > MAX_LABEL {
        with_hash(text, label)
    } else {
        label.to_owned()
    }
}

fn with_hash(text: &str, label: &str) -> String {
    let hash = format!("{:016x}", fnv1a(text.as_bytes()));
    let start = &label[..label.len().min(MAX_LABEL - hash.len() - 1)];
    match start.trim_end_matches('-') {
        "" => hash,
        start => format!("{start}-{hash}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_and_different() {
        let long = "x".repeat(63);
        for (text, wanted) in [
            ("0000:3B:00.0", "0000-3b-00-0"),
            ("npu-3", "npu-3"),
            ("GPU-5c4a_1", "gpu-5c4a-1"),
            ("-a-", "a"),
            (&long, &long),
        ] {
            assert_eq!(dns_label(text), wanted);
        }
        assert_eq!(dns_label("---").len(), 16);
        let id = |text: &str| DeviceId::try_from(text.to_owned()).unwrap();
        let names = ["a.b", "a:b", "A-b"].map(|text| device_name(&id(text), |_| true));
        assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
        let shared = share_name(&long, 65_534);
        assert!(shared.len() <= MAX_LABEL && is_share(&long, &shared));
        assert!(is_share("a", "a-share-0"));
        for other in [
            "a",
            "a-share-00",
            "a-share-x",
            "b-share-0",
            "a-share-0-share-0",
        ] {
            assert!(!is_share("a", other), "{other}");
        }
    }
}
