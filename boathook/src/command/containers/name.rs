//! Finds the names that engines give to containers. They are read from the engine's own files.
//! Annotations and labels in config.json are not used, because an image can set them.

use std::path::{Path, PathBuf};

use hook::oci::{open_regular, read_capped, read_json};
use serde::Deserialize;

use super::bundles::{find_matching_paths, read_directory};
use super::{Container, nerdctl};

/// The beginning of the name of containerd's bundle directory. A bundle has the path
/// `.../io.containerd.runtime.v2.task/NAMESPACE/ID`, in which `v2` is a version.
const CONTAINERD_TASK_DIR_PREFIX: &str = "io.containerd.runtime.";

/// The containerd namespace in which Docker creates its containers (dockerd,
/// `--containerd-namespace`).
const MOBY_NAMESPACE: &str = "moby";

/// The mounts in config.json. The sources of some mounts are files in the directory in which the
/// engine keeps its own data about the container.
#[derive(Deserialize)]
struct BundleConfig {
    #[serde(default)]
    mounts: Vec<Mount>,
}

#[derive(Deserialize)]
struct Mount {
    #[serde(default)]
    source: PathBuf,
}

/// The fields of Docker's config.v2.json that this module needs. `name` begins with a slash.
#[derive(Deserialize)]
struct DockerContainer {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Name")]
    name: String,
}

/// A container in a list file of the library containers/storage, which podman and CRI-O use.
#[derive(Deserialize)]
pub(super) struct StorageContainer {
    pub(super) id: String,
    #[serde(default)]
    pub(super) names: Vec<String>,
}

/// The names of the files that list containers in a directory of containers/storage. The second
/// file lists the containers that `podman run --rm` created (containers.go).
pub(super) const STORAGE_LIST_FILE_NAMES: [&str; 2] =
    ["containers.json", "volatile-containers.json"];

/// The container names in one file of the engine, such as Docker's config.v2.json.
pub(super) struct ContainerNamesFile {
    pub(super) path: PathBuf,
    pub(super) names: Vec<String>,
}

/// Returns whether the bundle is in the containerd namespace that Docker uses. The containerd
/// daemon may be Docker's own or, as on Debian, the host's.
pub(super) fn is_docker_bundle(bundle: &Path) -> bool {
    let mut ancestors = bundle.ancestors().skip(1);
    let mut next_dir_name = || ancestors.next()?.file_name()?.to_str();
    let (namespace, task_dir_name) = (next_dir_name(), next_dir_name());
    namespace == Some(MOBY_NAMESPACE)
        && task_dir_name
            .is_some_and(|task_dir_name| task_dir_name.starts_with(CONTAINERD_TASK_DIR_PREFIX))
}

/// Returns whether the bundle is in storage of podman or CRI-O: `DRIVER-containers/ID/userdata`,
/// such as `overlay-containers`. The storage of a rootless user is in the user's home directory.
pub(super) fn is_storage_bundle(bundle: &Path) -> bool {
    let mut ancestors = bundle.ancestors();
    let mut next_dir_name = || ancestors.next()?.file_name()?.to_str();
    let (directory_name, _, containers_dir_name) =
        (next_dir_name(), next_dir_name(), next_dir_name());
    directory_name == Some("userdata")
        && containers_dir_name.is_some_and(|name| name.ends_with("-containers"))
}

/// Returns the names of a container. The result has one entry for each file of the engine that
/// contains a name.
pub(super) fn read_names_by_file(
    container: &Container,
    host_root: &Path,
) -> Vec<ContainerNamesFile> {
    let Some(bundle) = container.bundle.as_deref() else {
        return Vec::new();
    };
    let mut ancestors = bundle.ancestors();
    let mut next_dir_name = || ancestors.next()?.file_name()?.to_str();
    let (directory_name, namespace, task_dir_name) =
        (next_dir_name(), next_dir_name(), next_dir_name());
    if directory_name == Some("userdata") && namespace == Some(&container.id) {
        let storage_dir = bundle.ancestors().nth(2).unwrap_or(bundle);
        return read_storage_names(container, storage_dir);
    }
    let is_containerd_bundle = task_dir_name
        .is_some_and(|task_dir_name| task_dir_name.starts_with(CONTAINERD_TASK_DIR_PREFIX));
    match namespace {
        Some(namespace) if is_containerd_bundle && directory_name == Some(&container.id) => {
            let directories = find_mount_source_dirs(bundle);
            match namespace {
                MOBY_NAMESPACE => read_docker_names(container, &directories, host_root),
                namespace => read_nerdctl_names(container, namespace, &directories, host_root),
            }
        }
        _ => Vec::new(),
    }
}

/// Reads the container's names from the directory `storage_dir` of podman or CRI-O. This directory
/// contains the bundle `ID/userdata` and the files that list containers.
fn read_storage_names(container: &Container, storage_dir: &Path) -> Vec<ContainerNamesFile> {
    let list_paths = STORAGE_LIST_FILE_NAMES
        .map(|name| storage_dir.join(name))
        .into_iter();
    let names_in_files = list_paths.filter_map(|path| {
        let entries: Vec<StorageContainer> = read_json(&path)?;
        let mut matching_entries = entries.into_iter().filter(|entry| entry.id == container.id);
        let names = matching_entries.next()?.names;
        Some(ContainerNamesFile { path, names })
    });
    names_in_files.collect()
}

/// Reads the container's name from config.v2.json in Docker's directory `containers/ID`. The
/// directory is one of `mount_source_dirs`, because Docker mounts /etc/hostname and other files
/// from it.
fn read_docker_names(
    container: &Container,
    mount_source_dirs: &[PathBuf],
    host_root: &Path,
) -> Vec<ContainerNamesFile> {
    let is_container_dir =
        |directory: &&PathBuf| directory.ends_with(Path::new("containers").join(&container.id));
    let names_in_files = mount_source_dirs
        .iter()
        .filter(is_container_dir)
        .filter_map(|directory| {
            let path = to_host_path(host_root, directory).join("config.v2.json");
            let docker_container: DockerContainer = read_json(&path)?;
            let name = docker_container.name.strip_prefix('/')?.to_owned();
            let names = vec![name];
            (docker_container.id == container.id).then_some(ContainerNamesFile { path, names })
        });
    names_in_files.collect()
}

/// Reads the container's names from nerdctl's data directories. Each file `names/NAMESPACE/NAME`
/// contains a container id (nerdctl, pkg/namestore). Data directories at unusual paths are found by
/// the mount sources, because nerdctl mounts /etc/resolv.conf from `containers/NAMESPACE/ID` of a
/// data directory.
fn read_nerdctl_names(
    container: &Container,
    namespace: &str,
    mount_source_dirs: &[PathBuf],
    host_root: &Path,
) -> Vec<ContainerNamesFile> {
    let container_dir = Path::new("containers").join(namespace).join(&container.id);
    let mut data_dirs = find_matching_paths(host_root, nerdctl::DATA_DIR_PATTERN);
    for directory in mount_source_dirs
        .iter()
        .filter(|directory| directory.ends_with(&container_dir))
    {
        if let Some(data_dir) = directory.ancestors().nth(3) {
            add_unique_path(&mut data_dirs, &to_host_path(host_root, data_dir));
        }
    }
    let mut names_in_files = Vec::new();
    for data_dir in data_dirs {
        for path in read_directory(&data_dir.join("names").join(namespace)) {
            let file =
                open_regular(&path).and_then(|file| read_capped(file, nerdctl::MAX_ID_BYTES));
            let Ok(Some(id)) = file else { continue };
            if let Some(name) = path.file_name().and_then(|name| name.to_str())
                && id.trim_ascii() == container.id.as_bytes()
            {
                let names = vec![name.to_owned()];
                names_in_files.push(ContainerNamesFile { path, names });
            }
        }
    }
    names_in_files
}

/// Returns the parent directories of the container's mount sources, without duplicates. One of them
/// may be the engine's directory for the container, whose path contains the container's id. A user
/// cannot mount a forged directory, because the id is unknown before the container is created.
fn find_mount_source_dirs(bundle: &Path) -> Vec<PathBuf> {
    let config: Option<BundleConfig> = read_json(&bundle.join("config.json"));
    let mounts = config.map(|config| config.mounts).unwrap_or_default();
    let mut directories = Vec::new();
    for directory in mounts.iter().filter_map(|mount| mount.source.parent()) {
        add_unique_path(&mut directories, directory);
    }
    directories
}

fn add_unique_path(paths: &mut Vec<PathBuf>, path: &Path) {
    if !paths.iter().any(|existing_path| existing_path == path) {
        paths.push(path.to_owned());
    }
}

fn to_host_path(host_root: &Path, absolute_path: &Path) -> PathBuf {
    host_root.join(absolute_path.strip_prefix("/").unwrap_or(absolute_path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The path and the content of each file that the engines of the test have written.
    const FILES: &str = r#"
run/io.containerd.runtime.v2.task/moby/0a1b/config.json {"mounts":[{"source":"proc"},{"source":"/data/containers/0a1b/hostname"},{"source":"/data/containers/0a1b/hosts"}]}
data/containers/0a1b/config.v2.json {"ID":"0a1b","Name":"/zha"}
run/io.containerd.runtime.v2.task/moby/0a2b/config.json {"annotations":{"nerdctl/name":"zha"},"mounts":[{"source":"/data/containers/0a2b/hostname"}]}
data/containers/0a2b/config.v2.json {"ID":"0a1b","Name":"/zha"}
srv/storage/containers.json [{"id":"0c","names":["frigate"]},{"id":"0d"},{"id":"0f","names":["one"]}]
srv/storage/volatile-containers.json [{"id":"0b","names":["passing"]},{"id":"0f","names":["two"]}]
srv/storage/0b/userdata/config.json {}
srv/storage/0c/userdata/config.json {"annotations":{"nerdctl/name":"mine"}}
srv/storage/0d/userdata/config.json {"annotations":{"nerdctl/name":"mine"}}
srv/storage/0f/userdata/config.json {}
run/io.containerd.runtime.v2.task/default/0e/config.json {"annotations":{"nerdctl/name":"other"}}
var/lib/nerdctl/1935db59/names/default/mine 0e
var/lib/nerdctl/1935db59/names/k8s.io/theirs 0e
run/io.containerd.runtime.v2.task/default/1e/config.json {"mounts":[{"source":"/home/u/nerdctl/1935db59/containers/default/1e/resolv.conf"}]}
home/u/nerdctl/1935db59/names/default/own 1e
run/io.containerd.runtime.v2.task/k8s.io/2e/config.json {"annotations":{"io.kubernetes.cri.container-name":"main","nerdctl/name":"main"}}
run/runc/3e/config.json {"annotations":{"nerdctl/name":"plain"},"mounts":[{"source":"/data/containers/3e/hostname"}]}
data/containers/3e/config.v2.json {"ID":"3e","Name":"/plain"}
"#;

    #[test]
    fn a_container_has_the_names_that_its_own_engine_keeps() {
        let host = tempfile::tempdir().unwrap();
        for line in FILES.trim().lines() {
            let (path, text) = line.split_once(' ').unwrap();
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let task = "run/io.containerd.runtime.v2.task";
        for (id, bundle, expected) in [
            ("0a1b", format!("{task}/moby/0a1b"), &["zha"][..]),
            // The file in Docker's directory belongs to another container.
            ("0a2b", format!("{task}/moby/0a2b"), &[]),
            ("0b", "srv/storage/0b/userdata".to_owned(), &["passing"]),
            ("0c", "srv/storage/0c/userdata".to_owned(), &["frigate"]),
            ("0d", "srv/storage/0d/userdata".to_owned(), &[]),
            ("0f", "srv/storage/0f/userdata".to_owned(), &["one", "two"]),
            ("0e", format!("{task}/default/0e"), &["mine"]),
            ("1e", format!("{task}/default/1e"), &["own"]),
            ("2e", format!("{task}/k8s.io/2e"), &[]),
            // The bundle is not in the directory of an engine.
            ("3e", "run/runc/3e".to_owned(), &[]),
        ] {
            let container = Container {
                bundle: Some(host.path().join(bundle)),
                ..Container::from_id(id)
            };
            let names = read_names_by_file(&container, host.path()).into_iter();
            let names: Vec<String> = names.flat_map(|file| file.names).collect();
            assert_eq!(names, expected, "{id}");
        }
    }
}
