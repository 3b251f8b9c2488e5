//! Changes the devices of running containers. A user starts `attach`, `detach` and `refresh`.
//! `follow` updates the containers whenever devices come and go.
//!
//! The modules are layers. A module uses only modules that are above its own layer in this list:
//!
//! 1. [`container`]: locks and enters a running container. This process stays in the host's
//!    namespaces. A child process enters the container, and is killed if the container delays it
//!    for too long.
//! 2. [`reconcile`]: compares the desired devices with the host and with what the container has.
//!    Then changes the container and its record. If a change fails, it is undone.
//! 3. [`announce`]: sends uevents about added and removed devices to the programs of containers.
//! 4. The operations: [`attach`], [`detach`], [`refresh`] and [`follow`].
//!
//! The attachment record of a container, with its file and its locks, is in [`hook::attachment`],
//! because the hook writes the first record when the container starts.

mod announce;
mod attach;
mod container;
mod detach;
mod error;
mod follow;
mod reconcile;
mod refresh;

pub(crate) use attach::{PlannedAttachment, attach};
pub(crate) use container::ContainerLocation;
pub(crate) use detach::{DetachResult, detach};
pub(crate) use error::ContainerChangeError;
pub(crate) use follow::{Follower, update_container};
pub(crate) use reconcile::{find_unfulfilled_requests, has_access_to_all_devices};
pub(crate) use refresh::{PlannedRefresh, refresh};
