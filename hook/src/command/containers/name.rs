//! The names that engines give containers, from the files in which they keep them.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::entries;
use crate::oci::{capped, open_regular};

/// Where Docker keeps a directory for each container.
const DOCKER: &str = "var/lib/docker/containers";

/// Where podman and CRI-O keep their storage, below which each storage driver has a list.
const STORAGE: &str = "var/lib/containers/storage";

/// The same below a user's home.
const USERS_STORAGE: &str = ".local/share/containers/storage";

/// The largest file that is read, in bytes.
const MAX: usize = 16 << 20;

/// Docker's config.v2.json, whose name begins with a slash.
#[derive(Deserialize)]
struct OfDocker {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Name")]
    name: String,
}

/// A container in the containers.json of containers/storage.
#[derive(Deserialize)]
struct OfStorage {
    id: String,
    #[serde(default)]
    names: Vec<String>,
}

/// The ids of the containers with this name: more than one if several engines have one.
pub(super) fn ids(name: &str, host_root: &Path) -> Vec<String> {
    let docker = entries(&host_root.join(DOCKER));
    let docker = docker.iter().filter_map(|directory| {
        let of: OfDocker = read(&directory.join("config.v2.json"))?;
        (of.name.strip_prefix('/') == Some(name)).then_some(of.id)
    });
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(USERS_STORAGE));
    let storages = [Some(host_root.join(STORAGE)), home];
    let drivers = storages
        .iter()
        .flatten()
        .flat_map(|storage| entries(storage));
    let storage = drivers.filter_map(|driver| {
        let all: Vec<OfStorage> = read(&driver.join("containers.json"))?;
        let mut all = all.into_iter();
        all.find(|of| of.names.iter().any(|other| other == name))
            .map(|of| of.id)
    });
    docker.chain(storage).collect()
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = capped(open_regular(path).ok()?, MAX).ok()??;
    json_text::parse(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_container_is_found_by_the_name_that_its_engine_keeps() {
        let host = tempfile::tempdir().unwrap();
        for (path, text) in [
            (
                "var/lib/docker/containers/0a1b/config.v2.json",
                r#"{"ID":"0a1b","Name":"/zha"}"#,
            ),
            ("var/lib/docker/containers/broken/config.v2.json", "{"),
            (
                "var/lib/containers/storage/overlay-containers/containers.json",
                r#"[{"id":"0c","names":["frigate"]},{"id":"0d"}]"#,
            ),
        ] {
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        for (name, id) in [("zha", Some("0a1b")), ("frigate", Some("0c")), ("zh", None)] {
            assert_eq!(
                ids(name, host.path()).first().map(String::as_str),
                id,
                "{name}"
            );
        }
    }
}
