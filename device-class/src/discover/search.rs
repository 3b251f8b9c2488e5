//! Finds the paths on a host that match a pattern.

use std::io;
use std::path::PathBuf;

use crate::host::HostView;
use crate::pattern::{Component, PathPattern};
use crate::template::Attributes;

/// A path that matches a pattern. The attributes include those that were known before the search,
/// and those that the pattern captures from the path.
#[derive(Debug, Clone)]
pub(super) struct PathMatch {
    pub(super) path: PathBuf,
    pub(super) attributes: Attributes,
}

/// Returns the existing paths that match a pattern, at most `limit`. The paths are sorted by the
/// values that the pattern captures, and then by name; `{name:number}` is compared as a number. A
/// capture whose value is in `attributes` matches only this value.
pub(super) fn find_matches(
    pattern: &PathPattern,
    attributes: &Attributes,
    host: &dyn HostView,
    limit: usize,
) -> io::Result<Vec<PathMatch>> {
    let root = PathMatch {
        path: "/".into(),
        attributes: attributes.clone(),
    };
    let mut found_matches = Vec::new();
    add_descendant_matches(pattern.components(), root, host, limit, &mut found_matches)?;
    Ok(found_matches)
}

/// Searches below `parent` for paths that match the remaining components of a pattern. Adds them to
/// `found_matches`, until that has `limit` paths.
fn add_descendant_matches(
    components: &[Component],
    parent: PathMatch,
    host: &dyn HostView,
    limit: usize,
    found_matches: &mut Vec<PathMatch>,
) -> io::Result<()> {
    let Some((component, remaining_components)) = components.split_first() else {
        found_matches.push(parent);
        return Ok(());
    };
    if let Some(name) = component.fixed_name(&parent.attributes) {
        let mut attributes = parent.attributes;
        attributes.extend(
            component
                .capture_attributes(&name, &attributes)
                .unwrap_or_default(),
        );
        let path = parent.path.join(name);
        // Only one name is possible, so the directory is not listed. Only the last component of a
        // pattern is looked up, because this look-up also fails if a directory on its path is
        // missing.
        let exists = || matches!(host.entry(&path), Ok(Some(_))) || host.is_link(&path);
        if remaining_components.is_empty() && !exists() {
            return Ok(());
        }
        return add_descendant_matches(
            remaining_components,
            PathMatch { path, attributes },
            host,
            limit,
            found_matches,
        );
    }
    let is_match = |name: &str| {
        component
            .capture_attributes(name, &parent.attributes)
            .is_some()
    };
    let names = host.list_matching(&parent.path, &is_match)?;
    let matches = names.into_iter().filter_map(|name| {
        let captures = component.capture_attributes(&name, &parent.attributes)?;
        let mut attributes = parent.attributes.clone();
        attributes.extend(captures);
        Some(PathMatch {
            path: parent.path.join(name),
            attributes,
        })
    });
    let mut matches: Vec<PathMatch> = matches.collect();
    matches.sort_unstable_by(|a, b| {
        let by_captures = component.compare_captures(&a.attributes, &b.attributes);
        by_captures.then_with(|| a.path.as_os_str().cmp(b.path.as_os_str()))
    });
    for path_match in matches {
        if found_matches.len() >= limit {
            break;
        }
        add_descendant_matches(remaining_components, path_match, host, limit, found_matches)?;
    }
    Ok(())
}

/// Returns whether at least one path of the host matches a pattern. Returns `false` if the search
/// fails.
pub(super) fn has_match(
    pattern: &PathPattern,
    attributes: &Attributes,
    host: &dyn HostView,
) -> bool {
    find_matches(pattern, attributes, host, 1).is_ok_and(|matches| !matches.is_empty())
}
