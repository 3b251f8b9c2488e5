//! Resolves the group of a node on the host.

use std::io::ErrorKind;

use crate::class::Group;
use crate::host::{GROUP_FILE, HostView};
use crate::name::GroupName;

/// The reason why the number of a group is not known. The message names the group and tells the
/// administrator what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum GroupError {
    #[error(
        "its group `{0}` is not in the host's {GROUP_FILE}, and groups of other sources, such as \
         LDAP, are not known: create it, or write its number as `gid` (`node_gid`)"
    )]
    Unknown(GroupName),
    #[error(
        "its group `{0}` cannot be looked up, because the host's {GROUP_FILE} is not here: in the \
         plugin's container mount it at /host{GROUP_FILE}, or write the group's number as `gid` \
         (`node_gid`)"
    )]
    Absent(GroupName),
    #[error("its group `{name}` cannot be looked up in the host's {GROUP_FILE}: {error}")]
    Unreadable {
        name: GroupName,
        error: std::io::Error,
    },
}

/// Returns the number of a group on the host.
pub(super) fn resolve_group(group: &Group, host: &dyn HostView) -> Result<u32, GroupError> {
    let name = match group {
        Group::Id(number) => return Ok(*number),
        Group::Name(name) => name,
    };
    match host.group_id(name.as_str()) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(GroupError::Unknown(name.clone())),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(GroupError::Absent(name.clone())),
        Err(error) => Err(GroupError::Unreadable {
            name: name.clone(),
            error,
        }),
    }
}
