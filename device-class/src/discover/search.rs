//! Finds the paths of a host that match a pattern.

use std::io;
use std::path::PathBuf;

use crate::host::HostView;
use crate::pattern::{Component, PathPattern};
use crate::template::Attributes;

/// A path that matches a pattern, with the attributes that were known before and those that the
/// pattern captures in the path.
#[derive(Debug, Clone)]
pub(super) struct Match {
    pub(super) path: PathBuf,
    pub(super) attributes: Attributes,
}

/// Returns the existing paths that match a pattern, sorted by name. After `limit` paths the search
/// ends.
pub(super) fn matches(
    pattern: &PathPattern,
    known: &Attributes,
    host: &dyn HostView,
    limit: usize,
) -> io::Result<Vec<Match>> {
    let root = Match {
        path: "/".into(),
        attributes: known.clone(),
    };
    let mut found = Vec::new();
    descend(pattern.components(), root, host, limit, &mut found)?;
    Ok(found)
}

/// Adds to `found` the paths below `parent` that match the rest of a pattern.
fn descend(
    rest: &[Component],
    parent: Match,
    host: &dyn HostView,
    limit: usize,
    found: &mut Vec<Match>,
) -> io::Result<()> {
    let Some((component, rest)) = rest.split_first() else {
        found.push(parent);
        return Ok(());
    };
    if let Some(name) = component.fixed_name(&parent.attributes) {
        let mut attributes = parent.attributes;
        attributes.extend(component.matches(&name, &attributes).unwrap_or_default());
        let path = parent.path.join(name);
        // For a fixed name the directory is not listed. Only the last component is looked up: if an
        // earlier one is missing, the look-up of the last one fails, too.
        let exists = || host.is_link(&path) || matches!(host.entry(&path), Ok(Some(_)));
        if rest.is_empty() && !exists() {
            return Ok(());
        }
        return descend(rest, Match { path, attributes }, host, limit, found);
    }
    let is_match = |name: &str| component.matches(name, &parent.attributes).is_some();
    let names = host.list_matching(&parent.path, &is_match)?;
    let fitting = names.into_iter().filter_map(|name| {
        let captured = component.matches(&name, &parent.attributes)?;
        let mut attributes = parent.attributes.clone();
        attributes.extend(captured);
        Some(Match {
            path: parent.path.join(name),
            attributes,
        })
    });
    let mut fitting: Vec<Match> = fitting.collect();
    fitting.sort_unstable_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
    for next in fitting {
        if found.len() >= limit {
            break;
        }
        descend(rest, next, host, limit, found)?;
    }
    Ok(())
}

/// Returns whether at least one path of the host matches. An error counts as no match.
pub(super) fn any(pattern: &PathPattern, known: &Attributes, host: &dyn HostView) -> bool {
    matches(pattern, known, host, 1).is_ok_and(|found| !found.is_empty())
}
