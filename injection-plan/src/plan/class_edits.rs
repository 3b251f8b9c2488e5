//! Adds the host's device nodes, libraries, files and directories to a plan. Two of these files may
//! have the same path in the container only if they are the same file on the host. Otherwise the
//! plan is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use device_class::discover::{
    Device, FoundDirectory, FoundEdits, FoundFile, FoundLibrary, FoundMask, FoundNode,
    NodeInjectionMethod, PathLookup,
};
use device_class::host::ProgramAbi;

use super::builder::{PlanBuilder, PlannedLibrary, PlannedNode};
use super::{
    INJECTED_DIR, LIBRARIES_32BIT_DIR_NAME, LIBRARIES_DIR_NAME, PlanError, SpecDevices, StepOwner,
};
use crate::request::AwaitedDevice;

impl PlanBuilder {
    pub(super) fn add_node(
        &mut self,
        node: &FoundNode,
        owner: &StepOwner,
    ) -> Result<(), PlanError> {
        if let Some(absence) = &node.absence {
            let message = format!("{}: {}", owner.label(), absence.message);
            let messages = if absence.can_be_selected_by_switch {
                &mut self.notes
            } else {
                &mut self.warnings
            };
            messages.push(message);
            return Ok(());
        }
        let Some(number) = self
            .resolve_lookup(&node.number, &node.host_path, owner)?
            .copied()
        else {
            return Ok(());
        };
        let rule = self.rules.entry(number).or_default();
        let access = rule
            .access_by_owner
            .entry(owner.clone())
            .or_insert(node.access);
        *access = access.union(node.access);
        if !matches!(node.form, NodeInjectionMethod::CreatedNode(_)) {
            rule.host_node_path
                .get_or_insert_with(|| node.host_path.clone());
        }
        let planned_node = PlannedNode {
            source: node.host_path.clone(),
            number,
            form: node.form.clone(),
        };
        let (existing_node, owners) = self
            .nodes
            .entry(node.container_path.clone())
            .or_insert((planned_node.clone(), BTreeSet::new()));
        if *existing_node != planned_node {
            return Err(new_conflict(
                node.container_path.clone(),
                &existing_node.source,
                &planned_node.source,
            ));
        }
        owners.insert(owner.clone());
        for link in &node.links {
            // Two requests can place the node of one device at two paths. The symbolic link then
            // leads to the first path.
            if let Some((first_path, link_owners)) = self.links.get_mut(link)
                && self
                    .nodes
                    .get(first_path)
                    .is_some_and(|(first, _)| *first == planned_node)
            {
                link_owners.insert(owner.clone());
                continue;
            }
            add_source(&mut self.links, link, node.container_path.clone(), owner)?;
        }
        Ok(())
    }

    /// Checks the container paths that requests chose for device nodes. config.json must not have
    /// another node or a mount there.
    pub(super) fn check_requested_paths(&self, spec: &SpecDevices) -> Result<(), PlanError> {
        for path in &self.requested_paths {
            let Some((node, owners)) = self.nodes.get(path) else {
                continue;
            };
            if let Some(reason) = spec.describe_conflicting_entry(path, Some(node.number)) {
                let owners: Vec<&str> = owners.iter().map(|owner| owner.label()).collect();
                return Err(PlanError::OccupiedPath {
                    owner: owners.join(", "),
                    path: path.clone(),
                    reason,
                });
            }
        }
        self.check_awaited_paths(spec)
    }

    /// Checks the container paths that requests chose for awaited devices. The container must not
    /// have a node or mount there, because the device would hide it when it arrives.
    fn check_awaited_paths(&self, spec: &SpecDevices) -> Result<(), PlanError> {
        let awaited_devices = self.grants.iter().flat_map(|grant| &grant.awaited_devices);
        for awaited_device in awaited_devices {
            let AwaitedDevice::Device {
                name,
                path: Some(path),
            } = awaited_device
            else {
                continue;
            };
            let owner = name.to_name_text();
            if let Some((_, owners)) = self.nodes.get(path) {
                let owners: Vec<&str> = owners.iter().map(|owner| owner.label()).collect();
                return Err(PlanError::Conflict {
                    path: path.clone(),
                    first: owners.join(", "),
                    second: owner,
                });
            }
            if let Some(reason) = spec.describe_conflicting_entry(path, None) {
                return Err(PlanError::OccupiedPath {
                    owner,
                    path: path.clone(),
                    reason,
                });
            }
        }
        Ok(())
    }

    pub(super) fn add_edits(
        &mut self,
        edits: &FoundEdits,
        devices: &[&Device],
        class: &StepOwner,
    ) -> Result<(), PlanError> {
        for library in &edits.libraries {
            if let Some(reason) = &library.omission_reason {
                // Several tables of a class may list the library. The warning is added only once.
                if self.warned_sonames.insert(library.soname.clone()) {
                    self.warnings.push(format!("{}: {reason}", class.label()));
                }
                continue;
            }
            let soname = Path::new(&library.soname);
            let Some(source) = self.resolve_lookup(&library.file, soname, class)?.cloned() else {
                continue;
            };
            let name = source
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if let Some(first) = self.find_other_file(library, &name) {
                let (label, soname) = (class.label(), &library.soname);
                let (first, second) = (first.display(), source.display());
                let warning = format!(
                    "{label}: {soname} is {first} and {second} on the host; the second one is left out"
                );
                if self.warned_sonames.insert(soname.clone()) {
                    self.warnings.push(warning);
                }
                continue;
            }
            let planned_library =
                self.libraries
                    .entry((library.abi, name))
                    .or_insert(PlannedLibrary {
                        source: source.clone(),
                        links: BTreeSet::new(),
                        names: BTreeSet::new(),
                        image_links: BTreeSet::new(),
                        owners: BTreeSet::new(),
                    });
            if planned_library.source != source {
                let path = library_dir_path(library.abi).join(&library.soname);
                return Err(new_conflict(path, &planned_library.source, &source));
            }
            planned_library
                .links
                .extend(library.link_names.iter().cloned());
            let names = library.link_names.iter().chain([&library.soname]);
            planned_library.names.extend(names.cloned());
            planned_library
                .image_links
                .extend(library.image_link_names.iter().cloned());
            planned_library.owners.insert(class.clone());
        }
        for libraries in &edits.image_libraries {
            if !self.image_libraries.contains(libraries) {
                self.image_libraries.push(libraries.clone());
            }
        }
        self.add_files(&edits.files, class)?;
        for mask in &edits.masks {
            self.add_mask(mask, devices, class)?;
        }
        self.add_directories(&edits.directories, class)
    }

    /// Returns the path of another file that the plan already has for the soname of `library`, such
    /// as another version. Programs can load only one file for a soname.
    fn find_other_file(&self, library: &FoundLibrary, file_name: &str) -> Option<&Path> {
        let mut libraries = self.libraries.iter();
        let other = libraries.find(|((abi, other_name), planned_library)| {
            *abi == library.abi
                && other_name != file_name
                && planned_library.names.contains(&library.soname)
        });
        other.map(|(_, planned_library)| planned_library.source.as_path())
    }

    pub(super) fn add_files(
        &mut self,
        files: &[FoundFile],
        owner: &StepOwner,
    ) -> Result<(), PlanError> {
        for file in files {
            let Some(source) = self.resolve_lookup(&file.file, &file.path, owner)?.cloned() else {
                continue;
            };
            if !file.is_optional {
                self.required_files.insert(file.container_path.clone());
            }
            let entry = self.files.entry(file.container_path.clone());
            let (first_source, owners) = entry.or_insert((source.clone(), BTreeSet::new()));
            if *first_source != source {
                return Err(new_conflict(
                    file.container_path.clone(),
                    &first_source.path,
                    &source.path,
                ));
            }
            owners.insert(owner.clone());
        }
        Ok(())
    }

    pub(super) fn add_directories(
        &mut self,
        directories: &[FoundDirectory],
        owner: &StepOwner,
    ) -> Result<(), PlanError> {
        for directory in directories {
            let source = self.resolve_lookup(&directory.directory, &directory.path, owner)?;
            let Some(source) = source.cloned() else {
                continue;
            };
            add_source(
                &mut self.directories,
                &directory.container_path,
                source,
                owner,
            )?;
            if !directory.is_optional {
                self.required_directories
                    .insert(directory.container_path.clone());
            }
            if directory.is_writable {
                self.writable_directories
                    .insert(directory.container_path.clone());
            }
            if !directory.libraries.is_empty() {
                self.library_directories.push((
                    directory.container_path.clone(),
                    directory.libraries.clone(),
                ));
            }
        }
        Ok(())
    }

    fn add_mask(
        &mut self,
        mask: &FoundMask,
        devices: &[&Device],
        class: &StepOwner,
    ) -> Result<(), PlanError> {
        // Bit-mask files list the container's devices. So a container without devices needs neither
        // these files nor the tmpfs that contains them.
        if !mask.bitmask_files.is_empty() && devices.is_empty() {
            return Ok(());
        }
        let mut files = Vec::new();
        for copy in &mask.copies {
            if let Some(text) = self.resolve_lookup(&copy.content, &copy.path, class)? {
                files.push((copy.path.clone(), text.clone()));
            }
        }
        let planned_mask = self.masks.entry(mask.path.clone()).or_default();
        planned_mask.owners.insert(class.clone());
        for bitmask_file in &mask.bitmask_files {
            let bits = devices
                .iter()
                .map(|device| bitmask_file.device_bit_mask(&device.attributes));
            let entry = planned_mask.bit_masks.entry(bitmask_file.path.clone());
            let (first_file, planned_bits) = entry.or_insert((bitmask_file.clone(), 0));
            if first_file.content != bitmask_file.content {
                return Err(new_conflict(
                    bitmask_file.path.clone(),
                    &bitmask_file.path,
                    &bitmask_file.path,
                ));
            }
            *planned_bits |= bits.fold(0, |union, device_bits| union | device_bits);
        }
        for (path, text) in files {
            let first_text = planned_mask
                .files
                .entry(path.clone())
                .or_insert(text.clone());
            if *first_text != text {
                return Err(new_conflict(path.clone(), &path, &path));
            }
        }
        Ok(())
    }

    /// Makes the files and directories of a device visible in the directories that the plan hides.
    /// Paths outside these directories are skipped, because they are visible anyway.
    pub(super) fn add_visible_files(
        &mut self,
        device: &Device,
        owner: &StepOwner,
    ) -> Result<(), PlanError> {
        for visible_entry in &device.unmasked_entries {
            let Some(source) = self
                .resolve_lookup(&visible_entry.source, &visible_entry.path, owner)?
                .cloned()
            else {
                continue;
            };
            let mut masks = self.masks.iter_mut();
            if let Some((_, mask)) = masks.find(|(path, _)| visible_entry.path.starts_with(path)) {
                match &visible_entry.link {
                    Some(target) => mask
                        .links
                        .insert(visible_entry.path.clone(), target.clone()),
                    None => mask
                        .visible_host_paths
                        .insert(visible_entry.path.clone(), source),
                };
            }
        }
        Ok(())
    }

    /// Adds the network interfaces of a device. If several requests name the device, its interfaces
    /// are added only once.
    pub(super) fn add_net_interfaces(&mut self, device: &Device, owner: &StepOwner) {
        let Some(interfaces) = &device.net_interfaces else {
            return;
        };
        let mut entries = self.net_interfaces.iter_mut();
        match entries.find(|(planned_interfaces, _)| planned_interfaces.search == interfaces.search)
        {
            Some((_, owners)) => drop(owners.insert(owner.clone())),
            None => self
                .net_interfaces
                .push((interfaces.clone(), [owner.clone()].into())),
        }
    }

    /// Returns the file or device number that the scan found on the host. If the file is optional
    /// and does not exist on the host, adds its path to `missing_files` and returns `None`.
    ///
    /// # Errors
    /// Returns an error if a required file is missing, or if the file is unusable.
    fn resolve_lookup<'a, T>(
        &mut self,
        presence: &'a PathLookup<T>,
        path: &Path,
        owner: &StepOwner,
    ) -> Result<Option<&'a T>, PlanError> {
        match presence {
            PathLookup::Found(found) => Ok(Some(found)),
            PathLookup::OptionalAbsent => {
                let missing_files = self
                    .missing_files
                    .entry(owner.label().to_owned())
                    .or_default();
                let path = path.display().to_string();
                if !missing_files.contains(&path) {
                    missing_files.push(path);
                }
                Ok(None)
            }
            PathLookup::Unusable(problem) => Err(PlanError::Unusable {
                owner: owner.label().to_owned(),
                problem: problem.clone(),
            }),
        }
    }
}

/// Returns the container path of the directory for libraries. Native programs and 32-bit programs
/// have different directories.
pub(super) fn library_dir_path(programs: ProgramAbi) -> PathBuf {
    let directory = match programs {
        ProgramAbi::Native => LIBRARIES_DIR_NAME,
        ProgramAbi::Bits32 => LIBRARIES_32BIT_DIR_NAME,
    };
    Path::new(INJECTED_DIR).join(directory)
}

fn add_source(
    sources: &mut BTreeMap<PathBuf, (PathBuf, BTreeSet<StepOwner>)>,
    path: &Path,
    source: PathBuf,
    owner: &StepOwner,
) -> Result<(), PlanError> {
    let (first_source, owners) = sources
        .entry(path.into())
        .or_insert((source.clone(), BTreeSet::new()));
    if *first_source != source {
        return Err(new_conflict(path.into(), first_source, &source));
    }
    owners.insert(owner.clone());
    Ok(())
}

fn new_conflict(path: PathBuf, first: &Path, second: &Path) -> PlanError {
    PlanError::Conflict {
        path,
        first: first.display().to_string(),
        second: second.display().to_string(),
    }
}
