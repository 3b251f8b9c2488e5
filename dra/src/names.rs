//! Builds the names of devices, pools and shares in ResourceSlices.

use device_class::name::{ClassName, DeviceId, fnv1a};

/// The name of the driver in the API server and at the kubelet. It is also the domain of the
/// driver's attributes, such as `boathook.dev/class`.
pub const DRIVER: &str = "boathook.dev";

/// The name of a shared device's capacity in ResourceSlices. The capacity is the number of
/// containers that may have the device at the same time.
pub(crate) const SHARES_CAPACITY: &str = "shares";

/// The maximum length of a DNS label, in bytes (RFC 1123).
const MAX_LABEL_BYTES: usize = 63;

/// The maximum length of a DNS subdomain in Kubernetes, in bytes.
const MAX_SUBDOMAIN_BYTES: usize = 253;

/// Returns whether a text is a DNS label (RFC 1123). The names of namespaces are DNS labels.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL_BYTES && is_alphanumeric_with_hyphens(text)
}

/// Returns whether a text is a DNS subdomain as Kubernetes defines it. The names of claims and
/// nodes are DNS subdomains.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN_BYTES && text.split('.').all(is_alphanumeric_with_hyphens)
}

/// Returns whether a text consists only of lower-case letters, digits and hyphens, and neither
/// begins nor ends with a hyphen.
fn is_alphanumeric_with_hyphens(text: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    !text.is_empty()
        && text.bytes().all(is_allowed)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Returns the name of a class's pool on a node, such as `worker-1/npu`. Each class has its own
/// pool, so that a new device changes only the slices of its class.
pub fn build_pool_name(node: &str, class: &ClassName) -> String {
    format!("{node}/{}", to_dns_label(class.as_str()))
}

/// Builds the name of a device in ResourceSlices from its id: `0000:3b:00.0` becomes
/// `0000-3b-00-0`. Several ids, such as `a.b` and `a:b`, can result in the same DNS label.
/// Therefore a hash is added if `is_taken` returns true for the name without a hash.
pub fn build_device_name(id: &DeviceId, is_taken: impl Fn(&str) -> bool) -> String {
    let plain_name = to_dns_label(id.as_str());
    if is_taken(&plain_name) {
        add_hash(id.as_str(), &plain_name)
    } else {
        plain_name
    }
}

/// Builds the name of one share of a device, such as `npu-0-share-3`, for ResourceSlices that list
/// each share as a separate device.
pub fn build_share_name(device: &str, number: u16) -> String {
    let suffix = format!("-share-{number}");
    let prefix = &device[..device.len().min(MAX_LABEL_BYTES - suffix.len())];
    format!("{prefix}{suffix}")
}

/// Returns whether `name` is the name of a share of `device`, such as `npu-0-share-3` of `npu-0`.
pub fn is_share_name(device: &str, name: &str) -> bool {
    let number = name
        .rsplit_once('-')
        .and_then(|(_, number)| number.parse().ok());
    number.is_some_and(|number| build_share_name(device, number) == name)
}

/// Builds the name of a part in ResourceSlices, such as `npu-0-half-1` for the profile `half` at
/// the placement 1. A hash is added if `is_taken` returns true for the name without a hash.
pub fn build_part_name(
    device: &str,
    profile: &str,
    placement: u16,
    is_taken: impl Fn(&str) -> bool,
) -> String {
    let full_name = format!("{device}-{profile}-{placement}");
    let plain_name = to_dns_label(&full_name);
    if is_taken(&plain_name) {
        add_hash(&full_name, &plain_name)
    } else {
        plain_name
    }
}

/// Builds the names of a class's devices in ResourceSlices, in the order of `ids`. All names
/// differ.
pub fn build_device_names(ids: &[&DeviceId]) -> Vec<String> {
    let labels: Vec<String> = ids.iter().map(|id| to_dns_label(id.as_str())).collect();
    let build_name = |id: &&DeviceId| {
        build_device_name(id, |name| {
            labels.iter().filter(|label| *label == name).count() > 1
        })
    };
    ids.iter().map(build_name).collect()
}

/// Converts a text to a DNS label (RFC 1123): `Npu_A` becomes `npu-a`. Every character that is
/// neither a letter nor a digit becomes a hyphen. A hash is added if the label would be too long or
/// empty.
pub fn to_dns_label(text: &str) -> String {
    let to_label_char = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '-',
    };
    let replaced_text: String = text.chars().map(to_label_char).collect();
    let label = replaced_text.trim_matches('-');
    if label.is_empty() || label.len() > MAX_LABEL_BYTES {
        add_hash(text, label)
    } else {
        label.to_owned()
    }
}

fn add_hash(text: &str, label: &str) -> String {
    let hash = format!("{:016x}", fnv1a(text.as_bytes()));
    let prefix = &label[..label.len().min(MAX_LABEL_BYTES - hash.len() - 1)];
    match prefix.trim_end_matches('-') {
        "" => hash,
        prefix => format!("{prefix}-{hash}"),
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
            assert_eq!(to_dns_label(text), wanted);
        }
        assert_eq!(to_dns_label("---").len(), 16);
        let id = |text: &str| DeviceId::try_from(text.to_owned()).unwrap();
        let names = ["a.b", "a:b", "A-b"].map(|text| build_device_name(&id(text), |_| true));
        assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
        let shared = build_share_name(&long, 65_534);
        assert!(shared.len() <= MAX_LABEL_BYTES && is_share_name(&long, &shared));
        assert!(is_share_name("a", "a-share-0"));
        for other in [
            "a",
            "a-share-00",
            "a-share-x",
            "b-share-0",
            "a-share-0-share-0",
        ] {
            assert!(!is_share_name("a", other), "{other}");
        }
    }
}
