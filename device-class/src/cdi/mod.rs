//! The Container Device Interface: specifications of the classes' devices, the
//! directory that engines read them from, the names
//! of devices that an engine injects, and of the annotations that request them (CDI
//! specification, "kind" and "annotations"; tags.cncf.io/container-device-interface,
//! `pkg/parser` and `producer/annotations`).

pub mod directory;
mod generator;
mod spec;

use std::fmt;

use crate::name::{excerpt, fnv1a};

pub use generator::{ClassError, Form, Generated, Generator, Omission};
pub use spec::{ContainerEdits, FILE_PREFIX, GrantingHook, Specification, SpecifiedDevice};

/// How the keys of annotations begin that ask an engine for CDI devices.
pub const ANNOTATION_PREFIX: &str = "cdi.k8s.io/";

/// The longest name part of a key, in characters (Kubernetes, "Annotations").
const MAX_KEY_NAME: usize = 63;

/// The longest vendor, in characters: that of a DNS subdomain.
const MAX_VENDOR: usize = 253;

/// The longest class, and the longest name of a device, in characters.
const MAX_PART: usize = 63;

/// The fully qualified name of a CDI device: `vendor.com/class=name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CdiName(String);

/// A text that is no [`CdiName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the name of a CDI device: vendor.com/class=name, of letters, digits, `_`, `-`, \
     `.` and, in the name, `:`; vendor and class begin with a letter, and each part ends with a \
     letter or digit"
)]
pub struct CdiNameError(String);

impl CdiNameError {
    pub(crate) fn of(text: &str) -> Self {
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
        let letter = |c: char| c.is_ascii_alphabetic();
        let fits = parts.is_some_and(|(vendor, class, name)| {
            is_part(vendor, MAX_VENDOR, "_-.", letter)
                && is_part(class, MAX_PART, "_-.", letter)
                && is_part(name, MAX_PART, "_-.:", |c| c.is_ascii_alphanumeric())
        });
        match fits {
            true => Ok(CdiName(text)),
            false => Err(CdiNameError::of(&text)),
        }
    }
}

fn is_part(text: &str, max: usize, marks: &str, first: impl Fn(char) -> bool) -> bool {
    text.len() <= max
        && text.starts_with(first)
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || marks.contains(c))
}

/// The key of the annotation by which `plugin` requests the CDI devices of one
/// allocation: both parts joined by `_`, and hashed where they are too long.
pub fn annotation_key(plugin: &str, allocation: &str) -> String {
    let allocation = allocation.replace('/', "_");
    let name = format!("{plugin}_{allocation}");
    if name.len() <= MAX_KEY_NAME {
        return format!("{ANNOTATION_PREFIX}{name}");
    }
    let hash = fnv1a(allocation.as_bytes());
    format!("{ANNOTATION_PREFIX}{plugin}_{hash:016x}")
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

    #[test]
    fn a_key_is_readable_or_hashed_and_always_fits() {
        let long = format!("vendor.com/{}", "x".repeat(63));
        for (allocation, wanted) in [
            ("vendor.com/npu", "cdi.k8s.io/boathook_vendor.com_npu"),
            (&long, "cdi.k8s.io/boathook_149cf0dde998755b"),
        ] {
            let key = annotation_key("boathook", allocation);
            assert!(key.len() <= ANNOTATION_PREFIX.len() + MAX_KEY_NAME);
            assert_eq!(key, wanted);
        }
    }
}
