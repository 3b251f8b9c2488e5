//! What `follow` needs to know of a container that the hook starts.

use std::io;
use std::path::{Path, PathBuf};

use device_class::device::{DeviceNumber, DeviceRule};
use injection_plan::plan::{Action, GivenBy, InjectionPlan, InjectionStep, SpecDevices, SpecNode};

use super::attachment_record::{AttachedDevice, AttachmentRecord};
use super::created_file::CreatedFile;
use super::detach;
use super::lock;
use super::record_files::{self, LockedRecord};
use super::recorded_rule::{RecordedRule, note_host_nodes, rules_of_steps};
use crate::cgroup::{DeviceCgroup, hides_new_programs};
use crate::container;
use crate::oci::{Bundle, State};

/// LockedRecord what the hook gives a container that it starts, if any of it is followed, or if the
/// kernel will not show what that is. To be called in the host's mount namespace. Returns the
/// rules that are recorded.
pub(crate) fn write_at_start(
    state: &State,
    bundle: &Bundle,
    plan: &InjectionPlan,
    root: &Path,
) -> io::Result<Vec<DeviceRule>> {
    let followed = || plan.grants.iter().filter(|grant| grant.follow);
    let devices = followed().flat_map(|grant| {
        grant.devices.iter().map(|device| AttachedDevice {
            class: grant.class.clone(),
            device: device.clone(),
            asked: GivenBy::Hook,
            forced: false,
        })
    });
    let devices: Vec<AttachedDevice> = devices.collect();
    let hides = hides_new_programs();
    if devices.is_empty() && !hides {
        return Ok(Vec::new());
    }
    // A node of a class as such is followed with the class's devices.
    let is_followed = |user: &String| {
        let mut devices = devices.iter();
        devices.any(|device| device.key() == *user || device.class == *user)
    };
    let rule = |mut rule: RecordedRule| {
        // Those of others stay, whatever becomes of the devices.
        if !rule.why.iter().all(is_followed) {
            rule.why.clear();
        }
        rule
    };
    // What a CDI specification or the wrapper of the runtime had the engine do is ours; what
    // its user had it do stays.
    let by_cdi = |step: &InjectionStep| {
        let its = |it: &&AttachedDevice| step.users.contains(&it.key());
        let mut its = devices.iter().filter(its);
        its.any(|it| bundle.cdi.iter().any(|by| by.class.as_str() == it.class))
    };
    let spec = &bundle.spec_devices;
    let (mut ours, mut made, mut rules) = (Vec::new(), Vec::new(), Vec::new());
    for step in &plan.steps {
        for other in others(step, spec).filter(|_| by_cdi(step)) {
            made.extend(CreatedFile::node(&other.path, other.number, step));
            let mut alike = spec.nodes.iter().filter(|it| it.number == other.number);
            if alike.all(|it| it.path == other.path) {
                rules.extend(
                    spec.rules_of(other.number)
                        .map(|rule| RecordedRule::of(rule, step)),
                );
            }
        }
        if let Action::Allow {
            rule,
            in_spec: true,
            ..
        } = &step.action
        {
            let mut nodes = spec.nodes.iter().filter(|it| it.number == rule.number);
            match by_cdi(step) {
                true => {
                    made.extend(nodes.flat_map(|it| CreatedFile::node(&it.path, it.number, step)))
                }
                false if nodes.next().is_some() => continue,
                false => {}
            }
            if !spec.names(rule.number) {
                continue;
            }
        }
        ours.push(step.clone());
    }
    made.extend(CreatedFile::at_start(&ours));
    made.retain(|made: &CreatedFile| made.why.iter().all(is_followed));
    let records = LockedRecord::open(root, &state.id, lock::PATIENCE)?;
    // The hook may be called for CDI and once more for what the container requests itself.
    let is_twice = !bundle.cdi.is_empty() && bundle.hooks.read_requests(None);
    let mut record = AttachmentRecord {
        id: state.id.clone(),
        pid: state.pid,
        started: container::start_time_of(state.pid).unwrap_or_default(),
        is_init: container::is_init(state.pid),
        bundle: bundle.directory.clone(),
        spec: Some(super::spec(bundle)),
        whole: hides || !is_twice,
        ..AttachmentRecord::default()
    };
    record.set_cgroup(DeviceCgroup::from_pid(state.pid).ok().flatten().as_ref());
    let Some(mut record) = records.read_or_start(record) else {
        crate::log::warning(&format!(
            "container {}: another one with the same id runs and has a record: devices of this \
             one are not followed",
            state.id
        ));
        return Ok(Vec::new());
    };
    rules.extend(rules_of_steps(&ours).map(rule));
    note_host_nodes(&mut rules, &plan.steps, root);
    record.add(devices, rules, made);
    records.save(&record)?;
    drop(records);
    record_files::prune(root);
    Ok(detach::rules(&record))
}

/// What the engine made in the place of a step's node with another number. So it does by a CDI
/// specification that is older than the device's number, or by what it keeps of one.
fn others<'s>(step: &InjectionStep, spec: &'s SpecDevices) -> impl Iterator<Item = &'s SpecNode> {
    let planned = match &step.action {
        Action::Node { mount, number, .. } => Some((mount.path.clone(), *number)),
        Action::MakeNode { path, number, .. } => Some((path.clone(), *number)),
        _ => None,
    };
    let is_other = |it: &&SpecNode, (path, number): &(PathBuf, DeviceNumber)| {
        it.path == *path && it.number != *number
    };
    spec.nodes.iter().filter(move |it| {
        planned
            .as_ref()
            .is_some_and(|planned| is_other(it, planned))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use injection_plan::plan::Grant;

    use super::*;

    /// crun may say its working directory.
    #[test]
    fn the_bundle_is_where_the_configuration_was_read() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("run")).unwrap();
        let config = r#"{"root": {"path": "rootfs"}}"#;
        fs::write(top.path().join("config.json"), config).unwrap();
        let me = std::process::id();
        let rootfs = top.path().join("rootfs");
        let said = format!(
            r#"{{"ociVersion":"1.0","id":"c1","status":"created","pid":{me},"bundle":"/","root":{rootfs:?}}}"#
        );
        let state = State::read(said.as_bytes()).unwrap();
        let bundle = Bundle::from_state(&state).unwrap();
        let mut plan = InjectionPlan::default();
        plan.grants.push(Grant {
            class: "chips".to_owned(),
            devices: vec!["chip-0".to_owned()],
            available: 1,
            asked_by: String::new(),
            given_by: GivenBy::Hook,
            authorized_by: String::new(),
            follow: true,
        });
        write_at_start(&state, &bundle, &plan, top.path()).unwrap();
        let [record] = &record_files::all(top.path())[..] else {
            panic!("one record");
        };
        assert_eq!(record.bundle, top.path());
    }
}
