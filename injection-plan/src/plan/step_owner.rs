//! The owners of a plan's steps. A device or class owns the steps that it needs.

use std::cmp::Ordering;
use std::fmt;

use device_class::name::{ClassName, DeviceRef};

use super::{Action, InjectionStep};

/// A device or a class that needs a step of an injection plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepOwner {
    Device(DeviceRef),
    Class(ClassName),
}

impl StepOwner {
    pub fn class(&self) -> &ClassName {
        match self {
            StepOwner::Device(device) => &device.class,
            StepOwner::Class(class) => class,
        }
    }

    /// Returns the device, or `None` if the owner is a class.
    pub fn device(&self) -> Option<&DeviceRef> {
        match self {
            StepOwner::Device(device) => Some(device),
            StepOwner::Class(_) => None,
        }
    }

    /// Returns whether the owner is the device with this class and id.
    pub fn is_device(&self, device: &DeviceRef) -> bool {
        self.device() == Some(device)
    }

    /// Returns whether the owner is this class itself, and not one of its devices.
    pub fn is_class(&self, class: &ClassName) -> bool {
        matches!(self, StepOwner::Class(name) if name == class)
    }

    /// Returns the id of the device or the name of the class, for messages.
    pub(super) fn label(&self) -> &str {
        match self {
            StepOwner::Device(device) => device.id.as_str(),
            StepOwner::Class(class) => class.as_str(),
        }
    }
}

/// Orders the owners by their labels. Messages list the owners in this order.
impl Ord for StepOwner {
    fn cmp(&self, other: &Self) -> Ordering {
        let is_device = |owner: &Self| owner.device().is_some();
        self.label()
            .cmp(other.label())
            .then_with(|| self.class().cmp(other.class()))
            .then_with(|| is_device(self).cmp(&is_device(other)))
    }
}

impl PartialOrd for StepOwner {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Formats the owner for messages: a device with its class, or the name of the class.
impl fmt::Display for StepOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepOwner::Device(device) => write!(f, "{} {}", device.class, device.id),
            StepOwner::Class(class) => write!(f, "{class}"),
        }
    }
}

impl InjectionStep {
    pub fn new(action: Action, owners: impl IntoIterator<Item = StepOwner>) -> Self {
        let owners: Vec<StepOwner> = owners.into_iter().collect();
        let labels: Vec<&str> = owners.iter().map(StepOwner::label).collect();
        InjectionStep {
            action,
            owner_labels: labels.join(", "),
            owners,
        }
    }
}
