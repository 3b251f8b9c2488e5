//! The names of the device plugin's resources.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::api::PREFIX;

/// The mode in which ports are advertised. A node advertises each port in one mode, and all ports
/// of a container have the same mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The port is programmed with a function beforehand.
    Function,
    /// The port is programmed when a container starts.
    Region,
    /// The container programs the port itself.
    RegionDevelopment,
}

/// Returns the mode of a resource that a device plugin advertises, by its name without the
/// prefix. Returns `None` for any other name.
pub fn parse_mode(name: &str) -> Option<Mode> {
    let id = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        digits.contains(&text.len()) && is_hex(text)
    };
    if let Some(rest) = name.strip_prefix("regiondevel-") {
        return id(rest, 8..=32).then_some(Mode::RegionDevelopment);
    }
    if let Some(rest) = name.strip_prefix("region-") {
        return id(rest, 8..=32).then_some(Mode::Region);
    }
    let rest = name.strip_prefix("af-")?;
    let parts: Vec<&str> = rest.split('.').collect();
    let named = match parts[..] {
        // The vendor's plugin before 0.12 used such names.
        [function] => id(function, 8..=40),
        [interface, function, both] => {
            id(interface, 3..=3) && id(function, 3..=3) && URL_SAFE_NO_PAD.decode(both).is_ok()
        }
        _ => false,
    };
    named.then_some(Mode::Function)
}

/// Returns the resource of ports that are programmed with a function. Returns `None` if the
/// ids are not hexadecimal, or together have an odd number of digits.
pub fn name_function_resource(interface: &str, function: &str) -> Option<String> {
    let digits = format!("{interface}{function}");
    let long_enough = interface.len() >= 3 && function.len() >= 3 && digits.len() % 2 == 0;
    if !long_enough || !is_hex(&digits) {
        return None;
    }
    let bytes: Option<Vec<u8>> = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
        .collect();
    let both = URL_SAFE_NO_PAD.encode(bytes?);
    Some(format!(
        "{PREFIX}af-{}.{}.{both}",
        &interface[..3],
        &function[..3]
    ))
}

/// Returns the resource of a region's ports that are programmed when a container starts.
pub fn name_region_resource(interface: &str) -> String {
    format!("{PREFIX}region-{interface}")
}

/// Returns the resource of a region's ports that the container programs.
pub fn name_development_resource(interface: &str) -> String {
    format!("{PREFIX}regiondevel-{interface}")
}

/// Returns whether a text is an id that the resource definitions allow.
pub fn is_id(text: &str, most: usize) -> bool {
    (8..=most).contains(&text.len()) && is_hex(text)
}

fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERFACE: &str = "69528db6eb31577a8c3668f9faa081f6";
    const NLB0: &str = "d8424dc4a4a3c413f89e433683f9040b";

    #[test]
    fn functions_have_the_published_names() {
        let other = "ce48969398f05f33946d560708be108a";
        let first = "af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs";
        let second = "af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs";
        for (interface, name) in [(INTERFACE, first), (other, second)] {
            let made = name_function_resource(interface, NLB0).unwrap();
            assert_eq!(made, format!("fpga.intel.com/{name}"));
            assert_eq!(parse_mode(name), Some(Mode::Function));
        }
        assert_eq!(name_function_resource(INTERFACE, "abcdefab1"), None);
        assert_eq!(name_function_resource(INTERFACE, "xyzxyzxyzx"), None);
        assert_eq!(name_function_resource("ä", NLB0), None);
        assert_eq!(name_function_resource("", ""), None);
    }

    #[test]
    fn modes_are_determined_by_the_name() {
        for (name, mode) in [
            (&*format!("region-{INTERFACE}"), Some(Mode::Region)),
            ("regiondevel-69528db6", Some(Mode::RegionDevelopment)),
            ("af-f7df405cbd7acf7222f144b0b93acd18", Some(Mode::Function)),
            ("region-arria10", None),
            ("region-", None),
            ("regiondevel-XYZ", None),
            ("region-69528db6eb31577a8c3668f9faa081f600", None),
            ("af-arria10-nlb3", None),
            ("af-695.d84.***", None),
            ("af-", None),
            ("arria10.dcp1.2-nlb0-orchestrated", None),
        ] {
            assert_eq!(parse_mode(name), mode, "{name}");
        }
    }
}
