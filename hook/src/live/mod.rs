//! Changes the devices of running containers. A user starts `attach`, `detach` and `refresh`.
//! `follow` updates the containers whenever devices come and go.
//!
//! The modules are layers. A module uses only modules that are above its own layer in this list:
//!
//! 1. [`record`]: the attachment record of one container. It contains the devices that the
//!    container is to have, and what was changed in the container for them.
//! 2. [`container`]: finds, locks and enters a container, reads and writes its record, and revokes
//!    its device rules. This process stays in the host's namespaces. A child process enters the
//!    container, and is killed if the container delays it for too long.
//! 3. [`reconcile`]: compares the desired devices with the host and with what the container has.
//!    Then changes the container and its record. If a change fails, it is undone.
//! 4. [`announce`]: sends uevents about added and removed devices to the programs of containers.
//! 5. The operations: [`attach`], [`detach`], [`refresh`] and [`follow`], and [`at_start`], which
//!    the hook calls.

mod announce;
mod at_start;
mod attach;
mod container;
mod detach;
mod error;
mod follow;
mod reconcile;
mod record;
mod refresh;

pub(crate) use at_start::write_start_record;
pub(crate) use attach::{PlannedAttachment, attach};
pub(crate) use container::ContainerLocation;
pub(crate) use container::record_files::{
    add_recorded_requests, find_record, prune_records, read_records, read_records_and_log_errors,
};
pub(crate) use detach::{DetachResult, detach};
pub(crate) use error::LiveError;
pub(crate) use follow::{Follower, update_container};
pub(crate) use record::{AttachmentRecord, ContainerDevice};
pub(crate) use refresh::{PlannedRefresh, refresh};
