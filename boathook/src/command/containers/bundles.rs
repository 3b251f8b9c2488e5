//! Finds the bundles of containers in the directories where engines store them.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::Container;

/// Returns whether two bundle paths of containers with the same id lead to one bundle. CRI-O stores
/// config.json in two directories, both named `userdata`. If the host's root is mounted in this
/// program's container, one path begins with the mount point.
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

/// Returns the paths below `root` that match `pattern`, such as `var/lib/nerdctl/*`. A component
/// such as `ab*` matches all names that begin with `ab`.
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

/// Returns the container whose bundle is `bundle`. Returns `None` if the bundle has no config.json.
/// The name of the directory is the container's id. For podman and CRI-O, the directory is named
/// `userdata`, and its parent directory has the id as its name.
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

/// Returns whether the end of `path` matches `pattern`, in which the component `*` matches any
/// name. The path may begin with the directory where the host's root is mounted.
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
