//! Reads the claim records that `boathook-dra` keeps on a host, one file for each prepared resource
//! claim.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use injection_plan::claim_record::{parse_uid_from_file_name, records_dir_path};

use crate::host::Host;
use crate::layout::DRA_DRIVER_DIR;

/// Returns the uids of the resource claims for which the host has a record. The file name of a
/// record contains the uid. The set is empty if the directory of the records does not exist.
pub(crate) fn find_prepared_claim_uids(host: &Host) -> Result<BTreeSet<String>> {
    let directory = records_dir_path(Path::new(DRA_DRIVER_DIR));
    if !host.is_dir(&directory) {
        return Ok(BTreeSet::new());
    }
    let names = host.list(&directory)?;
    let uids = names
        .iter()
        .filter_map(|name| parse_uid_from_file_name(name));
    Ok(uids.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use injection_plan::claim_record::DRIVER_DIR_PATH;

    use super::*;

    #[test]
    fn the_drivers_directory_is_that_of_the_driver() {
        assert_eq!(
            Path::new(DRA_DRIVER_DIR),
            Path::new("/var/lib/kubelet").join(DRIVER_DIR_PATH)
        );
    }
}
