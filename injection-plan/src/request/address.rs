//! Recognizes names of devices that are addresses: USB ports and PCI addresses. Addresses that
//! differ in one digit are two different places. So advice about a mistyped name never proposes
//! another address.

pub use device_class::name::is_usb_port;

/// Returns whether a name is an address, or a word and an address, such as `0000:3b:00.1`,
/// `serial-1-2:1.0` or `usb-1-2`.
pub(super) fn has_address(name: &str) -> bool {
    let without_word = match name.split_once('-') {
        Some((word, rest)) if word.bytes().all(|b| b.is_ascii_alphabetic()) => rest,
        _ => name,
    };
    let is_hexadecimal = without_word.contains(':');
    let is_address_byte = |byte: u8| {
        byte.is_ascii_digit()
            || b"-.:".contains(&byte)
            || is_hexadecimal && byte.is_ascii_hexdigit()
    };
    without_word.starts_with(|c: char| c.is_ascii_hexdigit())
        && without_word.bytes().all(is_address_byte)
        && without_word.contains(['-', '.', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_names() {
        for (name, is_port, has_an_address) in [
            ("1-2", true, true),
            ("1-2.4.1", true, true),
            ("usb-1-2", false, true),
            ("serial-1-2:1.0", false, true),
            ("0000:3b:00.1", false, true),
            ("2-", false, true),
            ("0-1", false, true),
            ("12", false, false),
            ("f074cc5adcc9ed11", false, false),
            ("GPU-5a3f1c2d-0001", false, false),
            ("ttyUSB0", false, false),
        ] {
            assert_eq!(
                (is_usb_port(name), has_address(name)),
                (is_port, has_an_address),
                "{name}"
            );
        }
    }
}
