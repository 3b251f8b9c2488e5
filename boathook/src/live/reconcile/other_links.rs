//! Finds the links of devices that a container has and that a new plan does not contain. The plan
//! of `boathook follow` has only the devices of followed classes, but a mask may list the devices
//! of several classes. A new mask keeps the links of the others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::discover::is_sysfs_link_directory;
use device_class::host::HostView;
use device_class::load;
use hook::apply;
use hook::attachment::AttachmentRecord;
use hook::container::{self, ContainerNamespace};
use hook::oci::Bundle;
use hook::planner::{ContainerRequests, class_file_path};
use hook::trust::ContainerOrigin;
use injection_plan::plan::{Action, InjectionPlan};

use super::HostSnapshot;

/// The contents of a container's masks that a plan does not have and that belong to devices outside
/// the plan.
#[derive(Default)]
pub(crate) struct OtherLinks {
    /// The links, with their paths and targets. The host has the same links.
    links: Vec<(PathBuf, PathBuf)>,
    /// The masks that also have other files than links. They cannot be made again without the plan
    /// of their devices.
    unknown_masks: BTreeSet<PathBuf>,
}

impl OtherLinks {
    /// Compares a plan with the masks of a running container below `/sys/class` and `/sys/bus`.
    /// Leaves out the links at `known_paths`, because the plan says whether the container has them.
    ///
    /// The container may have mounted a tmpfs of its own. So only links count that the host has as
    /// well. A link gives no access to its device.
    pub(crate) fn find(
        plan: &InjectionPlan,
        known_paths: &BTreeSet<&Path>,
        namespace: &ContainerNamespace,
        host: &dyn HostView,
    ) -> Result<Self, container::Error> {
        let mut other_links = OtherLinks::default();
        for step in &plan.steps {
            let Action::Mask {
                path,
                files,
                visible_mounts,
                links,
                ..
            } = &step.action
            else {
                continue;
            };
            if !is_sysfs_link_directory(path) {
                continue;
            }
            let Some(contents) = apply::read_mask(path, namespace)? else {
                continue;
            };
            let mounted_paths = visible_mounts.iter().map(|mount| &mount.path);
            let planned_paths = files.keys().chain(links.keys()).chain(mounted_paths);
            let planned_paths: BTreeSet<&PathBuf> = planned_paths.collect();
            if contents
                .other_paths
                .iter()
                .any(|path| !planned_paths.contains(path))
            {
                other_links.unknown_masks.insert(path.clone());
            }
            let is_free = |link: &Path| {
                let mut planned_paths = planned_paths.iter();
                !planned_paths.any(|path| path.starts_with(link) || link.starts_with(path))
            };
            let links = contents.links.into_iter().filter(|(link, target)| {
                is_free(link)
                    && !known_paths.contains(&**link)
                    && host.read_link(link).is_ok_and(|found| found == *target)
            });
            other_links.links.extend(links);
        }
        Ok(other_links)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty() && self.unknown_masks.is_empty()
    }

    /// Adds the links to the plan's masks. Removes the masks from the plan that cannot be made
    /// again, so that the container keeps them as they are.
    pub(crate) fn add_to_plan(&self, plan: &mut InjectionPlan) {
        let unknown_masks = &self.unknown_masks;
        plan.steps.retain(
            |step| !matches!(&step.action, Action::Mask { path, .. } if unknown_masks.contains(path)),
        );
        for step in &mut plan.steps {
            if let Action::Mask { path, links, .. } = &mut step.action {
                let own_links = self.links.iter();
                let own_links = own_links.filter(|(link, _)| link.starts_with(&*path));
                links.extend(own_links.cloned());
            }
        }
    }
}

/// Reports whether all devices of a container certainly belong to followed classes that can be
/// used. Then a plan of these classes contains all links of the container's devices.
pub(super) fn has_only_followed_classes(
    record: &AttachmentRecord,
    bundle: &Bundle,
    snapshot: &HostSnapshot,
    config: &Config,
) -> bool {
    let mut devices = record.devices.iter();
    if devices.any(|device| snapshot.find_followed_class(&device.class).is_none()) {
        return false;
    }
    let Ok(sources) = load::read_each_source(&config.classes) else {
        return false;
    };
    let origin = ContainerOrigin::from_bundle(bundle).ok();
    let requests = ContainerRequests::new(bundle, origin.as_ref());
    let is_unfollowed = |source: &_| match source {
        Ok(class) => {
            let class: &load::ClassSource = class;
            requests.may_request_class(class) && snapshot.find_followed_class(&class.name).is_none()
        }
        Err(_) => requests.requests_class_of_file(class_file_path(source), &sources, config),
    };
    origin.is_some() && !sources.iter().any(is_unfollowed)
}
