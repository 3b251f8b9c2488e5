//! Who gave a container its devices.

use serde::{Deserialize, Serialize};

/// Who gave a container a device. As JSON it is a text, that of the user or an empty one, as in
/// records of attached devices since the first of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum GivenBy {
    /// The hook, when the container was started.
    #[default]
    Hook,
    /// A user, by `boathook attach`.
    User {
        /// The devices as the user named them.
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

    /// The devices as the user named them; empty for those of the hook.
    pub fn devices(&self) -> &str {
        match self {
            GivenBy::Hook => "",
            GivenBy::User { devices } => devices,
        }
    }
}

impl From<String> for GivenBy {
    fn from(devices: String) -> Self {
        match devices.is_empty() {
            true => GivenBy::Hook,
            false => GivenBy::User { devices },
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
