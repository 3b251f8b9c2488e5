//! ResourceSlices, from which the scheduler learns the devices.

mod attributes;
mod device;
mod plan;
mod publisher;
mod revert_delay;

pub(crate) use attributes::PART;
pub use device::SliceFeatures;
pub use plan::{Pool, SliceAction, SliceContent, plan_actions, plan_pools};
pub use publisher::Publisher;
