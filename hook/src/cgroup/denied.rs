//! Finds the device accesses that a cgroup denies. They explain why a process of the container
//! cannot open a device.

use super::error::CgroupError;
use super::rule::{self, DeviceRule};
use super::{DeviceCgroup, v1, v2};

/// The result of [`DeviceCgroup::find_denied_rules`]: the tested device rules that the cgroup or
/// one of its ancestors denies.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DeniedRules {
    /// The rules with at least one access (read, write or mknod) that is denied.
    pub rules: Vec<DeviceRule>,
    /// The number of device programs that this process could not evaluate. They may deny more
    /// accesses than `rules` shows.
    pub unreadable_program_count: usize,
}

impl DeviceCgroup {
    /// Reports whether the kernel hides the instructions of a device program that is attached to
    /// the container's own cgroups (`net.core.bpf_jit_harden=2`). A hidden program cannot be
    /// rewritten. It can only be replaced by a new program that is generated from config.json.
    pub fn is_device_program_hidden(&self) -> Result<bool, CgroupError> {
        match self {
            Self::V1(_) => Ok(false),
            Self::V2(cgroup) => v2::is_device_program_hidden(cgroup),
        }
    }

    /// Reports whether the cgroup may deny devices that this process cannot list. This happens in
    /// cgroup v1 if `devices.list` is `a *:* rwm`: the kernel then allows all devices except those
    /// in an internal list, which no file shows.
    pub fn has_hidden_exceptions(&self) -> Result<bool, CgroupError> {
        match self {
            Self::V1(cgroup) => {
                Ok(v1::CgroupDeviceList::read(&cgroup.dir)? == v1::CgroupDeviceList::AllDevices)
            }
            Self::V2(_) => Ok(false),
        }
    }

    /// Returns those of `rules` that the cgroup or an ancestor denies, completely or in part.
    /// Changes nothing.
    pub fn find_denied_rules(&self, rules: &[DeviceRule]) -> Result<DeniedRules, CgroupError> {
        let merged_rules = rule::merge_by_device(rules);
        match self {
            // A cgroup of v1 never allows more than its ancestors allow. So the list of this cgroup
            // is enough.
            Self::V1(cgroup) => {
                let list = v1::CgroupDeviceList::read(&cgroup.dir)?;
                let rules = merged_rules.into_iter().filter(|rule| !list.allows(rule));
                Ok(DeniedRules {
                    rules: rules.collect(),
                    unreadable_program_count: 0,
                })
            }
            Self::V2(cgroup) => {
                let (rules, unreadable_program_count) =
                    v2::find_denied_rules(cgroup, &merged_rules)?;
                Ok(DeniedRules {
                    rules,
                    unreadable_program_count,
                })
            }
        }
    }
}
