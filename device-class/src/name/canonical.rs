//! Converts a device's name to its canonical form. Different spellings of the same name have the
//! same canonical form.

/// Returns the canonical form of a name, which is in lower case. If the name is a PCI address, the
/// leading zeros of its domain are removed, because some programs write the domain with four digits
/// and others with eight. For example, `00000000:3B:00.0` becomes `:3b:00.0`.
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

/// Returns whether a text is a PCI address without the domain: bus, device and function as
/// `BB:DD.F`.
fn is_bus_address(text: &str) -> bool {
    text.len() == 7
        && text.bytes().enumerate().all(|(index, b)| match index {
            2 => b == b':',
            5 => b == b'.',
            _ => b.is_ascii_hexdigit(),
        })
}
