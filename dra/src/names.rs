//! The names of devices in resource slices.

use device_class::name::{ClassName, DeviceId, fnv1a};

/// The driver's name, which is also the name of its directory and the domain of its
/// attributes.
pub const DRIVER: &str = "boathook.dev";

/// The capacity of a shared device, which is the number of containers that may have it at the
/// same time.
pub(crate) const SHARES: &str = "shares";

/// The maximum length of a DNS label.
const MAX_LABEL: usize = 63;

/// The maximum length of a DNS subdomain.
const MAX_SUBDOMAIN: usize = 253;

/// Returns whether a text is a DNS label (RFC 1123). The names of namespaces are such labels.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_alphanumeric_with_hyphens(text)
}

/// Returns whether a text is a DNS subdomain as Kubernetes defines it. The names of claims and
/// nodes are such subdomains.
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

/// Returns the name of a class's pool. Each class has a pool of its own, so that a new device
/// changes only the slices of its class.
pub fn pool(node: &str, class: &ClassName) -> String {
    format!("{node}/{}", label(class.as_str()))
}

/// Returns the name of a device, which is its id as a DNS label. If `is_taken` returns true,
/// another id has the same label, such as `a.b` and `a:b`, and a hash is added.
pub fn device(id: &DeviceId, is_taken: impl Fn(&str) -> bool) -> String {
    let plain = label(id.as_str());
    match is_taken(&plain) {
        true => hashed(id.as_str(), &plain),
        false => plain,
    }
}

/// Returns the name of one share of a device, if each share is a device in slices.
pub fn share(device: &str, number: u16) -> String {
    let suffix = format!("-share-{number}");
    let start = &device[..device.len().min(MAX_LABEL - suffix.len())];
    format!("{start}{suffix}")
}

/// Returns whether a name is the name of a share of the device.
pub fn is_share(device: &str, name: &str) -> bool {
    let number = name
        .rsplit_once('-')
        .and_then(|(_, number)| number.parse().ok());
    number.is_some_and(|number| share(device, number) == name)
}

/// Returns the name of a part of a device, whether or not the part exists.
pub fn part(
    device: &str,
    profile: &str,
    placement: u16,
    is_taken: impl Fn(&str) -> bool,
) -> String {
    let text = format!("{device}-{profile}-{placement}");
    let plain = label(&text);
    match is_taken(&plain) {
        true => hashed(&text, &plain),
        false => plain,
    }
}

/// Returns the names of a class's devices, in the same order.
pub fn devices(ids: &[&DeviceId]) -> Vec<String> {
    let labels: Vec<String> = ids.iter().map(|id| label(id.as_str())).collect();
    let name = |id: &&DeviceId| {
        device(id, |name| {
            labels.iter().filter(|label| *label == name).count() > 1
        })
    };
    ids.iter().map(name).collect()
}

/// Converts a text to a DNS label (RFC 1123): letters in lower case, and a hyphen for each
/// other character. A text that is too long, or that has no letter or digit, gets a hash.
pub fn label(text: &str) -> String {
    let fit = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '-',
    };
    let label: String = text.chars().map(fit).collect();
    let label = label.trim_matches('-');
    match label.is_empty() || label.len() > MAX_LABEL {
        true => hashed(text, label),
        false => label.to_owned(),
    }
}

fn hashed(text: &str, label: &str) -> String {
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
            assert_eq!(label(text), wanted);
        }
        assert_eq!(label("---").len(), 16);
        let id = |text: &str| DeviceId::try_from(text.to_owned()).unwrap();
        let names = ["a.b", "a:b", "A-b"].map(|text| device(&id(text), |_| true));
        assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
        let shared = share(&long, 65_534);
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
