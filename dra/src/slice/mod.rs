//! Resource slices, by which the scheduler knows the devices.

mod attributes;
mod device;
mod pause;
mod plan;
mod publisher;

pub(crate) use attributes::PART;
pub use device::Form;
pub use plan::{Action, Content, Pool, actions, pools};
pub use publisher::Publisher;
