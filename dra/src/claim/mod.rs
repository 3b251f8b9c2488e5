//! Resource claims on this node: what the API server allocated to them, what is known of
//! those that are prepared, and the specifications by which engines find their devices.

mod allocation;
mod parameters;
mod prepare;
mod record;
mod specification;
mod store;

pub use allocation::{AllocationError, Granted, granted};
pub use parameters::{ParameterError, Parameters};
pub use prepare::{Claims, PrepareError};
pub use record::{ClaimUid, PreparedDevice, Record};
pub use store::{Store, StoreError, Unreadable};
