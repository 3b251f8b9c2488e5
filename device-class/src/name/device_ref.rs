//! The name that identifies one device on a host.

use serde::{Deserialize, Serialize};

use super::{ClassName, DeviceId};

/// The name that identifies a device on a host: its class and its id. The id alone is not enough,
/// because devices of two classes may have the same id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceRef {
    pub class: ClassName,
    pub id: DeviceId,
}

impl DeviceRef {
    pub fn new(class: &ClassName, id: &DeviceId) -> Self {
        DeviceRef {
            class: class.clone(),
            id: id.clone(),
        }
    }
}
