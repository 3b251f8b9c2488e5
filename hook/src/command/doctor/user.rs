//! Checks that the container's user may open the device nodes. A node in a container has the
//! mode and the group of the host's node, and most drivers give access to root only.

use std::fs;
use std::path::Path;

use device_class::device::Access;
use injection_plan::plan::{Action, InjectionPlan};

use crate::command::finding::{Finding, Verdict};
use crate::command::running_root::RunningRoot;
use crate::exit::ExitCode;

/// The bit of CAP_DAC_OVERRIDE. A process with this capability bypasses checks of file modes
/// (capabilities(7)).
const DAC_OVERRIDE: u64 = 1 << 1;

/// The ids that the kernel compares with a file's owner and group, in the host's user namespace.
#[derive(Debug, PartialEq, Eq)]
struct Credentials {
    uid: u32,
    groups: Vec<u32>,
    /// Whether the process bypasses the mode of files that belong to the host's users.
    overrides: bool,
}

impl Credentials {
    /// Parses /proc/PID/status. `apart` means that the process has its own user namespace. The
    /// capabilities of such a process have no effect on the host's files.
    fn parse(status: &str, apart: bool) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        // The line has the real, effective, saved and file system id. The kernel uses the last
        // one for file access (proc_pid_status(5)).
        let last = |name: &str| field(name)?.split_whitespace().nth(3)?.parse().ok();
        let mut groups: Vec<u32> = field("Groups")?
            .split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect();
        groups.push(last("Gid")?);
        let capabilities = u64::from_str_radix(field("CapEff")?.trim(), 16).ok()?;
        Some(Credentials {
            uid: last("Uid")?,
            groups,
            overrides: capabilities & DAC_OVERRIDE != 0 && !apart,
        })
    }

    /// Returns whether the process may open a file with this owner, group and mode.
    fn may_open(&self, uid: u32, gid: u32, mode: u32, access: Access) -> bool {
        let bits = match (self.uid == uid, self.groups.contains(&gid)) {
            (true, _) => mode >> 6,
            (false, true) => mode >> 3,
            (false, false) => mode,
        };
        let reads = !access.contains(Access::READ) || bits & 4 != 0;
        let writes = !access.contains(Access::WRITE) || bits & 2 != 0;
        self.overrides || reads && writes
    }
}

#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub(super) fn finding(root: &RunningRoot, plan: &InjectionPlan) -> Option<Finding> {
    const SUBJECT: &str = "user";
    let process = Path::new("/proc").join(root.pid.to_string());
    let namespace = |process: &Path| fs::read_link(process.join("ns/user")).ok();
    let apart = namespace(&process) != namespace(Path::new("/proc/self"));
    let status = fs::read_to_string(process.join("status")).ok()?;
    let user = Credentials::parse(&status, apart)?;
    let mut nodes = 0;
    for step in &plan.steps {
        let (path, number) = match &step.action {
            Action::Node { mount, number, .. } => (&mount.path, number),
            Action::MakeNode { path, number, .. } => (path, number),
            _ => continue,
        };
        let Ok(Some(handle)) = root.look(path) else {
            continue;
        };
        nodes += 1;
        let stat = handle.stat();
        let access = plan.steps.iter().find_map(|step| match &step.action {
            Action::Allow { rule, .. } if rule.number == *number => Some(rule.access),
            _ => None,
        });
        let mode = stat.st_mode & 0o777;
        if !user.may_open(stat.st_uid, stat.st_gid, mode, access.unwrap_or_default()) {
            let text = format!(
                "uid {} may not open {}, which has mode {mode:04o}, owner {} and group {}",
                user.uid,
                path.display(),
                stat.st_uid,
                stat.st_gid
            );
            return Some(Finding::fault(ExitCode::UserDenied, SUBJECT, text).fix(format!(
                "run the container as a user with the group (--group-add {}, supplementalGroups), \
                 change the host's udev rule, or set `mode` or `gid` of the node in the class",
                stat.st_gid
            )));
        }
    }
    (nodes > 0).then(|| {
        let text = format!("uid {} may open every node", user.uid);
        Finding::new(Verdict::Ok, SUBJECT, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(uid: u32, capabilities: &str, apart: bool) -> Credentials {
        let status = format!(
            "Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\n\
             Groups:\t27 44 \nCapEff:\t{capabilities}\n"
        );
        Credentials::parse(&status, apart).unwrap()
    }

    #[test]
    fn the_mode_of_the_node_decides_unless_a_capability_overrides_it() {
        const ALL: &str = "00000000a80425fb";
        const NONE: &str = "0000000000000000";
        for (user, owner, group, mode, may) in [
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
            let found = user.may_open(owner, group, mode, Access::default());
            assert_eq!(found, may, "{user:?} {owner} {group} {mode:o}");
        }
        let user = credentials(1000, NONE, false);
        assert!(user.may_open(0, 0, 0o604, Access::READ));
    }
}
