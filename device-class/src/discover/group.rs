//! Finds the id of the group that owns a node in a container.

use std::io::ErrorKind;

use crate::class::Group;
use crate::host::{GROUP_FILE_PATH, HostView};
use crate::name::GroupName;

/// The reason why the id of a group cannot be found on the host. The message names the group, and
/// says how the administrator can solve the problem.
#[derive(Debug, thiserror::Error)]
pub(super) enum GroupError {
    #[error(
        "its group `{0}` is not in the host's {GROUP_FILE_PATH}, and groups of other sources, such as \
         LDAP, are not known: write the group's number as `gid` (`node_gid`), or create it; in \
         Kubernetes, then restart the plugin's pods"
    )]
    UnknownGroup(GroupName),
    #[error(
        "its group `{0}` cannot be looked up, because the host's {GROUP_FILE_PATH} is not here: write the \
         group's number as `gid` (`node_gid`); in Kubernetes, `hostGroups: true` of the chart or \
         the component host-groups also helps"
    )]
    MissingGroupFile(GroupName),
    #[error("its group `{name}` cannot be looked up in the host's {GROUP_FILE_PATH}: {error}")]
    ReadFailed {
        name: GroupName,
        error: std::io::Error,
    },
}

/// Returns the id (gid) of a group. The id of a name is looked up in the host's /etc/group.
pub(super) fn resolve_group(group: &Group, host: &dyn HostView) -> Result<u32, GroupError> {
    let name = match group {
        Group::Id(number) => return Ok(*number),
        Group::Name(name) => name,
    };
    match host.group_id(name.as_str()) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(GroupError::UnknownGroup(name.clone())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(GroupError::MissingGroupFile(name.clone()))
        }
        Err(error) => Err(GroupError::ReadFailed {
            name: name.clone(),
            error,
        }),
    }
}
