//! The attachment record of a container. It lists the devices that the container should have, and
//! the changes that were made in the container for them. Each record is a file below
//! `/run/boathook`.
//!
//! The hook writes a record when a container starts ([`write_start_record`]). The crate `boathook`
//! changes running containers and updates their records. This module also revokes device rules,
//! because a revocation uses only the record and the container's cgroup.

mod cgroup;
pub mod lock;
mod record;
pub mod record_files;
mod revoke;
mod start_record;

pub use record::{
    Announcement, AttachmentRecord, AwaitedRequest, ContainerDevice, CreatedFile, CreatedFileKind,
    FileIdentity, RecordedRule, add_host_nodes, list_step_rules, make_substitute_id, merge_owners,
    to_device_rules, to_st_rdev,
};
pub use record_files::{
    LockedRecord, add_recorded_requests, find_record, prune_records, read_records,
    read_records_and_log_errors,
};
pub use revoke::RevokeError;
pub use start_record::{list_spec_rules, write_start_record};
