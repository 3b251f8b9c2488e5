//! Publishes the node's devices in ResourceSlices, which the scheduler reads.

mod attributes;
mod device;
mod plan;
mod publisher;
mod revert_delay;

pub(crate) use attributes::PART_ATTRIBUTE;
pub use device::SliceFeatures;
pub use plan::{Pool, SliceAction, SliceContent, plan_actions, plan_pools};
pub use publisher::Publisher;
