//! Looks up the `[[edits]]` of a class on a host. A container gets each edit once, however many
//! devices it has.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::driver_root::DriverRoot;
use super::files::{directory, file};
use super::found::{FoundEdits, FoundMask, FoundNode, ImageLibraries};
use super::libraries::LibrarySearch;
use super::listed::{ListTable, Lists};
use super::nodes::nodes;
use super::paths::capture_attributes;
use super::{DeviceError, mask, source};
use crate::class::{self, DeviceClass, Edits, PathTemplate, PathTemplateError};
use crate::host::HostView;
use crate::name::{CapabilityName, ListName};
use crate::template::Attributes;

/// The parts of a class's `[[edits]]` that a container selects.
#[derive(Debug, Clone, Copy)]
pub struct EditSelection<'a> {
    pub capabilities: &'a BTreeSet<CapabilityName>,
    /// The lists of files that the container names.
    pub lists: &'a [ListName],
    /// The paths by which the container names devices.
    pub paths: &'a [PathBuf],
}

impl<'a> From<&'a BTreeSet<CapabilityName>> for EditSelection<'a> {
    /// Selects the edits of a container that has these capabilities, and names neither lists of
    /// files nor paths.
    fn from(capabilities: &'a BTreeSet<CapabilityName>) -> Self {
        EditSelection {
            capabilities,
            lists: &[],
            paths: &[],
        }
    }
}

/// Looks up the edits that a container with these capabilities gets once. Nodes are looked up
/// on the host itself; libraries and files are looked up in the driver root.
pub(super) fn edits(
    class: &DeviceClass,
    wanted: EditSelection<'_>,
    attributes: &Attributes,
    host: &dyn HostView,
    driver: DriverRoot<'_>,
) -> Result<FoundEdits, DeviceError> {
    let EditSelection {
        capabilities,
        lists,
        paths: _,
    } = wanted;
    let mut found = FoundEdits {
        nodes: control_nodes(class, wanted, attributes, host)?,
        ..FoundEdits::default()
    };
    let capability_32bit = class.spec.request.capability_32bit.as_ref();
    // A class names the directories of many distributions. Directories that this host lacks are
    // left out here, so that no file is searched there. If looking up a directory fails, it is kept,
    // and the error is reported when a file is searched in it.
    let find_directories = |own: &[PathTemplate], further: &[&str]| {
        let own = own.iter().map(|directory| directory.fill(attributes));
        let further = further.iter().map(|directory| Ok(PathBuf::from(directory)));
        let directories = own
            .chain(further)
            .collect::<Result<Vec<_>, PathTemplateError>>()?;
        let is_present = |directory: &PathBuf| !matches!(driver.view.entry(directory), Ok(None));
        Ok::<_, PathTemplateError>(directories.into_iter().partition(is_present))
    };
    let spec = &class.spec;
    let (programs, _): (Vec<PathBuf>, Vec<PathBuf>) =
        find_directories(&spec.program_directories, driver.program_directories())?;
    let (directories, absent_directories) =
        find_directories(&spec.library_directories, driver.library_directories())?;
    let search = LibrarySearch {
        directories,
        absent_directories,
        image_links: spec.library_links.as_deref(),
        for_32bit: capability_32bit.is_some_and(|capability| capabilities.contains(capability)),
        driver,
    };
    for SelectedEdits { edits, is_named } in chosen(class, capabilities) {
        let optional = edits.optional;
        found.libraries.extend(search.libraries(edits, attributes)?);
        let files = edits.files.iter().map(|spec| (spec, None));
        let binaries = edits.binaries.iter().filter(|_| is_named);
        let binaries = binaries.map(|spec| (spec, Some(programs.as_slice())));
        for (spec, programs) in binaries.chain(files) {
            let each = capture_attributes(spec.for_each.as_ref(), attributes, driver.view)?;
            for attributes in each.iter() {
                let file = file(spec, programs, attributes, optional, driver)?;
                found.files.push(file);
            }
        }
        for spec in &edits.directories {
            found
                .directories
                .push(directory(spec, attributes, optional, driver)?);
        }
        if let Some(list) = &edits.files_listed_in {
            let lists = Lists::select(lists, &class.spec.request);
            let listed = ListTable { at: list, edits };
            lists.look_up(&listed, attributes, host, &mut found)?;
        }
        for spec in &edits.masks {
            let mask = mask::mask(spec, attributes, host)?;
            found.masks.push(mask);
        }
        for spec in &edits.image_libraries {
            found
                .image_libraries
                .extend(image_libraries(spec, attributes, host)?);
        }
    }
    for spec in &class.settings.directories {
        let host = DriverRoot::of_host(host);
        found
            .directories
            .push(directory(spec, attributes, false, host)?);
    }
    Ok(found)
}

/// Looks up the nodes that a container with these capabilities gets in addition to the nodes of
/// its devices.
pub fn control_nodes<'a>(
    class: &'a DeviceClass,
    wanted: impl Into<EditSelection<'a>>,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Vec<FoundNode>, DeviceError> {
    let (mut found, wanted) = (Vec::new(), wanted.into());
    for SelectedEdits { edits, .. } in chosen(class, wanted.capabilities) {
        for spec in &edits.nodes {
            let nodes = nodes(spec, attributes, edits.optional, host)?;
            found.extend(nodes.into_iter().map(|mut node| {
                if let (Some(lack), Some(capability)) = (&mut node.lack, &edits.capability) {
                    let switched = class.spec.request.switchable_capabilities();
                    lack.is_of_switch = switched.contains(capability);
                }
                node
            }));
        }
        if let (Some(at), false) = (&edits.files_listed_in, edits.listed_kinds.is_empty()) {
            let lists = Lists::select(wanted.lists, &class.spec.request);
            found.extend(lists.nodes(&ListTable { at, edits }, attributes, host)?);
        }
    }
    Ok(found)
}

/// Looks up the masks over directories in which the kernel lists devices by links, such as
/// /sys/class. A followed device changes its link there when it comes back at another place of the
/// bus.
pub(super) fn find_device_lists(
    class: &DeviceClass,
    capabilities: &BTreeSet<CapabilityName>,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Vec<FoundMask>, DeviceError> {
    let masks = chosen(class, capabilities).flat_map(|selected| &selected.edits.masks);
    let masks = masks.map(|spec| mask::mask(spec, attributes, host));
    let mut masks = masks.collect::<Result<Vec<_>, _>>()?;
    masks.retain(|mask| mask::has_only_links(&mask.path));
    Ok(masks)
}

/// Looks up the nodes of `[[edits]]`. An entry whose look-up fails is left out.
pub(super) fn find_nodes(
    class: &DeviceClass,
    wanted: EditSelection<'_>,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Vec<FoundNode> {
    let mut found = Vec::new();
    for SelectedEdits { edits, .. } in chosen(class, wanted.capabilities) {
        for spec in &edits.nodes {
            found.extend(nodes(spec, attributes, edits.optional, host).unwrap_or_default());
        }
    }
    found
}

/// A table of `[[edits]]` that applies to the capabilities of a container.
struct SelectedEdits<'a> {
    edits: &'a Edits,
    /// Whether the container itself requested the capability of the table. If only another
    /// capability implies it, the container does not get the programs of the table.
    is_named: bool,
}

fn chosen<'a>(
    class: &'a DeviceClass,
    capabilities: &'a BTreeSet<CapabilityName>,
) -> impl Iterator<Item = SelectedEdits<'a>> {
    let all = class.spec.request.with_implied(capabilities);
    class.spec.edits.iter().filter_map(move |edits| {
        let capability = edits.capability.as_ref();
        let unless = edits.unless_capability.as_ref();
        let fits = capability.is_none_or(|capability| all.contains(capability))
            && !unless.is_some_and(|capability| all.contains(capability));
        let is_named = capability.is_none_or(|capability| capabilities.contains(capability));
        fits.then_some(SelectedEdits { edits, is_named })
    })
}

/// Looks up the libraries that an image may use instead of the host's. Returns `None` if a
/// condition of `require` does not hold on the host, or the host's version is unknown.
fn image_libraries(
    spec: &class::ImageLibraries,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Option<ImageLibraries>, DeviceError> {
    let version = spec.newer_than.fill(attributes)?;
    let major = version.split('.').next().unwrap_or_default().parse();
    let is_allowed = |condition| source::holds(condition, attributes, host);
    let (Ok(newer_than), true) = (major, spec.require.iter().all(is_allowed)) else {
        return Ok(None);
    };
    Ok(Some(ImageLibraries {
        directory: spec.directory.fill(attributes)?,
        library: spec.library.as_str().to_owned(),
        newer_than,
    }))
}
