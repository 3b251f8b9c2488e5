//! Writes the attachment record of a container that is being started. The hook calls this module.
//! Later, `boathook follow` and `boathook detach` read the record.

use std::io;
use std::path::Path;

use device_class::device::DeviceRule;
use injection_plan::plan::{Action, GrantOrigin, InjectionPlan, StepOwner};
use oci_spec::runtime::LinuxDeviceCgroup;

use crate::apply::{StaleNode, is_granted_by_cdi};
use crate::attachment::record::{
    AttachmentRecord, AwaitedRequest, ContainerDevice, CreatedFile, RecordedRule, add_host_nodes,
    list_step_rules, to_device_rules,
};
use crate::attachment::{lock, record_files, record_files::LockedRecord};
use crate::cgroup::{DeviceCgroup, hides_new_programs};
use crate::container;
use crate::oci::devices::to_oci_rule;
use crate::oci::{Bundle, State};

/// Records the devices, rules and nodes that the hook adds to a container at its start. Returns the
/// device rules that the record now contains. This process must be in the host's mount namespace.
///
/// A record is only written in three cases: `boathook follow` must keep the nodes of a device up to
/// date; the host does not have a requested device yet; or the kernel hides the instructions of
/// eBPF device programs.
pub fn write_start_record(
    state: &State,
    bundle: &Bundle,
    plan: &InjectionPlan,
    host_root: &Path,
) -> io::Result<Vec<DeviceRule>> {
    let devices = list_followed_devices(plan);
    let hides_programs = hides_new_programs();
    let awaited_requests = AwaitedRequest::list_unfulfilled_requests(plan);
    if devices.is_empty() && awaited_requests.is_empty() && !hides_programs {
        return Ok(Vec::new());
    }
    // The owners of a rule or node are the devices or classes that need it. A class counts as
    // followed if `boathook follow` keeps one of its devices up to date.
    let is_followed = |owner: &StepOwner| devices.iter().any(|device| device.matches_owner(owner));
    // Nodes and rules of config.json are recorded only if a CDI specification or the wrapper
    // runtime added them. Nodes and rules that the user requested from the engine (`--device`) are
    // not recorded, because they are never removed.
    let spec = &bundle.spec_devices;
    let (mut steps, mut files, mut rules) = (Vec::new(), Vec::new(), Vec::new());
    // The hook revokes the rules of config.json for outdated device numbers. They are recorded as
    // revoked, because the runtime allows them again when it updates the container (`runc update`).
    let mut revoked_rules = Vec::new();
    for StaleNode {
        node,
        rules: stale_rules,
        step,
    } in StaleNode::find_all(plan, bundle)
    {
        files.extend(CreatedFile::from_node(&node.path, node.number, step));
        let recorded_rules = stale_rules
            .into_iter()
            .map(|rule| RecordedRule::from_step(rule, step));
        revoked_rules.extend(recorded_rules);
    }
    for step in &plan.steps {
        let is_cdi_step = is_granted_by_cdi(step, plan, bundle);
        if let Action::Allow {
            rule,
            is_in_spec: true,
            ..
        } = &step.action
        {
            let nodes: Vec<_> = spec
                .nodes
                .iter()
                .filter(|node| node.number == rule.number)
                .collect();
            if is_cdi_step {
                for node in nodes {
                    files.extend(CreatedFile::from_node(&node.path, node.number, step));
                }
            } else if !nodes.is_empty() {
                continue;
            }
            if !spec.has_exact_rule(rule.number) {
                continue;
            }
        }
        steps.push(step.clone());
    }
    files.extend(CreatedFile::from_steps(&steps));
    files.retain(|file: &CreatedFile| file.owners.iter().all(is_followed));
    rules.extend(list_step_rules(&steps).map(|mut rule| {
        // If `boathook follow` does not track all devices that need the rule, the rule must never
        // be revoked. An empty list of owners stands for such a rule.
        if !rule.owners.iter().all(is_followed) {
            rule.owners.clear();
        }
        rule
    }));
    let record_file = LockedRecord::open(host_root, &state.id, lock::COMMAND_LOCK_TIMEOUT)?;
    // The hook is called twice if a container requests devices by CDI and also by variables or
    // annotations. If the kernel does not hide programs, one of the calls may write no record of
    // its rules.
    let is_called_twice = !bundle.cdi_grants.is_empty() && bundle.hooks.reads_requests(None);
    let start_time = container::read_start_time(state.pid).ok_or_else(|| {
        let reason = format!("process {} has no start time in /proc", state.pid);
        io::Error::new(io::ErrorKind::NotFound, reason)
    })?;
    let mut new_record = AttachmentRecord {
        id: state.id.clone(),
        pid: state.pid,
        start_time,
        is_init: container::is_init_process(state.pid),
        bundle_dir: bundle.directory.clone(),
        spec_rules: Some(list_spec_rules(bundle)),
        has_all_rules: hides_programs || !is_called_twice,
        ..AttachmentRecord::default()
    };
    new_record.set_cgroup(DeviceCgroup::from_pid(state.pid).ok().flatten().as_ref());
    let mut record = record_file.read_or_create(new_record)?;
    add_host_nodes(&mut rules, &plan.steps, host_root);
    record.add_attachments(devices, rules, files);
    // A request is only recorded if the record has rules or files of its device. It has none if the
    // user also requested the device from the engine (`--device`): the container then keeps the
    // device.
    let mut fulfilled_requests = AwaitedRequest::list_fulfilled_requests(plan);
    fulfilled_requests.retain(|request| {
        let mut devices = record.devices.iter();
        devices.any(|device| request.has_device(device) && record.has_rule_or_file_of(device))
    });
    for request in awaited_requests.into_iter().chain(fulfilled_requests) {
        if !record.awaited_requests.contains(&request) {
            record.awaited_requests.push(request);
        }
    }
    record.revoked_spec_rules.extend(revoked_rules);
    record_file.save(&record)?;
    drop(record_file);
    record_files::prune_records(host_root);
    Ok(to_device_rules(&record.rules))
}

/// Returns the device rules of the specification in the format of config.json. Attachment records
/// store rules in this format.
pub fn list_spec_rules(bundle: &Bundle) -> Vec<LinuxDeviceCgroup> {
    let rules = bundle.spec_devices.rules.iter();
    rules.map(|rule| to_oci_rule(*rule)).collect()
}

fn list_followed_devices(plan: &InjectionPlan) -> Vec<ContainerDevice> {
    let followed_grants = plan.grants.iter().filter(|grant| grant.is_followed);
    let devices = followed_grants.flat_map(|grant| {
        grant.devices.iter().map(|device| ContainerDevice {
            class: grant.class.clone(),
            device_id: device.clone(),
            grant_origin: GrantOrigin::Hook,
            is_forced: false,
            name: grant.names.get(device).cloned(),
            node_paths: grant.node_paths.get(device).cloned().unwrap_or_default(),
            has_arrived_late: false,
        })
    });
    devices.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use injection_plan::plan::Grant;

    use super::*;

    /// Records a container with a followed device, whose first process is `pid`, below `top`.
    fn write_record(top: &Path, pid: u32) -> io::Result<Vec<DeviceRule>> {
        fs::create_dir_all(top.join("run")).unwrap();
        let config = r#"{"root": {"path": "rootfs"}}"#;
        fs::write(top.join("config.json"), config).unwrap();
        let rootfs = top.join("rootfs");
        let state_text = format!(
            r#"{{"ociVersion":"1.0","id":"c1","status":"created","pid":{pid},"bundle":"/","root":{rootfs:?}}}"#
        );
        let state = State::read(state_text.as_bytes()).unwrap();
        let bundle = Bundle::from_state(&state).unwrap();
        let mut plan = InjectionPlan::default();
        plan.grants.push(Grant {
            class: "chips".parse().unwrap(),
            devices: vec!["chip-0".to_owned().try_into().unwrap()],
            available_count: 1,
            requested_by: String::new(),
            grant_origin: GrantOrigin::Hook,
            authorized_by: String::new(),
            is_followed: true,
            awaited_devices: Vec::new(),
            has_access_to_all_devices: false,
            fulfilled_requests: Vec::new(),
            similar_devices: [].into(),
            detached_names: Vec::new(),
            names: [].into(),
            node_paths: [].into(),
        });
        write_start_record(&state, &bundle, &plan, top)
    }

    /// crun may report its working directory as the bundle.
    #[test]
    fn the_bundle_is_where_the_configuration_was_read() {
        let top = tempfile::tempdir().unwrap();
        write_record(top.path(), std::process::id()).unwrap();
        let [record] = &record_files::read_records(top.path())[..] else {
            panic!("one record");
        };
        assert_eq!(record.bundle_dir, top.path());
    }

    /// A record without the start time could be taken for that of another process with this id.
    #[test]
    fn no_record_is_written_without_the_start_time() {
        let top = tempfile::tempdir().unwrap();
        let error = write_record(top.path(), 0x3fff_ffff).unwrap_err();
        assert!(error.to_string().contains("no start time"), "{error}");
        assert_eq!(record_files::find_record(top.path(), "c1").unwrap(), None);
    }
}
