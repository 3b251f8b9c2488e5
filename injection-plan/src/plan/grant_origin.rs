//! The origin of a container's devices: the hook, or a user.

use serde::{Deserialize, Serialize};

/// The origin of a container's devices: the hook, or a user who ran `boathook attach`. In JSON it
/// is a string: the user's device list, or an empty string for the hook. Earlier versions wrote
/// attachment records in the same format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum GrantOrigin {
    /// The hook gave the devices when the container was started.
    #[default]
    Hook,
    /// A user gave the devices with `boathook attach`.
    User {
        /// The device list that the user wrote on the command line.
        devices: String,
    },
}

impl GrantOrigin {
    pub fn is_user(&self) -> bool {
        matches!(self, GrantOrigin::User { .. })
    }

    pub fn is_hook(&self) -> bool {
        !self.is_user()
    }

    /// Returns the device list that the user wrote, or an empty text for the hook.
    pub fn devices(&self) -> &str {
        match self {
            GrantOrigin::Hook => "",
            GrantOrigin::User { devices } => devices,
        }
    }
}

impl From<String> for GrantOrigin {
    fn from(devices: String) -> Self {
        if devices.is_empty() {
            GrantOrigin::Hook
        } else {
            GrantOrigin::User { devices }
        }
    }
}

impl From<GrantOrigin> for String {
    fn from(grant_origin: GrantOrigin) -> Self {
        match grant_origin {
            GrantOrigin::Hook => String::new(),
            GrantOrigin::User { devices } => devices,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_earlier_version_is_read_and_written_as_it_was() {
        let user = |devices: &str| GrantOrigin::User {
            devices: devices.to_owned(),
        };
        for (text, grant_origin) in [
            (r#""""#, GrantOrigin::Hook),
            (r#""npu-3""#, user("npu-3")),
            (r#""attached 3,5""#, user("attached 3,5")),
        ] {
            let read: GrantOrigin = serde_json::from_str(text).unwrap();
            assert_eq!(read, grant_origin, "{text}");
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
    }
}
