//! The attachment record of one container. It lists the devices that a user attached or that
//! `boathook follow` keeps up to date, and all changes that were made in the container for them.
//! This module only computes records: it changes neither containers nor files.

mod announcement;
mod awaited_request;
mod cancelled_requests;
mod container_device;
mod created_file;
mod device_text;
mod recorded_rule;
mod rename_devices;
mod step_owners;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use device_class::device::{DeviceNumber, DeviceRule};
use device_class::name::DeviceRef;
use injection_plan::plan::{DetachedRequest, SpecNode, SpecRule};
use oci_spec::runtime::LinuxDeviceCgroup;
use serde::{Deserialize, Serialize};

pub use announcement::Announcement;
pub use awaited_request::AwaitedRequest;
pub use container_device::ContainerDevice;
pub use created_file::{CreatedFile, CreatedFileKind, FileIdentity, to_st_rdev};
pub use device_text::make_substitute_id;
pub use recorded_rule::{RecordedRule, add_host_nodes, list_step_rules, to_device_rules};
pub use step_owners::merge_owners;

use crate::oci::AttachRequest;

/// The devices that a container received since it was started, and the changes that were made in
/// the container for them. A new start of the container needs a new record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AttachmentRecord {
    /// The id of the container, which is also the name of the record's file.
    pub id: String,
    /// The process id of the container's first process on the host.
    pub pid: i32,
    /// The start time of the first process, in clock ticks since the boot (proc_pid_stat(5), field
    /// 22). It distinguishes this container from a later one with the same id.
    #[serde(rename = "started")]
    pub start_time: u64,
    #[serde(rename = "bundle")]
    pub bundle_dir: PathBuf,
    /// Whether the first process is the init process of a PID namespace. If so, the kernel kills
    /// all other processes of the container when the first process ends.
    #[serde(default)]
    pub is_init: bool,
    /// The path of the container's cgroup in its hierarchy. The container's processes may have
    /// moved to cgroups below it.
    #[serde(default, rename = "cgroup")]
    pub cgroup_path: PathBuf,
    /// The inode number of the cgroup's directory. It is 0 if the container has no cgroup of its
    /// own, or if an older version of Boathook wrote the record.
    #[serde(default)]
    pub cgroup_inode: u64,
    /// The device rules of config.json. `None` means that an older version of Boathook wrote the
    /// record.
    #[serde(default, rename = "spec", skip_serializing_if = "Option::is_none")]
    pub spec_rules: Option<Vec<LinuxDeviceCgroup>>,
    pub devices: Vec<ContainerDevice>,
    /// The container's requests for devices that may arrive after the container's start. When such
    /// a device arrives, it is added to `devices`.
    #[serde(default, rename = "waiting", skip_serializing_if = "Vec::is_empty")]
    pub awaited_requests: Vec<AwaitedRequest>,
    /// The requests that `boathook detach` cancelled. If a device of such a request is plugged in
    /// later, it is not added to the container. Each request contains the ids of the devices that
    /// the container already had for it.
    #[serde(default, rename = "detached", skip_serializing_if = "Vec::is_empty")]
    pub cancelled_requests: Vec<AwaitedRequest>,
    /// The device rules that were added to the container's cgroup, by the hook or later.
    pub rules: Vec<RecordedRule>,
    /// The files that were created in the container's root. When devices are detached, they are
    /// removed in reverse order.
    #[serde(rename = "made")]
    pub files: Vec<CreatedFile>,
    /// Whether `rules` contains all rules that the hook added to those of config.json at the
    /// container's start. If the kernel hides the cgroup's eBPF device program, Boathook can
    /// generate the program again only from a complete list.
    #[serde(default, rename = "whole")]
    pub has_all_rules: bool,
    /// Whether the hook injected nothing when the container was started. In this case, all device
    /// rules come from config.json.
    #[serde(default, rename = "was_given_nothing")]
    pub had_no_injection_at_start: bool,
    /// The device rules of config.json that were revoked. When the runtime updates the container
    /// (`runc update`), it allows them again. So they must be revoked again after each update.
    #[serde(default, rename = "withdrawn", skip_serializing_if = "Vec::is_empty")]
    pub revoked_spec_rules: Vec<RecordedRule>,
    /// The announcements that were sent, by device. An announcement is a udev message that tells
    /// the container's programs about a device. The list is needed so that none is sent twice.
    #[serde(
        default,
        rename = "told",
        with = "device_text::by_device",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub announcements: BTreeMap<DeviceRef, BTreeSet<Announcement>>,
}

impl AttachmentRecord {
    /// Returns requests for the devices that a user attached. From them, the planner includes these
    /// devices in a new injection plan.
    pub fn list_attach_requests(&self) -> Vec<AttachRequest> {
        let attached_devices = self
            .devices
            .iter()
            .filter(|device| device.grant_origin.is_user());
        attached_devices
            .map(|device| device.to_attach_request(device.to_device_list()))
            .collect()
    }

    /// Returns the requests of the container whose devices a user has detached. The planner then
    /// leaves these devices out of the injection plan.
    pub fn list_detached_requests(&self) -> Vec<DetachedRequest> {
        let cancelled_requests = self
            .cancelled_requests
            .iter()
            .map(|request| request.to_detached_request(true));
        let partly_detached_requests = self
            .awaited_requests
            .iter()
            .filter(|request| !request.detached_ids.is_empty());
        cancelled_requests
            .chain(partly_detached_requests.map(|request| request.to_detached_request(false)))
            .collect()
    }

    /// Removes `revoked_rules` from the record. If config.json allows the device as well, adds the
    /// rule to `revoked_spec_rules`, because the runtime allows the device again when it updates
    /// the container.
    pub fn remove_revoked_rules(&mut self, revoked_rules: &[RecordedRule]) {
        self.rules.retain(|rule| !revoked_rules.contains(rule));
        for rule in revoked_rules {
            if self.spec_allows_device(&rule.rule) && !self.revoked_spec_rules.contains(rule) {
                self.revoked_spec_rules.push(rule.clone());
            }
        }
    }

    /// Returns the device nodes of config.json that do not belong to this record. `engine_nodes`
    /// are all device nodes of config.json. A node is left out if the record has a rule for its
    /// device number, or if such a rule was revoked.
    pub fn without_recorded_nodes(&self, mut engine_nodes: Vec<SpecNode>) -> Vec<SpecNode> {
        let owned_rules = self.rules.iter().filter(|rule| !rule.owners.is_empty());
        let recorded_numbers: BTreeSet<DeviceNumber> = owned_rules
            .chain(&self.revoked_spec_rules)
            .map(|rule| rule.rule.number)
            .collect();
        engine_nodes.retain(|node| !recorded_numbers.contains(&node.number));
        engine_nodes
    }

    /// Reports whether config.json has a rule that allows exactly the device of `rule`. Also
    /// returns true if the record does not contain the rules of config.json, because the answer is
    /// then unknown.
    fn spec_allows_device(&self, rule: &DeviceRule) -> bool {
        let expected_rule = SpecRule::from(rule);
        self.parse_spec_rules().is_none_or(|spec_rules| {
            spec_rules.iter().any(|spec_rule| {
                (spec_rule.is_allowed, spec_rule.kind) == (true, expected_rule.kind)
                    && (spec_rule.major, spec_rule.minor)
                        == (expected_rule.major, expected_rule.minor)
            })
        })
    }

    /// Returns the device rules of config.json. Returns `None` if an older version of Boathook
    /// wrote the record, because it did not store them.
    pub fn parse_spec_rules(&self) -> Option<Vec<SpecRule>> {
        self.spec_rules
            .as_deref()
            .map(crate::oci::convert_device_rules)
    }

    /// Returns a copy of this record without devices, requests, rules and files. The data about the
    /// container and its start remains.
    pub fn without_attachments(&self) -> Self {
        AttachmentRecord {
            devices: Vec::new(),
            awaited_requests: Vec::new(),
            cancelled_requests: Vec::new(),
            rules: Vec::new(),
            files: Vec::new(),
            has_all_rules: false,
            revoked_spec_rules: Vec::new(),
            announcements: BTreeMap::new(),
            ..self.clone()
        }
    }

    /// Reports whether both records are from the same start of the same container, by the id and
    /// the start time of its first process.
    pub fn is_from_same_start(&self, other: &Self) -> bool {
        (self.pid, self.start_time) == (other.pid, other.start_time)
    }

    /// Adds the fields that are missing because an older version of Boathook wrote this record.
    /// They are copied from `new_record`, a record of the same start of the container.
    pub fn with_missing_fields(mut self, new_record: Self) -> Self {
        if self.spec_rules.is_none() {
            self.spec_rules = new_record.spec_rules;
            self.is_init = new_record.is_init;
        }
        if self.cgroup_inode == 0 && self.cgroup_path == new_record.cgroup_path {
            self.cgroup_inode = new_record.cgroup_inode;
        }
        self
    }

    /// Reports whether the record's file must be kept. A record that contains only revoked rules
    /// must be kept too, because they must be revoked again after an update of the container.
    pub fn has_content(&self) -> bool {
        self.has_attachments() || !self.revoked_spec_rules.is_empty()
    }

    /// Reports whether the record has devices, requests, rules or files. They lose their meaning
    /// when the container ends.
    pub fn has_attachments(&self) -> bool {
        let has_devices =
            !self.devices.is_empty() || !self.awaited_requests.is_empty() || !self.rules.is_empty();
        has_devices
            || !self.files.is_empty()
            || !self.cancelled_requests.is_empty()
            || self.has_all_rules
    }
}

#[cfg(test)]
mod tests;
