//! Finds the groups that a container's user needs to open the injected device nodes.
//!
//! A device node is bind-mounted from the host and has the owner and mode of the host's node. For
//! example, only root and the group `render` may open `/dev/dri/renderD128`. If the container's
//! user is not root, the groups of the nodes are added to the additional groups in config.json.
//! Only `boathook-runtime` can add them, because the runtime reads config.json before it calls
//! hooks.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use host_files::rooted_path::read_regular_text;
use injection_plan::plan::{Action, InjectionPlan};
use nix::sys::stat::makedev;
use serde::Deserialize;

/// The maximum size of `/proc/self/gid_map` in bytes. The kernel allows at most 340 lines
/// (user_namespaces(7)).
const MAX_GID_MAP_BYTES: u64 = 16 * 1024;

/// The permission bits that allow all other users to read and write a file.
const OTHERS_READ_WRITE_BITS: u32 = 0o006;

/// The user id and group ids of the container's process (OCI runtime specification, "POSIX-platform
/// User").
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProcessUser {
    uid: u32,
    gid: u32,
    additional_gids: Vec<u32>,
}

impl ProcessUser {
    /// Reads the user of the container's process from `config_text`, the text of a config.json. If
    /// the user is invalid, returns root, for whom nothing is done; the runtime will report the
    /// error.
    fn from_config(config_text: &str) -> Self {
        #[derive(Deserialize)]
        struct Config {
            process: Process,
        }
        #[derive(Deserialize)]
        struct Process {
            user: ProcessUser,
        }
        serde_json::from_str(config_text)
            .map_or_else(|_| Self::default(), |config: Config| config.process.user)
    }
}

/// Returns whether this process's user namespace maps all group ids of the host. The user namespace
/// of a rootless engine maps only some. For a file of another group, stat(2) returns the overflow
/// group id, which is useless here because setgroups(2) rejects it.
fn maps_all_host_groups() -> bool {
    let gid_map =
        read_regular_text(Path::new("/proc/self/gid_map"), MAX_GID_MAP_BYTES).unwrap_or_default();
    let map_fields: Vec<&str> = gid_map.split_whitespace().collect();
    map_fields == ["0", "0", "4294967295"]
}

/// Returns the group ids that the container's user needs to open the plan's device nodes and does
/// not have yet. `config_text` is the text of a config.json. The result is empty for root, who
/// needs no groups, and in a user namespace, where the host's group ids have no meaning.
pub(super) fn find_missing_groups(
    config_text: &str,
    has_user_namespace: bool,
    plan: &InjectionPlan,
    host_root: &Path,
) -> BTreeSet<u32> {
    let user = ProcessUser::from_config(config_text);
    if user.uid == 0 || has_user_namespace || !maps_all_host_groups() {
        return BTreeSet::new();
    }
    let nodes = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Node {
            created_node_permissions: Some(permissions),
            ..
        } => Some((permissions.mode, permissions.gid)),
        Action::Node { mount, number, .. } => {
            let path = mount.source.strip_prefix("/").unwrap_or(&mount.source);
            // A device node that no longer exists, or now has another device number, is skipped
            // here. The hook will report it as an error.
            let node_metadata = fs::metadata(host_root.join(path)).ok()?;
            let is_planned_device =
                node_metadata.rdev() == makedev(number.major.into(), number.minor.into());
            is_planned_device.then(|| (node_metadata.mode(), node_metadata.gid()))
        }
        Action::MakeNode { created_node, .. } => {
            Some((created_node.permissions.mode, created_node.permissions.gid))
        }
        _ => None,
    });
    // The group of a node is needed only if the group may read or write the node and other users
    // may not.
    let nodes_of_groups =
        nodes.filter(|(mode, _)| (mode >> 3) & !mode & OTHERS_READ_WRITE_BITS != 0);
    let node_gids = nodes_of_groups.map(|(_, gid)| gid);
    node_gids
        .filter(|gid| *gid != 0 && *gid != user.gid && !user.additional_gids.contains(gid))
        .collect()
}
