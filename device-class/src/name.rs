//! Types for names, such as class names and device ids. Each type checks the syntax of its names.

mod canonical;
mod cdi;
mod device_ref;
mod index_range;
mod linux_capability;
mod usb_port;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use canonical::canonicalize_name;
pub use cdi::{CdiName, CdiNameError};
pub use device_ref::DeviceRef;
pub use index_range::{IndexRange, IndexRangeError};
pub use linux_capability::{LinuxCapability, LinuxCapabilityError};
pub use usb_port::is_usb_port;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("{kind} is empty")]
    Empty {
        /// The kind of name that was expected, such as `class name`.
        kind: &'static str,
    },
    /// The name is longer than the maximum length of its kind.
    #[error("{kind} `{name}` is longer than {max_length} characters")]
    TooLong {
        /// The kind of name that was expected, such as `class name`.
        kind: &'static str,
        name: String,
        /// The longest allowed length, in characters.
        max_length: usize,
    },
    #[error("{kind} `{name}` may not have the character {character:?}; allowed are {allowed}")]
    Character {
        /// The kind of name that was expected, such as `class name`.
        kind: &'static str,
        name: String,
        /// The first character that is not allowed.
        character: char,
        allowed: &'static str,
    },
    /// A resource name has no slash between the domain and the name.
    #[error("resource `{0}` is not of the form domain/name")]
    NoDomain(String),
}

/// Checks the length and the characters of a name. Error messages contain `kind`, such as `class
/// name`, and `allowed`, a description of the allowed characters.
fn check_name(
    kind: &'static str,
    name: &str,
    max_length: usize,
    allowed: &'static str,
    is_allowed: impl Fn(char) -> bool,
) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty { kind });
    }
    if name.len() > max_length {
        return Err(NameError::TooLong {
            kind,
            name: excerpt(name),
            max_length,
        });
    }
    match name.chars().find(|c| !is_allowed(*c)) {
        Some(character) => Err(NameError::Character {
            kind,
            name: excerpt(name),
            character,
            allowed,
        }),
        None => Ok(()),
    }
}

/// The number of characters in the shortened container ids that engines print.
pub const SHORT_ID_CHARS: usize = 12;

/// Returns whether an engine chose a container id at random. Such an id has 64 hexadecimal digits.
pub fn is_random_container_id(id: &str) -> bool {
    id.len() == 64 && id.chars().all(|c| c.is_ascii_hexdigit())
}

/// Shortens a container id that an engine chose at random. Ids that a user chose are not shortened,
/// because such ids often have the same beginning.
pub fn shorten_container_id(id: &str) -> String {
    let length = if is_random_container_id(id) {
        SHORT_ID_CHARS
    } else {
        id.len()
    };
    id.chars().take(length).collect()
}

/// Returns the first 64 characters of an untrusted text for use in a message. Control characters
/// are escaped. Quotes are kept, so that the message shows a quoted name exactly as the container
/// requested it.
pub fn excerpt(text: &str) -> String {
    const MAX_CHARACTERS: usize = 64;
    let mut excerpt: String = text
        .chars()
        .take(MAX_CHARACTERS)
        .flat_map(|character| {
            let quote = matches!(character, '"' | '\'').then_some(character);
            let escaped = quote.is_none().then(|| character.escape_debug());
            quote.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect();
    if text.chars().nth(MAX_CHARACTERS).is_some() {
        excerpt.push('…');
    }
    excerpt
}

/// Declares a type for names. Its `TryFrom<String>` checks the length in characters and each
/// character. Error messages contain `$kind` and `$allowed`.
macro_rules! name {
    ($(#[$doc:meta])* $type:ident($kind:expr, $max_length:expr, $allowed:expr, $is_allowed:expr)) => {
        name! { $(#[$doc])* $type }

        impl TryFrom<String> for $type {
            type Error = NameError;

            fn try_from(name: String) -> Result<Self, NameError> {
                check_name($kind, &name, $max_length, $allowed, $is_allowed)?;
                Ok($type(name))
            }
        }
    };
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }
    };
}

name! {
    /// The name of a class: the name of its file without `.toml`. The name has at most 63
    /// characters, because it becomes the last part of annotation keys in Kubernetes.
    ClassName("class name", 63, "a-z A-Z 0-9 - _ .", is_label_char)
}

name! {
    /// The name of an extended resource in Kubernetes, `domain/name`, for example `dummy.com/npu`.
    /// The domain consists of DNS labels, and the name has at most 63 characters (Kubernetes,
    /// "Extended Resources").
    ResourceName
}

name! {
    /// The id of one device of a class. The kubelet and the requests of containers name the device
    /// by it. An id has at most [`DeviceId::MAX_LENGTH`] characters, none of which has a special
    /// meaning in a shell, a path or a comma-separated list.
    DeviceId("device id", DeviceId::MAX_LENGTH, "a-z A-Z 0-9 - _ . :", DeviceId::is_valid_char)
}

name! {
    EnvName("environment variable", 128, "a-z A-Z 0-9 _", is_word_char)
}

name! {
    /// The name of a device's attribute, such as `model`. Templates refer to the attribute as
    /// `{model}`.
    AttributeName("attribute name", 63, "a-z A-Z 0-9 _", is_word_char)
}

name! {
    /// The name of a driver capability, such as `compute`. A container that requests a capability
    /// gets the files and nodes that the class lists for it.
    CapabilityName("capability", 63, "a-z A-Z 0-9 - _ .", is_label_char)
}

name! {
    /// The name of a list file on the host. Its lines are the paths of files that a container gets
    /// (`files_listed_in` in a class file).
    ListName("list of files", 63, "a-z A-Z 0-9 - _ .", is_label_char)
}

name! {
    /// A name that an image's requirements may use, such as `driver` in `driver>=535`.
    RequirementName("name in requirements", 63, "a-z A-Z 0-9", |c| c.is_ascii_alphanumeric())
}

name! {
    /// The name of a program, without a directory, such as `npu-container-hook`.
    ProgramName("program name", 63, "a-z A-Z 0-9 - _", is_program_char)
}

name! {
    /// The name of a container engine's runtime (`docker run --runtime NAME`), or of a runtime
    /// handler in Kubernetes.
    RuntimeName("runtime name", 63, "a-z A-Z 0-9 - _", is_program_char)
}

name! {
    /// The name of a user group on the host, such as `dialout` (groupadd(8)).
    GroupName("group", 32, "a-z A-Z 0-9 - _ .", is_label_char)
}

name! {
    /// The name of a systemd unit, such as `npu-cdi.service`.
    UnitName("name of a unit", 255, "a-z A-Z 0-9 - _ . @ :", |c| is_label_char(c) || "@:".contains(c))
}

fn is_program_char(c: char) -> bool {
    is_word_char(c) || c == '-'
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_label_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Parses a class name. Commands parse their arguments with this implementation.
impl FromStr for ClassName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        name.to_owned().try_into()
    }
}

impl TryFrom<String> for ResourceName {
    type Error = NameError;

    fn try_from(name: String) -> Result<Self, NameError> {
        let Some((domain, local)) = name.split_once('/') else {
            return Err(NameError::NoDomain(excerpt(&name)));
        };
        check_name("domain of the resource", domain, 253, "a-z 0-9 - .", |c| {
            c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.')
        })?;
        check_name(
            "name of the resource",
            local,
            63,
            "a-z A-Z 0-9 - _ .",
            is_label_char,
        )?;
        Ok(ResourceName(name))
    }
}

impl AttributeName {
    /// Returns the attribute name `list`. A template of `files_listed_in` may use this attribute.
    pub(crate) fn list_attribute() -> Self {
        AttributeName("list".to_owned())
    }

    /// Returns the attribute name `each`. A template of `[[parts]]` may use this attribute. Its
    /// value is one of the profiles that the driver reports for a device.
    pub(crate) fn property_value_name() -> Self {
        AttributeName("each".to_owned())
    }

    /// Returns the attribute names `profile` and `placement`. A possible partition of a device has
    /// these two attributes in addition to those of the whole device.
    pub(crate) fn part_attributes() -> [Self; 2] {
        ["profile", "placement"].map(|name| AttributeName(name.to_owned()))
    }
}

impl DeviceId {
    /// The maximum length of an id in characters. The device plugin API v1beta1 limits `Device.ID`
    /// to 63 characters.
    pub const MAX_LENGTH: usize = 63;

    /// Returns whether an id may contain this character. Characters with a meaning in lists or
    /// paths, such as commas and slashes, are not allowed.
    pub fn is_valid_char(c: char) -> bool {
        is_label_char(c) || c == ':'
    }

    /// Creates an id from a text that the hardware reports, such as a serial number. If the text is
    /// too long or has invalid characters, the id is its beginning and a hash of the whole text.
    /// Such an id stays the same and is unique. A reserved word such as `all` also gets a hash,
    /// because it has another meaning in a request.
    pub fn from_hardware(text: &str) -> Result<Self, NameError> {
        Self::from_text_with_limit(text, Self::MAX_LENGTH)
    }

    /// Creates an id as [`DeviceId::from_hardware`] does, but with at most 56 characters. The rest
    /// of the 63 characters is for the number that [`DeviceId::replica_id`] appends.
    pub fn shared_from_hardware(text: &str) -> Result<Self, NameError> {
        Self::from_text_with_limit(text, Self::MAX_LENGTH - Self::MAX_REPLICA_SUFFIX_LENGTH)
    }

    /// The length in characters of the longest suffix that [`DeviceId::replica_id`] appends, which
    /// is `::65534`.
    const MAX_REPLICA_SUFFIX_LENGTH: usize = 7;

    /// Returns the id of one share of this device, if several containers share the device. For
    /// example, `npu-0::1` is a share of `npu-0`.
    pub fn replica_id(&self, number: u16) -> Self {
        DeviceId(format!("{}::{number}", self.0))
    }

    fn from_text_with_limit(text: &str, max_length: usize) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty { kind: "device id" });
        }
        if text.len() <= max_length
            && text.chars().all(Self::is_valid_char)
            && !is_request_word(text)
        {
            return Ok(DeviceId(text.to_owned()));
        }
        let hash = format!("-{:016x}", fnv1a(text.as_bytes()));
        let allowed_chars = text
            .chars()
            .map(|c| if Self::is_valid_char(c) { c } else { '-' });
        let prefix: String = allowed_chars.take(max_length - hash.len()).collect();
        Ok(DeviceId(prefix + &hash))
    }
}

/// Returns whether a text is `all`, `none` or `void`, in upper or lower case. In a request these
/// words select all devices or none, so no device may have such a name.
pub fn is_reserved_name(text: &str) -> bool {
    let mut words = ["all", "none", "void"].into_iter();
    words.any(|word| text.eq_ignore_ascii_case(word))
}

/// Returns whether a request with this text would not mean a device's name, but a reserved word
/// such as `all` or a range of indexes such as `0-3`.
fn is_request_word(text: &str) -> bool {
    let is_range = text.contains('-') && text.chars().all(|c| c.is_ascii_digit() || c == '-');
    is_range || is_reserved_name(text)
}

/// Returns the 64-bit FNV-1a hash of the bytes (RFC 9923). Device ids contain this hash, because it
/// never changes between versions of Boathook. The hashes of Rust's standard library may change.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_id_keeps_what_is_fit_and_hashes_what_is_not() {
        let long = "x".repeat(200);
        let hashed =
            |kept: &str, text: &str| Some(format!("{kept}-{:016x}", fnv1a(text.as_bytes())));
        for (text, wanted) in [
            ("npu-3", Some("npu-3".to_owned())),
            ("GPU-5c4a:00", Some("GPU-5c4a:00".to_owned())),
            ("a/b", hashed("a-b", "a/b")),
            ("../../sda", hashed("..-..-sda", "../../sda")),
            (&long, hashed(&long[..46], &long)),
            ("All", hashed("All", "All")),
            ("none", hashed("none", "none")),
            ("void", hashed("void", "void")),
            ("0-63", hashed("0-63", "0-63")),
            ("63", Some("63".to_owned())),
            ("", None),
        ] {
            let id = DeviceId::from_hardware(text).ok();
            let found = id.as_ref().map(|id| id.as_str());
            assert_eq!(found, wanted.as_deref(), "{text}");
            assert!(id.is_none_or(|id| id.as_str().len() <= DeviceId::MAX_LENGTH));
        }
    }

    #[test]
    fn a_resource_has_a_domain_and_a_name() {
        for (text, fits) in [
            ("dummy.com/npu", true),
            ("fpga.example.com/af-ce48969398f05f33", true),
            ("npu", false),
            ("dummy.com/", false),
            ("/npu", false),
            ("Dummy.com/npu", false),
            ("dummy.com/a/b", false),
        ] {
            assert_eq!(
                ResourceName::try_from(text.to_owned()).is_ok(),
                fits,
                "{text}"
            );
        }
    }
}
