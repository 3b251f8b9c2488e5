//! Finds nerdctl's containers that do not run. nerdctl's files contain their names and ids. Their
//! environment variables are only in containerd's database.

use std::path::{Path, PathBuf};

use device_class::name::excerpt;
use hook::oci::{open_regular, read_capped};

use super::ContainerLookupError;
use super::bundles::{find_matching_paths, read_directory};

/// The pattern of nerdctl's default data directories. Each containerd socket has its own directory.
pub(super) const DATA_DIR_PATTERN: &str = "var/lib/nerdctl/*";

/// The maximum size, in bytes, of a file that contains an id and a newline.
pub(super) const MAX_ID_BYTES: usize = 256;

/// A container in nerdctl's files. It may be running or not.
pub(super) struct NerdctlContainer {
    pub(super) id: String,
    pub(super) name: String,
}

impl NerdctlContainer {
    /// Converts the container to an error for the user: the container cannot be examined, because
    /// its environment variables are unknown. The error also says what the user can do.
    pub(super) fn into_lookup_error(self) -> ContainerLookupError {
        let name = excerpt(&self.name);
        ContainerLookupError {
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

/// Finds the container with the name or id `id_or_name`. If there is none, finds the container
/// whose id begins with `id_or_name`, provided that there is only one. The file
/// `names/NAMESPACE/NAME` contains the id (nerdctl, pkg/namestore).
pub(super) fn find_nerdctl_container(
    id_or_name: &str,
    host_root: &Path,
) -> Option<NerdctlContainer> {
    let containers: Vec<NerdctlContainer> = read_all_containers(host_root).collect();
    let find_single = |is_match: &dyn Fn(&NerdctlContainer) -> bool| {
        let mut matching_containers = containers.iter().filter(|container| is_match(container));
        matching_containers
            .next()
            .filter(|_| matching_containers.next().is_none())
    };
    let container = find_single(&|container| container.name == id_or_name)
        .or_else(|| find_single(&|container| container.id == id_or_name))
        .or_else(|| {
            find_single(&|container| !id_or_name.is_empty() && container.id.starts_with(id_or_name))
        })?;
    Some(NerdctlContainer {
        id: container.id.clone(),
        name: container.name.clone(),
    })
}

/// Reads all containers from nerdctl's default data directories. They may be running or not.
pub(super) fn read_all_containers(host_root: &Path) -> impl Iterator<Item = NerdctlContainer> {
    let data_dirs = find_matching_paths(host_root, DATA_DIR_PATTERN).into_iter();
    let namespace_dirs = data_dirs.flat_map(|data_dir| read_directory(&data_dir.join("names")));
    let name_files = namespace_dirs.flat_map(|namespace_dir| read_directory(&namespace_dir));
    name_files.filter_map(read_container)
}

fn read_container(path: PathBuf) -> Option<NerdctlContainer> {
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
            let found = find_nerdctl_container(text, host.path()).map(|container| container.id);
            assert_eq!(found.as_deref(), id, "{text}");
        }
    }
}
