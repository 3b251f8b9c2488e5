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
    self, DirectoryError, DirectoryUpdate, SpecFileKind, SpecificationChange, UnusableClasses,
};
use injection_plan::cdi::{
    CdiDevices, CdiHookOptions, GeneratedSpecifications, Omission, Specification,
    SpecificationForm, SpecificationOwner,
};
use nix::errno::Errno;

use super::yaml_kind::read_yaml_kind;
use super::{PodAllocations, Resources};

/// The files with the CDI specifications of the advertised devices.
#[derive(Debug, Clone)]
pub(crate) struct CdiFiles {
    /// The directory from which engines read CDI specifications, such as `/var/run/cdi`.
    directory: PathBuf,
    /// The path of the hook on the host, such as `/opt/boathook/current/bin/boathook-hook`.
    hook_path: PathBuf,
    /// The path of the hook's configuration on the host. `None` means the default path.
    hook_config_path: Option<PathBuf>,
    /// The path at which container engines see the host's root directory, which is usually `/`.
    host_root: PathBuf,
    /// The names of the CDI files that this plugin manages: the files that this process wrote, and
    /// the files that an earlier process wrote for classes that are unusable now. Files of other
    /// programs are not changed.
    managed_files: BTreeSet<String>,
    /// Whether the next write replaces or removes every file with a CDI kind of the plugin, even if
    /// another process wrote the file. True before the first write, and again after another
    /// instance of the plugin has ended.
    must_take_over_files: bool,
    allocations: PodAllocations,
    /// The names of files for resources that the plugin no longer serves. The files are kept
    /// because running pods still have devices that these files describe.
    retained_file_names: BTreeSet<String>,
}

/// Converts the devices of a class to CDI devices, and appends these to `cdi_devices`.
/// Returns the inventory, in which a device is marked as unhealthy if it has no CDI description.
pub(super) fn add_cdi_devices(
    specification_form: SpecificationForm<'_>,
    class: &DeviceClass,
    inventory: discover::Inventory,
    control_nodes: Vec<FoundNode>,
    cdi_devices: &mut CdiDevices,
) -> discover::Inventory {
    let edits = FoundEdits {
        nodes: control_nodes,
        ..FoundEdits::default()
    };
    let found_class = FoundClass { inventory, edits };
    let mut class_devices = specification_form.build_cdi_devices(class, &found_class);
    let mut inventory = found_class.inventory;
    for omission in &class_devices.omissions {
        if let Omission::Device { device, error, .. } = omission
            && let Some(device) = inventory
                .devices
                .iter_mut()
                .find(|candidate| candidate.id == *device)
            && device.health.is_healthy()
        {
            let reason = format!("no engine can be told of it: {error}");
            device.health = Health::Unhealthy { reason };
        }
    }
    cdi_devices.devices.append(&mut class_devices.devices);
    cdi_devices.omissions.append(&mut class_devices.omissions);
    inventory
}

impl CdiFiles {
    pub(crate) fn new(
        directory: PathBuf,
        hook_path: PathBuf,
        host_root: PathBuf,
        allocations: PodAllocations,
    ) -> Self {
        CdiFiles {
            directory,
            hook_path,
            hook_config_path: None,
            host_root,
            managed_files: BTreeSet::new(),
            must_take_over_files: true,
            allocations,
            retained_file_names: BTreeSet::new(),
        }
    }

    pub(crate) fn with_hook_config(self, hook_config_path: Option<PathBuf>) -> Self {
        CdiFiles {
            hook_config_path,
            ..self
        }
    }

    pub(super) fn directory(&self) -> PathBuf {
        self.directory.clone()
    }

    /// Makes the next [`Self::write`] treat every file with a CDI kind of the plugin as its own,
    /// even if another process wrote it. The first write always does so.
    pub(super) fn take_over_all_files(&mut self) {
        self.must_take_over_files = true;
    }

    pub(super) fn specification_form(&self) -> SpecificationForm<'_> {
        SpecificationForm {
            hook: Some(CdiHookOptions {
                program_path: &self.hook_path,
                timeout_seconds: runtime_config::HOOK_TIMEOUT_SECONDS,
                config_path: self.hook_config_path.as_deref(),
            }),
            host_root: &self.host_root,
        }
    }

    /// Writes the specifications that have changed, and removes obsolete files. Returns one line
    /// for each error. If a specification cannot be written, its devices become unhealthy, because
    /// the engine would refuse every container with one of them. Keeps the files of
    /// `unusable_classes`. Also keeps the files for devices of running pods, because without such a
    /// file the engine cannot restart a container.
    pub(super) fn write(
        &mut self,
        cdi_devices: CdiDevices,
        resources: &mut Resources,
        unusable_classes: &UnusableClasses,
    ) -> Vec<String> {
        let generated =
            GeneratedSpecifications::from_cdi_devices(cdi_devices, SpecificationOwner::Plugin);
        let specifications = generated.specifications.iter();
        let new_files: BTreeSet<String> = specifications
            .map(|specification| specification.file_name())
            .collect();
        let files_in_use = OnceCell::new();
        let retained_names = RefCell::new(BTreeSet::new());
        let is_obsolete = |name: &str| {
            let is_own = self.must_take_over_files || self.managed_files.contains(name);
            if !is_own || new_files.contains(name) {
                return is_own;
            }
            let files_in_use: &Option<BTreeSet<String>> =
                files_in_use.get_or_init(|| self.allocations.read_used_files());
            let is_used = files_in_use
                .as_ref()
                .is_none_or(|names| names.contains(name));
            if is_used {
                retained_names.borrow_mut().insert(name.to_owned());
            }
            !is_used
        };
        let owner = SpecificationOwner::Plugin;
        let directory = &self.directory;
        let update = directory::update(
            directory,
            &generated,
            owner,
            unusable_classes,
            is_obsolete,
            |text| read_yaml_kind(&text).map(SpecFileKind::Known),
        );
        let omissions = generated.omissions.into_iter();
        let omission_errors = omissions.filter(|omission| omission.is_error());
        let mut errors: Vec<String> = omission_errors
            .map(|omission| format!("{:#}", anyhow::Error::new(omission)))
            .collect();
        let mut unwritten_kinds: BTreeMap<String, String> = BTreeMap::new();
        match update {
            Ok(DirectoryUpdate {
                changes,
                failures,
                removal_failures,
                retained_file_names,
            }) => {
                let removal_errors = removal_failures.into_iter();
                errors
                    .extend(removal_errors.map(|error| format!("{:#}", anyhow::Error::new(error))));
                for (kind, error) in failures {
                    let has_old_file = is_out_of_descriptors(&error)
                        && self.has_written_kind(&generated.specifications, &kind);
                    let error_text = format!("{:#}", anyhow::Error::new(error));
                    if has_old_file {
                        errors.push(error_text);
                    } else {
                        unwritten_kinds.insert(kind, error_text);
                    }
                }
                let retained_names = retained_names.into_inner();
                for name in retained_names.difference(&self.retained_file_names) {
                    tracing::info!(
                        "CDI: {} stays until no pod has devices of it: they are not served any more",
                        self.directory.join(name).display()
                    );
                }
                if std::mem::take(&mut self.must_take_over_files) {
                    self.managed_files.clear();
                }
                self.managed_files.extend(new_files);
                self.managed_files.extend(retained_file_names);
                self.managed_files.extend(retained_names.iter().cloned());
                self.retained_file_names = retained_names;
                for change in changes {
                    let text = change.to_string();
                    if let SpecificationChange::Conflict { kind, .. } = change {
                        unwritten_kinds.insert(kind, text);
                    } else {
                        tracing::info!("CDI: {text}");
                    }
                }
            }
            Err(error) => {
                // If the process has no file descriptor left, it cannot write files, but its
                // earlier files still exist. Only the resources without an earlier file become
                // unhealthy.
                let lacks_descriptors = is_out_of_descriptors(&error);
                let error_text = format!("{:#}", anyhow::Error::new(error));
                let file_exists =
                    |name: &String| lacks_descriptors && self.managed_files.contains(name);
                let specifications = generated.specifications.into_iter();
                let missing_specifications =
                    specifications.filter(|specification| !file_exists(&specification.file_name()));
                unwritten_kinds.extend(
                    missing_specifications
                        .map(|specification| (specification.kind, error_text.clone())),
                );
                if unwritten_kinds.is_empty() {
                    errors.push(error_text);
                }
            }
        }
        for (kind, reason) in unwritten_kinds {
            let mut entries = resources.iter_mut();
            let resource = entries.find(|(name, _)| SpecificationOwner::Plugin.kind(name) == kind);
            if let Some((_, resource)) = resource {
                Arc::make_mut(resource).mark_unhealthy(&reason);
            }
            if !errors.contains(&reason) {
                errors.push(reason);
            }
        }
        errors
    }

    /// Returns whether this process wrote a specification file for the CDI kind `kind` earlier. If
    /// that file cannot be replaced now, engines still read its earlier content.
    fn has_written_kind(&self, specifications: &[Specification], kind: &str) -> bool {
        let mut specifications = specifications.iter();
        let specification = specifications.find(|candidate| candidate.kind == kind);
        specification
            .is_some_and(|specification| self.managed_files.contains(&specification.file_name()))
    }
}

fn is_out_of_descriptors(error: &DirectoryError) -> bool {
    let io_error = error.source().and_then(|source| source.downcast_ref());
    let errno = io_error.and_then(io::Error::raw_os_error);
    errno.is_some_and(|number| matches!(Errno::from_raw(number), Errno::EMFILE | Errno::ENFILE))
}

#[cfg(test)]
mod tests;
