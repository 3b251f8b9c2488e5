//! The users of a plan's steps: the devices and classes that need them.

use std::cmp::Ordering;
use std::fmt;

use device_class::name::{ClassName, DeviceRef};

use super::{Action, InjectionStep};

/// A device or a class that needs a step of an injection plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepUser {
    Device(DeviceRef),
    Class(ClassName),
}

impl StepUser {
    pub fn class(&self) -> &ClassName {
        match self {
            StepUser::Device(device) => &device.class,
            StepUser::Class(class) => class,
        }
    }

    /// Returns the device, or `None` if the user is a class.
    pub fn device(&self) -> Option<&DeviceRef> {
        match self {
            StepUser::Device(device) => Some(device),
            StepUser::Class(_) => None,
        }
    }

    /// Returns whether the user is this device.
    pub fn is_device(&self, device: &DeviceRef) -> bool {
        self.device() == Some(device)
    }

    /// Returns whether the user is this class itself, and not one of its devices.
    pub fn is_class(&self, class: &ClassName) -> bool {
        matches!(self, StepUser::Class(name) if name == class)
    }

    /// Returns the id of the device or the name of the class, for messages.
    pub(super) fn label(&self) -> &str {
        match self {
            StepUser::Device(device) => device.id.as_str(),
            StepUser::Class(class) => class.as_str(),
        }
    }
}

/// Users are ordered by their labels, because messages list them in this order.
impl Ord for StepUser {
    fn cmp(&self, other: &Self) -> Ordering {
        let is_device = |user: &Self| user.device().is_some();
        self.label()
            .cmp(other.label())
            .then_with(|| self.class().cmp(other.class()))
            .then_with(|| is_device(self).cmp(&is_device(other)))
    }
}

impl PartialOrd for StepUser {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Formats the user for messages: a device with its class, or the name of the class.
impl fmt::Display for StepUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepUser::Device(device) => write!(f, "{} {}", device.class, device.id),
            StepUser::Class(class) => write!(f, "{class}"),
        }
    }
}

impl InjectionStep {
    pub(super) fn new(action: Action, users: impl IntoIterator<Item = StepUser>) -> Self {
        let users: Vec<StepUser> = users.into_iter().collect();
        let labels: Vec<&str> = users.iter().map(StepUser::label).collect();
        InjectionStep {
            action,
            user_labels: labels.join(", "),
            users,
        }
    }
}
