//! What a run that was killed left behind. Each has a name of its own, which
//! nothing refers to, so it can be removed at any time.

use std::path::{Path, PathBuf};

use runtime_config::HostRoot;

use crate::error::Error;
use crate::layout::{ROOT, STATE, discarded, is_leftover, unfinished};
use crate::step::Step;

/// The steps that remove them.
///
/// # Errors
/// The installation's directory can't be read.
pub(crate) fn discard(host: &HostRoot) -> Result<Vec<Step>, Error> {
    let root = Path::new(ROOT);
    let mut left: Vec<PathBuf> = host
        .list(root)?
        .iter()
        .filter(|name| is_leftover(&name.to_string_lossy()))
        .map(|name| root.join(name))
        .collect();
    // Those of the directories that may have had to be made first.
    let above = root.parent().unwrap_or(root);
    for dir in [above, root, Path::new(STATE)] {
        let names = [unfinished(dir), discarded(dir)];
        left.extend(names.into_iter().filter(|p| host.exists(p)));
    }
    left.sort();
    left.dedup();
    Ok(left
        .into_iter()
        .map(|path| Step::Discard { path })
        .collect())
}
