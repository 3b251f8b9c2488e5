//! Resource claims on this node: their allocations in the API server, the records of prepared
//! claims, and the CDI specifications by which engines find their devices.

mod allocation;
mod holds;
mod making;
mod parameters;
mod prepare;
mod programs;
mod record;
mod specification;
mod store;

pub use allocation::{AllocationError, Granted, granted};
pub use making::{PartError, Workshop};
pub use parameters::{ParameterError, Parameters};
pub use prepare::{Claims, PrepareError, UnprepareError};
pub use record::{ClaimUid, Making, PreparedDevice, Record};
pub(crate) use store::Locked;
pub use store::{Store, StoreError, Unreadable};
