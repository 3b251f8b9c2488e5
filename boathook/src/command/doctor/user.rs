//! Examines whether the container's user may open the device nodes. A device node in a container
//! has the mode and the group of the host's node, and many drivers allow access only for root.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use device_class::device::{Access, DeviceNumber};
use hook::exit::ExitCode;
use injection_plan::plan::{Action, InjectionPlan, SpecNode};

use crate::command::finding::{Finding, Severity};
use crate::command::launcher::Launcher;
use crate::command::running_root::RunningContainerRoot;

/// The bit of CAP_DAC_OVERRIDE in `CapEff` of /proc/PID/status. A process with this capability may
/// open files regardless of their permissions (capabilities(7)).
const CAP_DAC_OVERRIDE_MASK: u64 = 1 << 1;

/// The ids of a process that the kernel compares with the owner and group of a file. All ids are
/// valid in the host's user namespace.
#[derive(Debug, PartialEq, Eq)]
struct Credentials {
    uid: u32,
    gids: Vec<u32>,
    /// True if the process may open the host's files regardless of their permissions.
    can_bypass_permissions: bool,
}

impl Credentials {
    /// Parses the content of /proc/PID/status. `has_user_namespace` is true if the process has its
    /// own user namespace. Its capabilities then have no effect on the host's files.
    fn parse(status: &str, has_user_namespace: bool) -> Option<Self> {
        let find_field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        // The lines `Uid` and `Gid` contain the real, effective, saved and file system ids
        // (proc_pid_status(5)). The kernel uses the file system ids to check access to files.
        let parse_filesystem_id =
            |name: &str| find_field(name)?.split_whitespace().nth(3)?.parse().ok();
        let mut gids: Vec<u32> = find_field("Groups")?
            .split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect();
        gids.push(parse_filesystem_id("Gid")?);
        let capabilities = u64::from_str_radix(find_field("CapEff")?.trim(), 16).ok()?;
        Some(Credentials {
            uid: parse_filesystem_id("Uid")?,
            gids,
            can_bypass_permissions: capabilities & CAP_DAC_OVERRIDE_MASK != 0
                && !has_user_namespace,
        })
    }

    /// Returns whether the process may open a file for `access`. `uid`, `gid` and `mode` are the
    /// file's owner, group and permissions.
    fn may_open(&self, uid: u32, gid: u32, mode: u32, access: Access) -> bool {
        let permission_bits = match (self.uid == uid, self.gids.contains(&gid)) {
            (true, _) => mode >> 6,
            (false, true) => mode >> 3,
            (false, false) => mode,
        };
        let can_read = !access.contains(Access::READ) || permission_bits & 4 != 0;
        let can_write = !access.contains(Access::WRITE) || permission_bits & 2 != 0;
        self.can_bypass_permissions || can_read && can_write
    }
}

#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub(super) fn examine_user_access(
    root: &RunningContainerRoot,
    plan: &InjectionPlan,
    spec_nodes: &[SpecNode],
    launcher: Launcher,
) -> Option<Finding> {
    const SUBJECT: &str = "user";
    let process_dir = Path::new("/proc").join(root.pid.to_string());
    let read_user_namespace = |process_dir: &Path| fs::read_link(process_dir.join("ns/user")).ok();
    let has_user_namespace =
        read_user_namespace(&process_dir) != read_user_namespace(Path::new("/proc/self"));
    let status = fs::read_to_string(process_dir.join("status")).ok()?;
    let credentials = Credentials::parse(&status, has_user_namespace)?;
    let mut checked_node_count = 0;
    for (path, number) in list_device_nodes(plan, spec_nodes) {
        let Ok(Some(handle)) = root.look_up(path) else {
            continue;
        };
        checked_node_count += 1;
        let stat = handle.stat();
        let access = plan.steps.iter().find_map(|step| match &step.action {
            Action::Allow { rule, .. } if rule.number == number => Some(rule.access),
            _ => None,
        });
        let mode = stat.st_mode & 0o777;
        if !credentials.may_open(stat.st_uid, stat.st_gid, mode, access.unwrap_or_default()) {
            let text = format!(
                "uid {} may not open {}, which has mode {mode:04o}, owner {} and group {}",
                credentials.uid,
                path.display(),
                stat.st_uid,
                stat.st_gid
            );
            // The group of root, and a group that may not do more than other users, are no help.
            let group_bits = (mode >> 3) & !mode & 6;
            let useful_gid = Some(stat.st_gid).filter(|gid| *gid != 0 && group_bits != 0);
            let fix = describe_access_fix(has_user_namespace, useful_gid, launcher);
            return Some(Finding::new_fault(ExitCode::UserDenied, SUBJECT, text).with_fix(fix));
        }
    }
    (checked_node_count > 0).then(|| {
        let text = format!("uid {} may open every node", credentials.uid);
        Finding::new(Severity::Ok, SUBJECT, text)
    })
}

/// Describes what a user can do if the container's user may not open a device node.
/// `has_user_namespace` is true if the container has its own user namespace. `useful_gid` is the
/// group of the node, if its members have more access than other users.
fn describe_access_fix(
    has_user_namespace: bool,
    useful_gid: Option<u32>,
    launcher: Launcher,
) -> String {
    if has_user_namespace {
        let udev_rule = "give the host's node the mode 0666 by a udev rule";
        let alternative = match (launcher, useful_gid) {
            // crun keeps the groups of the user who starts a rootless container. Nobody should be
            // in the group of root.
            (Launcher::Podman, Some(gid)) => format!(
                "add the user of a rootless container to the host's group {gid} of the node, log in \
                 again, and create the container with `--group-add keep-groups` (crun); or \
                 {udev_rule}"
            ),
            (Launcher::Podman, None) => format!(
                "{udev_rule}, or a group of which the user of a rootless container is a member, \
                 with `--group-add keep-groups` (crun)"
            ),
            (Launcher::Docker, _) => format!("{udev_rule}, or use `--userns=host`"),
            (Launcher::Pod, _) => format!("{udev_rule}, or leave out `hostUsers: false`"),
            (Launcher::RuntimeHandler | Launcher::OciRuntime, _) => {
                format!("{udev_rule}, or use the host's user namespace")
            }
        };
        return format!(
            "the container has a user namespace, in which root and groups are not the host's: \
             {alternative}; `mode`, `gid` and `node_mode` have no effect there"
        );
    }
    let node_fix = "change the host's udev rule, or set `mode` or `gid` of the node in the class";
    match useful_gid {
        Some(gid) => format!(
            "give the container's user the group of the node: {}; or {node_fix}",
            launcher.describe_group_option(gid)
        ),
        None => node_fix.to_owned(),
    }
}

/// Returns the device nodes that the plan creates in the container, and those to which it only
/// allows access. The engine adds nodes of the second kind because of a CDI specification, so they
/// are found by their device rules.
fn list_device_nodes<'a>(
    plan: &'a InjectionPlan,
    spec_nodes: &'a [SpecNode],
) -> BTreeMap<&'a Path, DeviceNumber> {
    let actions = plan.steps.iter().map(|step| &step.action);
    let is_allowed = |number: DeviceNumber| {
        let mut actions = actions.clone();
        actions.any(|action| matches!(action, Action::Allow { rule, .. } if rule.number == number))
    };
    let engine_nodes = spec_nodes.iter().filter(|node| is_allowed(node.number));
    let engine_nodes = engine_nodes.map(|node| (node.path.as_path(), node.number));
    let planned_nodes = actions.clone().filter_map(|action| match action {
        Action::Node { mount, number, .. } => Some((mount.path.as_path(), *number)),
        Action::MakeNode { path, number, .. } => Some((path.as_path(), *number)),
        _ => None,
    });
    engine_nodes.chain(planned_nodes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(uid: u32, capabilities: &str, has_user_namespace: bool) -> Credentials {
        let status = format!(
            "Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\n\
             Groups:\t27 44 \nCapEff:\t{capabilities}\n"
        );
        Credentials::parse(&status, has_user_namespace).unwrap()
    }

    #[test]
    fn the_mode_of_the_node_decides_unless_a_capability_overrides_it() {
        const ALL: &str = "00000000a80425fb";
        const NONE: &str = "0000000000000000";
        for (user, owner, gid, mode, may) in [
            (credentials(0, ALL, false), 0, 0, 0o600, true),
            (credentials(0, NONE, false), 0, 0, 0o600, true),
            (credentials(1000, NONE, false), 0, 0, 0o600, false),
            (credentials(1000, NONE, false), 0, 44, 0o660, true),
            (credentials(1000, NONE, false), 0, 45, 0o660, false),
            (credentials(1000, NONE, false), 0, 0, 0o666, true),
            (credentials(1000, NONE, false), 1000, 0, 0o066, false),
            (credentials(1000, ALL, false), 0, 0, 0o600, true),
            (credentials(100_000, ALL, true), 0, 0, 0o600, false),
        ] {
            let found = user.may_open(owner, gid, mode, Access::default());
            assert_eq!(found, may, "{user:?} {owner} {gid} {mode:o}");
        }
        let user = credentials(1000, NONE, false);
        assert!(user.may_open(0, 0, 0o604, Access::READ));
    }

    /// A group of the container is another one on the host, and the runtime mounts the host's node.
    #[test]
    fn in_a_user_namespace_only_the_mode_of_the_hosts_node_helps() {
        for (launcher, gid, words, other_words) in [
            (Launcher::Docker, Some(44), "`--userns=host`", "--group-add"),
            (Launcher::Pod, Some(44), "`hostUsers: false`", "--group-add"),
            (
                Launcher::Podman,
                Some(44),
                "the host's group 44 of the node, log in again, and create the container with \
                 `--group-add keep-groups`",
                "hostUsers",
            ),
            (
                Launcher::Podman,
                None,
                "by a udev rule, or a group of which the user",
                "host's group 0",
            ),
        ] {
            let fix = describe_access_fix(true, gid, launcher);
            assert!(fix.contains("the mode 0666 by a udev rule"), "{fix}");
            assert!(fix.contains(words), "{fix}");
            assert!(!fix.contains(other_words), "{fix}");
        }
        for (launcher, words) in [
            (Launcher::Docker, "compose: `group_add: [\"44\"]`"),
            (Launcher::Podman, "add `--group-add 44`"),
            (Launcher::Pod, "supplementalGroups: [44]"),
            (Launcher::OciRuntime, "additionalGids"),
        ] {
            let fix = describe_access_fix(false, Some(44), launcher);
            assert!(fix.contains(words), "{fix}");
            let fix = describe_access_fix(false, None, launcher);
            assert!(
                fix.starts_with("change the host's udev rule, or set `mode`"),
                "{fix}"
            );
        }
    }
}
