//! Prepares the ResourceClaims of this node. Reads their allocation results, and writes claim
//! records and CDI specifications. Engines find the devices by these specifications.

mod allocation;
mod conflicts;
mod parameters;
mod part_creator;
mod part_steps;
mod prepare;
mod record;
mod resolved_device;
mod specification;
mod store;

pub use allocation::{AllocatedDevice, AllocationError, list_allocated_devices};
pub use conflicts::ClaimConflict;
pub use parameters::{ParameterError, Parameters};
pub use part_creator::{PartCreator, PartError};
pub use prepare::{ClaimPreparer, PrepareError, UnprepareError};
pub use record::{ClaimUid, PendingDevice, PreparedDevice, Record};
pub(crate) use store::StoreLock;
pub use store::{ClaimStore, StoreError, UnreadableRecords};
