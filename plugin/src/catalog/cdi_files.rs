//! Writes the CDI specifications of the devices before the devices are advertised, so that an
//! engine finds every device that the kubelet may allocate.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use device_class::DeviceClass;
use device_class::discover::{self, FoundClass, FoundEdits, FoundNode, Health};
use injection_plan::cdi::directory::{
    self, DirectoryError, DirectoryUpdate, ForeignKind, SpecificationChange, UnusableClasses,
};
use injection_plan::cdi::{
    DescribedDevices, Description, GeneratedSpecifications, Omission, Specification,
    SpecificationOwner, ThinHook,
};
use nix::errno::Errno;

use super::yaml_kind::yaml_kind;
use super::{PodAllocations, Resources};

/// The CDI specifications of the advertised devices.
#[derive(Debug, Clone)]
pub(crate) struct CdiFiles {
    /// The directory from which engines read CDI specifications.
    directory: PathBuf,
    /// The path of the hook on the host.
    hook: PathBuf,
    /// The path of the hook's configuration on the host. `None` means the default path.
    hook_config: Option<PathBuf>,
    /// The host's root directory, as engines see it.
    host_root: PathBuf,
    /// The files that this process wrote, and files of an earlier process for a class that cannot
    /// be used now. Files that are not in the set belong to other programs. `None` means that this
    /// process has not written yet; then every file of a kind of the plugin is taken for an
    /// earlier process's file and is replaced.
    written: Option<BTreeSet<String>>,
    allocations: PodAllocations,
    /// The files of kinds that are no longer served. They are kept because pods still have devices
    /// of them.
    used: BTreeSet<String>,
}

/// Builds the CDI specifications for the devices of a class. A device that cannot be described
/// becomes unhealthy.
pub(super) fn describe_devices(
    description: Description<'_>,
    class: &DeviceClass,
    inventory: discover::Inventory,
    control_nodes: Vec<FoundNode>,
    all: &mut DescribedDevices,
) -> discover::Inventory {
    let edits = FoundEdits {
        nodes: control_nodes,
        ..FoundEdits::default()
    };
    let found = FoundClass { inventory, edits };
    let mut described = description.describe_devices(class, &found);
    let mut inventory = found.inventory;
    for omission in &described.omissions {
        if let Omission::Device { device, error, .. } = omission
            && let Some(device) = inventory.devices.iter_mut().find(|one| one.id == *device)
            && device.health.is_healthy()
        {
            let reason = format!("no engine can be told of it: {error}");
            device.health = Health::Unhealthy { reason };
        }
    }
    all.devices.append(&mut described.devices);
    all.omissions.append(&mut described.omissions);
    inventory
}

impl CdiFiles {
    pub(crate) fn new(
        directory: PathBuf,
        hook: PathBuf,
        host_root: PathBuf,
        allocations: PodAllocations,
    ) -> Self {
        CdiFiles {
            directory,
            hook,
            hook_config: None,
            host_root,
            written: None,
            allocations,
            used: BTreeSet::new(),
        }
    }

    /// Sets the path of the hook's configuration, if it is not the default one.
    pub(crate) fn with_hook_config(self, hook_config: Option<PathBuf>) -> Self {
        CdiFiles {
            hook_config,
            ..self
        }
    }

    pub(super) fn directory(&self) -> PathBuf {
        self.directory.clone()
    }

    pub(super) fn description(&self) -> Description<'_> {
        Description {
            hook: Some(ThinHook {
                program: &self.hook,
                timeout: runtime_config::HOOK_TIMEOUT,
                config: self.hook_config.as_deref(),
            }),
            host_root: &self.host_root,
        }
    }

    /// Writes the specifications that have changed, and removes obsolete files. Returns one line
    /// for each error that keeps a device from its specification. If a specification cannot be
    /// written, its devices become unhealthy, because the engine would refuse each container with
    /// one of them. The files of the classes in `unusable` are kept, and so are files for devices
    /// that pods have: without them the engine would refuse to restart the container, with a
    /// message that does not name the cause.
    pub(super) fn write(
        &mut self,
        described: DescribedDevices,
        inventory: &mut Resources,
        unusable: &UnusableClasses,
    ) -> Vec<String> {
        let generated =
            GeneratedSpecifications::from_described(described, SpecificationOwner::Plugin);
        let files = generated.specifications.iter();
        let files = files.map(|specification| specification.file_name());
        let files: BTreeSet<String> = files.collect();
        let before = self.written.as_ref();
        let used_files = OnceCell::new();
        let used = RefCell::new(BTreeSet::new());
        let is_old = |name: &str| {
            let is_old = before.is_none_or(|before| before.contains(name));
            if !is_old || files.contains(name) {
                return is_old;
            }
            let files: &Option<BTreeSet<String>> =
                used_files.get_or_init(|| self.allocations.read_used_files());
            let is_used = files.as_ref().is_none_or(|files| files.contains(name));
            if is_used {
                used.borrow_mut().insert(name.to_owned());
            }
            !is_used
        };
        let user = SpecificationOwner::Plugin;
        let directory = &self.directory;
        let changes = directory::update(directory, &generated, user, unusable, is_old, |text| {
            yaml_kind(&text).map(ForeignKind::Known)
        });
        let omissions = generated.omissions.into_iter();
        let faults = omissions.filter(|omission| omission.is_error());
        let mut errors: Vec<String> = faults
            .map(|omission| format!("{:#}", anyhow::Error::new(omission)))
            .collect();
        let mut unwritten: BTreeMap<String, String> = BTreeMap::new();
        match changes {
            Ok(DirectoryUpdate {
                changes,
                failures,
                retained,
            }) => {
                for (kind, error) in failures {
                    let is_there = is_out_of_descriptors(&error)
                        && self.has_written(&generated.specifications, &kind);
                    let text = format!("{:#}", anyhow::Error::new(error));
                    if is_there {
                        errors.push(text);
                    } else {
                        unwritten.insert(kind, text);
                    }
                }
                let used = used.into_inner();
                for name in used.difference(&self.used) {
                    tracing::info!(
                        "CDI: {} stays until no pod has devices of it: they are not served any more",
                        self.directory.join(name).display()
                    );
                }
                let written = self.written.get_or_insert_default();
                written.extend(files);
                written.extend(retained);
                written.extend(used.iter().cloned());
                self.used = used;
                for change in changes {
                    let text = change.to_string();
                    if let SpecificationChange::Conflict { kind, .. } = change {
                        unwritten.insert(kind, text);
                    } else {
                        tracing::info!("CDI: {text}");
                    }
                }
            }
            Err(error) => {
                // If the process has merely run out of file descriptors, the files that it wrote
                // before still exist.
                let lacking = is_out_of_descriptors(&error);
                let known = self.written.as_ref().filter(|_| lacking);
                let text = format!("{:#}", anyhow::Error::new(error));
                let is_there = |name: &String| known.is_some_and(|known| known.contains(name));
                let kinds = generated.specifications.into_iter();
                let lost = kinds.filter(|one| !is_there(&one.file_name()));
                unwritten.extend(lost.map(|one| (one.kind, text.clone())));
                if unwritten.is_empty() {
                    errors.push(text);
                }
            }
        }
        for (kind, reason) in unwritten {
            let mut resources = inventory.iter_mut();
            let resource =
                resources.find(|(name, _)| SpecificationOwner::Plugin.kind(name) == kind);
            if let Some((_, resource)) = resource {
                Arc::make_mut(resource).mark_unhealthy(&reason);
            }
            if !errors.contains(&reason) {
                errors.push(reason);
            }
        }
        errors
    }

    /// Returns whether an earlier call wrote the specification of this CDI kind.
    fn has_written(&self, specifications: &[Specification], kind: &str) -> bool {
        let mut specifications = specifications.iter();
        let specification = specifications.find(|one| one.kind == kind);
        let written = self.written.as_ref();
        written
            .is_some_and(|names| specification.is_some_and(|one| names.contains(&one.file_name())))
    }
}

fn is_out_of_descriptors(error: &DirectoryError) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    let number = cause.and_then(io::Error::raw_os_error);
    number.is_some_and(|number| matches!(Errno::from_raw(number), Errno::EMFILE | Errno::ENFILE))
}
