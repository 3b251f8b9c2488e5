//! Keeps a container's symbolic link to its device when another device of the host takes the link
//! over.

use std::path::PathBuf;

use hook::attachment::{AttachmentRecord, CreatedFileKind};
use injection_plan::plan::{Action, InjectionPlan, InjectionStep};

use super::HostSnapshot;

/// Adds to a plan the links that the container has to its devices, and that lead to other devices
/// on the host now.
///
/// Two devices of one model without serial numbers have the same link, for example in
/// /dev/serial/by-id. On the host it leads to the device that appeared last. In the container it
/// leads to the container's device as long as the host has this device.
pub(super) fn keep_shared_links(
    plan: &mut InjectionPlan,
    record: &AttachmentRecord,
    snapshot: &HostSnapshot,
) {
    let mut kept_links = Vec::new();
    for file in &record.files {
        let CreatedFileKind::Link(..) = &file.kind else {
            continue;
        };
        if plan
            .steps
            .iter()
            .any(|step| find_node_or_link_path(step) == Some(&file.path))
        {
            continue;
        }
        let is_owner_of_link = |step: &InjectionStep| {
            let mut devices = step.owners.iter().filter_map(|owner| owner.device());
            devices.any(|device| {
                file.owners.iter().any(|owner| owner.is_device(device))
                    && snapshot.lists_udev_link(device, &file.path)
            })
        };
        let node_steps = plan.steps.iter().filter(|step| is_owner_of_link(step));
        let mut links = node_steps.filter_map(|step| {
            let node_path = find_node_path(step)?;
            let action = Action::new_link(file.path.clone(), node_path);
            Some(InjectionStep::new(action, step.owners.clone()))
        });
        kept_links.extend(links.find(|step| file.is_created_by(step)));
    }
    plan.steps.extend(kept_links);
}

fn find_node_or_link_path(step: &InjectionStep) -> Option<&PathBuf> {
    match &step.action {
        Action::Link { path, .. } => Some(path),
        _ => find_node_path(step),
    }
}

fn find_node_path(step: &InjectionStep) -> Option<&PathBuf> {
    match &step.action {
        Action::Node { mount, .. } => Some(&mount.path),
        Action::MakeNode { path, .. } => Some(path),
        _ => None,
    }
}
