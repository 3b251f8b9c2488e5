//! Reads the claim records that `boathook-dra` keeps on a host.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use runtime_config::HostRoot;

use crate::layout::DRIVER;

/// Returns the uids of the prepared claims. A uid is the name of a claim record without suffix.
pub(crate) fn find_prepared(host: &HostRoot) -> Result<BTreeSet<String>> {
    let directory = Path::new(DRIVER).join("claims");
    if !host.is_dir(&directory) {
        return Ok(BTreeSet::new());
    }
    let names = host.list(&directory)?;
    let uids = names.iter().filter_map(|name| {
        let uid = name.to_str()?.strip_suffix(".json")?;
        // A record that is being written begins with a dot.
        (!uid.starts_with('.')).then(|| uid.to_owned())
    });
    Ok(uids.collect())
}
