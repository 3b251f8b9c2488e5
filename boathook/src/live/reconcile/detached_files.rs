//! Removes the files of detached devices from a container. Then the container's masks below
//! `/sys/class` and `/sys/bus` list only the devices that remain.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::discover::is_sysfs_link_directory;
use hook::apply;
use hook::attachment::{AttachmentRecord, CreatedFile, CreatedFileKind};
use hook::planner::{self, Caller};
use hook::sys::deadline::Stage;
use injection_plan::plan::{Action, InjectionPlan};

use super::change::remove_files;
use crate::live::ContainerChangeError;
use crate::live::container::{MaskLinks, RunningContainer, run_in_child, try_twice};

/// Removes the files of `detached_record` from a container, and renews the masks that list the
/// detached devices. `record` is the container's record before the detachment, and
/// `remaining_record` the one after it. Returns warnings.
///
/// A child process with a time limit does this, because a file system in the container may hang.
pub(crate) fn remove_detached_files(
    record: &AttachmentRecord,
    detached_record: &AttachmentRecord,
    remaining_record: &AttachmentRecord,
    config: &Config,
) -> Result<Vec<String>, ContainerChangeError> {
    let lists_detached_device = |file: &&CreatedFile| {
        let mut devices = detached_record.devices.iter();
        devices.any(|device| device.matches_any_owner(&file.owners))
            || detached_record.files.contains(file)
    };
    let masks = record.files.iter().filter(|file| is_link_mask(file));
    let masks: Vec<&CreatedFile> = masks.filter(lists_detached_device).collect();
    if detached_record.files.is_empty() && masks.is_empty() {
        return Ok(Vec::new());
    }
    let result = run_in_child(|warnings| {
        let mut container = RunningContainer::open(&record.into())?;
        let remaining_masks = if masks.is_empty() {
            MaskLinks::new()
        } else {
            let paths = masks.iter().map(|file| &*file.path);
            let records = (detached_record, remaining_record);
            plan_remaining_masks(&mut container, paths, records, config)
        };
        container.enter_to_remove_files(&remaining_masks, |remover| {
            try_twice(|| remove_files(detached_record, remover))?;
            // The other masks stay recorded, because another device needs them.
            for file in masks {
                if let Some(links) = remaining_masks.get(&file.path)
                    && !detached_record.files.contains(file)
                    && let Err(error) = remover.replace_mask(&file.path, links)
                {
                    warnings.push(warn_mask_is_outdated(&error));
                }
            }
            Ok(())
        })
    });
    match result {
        Err(error) if detached_record.files.is_empty() => Ok(vec![warn_mask_is_outdated(&error)]),
        result => result,
    }
}

fn is_link_mask(file: &CreatedFile) -> bool {
    file.kind == CreatedFileKind::Tmpfs && is_sysfs_link_directory(&file.path)
}

fn warn_mask_is_outdated(error: &ContainerChangeError) -> String {
    format!(
        "programs of the container may still list the device: {}",
        hook::log::format_error_chain(error)
    )
}

/// Returns the masks that the container has after the detachment. `records` are the detached and
/// the remaining devices. Leaves out masks with other contents than links, which cannot be made
/// again.
fn plan_remaining_masks<'f>(
    container: &mut RunningContainer,
    paths: impl Iterator<Item = &'f Path>,
    records: (&AttachmentRecord, &AttachmentRecord),
    config: &Config,
) -> MaskLinks {
    Stage::Planning.begin();
    let (detached_record, remaining_record) = records;
    let bundle = &mut container.bundle;
    bundle.attach_requests = remaining_record.list_attach_requests();
    bundle.detached_requests = remaining_record.list_detached_requests();
    let caller = &Caller::RunningContainerChange;
    let plan = planner::plan_container_injection(bundle, caller, config);
    // There is no such plan, for example, if another device of the container is unplugged. Then
    // only the links of the detached devices are removed.
    let detached_plan = if plan.is_err() {
        bundle.attach_requests = detached_record.list_attach_requests();
        planner::plan_container_injection(bundle, &Caller::Attach, config).unwrap_or_default()
    } else {
        InjectionPlan::default()
    };
    let plan = plan.unwrap_or_default();
    let masks = paths.filter_map(|path| {
        let contents = apply::read_mask(path, &container.namespace).ok().flatten();
        if contents
            .as_ref()
            .is_some_and(|contents| !contents.other_paths.is_empty())
        {
            return None;
        }
        let present_links = contents.map(|contents| contents.links);
        let links = match (present_links, find_planned_links(&plan, path)) {
            // The plan may have more devices than the container, which has those from its start.
            (Some(mut present_links), Some(planned_links)) => {
                present_links.retain(|link, target| planned_links.get(link) == Some(target));
                present_links
            }
            (Some(mut present_links), None) => {
                let detached_links = find_planned_links(&detached_plan, path);
                present_links.retain(|link, _| {
                    detached_links.is_none_or(|detached_links| !detached_links.contains_key(link))
                });
                present_links
            }
            (None, planned_links) => planned_links?.clone(),
        };
        Some((path.to_owned(), links))
    });
    masks.collect()
}

fn find_planned_links<'p>(
    plan: &'p InjectionPlan,
    mask_path: &Path,
) -> Option<&'p BTreeMap<PathBuf, PathBuf>> {
    plan.steps.iter().find_map(|step| match &step.action {
        Action::Mask { path, links, .. } if path == mask_path => Some(links),
        _ => None,
    })
}
