//! Paths that match a pattern.

use std::io;
use std::path::PathBuf;

use crate::host::HostView;
use crate::pattern::PathPattern;
use crate::template::Attributes;

/// A path, and the attributes that its captures gave, with those known before.
#[derive(Debug, Clone)]
pub(super) struct Match {
    pub(super) path: PathBuf,
    pub(super) attributes: Attributes,
}

/// At most `limit` paths that exist and match. A directory that cannot be
/// listed has no matches: it may be gone by now.
pub(super) fn matches(
    pattern: &PathPattern,
    known: &Attributes,
    host: &dyn HostView,
    limit: usize,
) -> io::Result<Vec<Match>> {
    let mut found = vec![Match {
        path: "/".into(),
        attributes: known.clone(),
    }];
    let last = pattern.components().len() - 1;
    let mut unchecked = false;
    for (depth, component) in pattern.components().iter().enumerate() {
        let mut next = Vec::new();
        for parent in found {
            if next.len() >= limit {
                break;
            }
            if let Some(name) = component.fixed(&parent.attributes) {
                let mut attributes = parent.attributes;
                attributes.extend(component.matches(&name, &attributes).unwrap_or_default());
                next.push(Match {
                    path: parent.path.join(name),
                    attributes,
                });
                unchecked = depth == last;
                continue;
            }
            let names = host.list(&parent.path)?;
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
            // Of directories with thousands of names few are meant.
            fitting.sort_unstable_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
            fitting.truncate(limit - next.len());
            next.append(&mut fitting);
        }
        found = next;
    }
    if unchecked {
        // The last name was not read from a directory, so it may not exist.
        found.retain(|m| host.is_link(&m.path) || matches!(host.entry(&m.path), Ok(Some(_))));
    }
    Ok(found)
}

/// Whether any path matches.
pub(super) fn any(pattern: &PathPattern, known: &Attributes, host: &dyn HostView) -> bool {
    matches(pattern, known, host, usize::MAX).is_ok_and(|found| !found.is_empty())
}
