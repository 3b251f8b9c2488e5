//! Finds nerdctl's containers that do not run. nerdctl keeps their names and ids in files; their
//! variables are in containerd's database alone.

use std::path::{Path, PathBuf};

use device_class::name::excerpt;

use super::UnknownContainer;
use super::bundles::{find_matching, read_directory};
use crate::oci::{open_regular, read_capped};

/// nerdctl's default data directories. There is one for each socket of containerd.
pub(super) const DATA_DIR_PATTERN: &str = "var/lib/nerdctl/*";

/// The maximum size, in bytes, of a file that contains an id and a newline.
pub(super) const MAX_ID_BYTES: usize = 256;

/// A container that nerdctl's files name. It does not need to run.
pub(super) struct NerdctlContainer {
    pub(super) id: String,
    pub(super) name: String,
}

impl NerdctlContainer {
    /// Returns the reason for which the container cannot be examined, and what to do instead.
    pub(super) fn into_unknown(self) -> UnknownContainer {
        let name = excerpt(&self.name);
        UnknownContainer {
            reason: format!(
                "nerdctl's {name} ({}) does not run, and only containerd knows its variables",
                self.id
            ),
            fix: format!(
                "`nerdctl inspect {name}` shows the variables, and `boathook doctor --env \
                 VARIABLE=VALUE` what they give"
            ),
            name: self.id,
        }
    }
}

/// Finds the container with this name or id, or the only one whose id begins with the text. The
/// file `names/NAMESPACE/NAME` contains the id (nerdctl, pkg/namestore).
pub(super) fn find(id_or_name: &str, host_root: &Path) -> Option<NerdctlContainer> {
    let containers: Vec<NerdctlContainer> = find_all(host_root).collect();
    let find_only = |is_match: &dyn Fn(&NerdctlContainer) -> bool| {
        let mut matches = containers.iter().filter(|container| is_match(container));
        matches.next().filter(|_| matches.next().is_none())
    };
    let container = find_only(&|container| container.name == id_or_name)
        .or_else(|| find_only(&|container| container.id == id_or_name))
        .or_else(|| {
            find_only(&|container| !id_or_name.is_empty() && container.id.starts_with(id_or_name))
        })?;
    Some(NerdctlContainer {
        id: container.id.clone(),
        name: container.name.clone(),
    })
}

/// Finds all containers that nerdctl's files name, whether they run or not.
pub(super) fn find_all(host_root: &Path) -> impl Iterator<Item = NerdctlContainer> {
    let stores = find_matching(host_root, DATA_DIR_PATTERN).into_iter();
    let namespaces = stores.flat_map(|store| read_directory(&store.join("names")));
    let files = namespaces.flat_map(|namespace| read_directory(&namespace));
    files.filter_map(read_name)
}

fn read_name(path: PathBuf) -> Option<NerdctlContainer> {
    let file = open_regular(&path).ok()?;
    let id = read_capped(file, MAX_ID_BYTES).ok()??;
    let id = String::from_utf8(id.trim_ascii().to_vec()).ok()?;
    let name = path.file_name()?.to_str()?.to_owned();
    (!id.is_empty()).then_some(NerdctlContainer { id, name })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_container_that_nerdctl_keeps_is_found_by_name_and_id() {
        let host = tempfile::tempdir().unwrap();
        for (path, id) in [
            ("1935db59/names/default/zigbee", "0a1b\n"),
            ("1935db59/names/k8s.io/other", "0a2c"),
            ("2935db59/names/default/other", "0d"),
            ("2935db59/names/default/empty", ""),
        ] {
            let path = host.path().join("var/lib/nerdctl").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, id).unwrap();
        }
        for (text, id) in [
            ("zigbee", Some("0a1b")),
            ("0a1b", Some("0a1b")),
            ("0a2", Some("0a2c")),
            // Two containers: of this name, and with ids that begin so.
            ("other", None),
            ("0a", None),
            ("empty", None),
            ("", None),
            ("../../zigbee", None),
        ] {
            let found = find(text, host.path()).map(|container| container.id);
            assert_eq!(found.as_deref(), id, "{text}");
        }
    }
}
