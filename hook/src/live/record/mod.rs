//! The attachment record of one container: the devices that were attached or are followed, and
//! all that was changed in the container for them. Nothing here changes a container or a file.

mod announcement;
mod attached_device;
mod awaited_request;
mod created_file;
pub(super) mod device_text;
mod recorded_rule;
mod rename_devices;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use device_class::device::DeviceRule;
use device_class::name::DeviceRef;
use injection_plan::plan::{DetachedRequest, SpecRule};
use oci_spec::runtime::LinuxDeviceCgroup;
use serde::{Deserialize, Serialize};

pub(in crate::live) use announcement::Announcement;
pub(crate) use attached_device::AttachedDevice;
pub(in crate::live) use awaited_request::AwaitedRequest;
pub(in crate::live) use created_file::{CreatedFile, CreatedFileKind, FileIdentity, to_st_rdev};
pub(in crate::live) use recorded_rule::{
    RecordedRule, add_host_nodes, list_step_rules, to_device_rules,
};
pub(in crate::live) use users::merge_users;

use crate::oci::AttachRequest;

/// The devices of one start of a container, and what was changed in the container for them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttachmentRecord {
    pub(crate) id: String,
    /// The container's first process.
    pub(crate) pid: i32,
    /// The start time of the first process, in clock ticks since the boot (proc_pid_stat(5),
    /// field 22). A container with the same id that is started later has another one.
    #[serde(rename = "started")]
    pub(crate) start_time: u64,
    pub(crate) bundle: PathBuf,
    /// Whether the first process is the init process of a PID namespace. When it ends, the kernel
    /// ends all other processes of the container.
    #[serde(default)]
    pub(crate) is_init: bool,
    /// The path of the container's cgroup in its hierarchy. The container's processes may have
    /// moved to cgroups below it.
    #[serde(default)]
    pub(crate) cgroup: PathBuf,
    /// The inode number of the cgroup's directory. It is 0 if the container has no cgroup of its
    /// own, or if an older version wrote the record.
    #[serde(default)]
    pub(crate) cgroup_inode: u64,
    /// The device rules of the specification. `None` means that an older version wrote the
    /// record.
    #[serde(default, rename = "spec", skip_serializing_if = "Option::is_none")]
    pub(crate) spec_rules: Option<Vec<LinuxDeviceCgroup>>,
    pub(crate) devices: Vec<AttachedDevice>,
    /// The requests of the container for devices that the host did not have at its start. A device
    /// that comes later is added to `devices`.
    #[serde(default, rename = "waiting", skip_serializing_if = "Vec::is_empty")]
    pub(crate) awaited_requests: Vec<AwaitedRequest>,
    /// The requests that `boathook detach` ended while the container waited for their devices. Each
    /// has the ids of the devices that had arrived before.
    #[serde(default, rename = "detached", skip_serializing_if = "Vec::is_empty")]
    pub(crate) ended_requests: Vec<AwaitedRequest>,
    /// The device rules that the container lacked before they were added.
    pub(crate) rules: Vec<RecordedRule>,
    /// The files that were created in the container's root.
    #[serde(rename = "made")]
    pub(crate) files: Vec<CreatedFile>,
    /// Whether `rules` has all rules that the hook added at the container's start and that the
    /// specification does not have.
    #[serde(default, rename = "whole")]
    pub(crate) has_all_rules: bool,
    /// Whether the hook gave the container nothing at its start.
    #[serde(default)]
    pub(crate) was_given_nothing: bool,
    /// The device rules of the specification that were revoked.
    #[serde(default, rename = "withdrawn", skip_serializing_if = "Vec::is_empty")]
    pub(crate) revoked_spec_rules: Vec<RecordedRule>,
    /// The announcements that the container's programs have received, by device.
    #[serde(
        default,
        rename = "told",
        with = "device_text::by_device",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub(crate) announced: BTreeMap<DeviceRef, BTreeSet<Announcement>>,
}

impl AttachmentRecord {
    /// Returns the devices that a user attached, as grants for a plan.
    pub(crate) fn attached_grants(&self) -> Vec<AttachRequest> {
        let attached = self.devices.iter().filter(|it| it.given_by.is_user());
        attached
            .map(|device| device.to_grant(device.to_request()))
            .collect()
    }

    /// Returns the parts of the container's own request that were detached.
    pub(crate) fn detached_requests(&self) -> Vec<DetachedRequest> {
        let ended = self
            .ended_requests
            .iter()
            .map(|it| it.to_detached_request(true));
        let in_part = self
            .awaited_requests
            .iter()
            .filter(|it| !it.detached.is_empty());
        ended
            .chain(in_part.map(|it| it.to_detached_request(false)))
            .collect()
    }

    /// Removes rules that were revoked, and notes which of them the specification has.
    pub(crate) fn remove_revoked(&mut self, revoked: &[RecordedRule]) {
        self.rules.retain(|rule| !revoked.contains(rule));
        for rule in revoked {
            if self.spec_allows_alone(&rule.rule) && !self.revoked_spec_rules.contains(rule) {
                self.revoked_spec_rules.push(rule.clone());
            }
        }
    }

    /// Whether the specification has a rule that allows this device and no other. A record
    /// without the specification's rules counts as having one.
    fn spec_allows_alone(&self, rule: &DeviceRule) -> bool {
        let wanted = SpecRule::from(rule);
        self.parse_spec_rules().is_none_or(|spec| {
            spec.iter().any(|known| {
                (known.allow, known.kind) == (true, wanted.kind)
                    && (known.major, known.minor) == (wanted.major, wanted.minor)
            })
        })
    }

    /// Returns the device rules of the specification, if the record has them.
    pub(in crate::live) fn parse_spec_rules(&self) -> Option<Vec<SpecRule>> {
        self.spec_rules
            .as_deref()
            .map(crate::oci::convert_device_rules)
    }

    /// Returns a record of the same container without devices, rules and files.
    pub(crate) fn without_content(&self) -> Self {
        AttachmentRecord {
            devices: Vec::new(),
            awaited_requests: Vec::new(),
            ended_requests: Vec::new(),
            rules: Vec::new(),
            files: Vec::new(),
            has_all_rules: false,
            revoked_spec_rules: Vec::new(),
            announced: BTreeMap::new(),
            ..self.clone()
        }
    }

    /// Whether both records are from the same start of the same container.
    pub(in crate::live) fn is_from_same_start(&self, other: &Self) -> bool {
        (self.pid, self.start_time) == (other.pid, other.start_time)
    }

    /// Copies the fields that an older version did not write from `new`, a record of the same start.
    pub(in crate::live) fn with_missing_fields(mut self, new: Self) -> Self {
        if self.spec_rules.is_none() {
            self.spec_rules = new.spec_rules;
            self.is_init = new.is_init;
        }
        if self.cgroup_inode == 0 && self.cgroup == new.cgroup {
            self.cgroup_inode = new.cgroup_inode;
        }
        self
    }

    /// Whether the record's file must be kept. Revoked rules of the specification alone are a reason,
    /// because an update of the container would allow them again.
    pub(in crate::live) fn has_content(&self) -> bool {
        self.has_attachments() || !self.revoked_spec_rules.is_empty()
    }

    /// Whether the record has devices, requests, rules or files, which belong to this start of the
    /// container alone.
    pub(in crate::live) fn has_attachments(&self) -> bool {
        let has_devices =
            !self.devices.is_empty() || !self.awaited_requests.is_empty() || !self.rules.is_empty();
        has_devices
            || !self.files.is_empty()
            || !self.ended_requests.is_empty()
            || self.has_all_rules
    }
}

#[cfg(test)]
mod tests;
