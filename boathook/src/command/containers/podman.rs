//! Finds podman's containers that were never started. A list file of the library containers/storage
//! contains their names. Their options are only in podman's database.

use std::path::Path;

use device_class::name::excerpt;
use hook::oci::read_json;

use super::ContainerLookupError;
use super::bundles::{find_matching_paths, has_config};
use super::name::{STORAGE_LIST_FILE_NAMES, StorageContainer};

/// The patterns of the directories that contain lists of containers, in persistent and in volatile
/// storage.
const STORAGE_DIR_PATTERNS: [&str; 2] =
    ["var/lib/containers/storage/*", "run/containers/storage/*"];

/// Returns an error that explains a container which podman has created but never started. Such a
/// container has no bundle, so it cannot be examined. Returns `None` unless exactly one such
/// container has the name `id_or_name` or an id that begins with it.
pub(super) fn explain_unstarted_container(
    id_or_name: &str,
    host_root: &Path,
) -> Option<ContainerLookupError> {
    let storage_dirs = STORAGE_DIR_PATTERNS
        .iter()
        .flat_map(|path| find_matching_paths(host_root, path));
    let mut containers_without_bundle = storage_dirs.flat_map(|storage_dir| {
        let lists = STORAGE_LIST_FILE_NAMES
            .map(|list| read_json::<Vec<StorageContainer>>(&storage_dir.join(list)));
        let containers = lists.into_iter().flatten().flatten();
        containers
            .filter(move |container| !has_config(&storage_dir.join(&container.id).join("userdata")))
    });
    let matches_request = |container: &StorageContainer| {
        let is_prefix = !id_or_name.is_empty() && container.id.starts_with(id_or_name);
        is_prefix || container.names.iter().any(|name| name == id_or_name)
    };
    let container = containers_without_bundle.find(matches_request)?;
    if containers_without_bundle.any(|other_container| matches_request(&other_container)) {
        return None;
    }
    let name = container.names.first().unwrap_or(&container.id);
    let name = excerpt(name);
    Some(ContainerLookupError {
        reason: format!(
            "podman's {name} was created and never started, and only podman knows its options"
        ),
        fix: format!(
            "`podman start {name}` says why; if it is a name after --device that cannot be \
             resolved, `boathook doctor --device KIND=NAME` says what to do"
        ),
        name: container.id,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_container_that_podman_has_not_started_is_found_by_name_and_id() {
        let host = tempfile::tempdir().unwrap();
        let store = host
            .path()
            .join("var/lib/containers/storage/overlay-containers");
        let started = store.join("0c2/userdata");
        fs::create_dir_all(&started).unwrap();
        fs::write(started.join("config.json"), "{}").unwrap();
        let list = r#"[{"id": "0c1", "names": ["zigbee"]}, {"id": "0c2", "names": ["web"]},
            {"id": "0d1"}, {"id": "0d2"}]"#;
        fs::write(store.join("containers.json"), list).unwrap();
        for (text, id) in [
            ("zigbee", Some("0c1")),
            ("0c", Some("0c1")),
            ("web", None),
            ("0d", None),
            ("0d1", Some("0d1")),
            ("", None),
        ] {
            let found =
                explain_unstarted_container(text, host.path()).map(|container| container.name);
            assert_eq!(found.as_deref(), id, "{text}");
        }
    }
}
