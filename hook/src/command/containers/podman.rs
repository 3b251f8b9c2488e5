//! Finds podman's containers that were never started. Their names are in a list of the library
//! containers/storage; their options are in podman's database alone.

use std::path::Path;

use device_class::name::excerpt;

use super::UnknownContainer;
use super::bundles::{find_matching, has_config};
use super::name::{STORAGE_LISTS, StorageContainer};
use crate::oci::read_json;

/// The directories of the lists, one for each kind of storage.
const STORAGE_DIR_PATTERNS: [&str; 2] =
    ["var/lib/containers/storage/*", "run/containers/storage/*"];

/// Finds the only container that has this name, or an id that begins with the text, and whose
/// bundle podman has not written. Returns why it cannot be examined, and what to do instead.
pub(super) fn find(id_or_name: &str, host_root: &Path) -> Option<UnknownContainer> {
    let stores = STORAGE_DIR_PATTERNS
        .iter()
        .flat_map(|path| find_matching(host_root, path));
    let mut containers_without_bundle = stores.flat_map(|store| {
        let lists = STORAGE_LISTS.map(|list| read_json::<Vec<StorageContainer>>(&store.join(list)));
        let containers = lists.into_iter().flatten().flatten();
        containers.filter(move |container| !has_config(&store.join(&container.id).join("userdata")))
    });
    let is_match = |container: &StorageContainer| {
        let is_prefix = !id_or_name.is_empty() && container.id.starts_with(id_or_name);
        is_prefix || container.names.iter().any(|name| name == id_or_name)
    };
    let container = containers_without_bundle.find(is_match)?;
    if containers_without_bundle.any(|other| is_match(&other)) {
        return None;
    }
    let name = container.names.first().unwrap_or(&container.id);
    let name = excerpt(name);
    Some(UnknownContainer {
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
            let found = find(text, host.path()).map(|container| container.name);
            assert_eq!(found.as_deref(), id, "{text}");
        }
    }
}
