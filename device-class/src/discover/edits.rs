//! Looks up the nodes, libraries and files of a class's `[[edits]]` on a host. A container gets
//! them once, however many devices it has.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use super::driver_root::DriverRoot;
use super::file_lists::{ListSelection, ListTable};
use super::files::{find_directory, find_file};
use super::found::{FoundEdits, FoundMask, FoundNode, ImageLibraries};
use super::libraries::LibrarySearch;
use super::named_libraries::add_named_libraries;
use super::nodes::find_nodes;
use super::paths::list_attribute_sets;
use super::{DeviceError, Inventory, mask, source};
use crate::class::{self, DeviceClass, Edits, PathTemplate, PathTemplateError};
use crate::host::HostView;
use crate::name::{CapabilityName, DeviceId, ListName};
use crate::template::Attributes;

/// The parts of a container's request that select `[[edits]]` tables of a class. The container gets
/// the nodes, libraries and files of the selected tables.
#[derive(Debug, Clone, Copy)]
pub struct EditSelection<'a> {
    pub capabilities: &'a BTreeSet<CapabilityName>,
    /// The names of the list files that the container requests (`files_listed_in`).
    pub lists: &'a [ListName],
    /// The paths by which the container requests devices, such as `/dev/npu0`. Other requests use
    /// names.
    pub paths: &'a [PathBuf],
    /// Finds the devices that the container requests. `None` stands for all devices.
    pub requested_devices: Option<&'a dyn RequestedDevices>,
}

/// A container's request for devices. With it, the search for links of udev looks only at the
/// devices that the container requests.
pub trait RequestedDevices: fmt::Debug {
    /// Returns the ids of the devices in the inventory that the container can get.
    fn find_requested_ids(&self, class: &DeviceClass, inventory: &Inventory) -> BTreeSet<DeviceId>;
}

impl<'a> From<&'a BTreeSet<CapabilityName>> for EditSelection<'a> {
    /// Returns the selection for a container that has these capabilities, gets the default list
    /// files, and requests no device by a path.
    fn from(capabilities: &'a BTreeSet<CapabilityName>) -> Self {
        EditSelection {
            capabilities,
            lists: &[],
            paths: &[],
            requested_devices: None,
        }
    }
}

/// Looks up the nodes, libraries and files of the `[[edits]]` tables that `selection` selects.
/// Nodes are looked up on the host. Libraries and files are looked up in the driver root, which is
/// another directory than `/` if the driver is installed in a container.
pub(super) fn find_edits(
    class: &DeviceClass,
    selection: EditSelection<'_>,
    attributes: &Attributes,
    host: &dyn HostView,
    driver_root: DriverRoot<'_>,
) -> Result<FoundEdits, DeviceError> {
    let EditSelection {
        capabilities,
        lists,
        paths: _,
        requested_devices: _,
    } = selection;
    let mut found_edits = FoundEdits {
        nodes: find_control_nodes(class, selection, attributes, host)?,
        ..FoundEdits::default()
    };
    let capability_32bit = class.spec.request.capability_32bit.as_ref();
    // A class file lists the directories of many distributions. This closure separates the
    // directories that this host has from those that it lacks, where no file needs to be searched.
    // A directory whose look-up fails counts as present, so that a later search in it reports the
    // error.
    let find_directories = |class_directories: &[PathTemplate], root_directories: &[&str]| {
        let class_directories = class_directories
            .iter()
            .map(|directory| directory.fill(attributes));
        let root_directories = root_directories
            .iter()
            .map(|directory| Ok(PathBuf::from(directory)));
        let directories = class_directories
            .chain(root_directories)
            .collect::<Result<Vec<_>, PathTemplateError>>()?;
        let is_present =
            |directory: &PathBuf| !matches!(driver_root.view.entry(directory), Ok(None));
        Ok::<_, PathTemplateError>(directories.into_iter().partition(is_present))
    };
    let spec = &class.spec;
    let (program_directories, _): (Vec<PathBuf>, Vec<PathBuf>) =
        find_directories(&spec.program_directories, driver_root.program_directories())?;
    // The host's ld.so.cache is read only for a class that has libraries.
    let has_libraries =
        |edits: &Edits| !edits.libraries.is_empty() || edits.libraries_matching.is_some();
    let root_directories = if spec.edits.iter().any(has_libraries) {
        driver_root.library_directories()
    } else {
        &[]
    };
    let (directories, absent_directories) =
        find_directories(&spec.library_directories, root_directories)?;
    let search = LibrarySearch {
        directories,
        absent_directories,
        image_links: spec.library_links.as_deref(),
        includes_32bit: capability_32bit
            .is_some_and(|capability| capabilities.contains(capability)),
        driver_root,
    };
    for SelectedEdits {
        edits,
        is_requested,
    } in select_edits(class, capabilities)
    {
        let is_optional = edits.optional;
        found_edits
            .libraries
            .extend(search.find_libraries(edits, attributes)?);
        let files = edits.files.iter().map(|spec| (spec, None));
        let binaries = edits.binaries.iter().filter(|_| is_requested);
        let binaries = binaries.map(|spec| (spec, Some(program_directories.as_slice())));
        for (spec, program_directories) in binaries.chain(files) {
            let attribute_sets =
                list_attribute_sets(spec.path_pattern.as_ref(), attributes, driver_root.view)?;
            for attributes in attribute_sets.iter() {
                let file = find_file(
                    spec,
                    program_directories,
                    attributes,
                    is_optional,
                    driver_root,
                )?;
                if spec.names_libraries {
                    add_named_libraries(&file, driver_root, &mut found_edits);
                }
                found_edits.files.push(file);
            }
        }
        for spec in &edits.directories {
            found_edits.directories.push(find_directory(
                spec,
                attributes,
                is_optional,
                driver_root,
            )?);
        }
        if let Some(list) = &edits.file_list_path {
            let lists = ListSelection::select(lists, &class.spec.request);
            let table = ListTable { path: list, edits };
            lists.add_files(&table, attributes, host, &mut found_edits)?;
        }
        for spec in &edits.masks {
            let mask = mask::find_mask(spec, attributes, host)?;
            found_edits.masks.push(mask);
        }
        for spec in &edits.image_libraries {
            found_edits
                .image_libraries
                .extend(find_image_libraries(spec, attributes, host)?);
        }
    }
    for spec in &class.settings.directories {
        let host_root = DriverRoot::from_host(host);
        found_edits
            .directories
            .push(find_directory(spec, attributes, false, host_root)?);
    }
    Ok(found_edits)
}

/// Looks up the nodes of the `[[edits]]` tables that `selection` selects. A container gets them in
/// addition to the nodes of its devices.
pub fn find_control_nodes<'a>(
    class: &'a DeviceClass,
    selection: impl Into<EditSelection<'a>>,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Vec<FoundNode>, DeviceError> {
    let (mut found_nodes, selection) = (Vec::new(), selection.into());
    for SelectedEdits { edits, .. } in select_edits(class, selection.capabilities) {
        for spec in &edits.nodes {
            let nodes = find_nodes(spec, attributes, edits.optional, host)?;
            found_nodes.extend(nodes.into_iter().map(|mut node| {
                if let (Some(absence), Some(capability)) = (&mut node.absence, &edits.capability) {
                    let switchable = class.spec.request.switchable_capabilities();
                    absence.can_be_selected_by_switch = switchable.contains(capability);
                }
                node
            }));
        }
        if let (Some(path), false) = (&edits.file_list_path, edits.listed_kinds.is_empty()) {
            let lists = ListSelection::select(selection.lists, &class.spec.request);
            found_nodes.extend(lists.find_nodes(&ListTable { path, edits }, attributes, host)?);
        }
    }
    Ok(found_nodes)
}

/// Looks up the masks (mounts that hide a directory) over directories of symbolic links to devices,
/// such as /sys/class. When a device is plugged in at another place on the bus, `boathook follow`
/// updates the links in these masks.
pub(super) fn find_symlink_directory_masks(
    class: &DeviceClass,
    capabilities: &BTreeSet<CapabilityName>,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Vec<FoundMask>, DeviceError> {
    let masks =
        select_edits(class, capabilities).flat_map(|selected_edits| &selected_edits.edits.masks);
    let masks = masks.map(|spec| mask::find_mask(spec, attributes, host));
    let mut masks = masks.collect::<Result<Vec<_>, _>>()?;
    masks.retain(|mask| mask::is_sysfs_link_directory(&mask.path));
    Ok(masks)
}

/// Looks up the device nodes of `[[edits]]` for a report about missing nodes. An entry that cannot
/// be looked up is left out, for example because its template cannot be filled in.
pub(super) fn find_nodes_without_errors(
    class: &DeviceClass,
    selection: EditSelection<'_>,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Vec<FoundNode> {
    let mut found_nodes = Vec::new();
    for SelectedEdits { edits, .. } in select_edits(class, selection.capabilities) {
        for spec in &edits.nodes {
            found_nodes
                .extend(find_nodes(spec, attributes, edits.optional, host).unwrap_or_default());
        }
    }
    found_nodes
}

/// A table of `[[edits]]` that the capabilities of a container select.
struct SelectedEdits<'a> {
    edits: &'a Edits,
    /// Whether the container requested the capability of the table by name. If the capability is
    /// only implied by another one, the container does not get the programs of the table.
    is_requested: bool,
}

fn select_edits<'a>(
    class: &'a DeviceClass,
    capabilities: &'a BTreeSet<CapabilityName>,
) -> impl Iterator<Item = SelectedEdits<'a>> {
    let with_implied = class.spec.request.add_implied_capabilities(capabilities);
    class.spec.edits.iter().filter_map(move |edits| {
        let capability = edits.capability.as_ref();
        let unless_capability = edits.unless_capability.as_ref();
        let is_selected = capability.is_none_or(|capability| with_implied.contains(capability))
            && !unless_capability.is_some_and(|capability| with_implied.contains(capability));
        let is_requested = capability.is_none_or(|capability| capabilities.contains(capability));
        is_selected.then_some(SelectedEdits {
            edits,
            is_requested,
        })
    })
}

/// Looks up one entry of `image_libraries`. It names a directory of the container image whose
/// libraries are used instead of the host's if they are newer. Returns `None` if the host does not
/// meet a condition in `require`, or if the major version of the host's library is not a number.
fn find_image_libraries(
    spec: &class::ImageLibraries,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Option<ImageLibraries>, DeviceError> {
    let host_version = spec.host_version.fill(attributes)?;
    let major_version = host_version.split('.').next().unwrap_or_default().parse();
    let is_condition_met = |condition| source::is_condition_met(condition, attributes, host);
    let (Ok(host_major_version), true) = (major_version, spec.require.iter().all(is_condition_met))
    else {
        return Ok(None);
    };
    Ok(Some(ImageLibraries {
        directory: spec.directory.fill(attributes)?,
        library: spec.library.as_str().to_owned(),
        host_major_version,
    }))
}
