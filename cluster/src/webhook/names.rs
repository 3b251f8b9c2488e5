//! Builds and parses the names of the resources that the device plugin offers for FPGAs.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::api::RESOURCE_PREFIX;

/// The mode in which the device plugin offers the ports of an FPGA. A node offers each port in
/// one mode, and all ports of a container must have the same mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The port has been programmed with a function before the container starts.
    Function,
    /// The port is programmed with a function when the container starts.
    Region,
    /// The container itself programs the port.
    RegionDevelopment,
}

/// Parses the mode from the name of one of the device plugin's resources. `name` is the part after
/// [`RESOURCE_PREFIX`]. Returns `None` if the name does not have the form of such a resource.
pub fn parse_mode(name: &str) -> Option<Mode> {
    let is_hex_id = |length: std::ops::RangeInclusive<usize>, text: &str| {
        length.contains(&text.len()) && is_hex(text)
    };
    if let Some(interface) = name.strip_prefix("regiondevel-") {
        return is_hex_id(8..=32, interface).then_some(Mode::RegionDevelopment);
    }
    if let Some(interface) = name.strip_prefix("region-") {
        return is_hex_id(8..=32, interface).then_some(Mode::Region);
    }
    let ids = name.strip_prefix("af-")?;
    let fields: Vec<&str> = ids.split('.').collect();
    let is_function = match fields[..] {
        // The vendor's plugin before version 0.12 used names that contain only the whole id of the
        // function.
        [function] => is_hex_id(8..=40, function),
        [interface, function, both_ids] => {
            is_hex_id(3..=3, interface)
                && is_hex_id(3..=3, function)
                && URL_SAFE_NO_PAD.decode(both_ids).is_ok()
        }
        _ => false,
    };
    is_function.then_some(Mode::Function)
}

/// Returns the name of the resource whose ports have been programmed with a function. The name
/// contains the first three digits of both ids for human readers, and both whole ids in Base64.
/// Returns `None` if an id is not hexadecimal or has less than three digits, or if the ids together
/// have an odd number of digits.
pub fn build_function_resource_name(interface: &str, function: &str) -> Option<String> {
    let digits = format!("{interface}{function}");
    let has_valid_length = interface.len() >= 3 && function.len() >= 3 && digits.len() % 2 == 0;
    if !has_valid_length || !is_hex(&digits) {
        return None;
    }
    let bytes: Option<Vec<u8>> = (0..digits.len())
        .step_by(2)
        .map(|start| u8::from_str_radix(&digits[start..start + 2], 16).ok())
        .collect();
    let both_ids = URL_SAFE_NO_PAD.encode(bytes?);
    Some(format!(
        "{RESOURCE_PREFIX}af-{}.{}.{both_ids}",
        &interface[..3],
        &function[..3]
    ))
}

/// Returns the name of the resource whose ports are programmed when a container starts. All ports
/// of the resource are in regions with this interface id.
pub fn build_region_resource_name(interface: &str) -> String {
    format!("{RESOURCE_PREFIX}region-{interface}")
}

/// Returns the name of the resource whose ports the container itself programs. All ports of the
/// resource are in regions with this interface id.
pub fn build_development_resource_name(interface: &str) -> String {
    format!("{RESOURCE_PREFIX}regiondevel-{interface}")
}

/// Returns whether a text is an id: 8 to `max_digits` hexadecimal digits in lower case. The
/// CustomResourceDefinitions allow only such ids. However, an object may have been created before
/// its definition had this rule.
pub fn is_id(text: &str, max_digits: usize) -> bool {
    (8..=max_digits).contains(&text.len()) && is_hex(text)
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
    fn function_resources_have_the_names_that_the_vendor_published() {
        let other = "ce48969398f05f33946d560708be108a";
        let first = "af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs";
        let second = "af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs";
        for (interface, name) in [(INTERFACE, first), (other, second)] {
            let resource = build_function_resource_name(interface, NLB0).unwrap();
            assert_eq!(resource, format!("fpga.intel.com/{name}"));
            assert_eq!(parse_mode(name), Some(Mode::Function));
        }
        assert_eq!(build_function_resource_name(INTERFACE, "abcdefab1"), None);
        assert_eq!(build_function_resource_name(INTERFACE, "xyzxyzxyzx"), None);
        assert_eq!(build_function_resource_name("ä", NLB0), None);
        assert_eq!(build_function_resource_name("", ""), None);
    }

    #[test]
    fn the_mode_follows_from_the_name_of_a_resource() {
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
