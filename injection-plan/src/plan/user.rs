//! The users of a plan's steps: a device, or a whole class.

use super::{Action, InjectionStep};

/// Returns the device key: class and id in one text. The class is part of the key because
/// devices of two classes may have the same id. The key of a whole class is its name.
pub fn device_key(class: &str, device: &str) -> String {
    format!("{class} {device}")
}

/// A device or a class that needs a step. Users are ordered by their labels, because
/// messages list the labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct User {
    /// The device's id or the class's name.
    pub(super) label: String,
    key: String,
}

impl User {
    pub(super) fn device(class: &str, device: &str) -> Self {
        User {
            label: device.to_owned(),
            key: device_key(class, device),
        }
    }

    /// The key, as [`InjectionStep::users`] has it.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn class(class: &str) -> Self {
        User {
            label: class.to_owned(),
            key: class.to_owned(),
        }
    }
}

impl InjectionStep {
    pub(super) fn new(action: Action, users: impl IntoIterator<Item = User>) -> Self {
        let users = users.into_iter().map(|user| (user.label, user.key));
        let (labels, users): (Vec<String>, Vec<String>) = users.unzip();
        InjectionStep {
            action,
            user_labels: labels.join(", "),
            users,
        }
    }
}
