//! The canonical form of a device's name, which is the same for names with the same meaning.

/// Returns the canonical form of a name: the name in lower case. The leading zeros of a PCI address
/// are removed, because programs write its domain with four or eight digits.
pub fn canonicalize_name(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match name.split_once(':') {
        Some((domain, address)) if is_domain(domain) && is_bus_address(address) => {
            format!("{}:{address}", domain.trim_start_matches('0'))
        }
        _ => name,
    }
}

fn is_domain(text: &str) -> bool {
    matches!(text.len(), 1..=8) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Returns whether a text is a PCI address without its domain: bus, device and function as
/// `BB:DD.F`.
fn is_bus_address(text: &str) -> bool {
    text.len() == 7
        && text.bytes().enumerate().all(|(index, b)| match index {
            2 => b == b':',
            5 => b == b'.',
            _ => b.is_ascii_hexdigit(),
        })
}
