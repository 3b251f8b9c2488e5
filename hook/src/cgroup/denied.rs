//! What a cgroup denies now, for those who ask why a device cannot be opened.

use super::error::CgroupError;
use super::rule::{self, DeviceRule};
use super::{DeviceCgroup, v1, v2};

/// What a cgroup, with those above it, denies of some rules.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Denied {
    /// The rules of which any part is denied.
    pub rules: Vec<DeviceRule>,
    /// Programs that the kernel does not show, and that may deny more.
    pub unreadable: usize,
}

impl DeviceCgroup {
    /// Whether the kernel hides what the container's own cgroups allow, so that it can only be
    /// made again as a whole.
    pub(crate) fn hides(&self) -> Result<bool, CgroupError> {
        match self {
            Self::V1(_) => Ok(false),
            Self::V2(cgroup) => v2::hides(cgroup),
        }
    }

    /// Whether the cgroup may deny devices that its list does not show: a list of cgroup v1 that
    /// allows everything has exceptions, which the kernel does not print.
    pub(crate) fn hides_exceptions(&self) -> Result<bool, CgroupError> {
        match self {
            Self::V1(cgroup) => Ok(v1::DeviceList::read(&cgroup.dir)? == v1::DeviceList::AllowsAll),
            Self::V2(_) => Ok(false),
        }
    }

    /// What the cgroup denies of these rules. Nothing is changed.
    pub(crate) fn denied(&self, rules: &[DeviceRule]) -> Result<Denied, CgroupError> {
        let wanted = rule::merge(rules);
        match self {
            // The kernel lets no list allow more than those above it.
            Self::V1(cgroup) => {
                let list = v1::DeviceList::read(&cgroup.dir)?;
                let rules = wanted.into_iter().filter(|rule| !list.covers(rule));
                Ok(Denied {
                    rules: rules.collect(),
                    unreadable: 0,
                })
            }
            Self::V2(cgroup) => {
                let (rules, unreadable) = v2::denied_now(cgroup, &wanted)?;
                Ok(Denied { rules, unreadable })
            }
        }
    }
}
