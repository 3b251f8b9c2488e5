//! The groups that a container's user needs to open the injected device nodes.
//!
//! A node is bound from the host with the host's owner and mode, so that of `/dev/dri/renderD128`
//! only root and the group `render` may open it. A container's process that is not root gets the
//! groups of its nodes as additional groups. Only the wrapper can do this: groups are set by the
//! runtime, from config.json, and a hook comes too late.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use injection_plan::plan::{Action, InjectionPlan};
use nix::sys::stat::makedev;
use rooted_path::read_regular_text;
use serde::Deserialize;

/// The largest map of groups that is read, in bytes: 340 lines (user_namespaces(7)).
const MAX_MAP: u64 = 16 * 1024;

/// The permission to read and write, in the bits of all others.
const OPENED: u32 = 0o006;

/// The user of the container's process (OCI runtime specification, "POSIX-platform User").
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProcessUser {
    uid: u32,
    gid: u32,
    additional_gids: Vec<u32>,
}

impl ProcessUser {
    /// Reads the user from the text of config.json. A user that cannot be read counts as root,
    /// and the runtime reports the error.
    fn from_config(text: &str) -> Self {
        #[derive(Deserialize)]
        struct Config {
            process: Process,
        }
        #[derive(Deserialize)]
        struct Process {
            user: ProcessUser,
        }
        serde_json::from_str(text).map_or_else(|_| Self::default(), |it: Config| it.process.user)
    }
}

/// Returns whether this process sees the host's groups. In a user namespace, as in a rootless
/// engine, stat(2) shows the overflow group for a group that is not mapped, and setgroups(2)
/// refuses it.
fn has_all_groups() -> bool {
    let map = read_regular_text(Path::new("/proc/self/gid_map"), MAX_MAP).unwrap_or_default();
    let numbers: Vec<&str> = map.split_whitespace().collect();
    numbers == ["0", "0", "4294967295"]
}

/// Returns the groups of the plan's nodes that the user in `config`, the text of config.json,
/// lacks. It is empty for root, and in a user namespace, where the host's groups have no meaning.
pub(super) fn find_missing_groups(
    config: &str,
    has_user_namespace: bool,
    plan: &InjectionPlan,
    host_root: &Path,
) -> BTreeSet<u32> {
    let user = ProcessUser::from_config(config);
    if user.uid == 0 || has_user_namespace || !has_all_groups() {
        return BTreeSet::new();
    }
    let nodes = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Node { own: Some(own), .. } => Some((own.mode, own.gid)),
        Action::Node { mount, number, .. } => {
            let path = mount.source.strip_prefix("/").unwrap_or(&mount.source);
            // The hook reports a node that is gone by now, or is another device's.
            let node = fs::metadata(host_root.join(path)).ok()?;
            let is_planned = node.rdev() == makedev(number.major.into(), number.minor.into());
            is_planned.then(|| (node.mode(), node.gid()))
        }
        Action::MakeNode { made, .. } => Some((made.own.mode, made.own.gid)),
        _ => None,
    });
    // A group is of use if it may do more than all others.
    let opened_by_group = nodes.filter(|(mode, _)| (mode >> 3) & !mode & OPENED != 0);
    let groups = opened_by_group.map(|(_, gid)| gid);
    groups
        .filter(|gid| *gid != 0 && *gid != user.gid && !user.additional_gids.contains(gid))
        .collect()
}
