//! The names that engines give containers, from the files in which they keep them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Container;
use crate::oci::read_json;

/// What leads from a container's config.json to its name.
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    mounts: Vec<Mount>,
}

#[derive(Deserialize)]
struct Mount {
    #[serde(default)]
    source: PathBuf,
}

/// Docker's config.v2.json, whose name begins with a slash.
#[derive(Deserialize)]
struct OfDocker {
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

pub(super) fn names(container: &Container, host_root: &Path) -> Vec<String> {
    let Some(bundle) = &container.bundle else {
        return Vec::new();
    };
    // podman's bundle is ID/userdata beside the list of its storage.
    let list = bundle.ancestors().nth(2).unwrap_or(bundle);
    let list: Vec<OfStorage> = read_json(&list.join("containers.json")).unwrap_or_default();
    let of_podman = list.into_iter().filter(|of| of.id == container.id);
    let mut names: Vec<String> = of_podman.flat_map(|of| of.names).collect();
    let Some(mut config) = read_json::<Config>(&bundle.join("config.json")) else {
        return names;
    };
    // Docker mounts /etc/hostname from the directory that it keeps for a container.
    let of_docker = config.mounts.iter().find_map(|mount| {
        let directory = mount.source.parent()?;
        let directory = directory.strip_prefix("/").ok()?;
        directory.ends_with(&container.id).then_some(())?;
        read_json::<OfDocker>(&host_root.join(directory).join("config.v2.json"))
    });
    names.extend(of_docker.and_then(|of| of.name.strip_prefix('/').map(str::to_owned)));
    names.extend(config.annotations.remove("nerdctl/name"));
    names
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// What engines write, and where.
    const FILES: &str = r#"
run/moby/0a1b/config.json {"mounts":[{"source":"proc"},{"source":"/data/containers/0a1b/hostname"}]}
data/containers/0a1b/config.v2.json {"Name":"/zha"}
srv/storage/containers.json [{"id":"0c","names":["frigate"]},{"id":"0d"}]
srv/storage/0c/userdata/config.json {}
run/nerdctl/0e/config.json {"annotations":{"nerdctl/name":"mine"}}
run/moby/0f/config.json {
"#;

    #[test]
    fn a_container_has_the_name_that_its_engine_keeps() {
        let host = tempfile::tempdir().unwrap();
        for (path, text) in FILES
            .trim()
            .lines()
            .map(|line| line.split_once(' ').unwrap())
        {
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        for (id, bundle, wanted) in [
            ("0a1b", "run/moby/0a1b", Some("zha")),
            ("0c", "srv/storage/0c/userdata", Some("frigate")),
            ("0e", "run/nerdctl/0e", Some("mine")),
            ("0f", "run/moby/0f", None),
        ] {
            let container = Container {
                bundle: Some(host.path().join(bundle)),
                ..Container::named(id)
            };
            let found = names(&container, host.path());
            let found = found.first().map(String::as_str);
            assert_eq!(found, wanted, "{id}");
        }
    }
}
