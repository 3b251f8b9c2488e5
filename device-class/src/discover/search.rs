//! Finds the paths of a host that match a pattern.

use std::io;
use std::path::PathBuf;

use crate::host::HostView;
use crate::pattern::{Component, PathPattern};
use crate::template::Attributes;

/// A path that matches a pattern. The attributes are those known before, and the captures of
/// the pattern in this path.
#[derive(Debug, Clone)]
pub(super) struct Match {
    pub(super) path: PathBuf,
    pub(super) attributes: Attributes,
}

/// Returns the first paths that exist and match, in the order of their names, at most `limit`.
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
        // A fixed name is not read from a directory. Only the last component is looked up: a
        // component before it that is missing shows when the next one is looked up.
        let exists = || host.is_link(&path) || matches!(host.entry(&path), Ok(Some(_)));
        return match rest.is_empty() && !exists() {
            true => Ok(()),
            false => descend(rest, Match { path, attributes }, host, limit, found),
        };
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

/// Whether at least one path of the host matches. An error counts as no match.
pub(super) fn any(pattern: &PathPattern, known: &Attributes, host: &dyn HostView) -> bool {
    matches(pattern, known, host, 1).is_ok_and(|found| !found.is_empty())
}
