//! What the devices of the classes are called in resource slices, and back.

use device_class::name::{ClassName, DeviceId, fnv1a};

/// The driver's name, also that of its directory and the domain of its attributes.
pub const DRIVER: &str = "boathook.dev";

/// The capacity of a shared device: how many containers may have it at once.
pub(crate) const SHARES: &str = "shares";

/// The longest DNS label.
const MAX_LABEL: usize = 63;

/// The longest DNS subdomain.
const MAX_SUBDOMAIN: usize = 253;

/// Whether a text is a DNS label (RFC 1123), as names of namespaces are.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_alphanumeric_with_hyphens(text)
}

/// Whether a text is a DNS subdomain as Kubernetes means it: names of claims and nodes are.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(is_alphanumeric_with_hyphens)
}

/// Lower case letters, digits and hyphens; a hyphen is neither first nor last.
fn is_alphanumeric_with_hyphens(text: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    !text.is_empty() && text.bytes().all(fits) && !text.starts_with('-') && !text.ends_with('-')
}

/// The name of the pool of a class: each has its own, so that a device that is added
/// changes the slices of its class alone.
pub fn pool(node: &str, class: &ClassName) -> String {
    format!("{node}/{}", label(class.as_str()))
}

/// The name of a device: its id as a DNS label. Ids that give the same label, such as
/// `a.b` and `a:b`, are told apart by a hash if `is_taken` has the label for another id.
pub fn device(id: &DeviceId, is_taken: impl Fn(&str) -> bool) -> String {
    let plain = label(id.as_str());
    match is_taken(&plain) {
        true => hashed(id.as_str(), &plain),
        false => plain,
    }
}

/// The name of one of a device's shares, where each is a device.
pub fn share(device: &str, number: u16) -> String {
    let suffix = format!("-share-{number}");
    let start = &device[..device.len().min(MAX_LABEL - suffix.len())];
    format!("{start}{suffix}")
}

/// Whether a name is that of a share of a device.
pub fn is_share(device: &str, name: &str) -> bool {
    let number = name
        .rsplit_once('-')
        .and_then(|(_, number)| number.parse().ok());
    number.is_some_and(|number| share(device, number) == name)
}

/// The name of a part of a device, made or not.
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

/// The names of a class's devices, in their order.
pub fn devices(all: &[&DeviceId]) -> Vec<String> {
    let labels: Vec<String> = all.iter().map(|id| label(id.as_str())).collect();
    let name = |id: &&DeviceId| {
        device(id, |name| {
            labels.iter().filter(|label| *label == name).count() > 1
        })
    };
    all.iter().map(name).collect()
}

/// A text as a DNS label (RFC 1123): lower case, and each other character a hyphen. One
/// that is too long or has no letter or digit gets a hash.
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
