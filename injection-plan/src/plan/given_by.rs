//! The origin of a container's devices: the hook, or a user.

use serde::{Deserialize, Serialize};

/// The party that gave a container its devices: the hook, or a user. In JSON it is a string: the
/// user's text, or an empty string for the hook, as in the attachment records of earlier versions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum GivenBy {
    /// The hook gave the devices when the container was started.
    #[default]
    Hook,
    /// A user gave the devices with `boathook attach`.
    User {
        /// The device list that the user wrote on the command line.
        devices: String,
    },
}

impl GivenBy {
    pub fn is_user(&self) -> bool {
        matches!(self, GivenBy::User { .. })
    }

    pub fn is_hook(&self) -> bool {
        !self.is_user()
    }

    /// Returns the device list that the user wrote, or an empty text for the hook.
    pub fn devices(&self) -> &str {
        match self {
            GivenBy::Hook => "",
            GivenBy::User { devices } => devices,
        }
    }
}

impl From<String> for GivenBy {
    fn from(devices: String) -> Self {
        if devices.is_empty() {
            GivenBy::Hook
        } else {
            GivenBy::User { devices }
        }
    }
}

impl From<GivenBy> for String {
    fn from(given_by: GivenBy) -> Self {
        match given_by {
            GivenBy::Hook => String::new(),
            GivenBy::User { devices } => devices,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_earlier_version_is_read_and_written_as_it_was() {
        let user = |devices: &str| GivenBy::User {
            devices: devices.to_owned(),
        };
        for (text, given_by) in [
            (r#""""#, GivenBy::Hook),
            (r#""npu-3""#, user("npu-3")),
            (r#""attached 3,5""#, user("attached 3,5")),
        ] {
            let read: GivenBy = serde_json::from_str(text).unwrap();
            assert_eq!(read, given_by, "{text}");
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
    }
}
