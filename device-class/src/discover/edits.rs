//! Nodes, files and directories of a class, as a host has them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::found::{
    FoundDirectory, FoundEdits, FoundFile, FoundNode, MadeNode, NodeForm, OwnNode, Presence,
};
use super::libraries::LibrarySearch;
use super::listed::Lists;
use super::loaded_driver::LoadedDriver;
use super::{DeviceError, MAX_DEVICES, mask, search, source};
use crate::class::{self, DeviceClass, Edits, PathTemplate};
use crate::host::{Entry, HostView};
use crate::name::{CapabilityName, ListName};
use crate::pattern::PathPattern;
use crate::plan::ImageLibraries;
use crate::template::Attributes;

/// The root of a class's driver: most often the host's own.
#[derive(Clone, Copy)]
pub(super) struct DriverRoot<'a> {
    /// What is under it.
    pub(super) view: &'a dyn HostView,
    /// Where it is on the host.
    pub(super) path: &'a Path,
}

impl<'a> DriverRoot<'a> {
    /// The host's own root.
    pub(super) fn of_host(view: &'a dyn HostView) -> Self {
        let path = Path::new("/");
        DriverRoot { view, path }
    }
    /// The path on the host of something in the driver's root, without links.
    pub(super) fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        let inside = self.view.canonical(path)?;
        if self.path.as_os_str() == "/" {
            return Ok(inside);
        }
        Ok(self.path.join(inside.strip_prefix("/").unwrap_or(&inside)))
    }
}

/// What a container wants of a class's `[[edits]]`.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) capabilities: &'a BTreeSet<CapabilityName>,
    /// The lists of files that it names.
    pub(super) lists: &'a [ListName],
}

/// Looks up everything that a container with these capabilities gets once.
/// Nodes are the host's; libraries and files are those of the driver's root.
pub(super) fn edits(
    class: &DeviceClass,
    wanted: Wanted<'_>,
    attributes: &Attributes,
    host: &dyn HostView,
    driver: DriverRoot<'_>,
) -> Result<FoundEdits, EditsError> {
    let Wanted {
        capabilities,
        lists,
    } = wanted;
    let mut found = FoundEdits {
        nodes: control_nodes(class, capabilities, attributes, host)?,
        ..FoundEdits::default()
    };
    let capability_32bit = class.spec.request.capability_32bit.as_ref();
    let directories = class.spec.library_directories.iter();
    let directories: Result<Vec<PathBuf>, _> = directories.map(|d| d.fill(attributes)).collect();
    let search = LibrarySearch {
        directories: directories.map_err(DeviceError::from)?,
        for_32bit: capability_32bit.is_some_and(|capability| capabilities.contains(capability)),
        driver,
    };
    for Chosen { edits, is_named } in chosen(class, capabilities) {
        let optional = edits.optional;
        found.libraries.extend(search.libraries(edits, attributes)?);
        let files = edits.files.iter().map(|spec| (spec, false));
        let binaries = edits.binaries.iter().filter(|_| is_named);
        for (spec, binary) in binaries.map(|spec| (spec, true)).chain(files) {
            for attributes in each(spec.for_each.as_ref(), attributes, driver.view)? {
                let file = file(spec, binary, &attributes, optional, driver)?;
                found.files.push(file);
            }
        }
        for spec in &edits.directories {
            found
                .directories
                .push(directory(spec, attributes, optional, driver)?);
        }
        if let Some(list) = &edits.files_listed_in {
            let lists = Lists::of(lists, &class.spec.request);
            lists.look_up(list, attributes, host, &mut found)?;
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
    Ok(found)
}

/// Looks up the directories that the administrator gives to the containers of a
/// class.
pub(super) fn configured(
    directories: &[class::Directory],
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Vec<FoundDirectory>, EditsError> {
    let host = DriverRoot::of_host(host);
    let found = directories
        .iter()
        .map(|spec| directory(spec, attributes, false, host));
    Ok(found.collect::<Result<_, _>>()?)
}

/// Looks up the nodes that a container with these capabilities gets besides
/// those of its devices.
pub fn control_nodes(
    class: &DeviceClass,
    capabilities: &BTreeSet<CapabilityName>,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Vec<FoundNode>, EditsError> {
    let mut found = Vec::new();
    for Chosen { edits, .. } in chosen(class, capabilities) {
        for spec in &edits.nodes {
            found.extend(nodes(spec, attributes, edits.optional, host)?);
        }
    }
    Ok(found)
}

/// A table of `[[edits]]` that is for the capabilities of a container.
struct Chosen<'a> {
    edits: &'a Edits,
    /// Whether the container named its capability, or gets it for another one.
    is_named: bool,
}

fn chosen<'a>(
    class: &'a DeviceClass,
    capabilities: &'a BTreeSet<CapabilityName>,
) -> impl Iterator<Item = Chosen<'a>> {
    let all = class.spec.request.with_implied(capabilities);
    let named = |capability: &CapabilityName| capabilities.contains(capability);
    class.spec.edits.iter().filter_map(move |edits| {
        let capability = edits.capability.as_ref();
        let fits = capability.is_none_or(|capability| all.contains(capability))
            && !edits.unless_capability.as_ref().is_some_and(named);
        let is_named = capability.is_none_or(named);
        fits.then_some(Chosen { edits, is_named })
    })
}

/// Why the edits of a class cannot be looked up.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct EditsError(#[from] DeviceError);

/// Looks up a node, or those of a pattern.
pub(super) fn nodes(
    spec: &class::Node,
    attributes: &Attributes,
    optional: bool,
    host: &dyn HostView,
) -> Result<Vec<FoundNode>, DeviceError> {
    let each = each(spec.for_each.as_ref(), attributes, host)?;
    let nodes = each
        .iter()
        .map(|attributes| node(spec, attributes, optional, host));
    nodes.collect()
}

/// The attributes with the captures of each path that matches, in their order.
pub(super) fn each(
    pattern: Option<&PathPattern>,
    attributes: &Attributes,
    view: &dyn HostView,
) -> Result<Vec<Attributes>, DeviceError> {
    let Some(pattern) = pattern else {
        return Ok(vec![attributes.clone()]);
    };
    let found = search::matches(pattern, attributes, view, MAX_DEVICES).map_err(|error| {
        let path = pattern.to_string().into();
        DeviceError::Io { path, error }
    })?;
    Ok(found.into_iter().map(|found| found.attributes).collect())
}

/// The paths that match a pattern, in their order.
pub(super) fn paths(
    pattern: &PathPattern,
    attributes: &Attributes,
    view: &dyn HostView,
) -> Result<Vec<PathBuf>, DeviceError> {
    let found = search::matches(pattern, attributes, view, MAX_DEVICES).map_err(|error| {
        let path = pattern.to_string().into();
        DeviceError::Io { path, error }
    })?;
    Ok(found.into_iter().map(|found| found.path).collect())
}

fn node(
    spec: &class::Node,
    attributes: &Attributes,
    optional: bool,
    host: &dyn HostView,
) -> Result<FoundNode, DeviceError> {
    let (mut path, container) = both(&spec.path, spec.container_path.as_ref(), attributes)?;
    for preferred in &spec.prefer {
        let preferred = preferred.fill(attributes)?;
        if let Ok(Some(Entry::Device(_))) = host.entry(&preferred) {
            path = preferred;
            break;
        }
    }
    let links = spec.links.iter().map(|link| link.fill(attributes));
    let mut links = links.collect::<Result<Vec<PathBuf>, _>>()?;
    links.retain(|link| leads_to(link, &path, host));
    let found = |optional| {
        present(
            &path,
            optional,
            "a device node",
            host,
            |entry| match entry {
                Entry::Device(number) => Some(number),
                _ => None,
            },
        )
    };
    let mut number = found(optional || spec.optional);
    let mut form = OwnNode::of(spec).map_or(NodeForm::Bound, NodeForm::Own);
    if !matches!(number, Presence::Found(_)) {
        let driver = LoadedDriver::of(spec, attributes, host)?;
        if driver.is_some() {
            number = found(false);
        }
        // What is there instead of a node is a fault of the host.
        let is_absent = matches!(host.entry(&path), Ok(None));
        if let (Some(driver), Some(make), true) = (&driver, &spec.make, is_absent) {
            number = Presence::Found(driver.number(&make.minor.fill(attributes)?)?);
            form = NodeForm::Made(MadeNode {
                driver: driver.name.clone(),
                own: OwnNode::made(spec, make),
                advice: spec.advice.clone(),
            });
        }
        if let Presence::Unfit(reason) = &mut number {
            if let Some(LoadedDriver { name, .. }) = driver {
                reason.push_str(&format!(", although its driver {name} is loaded"));
            }
            if let Some(advice) = &spec.advice {
                reason.push_str(&format!("; {advice}"));
            }
        }
    }
    Ok(FoundNode {
        host: path,
        container,
        links,
        capability: spec.capability.clone(),
        access: spec.access,
        form,
        number,
    })
}

/// Whether the host has this symbolic link, and it leads to the node.
fn leads_to(link: &Path, node: &Path, host: &dyn HostView) -> bool {
    let end = host.is_link(link).then(|| host.canonical(link).ok());
    end.flatten()
        .is_some_and(|end| host.canonical(node).is_ok_and(|node| node == end))
}

pub(super) fn file(
    spec: &class::File,
    binary: bool,
    attributes: &Attributes,
    optional: bool,
    driver: DriverRoot<'_>,
) -> Result<FoundFile, DeviceError> {
    let (mut path, container) = both(&spec.path, spec.container_path.as_ref(), attributes)?;
    let is_there = |path: &Path| matches!(driver.view.entry(path), Ok(Some(_)));
    for fallback in &spec.fallbacks {
        if is_there(&path) {
            break;
        }
        let fallback = fallback.fill(attributes)?;
        if is_there(&fallback) {
            path = fallback;
        }
    }
    let file = file_at(&path, optional || spec.optional, driver);
    Ok(FoundFile {
        path,
        container,
        binary,
        file,
    })
}

pub(super) fn file_at(path: &Path, optional: bool, driver: DriverRoot<'_>) -> Presence<PathBuf> {
    let canonical = driver.canonical(path).unwrap_or_else(|_| path.to_owned());
    present(path, optional, "a file", driver.view, |entry| {
        // Sockets of a driver's daemons are given as files, too.
        matches!(entry, Entry::File | Entry::Other).then_some(canonical)
    })
}

pub(super) fn directory(
    spec: &class::Directory,
    attributes: &Attributes,
    optional: bool,
    driver: DriverRoot<'_>,
) -> Result<FoundDirectory, DeviceError> {
    let (path, container) = both(&spec.path, spec.container_path.as_ref(), attributes)?;
    let directory = directory_at(&path, optional || spec.optional, driver);
    let mut libraries = Vec::new();
    if spec.libraries && matches!(directory, Presence::Found(_)) {
        libraries = driver.view.list(&path).map_err(|error| DeviceError::Io {
            path: path.clone(),
            error,
        })?;
        libraries.retain(|name| class::SoName::try_from(name.clone()).is_ok());
        libraries.sort_unstable();
    }
    Ok(FoundDirectory {
        path,
        container,
        writable: spec.writable,
        libraries,
        directory,
    })
}

pub(super) fn directory_at(
    path: &Path,
    optional: bool,
    driver: DriverRoot<'_>,
) -> Presence<PathBuf> {
    let canonical = driver.canonical(path).unwrap_or_else(|_| path.to_owned());
    present(path, optional, "a directory", driver.view, |entry| {
        (entry == Entry::Directory).then_some(canonical)
    })
}

/// What an image may have instead of the host's libraries; `None` if the host
/// does not allow it.
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

fn both(
    host: &PathTemplate,
    container: Option<&PathTemplate>,
    attributes: &Attributes,
) -> Result<(PathBuf, PathBuf), DeviceError> {
    let path = host.fill(attributes)?;
    let container = match container {
        Some(container) => container.fill(attributes)?,
        None => path.clone(),
    };
    Ok((path, container))
}

fn present<T>(
    path: &Path,
    optional: bool,
    wanted: &str,
    host: &dyn HostView,
    fit: impl FnOnce(Entry) -> Option<T>,
) -> Presence<T> {
    let entry = host.entry(path);
    // Also where an entry cannot be looked up: every user can put a link to itself
    // into such a directory.
    let shared = match entry {
        Ok(None) => Ok(None),
        _ => host.shared_directory(path),
    };
    match (entry, shared) {
        (Ok(None), _) | (_, Ok(Some(_))) if optional => Presence::Optional,
        (Ok(None), _) => Presence::Unfit(format!("{} does not exist", path.display())),
        (_, Ok(Some(shared))) => Presence::Unfit(format!(
            "{} cannot be trusted: every user of the host can create files in {}; \
             move it to a directory of root's",
            path.display(),
            shared.display()
        )),
        (Ok(Some(entry)), Ok(None)) => match fit(entry) {
            Some(found) => Presence::Found(found),
            None => Presence::Unfit(format!("{} is {entry}, not {wanted}", path.display())),
        },
        (Err(error), _) | (_, Err(error)) => {
            Presence::Unfit(format!("cannot look up {}: {error}", path.display()))
        }
    }
}
