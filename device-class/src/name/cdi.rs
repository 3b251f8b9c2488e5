//! Names of devices in the Container Device Interface (CDI specification, "kind";
//! tags.cncf.io/container-device-interface, `pkg/parser`).

use std::fmt;

use super::excerpt;

/// The maximum length of the vendor in characters. The vendor is a DNS subdomain.
const MAX_VENDOR_LENGTH: usize = 253;

/// The maximum length in characters of the class (`npu` in `vendor.com/npu=0`), and of the name
/// after the equals sign.
const MAX_PART_LENGTH: usize = 63;

/// The full name of a CDI device: `vendor.com/class=name`, such as `vendor.com/npu=0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CdiName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the name of a CDI device: vendor.com/class=name, of letters, digits, `_`, `-`, \
     `.` and, in the name, `:`; vendor and class begin with a letter, and each part ends with a \
     letter or digit"
)]
pub struct CdiNameError(String);

impl CdiNameError {
    pub(crate) fn new(text: &str) -> Self {
        CdiNameError(excerpt(text))
    }
}

impl CdiName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CdiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for CdiName {
    type Error = CdiNameError;

    fn try_from(text: String) -> Result<Self, CdiNameError> {
        let parts = text.split_once('=').and_then(|(kind, name)| {
            let (vendor, class) = kind.split_once('/')?;
            Some((vendor, class, name))
        });
        let is_letter = |c: char| c.is_ascii_alphabetic();
        let is_valid = parts.is_some_and(|(vendor, class, name)| {
            is_valid_part(vendor, MAX_VENDOR_LENGTH, "_-.", is_letter)
                && is_valid_part(class, MAX_PART_LENGTH, "_-.", is_letter)
                && is_valid_part(name, MAX_PART_LENGTH, "_-.:", |c| c.is_ascii_alphanumeric())
        });
        if is_valid {
            Ok(CdiName(text))
        } else {
            Err(CdiNameError::new(&text))
        }
    }
}

fn is_valid_part(
    text: &str,
    max_length: usize,
    punctuation: &str,
    is_valid_start: impl Fn(char) -> bool,
) -> bool {
    text.len() <= max_length
        && text.starts_with(is_valid_start)
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || punctuation.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_by_vendor_class_and_name() {
        let long = format!("a.com/b={}", "x".repeat(64));
        for (text, fits) in [
            ("vendor.com/npu=0", true),
            ("vendor.com/npu=0000:03:00.0", true),
            ("v/c=n", true),
            ("Vendor_1.com/gpu-a.b=all", true),
            ("vendor.com/npu=", false),
            ("vendor.com/npu=-0", false),
            ("vendor.com/npu=0-", false),
            ("vendor.com/npu=a b", false),
            ("vendor.com/npu=a,b", false),
            ("vendor.com/npu=a=b", false),
            ("vendor.com/npu", false),
            ("vendor.com=npu", false),
            ("1vendor.com/npu=0", false),
            ("vendor.com/0npu=0", false),
            ("vendor.com/a/b=0", false),
            ("vendor.com:1/a=0", false),
            (&long, false),
            ("", false),
        ] {
            assert_eq!(CdiName::try_from(text.to_owned()).is_ok(), fits, "{text}");
        }
    }
}
