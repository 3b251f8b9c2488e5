//! Which devices a container may open: rules in its device cgroup.
//!
//! The runtime has set the container's rules before it calls hooks, and does
//! not set them again; what is added here stays. On cgroup v1 the kernel keeps
//! a list per cgroup. On v2 there is no list but programs, at the container's
//! cgroup and at any of its ancestors, and all of them must say yes.
//!
//! With systemd as the cgroup driver the unit must be told first
//! ([`systemd`]): it makes the rules anew from its own record whenever it
//! pleases, for instance on `daemon-reload`. [`DeviceCgroup::grant`] does both.

mod error;
mod grant;
mod kernel_file;
mod locate;
mod membership;
mod mountinfo;
#[cfg(test)]
mod prober;
mod report;
mod rule;
mod spec_rules;
pub mod systemd;
mod v1;
mod v2;

use std::path::{Path, PathBuf};

pub use error::{CgroupError, RuleError};
pub use grant::Grant;
pub use locate::HostRoots;
pub use report::{LevelReport, Outcome, Report};
pub use rule::{Access, DeviceKind, DeviceRule};
pub use spec_rules::SpecRules;

/// The cgroup that decides over a process's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceCgroup {
    /// A cgroup of the v1 `devices` hierarchy, with its list of rules.
    V1(CgroupDir),
    /// A cgroup of the unified hierarchy, with its programs.
    V2(CgroupDir),
}

/// Where a cgroup is in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupDir {
    /// The mount of the hierarchy.
    mount: PathBuf,
    /// The cgroup's directory, `mount` or under it.
    dir: PathBuf,
    /// The cgroup's path in its hierarchy, as `/proc/PID/cgroup` gives it.
    path: PathBuf,
}

impl CgroupDir {
    /// The directories from the cgroup up to the highest that can be seen.
    fn levels(&self) -> impl Iterator<Item = &Path> {
        self.dir
            .ancestors()
            .take_while(|dir| dir.starts_with(&self.mount))
    }
}

impl DeviceCgroup {
    /// Finds the device cgroup of a process, or `None` if this host has no
    /// device controller.
    ///
    /// # Errors
    ///
    /// If `/proc` can't be read or understood, or the process's cgroup lies
    /// outside every mount of its hierarchy.
    pub fn of(pid: i32) -> Result<Option<Self>, CgroupError> {
        Self::find(&HostRoots::default(), pid)
    }

    /// [`DeviceCgroup::of`], on a host whose `/proc` and `/sys/fs/cgroup` are
    /// elsewhere.
    ///
    /// # Errors
    ///
    /// As [`DeviceCgroup::of`].
    pub fn find(roots: &HostRoots, pid: i32) -> Result<Option<Self>, CgroupError> {
        locate::find(roots, pid)
    }

    /// The cgroup's path in its hierarchy, for instance
    /// `/system.slice/docker-0123.scope`.
    pub fn path(&self) -> &Path {
        match self {
            Self::V1(cgroup) | Self::V2(cgroup) => &cgroup.path,
        }
    }

    /// Lets the cgroup's processes use the devices in `rules`, on top of what
    /// they may do already.
    ///
    /// `regenerate` holds the rules that the runtime was given. They are used
    /// where the kernel does not show the program that enforces them, and a new
    /// one has to be made.
    ///
    /// Needs CAP_SYS_ADMIN, for v2 also CAP_NET_ADMIN, and before Linux 5.11
    /// CAP_SYS_RESOURCE if little memory may be locked.
    ///
    /// The report says what was done at each level. Missing privileges are an
    /// [`Outcome::NoPermission`] in it: a rootless runtime could not restrict
    /// the devices either.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, or if an ancestor denies a device in a way that
    /// can't be changed from here. Rules may then be set at some levels and not
    /// at others; no device has become usable that is not in `rules`.
    pub fn allow(
        &self,
        rules: &[DeviceRule],
        regenerate: &SpecRules,
    ) -> Result<Report, CgroupError> {
        let rules = rule::merge(rules);
        if rules.is_empty() {
            return Ok(Report::default());
        }
        match self {
            Self::V1(cgroup) => v1::allow(cgroup, &rules),
            Self::V2(cgroup) => v2::allow(cgroup, &rules, regenerate),
        }
    }
}
