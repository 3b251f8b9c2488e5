//! Finds the bundles of containers in the directories in which engines keep them.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::Container;

/// Returns whether two paths lead to the same bundle. The paths can differ: CRI-O keeps
/// config.json in two directories of one storage, where ids are unique, and below a mount of
/// the host's root a path is longer.
pub(in crate::command) fn is_same_bundle(one: &Path, other: &Path) -> bool {
    let is_in_storage = |path: &Path| path.ends_with("userdata");
    let is_end =
        |long: &Path, short: &Path| long.ends_with(short.strip_prefix("/").unwrap_or(short));
    let real = |path| fs::canonicalize(path).ok();
    is_in_storage(one) && is_in_storage(other)
        || is_end(one, other)
        || is_end(other, one)
        || real(one).is_some_and(|one| Some(one) == real(other))
}

/// Returns the paths below `top` that match a pattern. A name in the pattern that ends in `*`
/// matches every name with the same beginning.
pub(super) fn find_matching(top: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = match part.strip_suffix('*') {
            None => found.iter().map(|path| path.join(part)).collect(),
            Some(begin) => {
                let fits = |path: &PathBuf| {
                    let name = path.file_name().and_then(|name| name.to_str());
                    name.is_some_and(|name| name.starts_with(begin))
                };
                let all = found.iter().flat_map(|path| read_directory(path));
                all.filter(fits).collect()
            }
        };
    }
    found
}

pub(super) fn has_config(bundle: &Path) -> bool {
    bundle.join("config.json").is_file()
}

/// Returns the container that a bundle is for. The container's id is the name of the bundle's directory,
/// or, with podman and CRI-O, of the directory above `userdata`.
pub(super) fn read_bundle(bundle: PathBuf) -> Option<Container> {
    has_config(&bundle).then_some(())?;
    let named = match bundle.file_name()?.to_str()? {
        "userdata" => bundle.parent()?.file_name()?.to_str()?,
        name => name,
    };
    Some(Container {
        id: named.to_owned(),
        bundle: Some(bundle),
        ..Container::default()
    })
}

pub(super) fn read_directory(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|e| e.ok().map(|e| e.path())).collect()
}

/// Returns whether the end of a path matches the pattern of bundles, in which `*` matches any one name. The
/// path may begin with the host's root or with a mount of it.
pub(super) fn matches_pattern(path: &Path, pattern: &str) -> bool {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let names: Vec<&str> = names.collect();
    let mut pattern = pattern.split('/').rev().filter(|part| !part.is_empty());
    let mut names = names.iter();
    pattern.all(|part| {
        names
            .next()
            .is_some_and(|name| part == "*" || part == *name)
    })
}
