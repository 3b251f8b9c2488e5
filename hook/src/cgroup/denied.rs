//! Finds out what a cgroup denies at present, to explain why a device cannot be opened.

use super::error::CgroupError;
use super::rule::{self, DeviceRule};
use super::{DeviceCgroup, v1, v2};

/// The device rules that a cgroup or its ancestors deny.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DeniedRules {
    /// The rules of which any part is denied.
    pub rules: Vec<DeviceRule>,
    /// The number of programs that the kernel hides, and that may deny more.
    pub unreadable: usize,
}

impl DeviceCgroup {
    /// Returns whether the kernel hides a program of the container's own cgroups. Such a
    /// program cannot be rewritten; it can only be generated again as a whole.
    pub(crate) fn has_hidden_program(&self) -> Result<bool, CgroupError> {
        match self {
            Self::V1(_) => Ok(false),
            Self::V2(cgroup) => v2::has_hidden_program(cgroup),
        }
    }

    /// Whether the cgroup may deny devices that its list does not show. A list of cgroup v1 that
    /// allows everything has exceptions, which the kernel does not print.
    pub(crate) fn has_hidden_exceptions(&self) -> Result<bool, CgroupError> {
        match self {
            Self::V1(cgroup) => Ok(v1::DeviceList::read(&cgroup.dir)? == v1::DeviceList::AllowsAll),
            Self::V2(_) => Ok(false),
        }
    }

    /// Returns the rules that the cgroup denies, without changing anything.
    pub(crate) fn find_denied_rules(
        &self,
        rules: &[DeviceRule],
    ) -> Result<DeniedRules, CgroupError> {
        let wanted = rule::merge(rules);
        match self {
            // The kernel lets no list allow more than the lists above it, so the list of the
            // cgroup itself is sufficient.
            Self::V1(cgroup) => {
                let list = v1::DeviceList::read(&cgroup.dir)?;
                let rules = wanted.into_iter().filter(|rule| !list.allows(rule));
                Ok(DeniedRules {
                    rules: rules.collect(),
                    unreadable: 0,
                })
            }
            Self::V2(cgroup) => {
                let (rules, unreadable) = v2::find_denied_rules(cgroup, &wanted)?;
                Ok(DeniedRules { rules, unreadable })
            }
        }
    }
}
