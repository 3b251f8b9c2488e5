//! Finds the bundles of containers in the directories in which engines keep them.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::Container;

/// Returns whether two paths, which belong to containers with the same id, are paths of one bundle.
/// CRI-O keeps config.json in two directories, which are both named `userdata`. In a container that
/// has the host's root mounted, one of the paths begins with the mount point.
pub(in crate::command) fn is_same_bundle(bundle: &Path, other_bundle: &Path) -> bool {
    let is_in_userdata_dir = |path: &Path| path.ends_with("userdata");
    let is_suffix =
        |path: &Path, suffix: &Path| path.ends_with(suffix.strip_prefix("/").unwrap_or(suffix));
    let canonicalize = |path| fs::canonicalize(path).ok();
    is_in_userdata_dir(bundle) && is_in_userdata_dir(other_bundle)
        || is_suffix(bundle, other_bundle)
        || is_suffix(other_bundle, bundle)
        || canonicalize(bundle).is_some_and(|path| Some(path) == canonicalize(other_bundle))
}

/// Returns the paths below `root` that match `pattern`. A component of `pattern` that ends in `*`
/// matches all names with the same beginning.
pub(super) fn find_matching_paths(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut paths = vec![root.to_owned()];
    for component in pattern.split('/').filter(|component| !component.is_empty()) {
        paths = match component.strip_suffix('*') {
            None => paths.iter().map(|path| path.join(component)).collect(),
            Some(prefix) => {
                let matches_prefix = |path: &PathBuf| {
                    let name = path.file_name().and_then(|name| name.to_str());
                    name.is_some_and(|name| name.starts_with(prefix))
                };
                let entries = paths.iter().flat_map(|path| read_directory(path));
                entries.filter(matches_prefix).collect()
            }
        };
    }
    paths
}

pub(super) fn has_config(bundle: &Path) -> bool {
    bundle.join("config.json").is_file()
}

/// Returns the container of a bundle, or `None` if the bundle has no config.json. The name of the
/// directory is the container's id. With podman and CRI-O, the directory is named `userdata`, and
/// the name of its parent is the id.
pub(super) fn find_container_of_bundle(bundle: PathBuf) -> Option<Container> {
    has_config(&bundle).then_some(())?;
    let id = match bundle.file_name()?.to_str()? {
        "userdata" => bundle.parent()?.file_name()?.to_str()?,
        name => name,
    };
    Some(Container {
        id: id.to_owned(),
        bundle: Some(bundle),
        ..Container::default()
    })
}

pub(super) fn read_directory(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect()
}

/// Returns whether the last components of `path` match `pattern`, in which `*` matches any single
/// component. The path may begin with the mount point of the host's root.
pub(super) fn matches_pattern(path: &Path, pattern: &str) -> bool {
    let mut names = path
        .components()
        .rev()
        .filter_map(|component| match component {
            Component::Normal(name) => name.to_str(),
            _ => None,
        });
    let mut pattern_components = pattern
        .split('/')
        .rev()
        .filter(|component| !component.is_empty());
    pattern_components.all(|component| {
        names
            .next()
            .is_some_and(|name| component == "*" || component == name)
    })
}
