//! The canonical form of a device's name, which is the same for names with the same meaning.

/// Returns the canonical form of a name: the name in lower case. A PCI address loses the leading
/// zeros of its domain, which programs write with four or eight digits.
pub fn canonical(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match name.split_once(':') {
        Some((domain, rest)) if is_domain(domain) && is_bus_address(rest) => {
            format!("{}:{rest}", domain.trim_start_matches('0'))
        }
        _ => name,
    }
}

fn is_domain(text: &str) -> bool {
    matches!(text.len(), 1..=8) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Returns whether a text has the form `BB:DD.F`.
fn is_bus_address(text: &str) -> bool {
    text.len() == 7
        && text.bytes().enumerate().all(|(at, b)| match at {
            2 => b == b':',
            5 => b == b'.',
            _ => b.is_ascii_hexdigit(),
        })
}
