//! Changes the device rules of a container. The rules decide which devices the processes in the
//! container's cgroup may open.
//!
//! The runtime sets the rules of a container before it calls hooks. On cgroup v1, the kernel keeps
//! a list of rules for each cgroup. On cgroup v2, device programs are attached to the container's
//! cgroup and to any of its ancestors. All of them must allow an access.
//!
//! If systemd manages the cgroup, the rules are first added to the systemd unit ([`systemd`]).
//! Otherwise they would be lost when systemd generates the unit's rules again from its own data,
//! for example at a `daemon-reload`. [`DeviceCgroup::allow`] adds the rules to the unit and to the
//! cgroup.
//!
//! A container that gets a device must not give another container access to the device. So the
//! rules of an enclosing container or of the host are never changed: if they deny the device, the
//! container does not start. The only exceptions are slices and services of systemd, which an
//! administrator configures. A change of these is reported.

mod allow;
mod denied;
mod error;
mod locate;
mod members;
mod membership;
mod privilege;
mod report;
mod revoke;
mod rule;
mod rule_files;
mod spec_rules;
pub(crate) mod systemd;
#[cfg(test)]
mod tests;
mod v1;
mod v2;

use std::path::{Path, PathBuf};

pub use denied::DeniedRules;
pub use error::CgroupError;
#[cfg(test)]
use locate::KernelMountPaths;
pub(crate) use rule::DeviceRule;
pub use rule_files::list_rule_change_files;
pub use spec_rules::SpecRules;
#[cfg(feature = "fuzzing")]
pub use v2::fuzzing::device_program;
pub use v2::hides_new_programs;

/// The cgroup that controls which devices a process may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceCgroup {
    /// A cgroup of v1 in the hierarchy of the `devices` controller. The kernel keeps a list of
    /// rules for it.
    V1(CgroupDir),
    /// A cgroup of v2. Its rules are the device programs (`BPF_PROG_TYPE_CGROUP_DEVICE`) that are
    /// attached to it.
    V2(CgroupDir),
}

/// The location of a cgroup: its directory in the file system, and its path in the hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupDir {
    /// The mount point of the hierarchy, such as `/sys/fs/cgroup`.
    mount: PathBuf,
    /// The directory of the cgroup, such as `/sys/fs/cgroup/system.slice`. It is `mount` itself for
    /// the root of the hierarchy.
    dir: PathBuf,
    /// The path of the cgroup in its hierarchy, such as `/system.slice`, as `/proc/PID/cgroup`
    /// shows it.
    path: PathBuf,
}

/// A container's cgroup, or one of its ancestors that is visible below the mount point of cgroups.
#[derive(Clone, Copy, Debug)]
struct Ancestor<'a> {
    dir: &'a Path,
    /// The path of the cgroup in its hierarchy. Its components can be names of systemd units, which
    /// show the owner of the cgroup.
    path: &'a Path,
    owner: CgroupOwner,
}

/// The owner of a cgroup's device rules. Only if the owner is the container or a systemd unit may
/// Boathook change the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupOwner {
    /// The cgroup belongs to the container. If the runtime created the container's cgroup below a
    /// systemd scope, as crun does, the scope belongs to the container as well.
    Container,
    /// The cgroup belongs to a systemd slice or service, such as `kubepods.slice`, which an
    /// administrator configures.
    Unit,
    /// The cgroup belongs to an enclosing container or to the host. Its rules are never changed.
    Enclosing,
}

impl CgroupDir {
    /// Returns this cgroup and its ancestors, in the order from this cgroup to the mount point.
    fn self_and_ancestors(&self) -> impl Iterator<Item = Ancestor<'_>> {
        let dirs = self
            .dir
            .ancestors()
            .take_while(|dir| dir.starts_with(&self.mount));
        dirs.zip(self.path.ancestors()).map(|(dir, path)| Ancestor {
            dir,
            path,
            owner: self.determine_owner(dir, path),
        })
    }

    fn determine_owner(&self, dir: &Path, path: &Path) -> CgroupOwner {
        let has_unit_type = |path: &Path, unit_types: &[&str]| {
            let unit_type = path.extension().and_then(|unit_type| unit_type.to_str());
            unit_type.is_some_and(|unit_type| unit_types.contains(&unit_type))
        };
        let leaf = self.dir.as_path();
        let leaf_is_unit = has_unit_type(leaf, &["scope", "service", "slice"]);
        let is_scope_of_leaf =
            !leaf_is_unit && leaf.parent() == Some(dir) && has_unit_type(path, &["scope"]);
        if dir != self.mount && (dir == leaf || is_scope_of_leaf) {
            CgroupOwner::Container
        } else if has_unit_type(path, &["service", "slice"]) {
            CgroupOwner::Unit
        } else {
            CgroupOwner::Enclosing
        }
    }
}
