//! Reads the files in which Docker keeps the configuration and the state of its containers. A file
//! stays until `docker rm`.

use std::path::{Path, PathBuf};

use hook::oci::read_json;
use serde::Deserialize;

use super::bundles::read_directory;

/// The data directories of Docker and of its snap package, relative to the host's root.
const DOCKER_DATA_DIRS: [&str; 2] = ["var/lib/docker", "var/snap/docker/common/var-lib-docker"];

/// The name of Docker's file with the configuration and the state of a container, as in
/// /var/lib/docker/containers/ID/config.v2.json.
const CONFIG_FILE: &str = "config.v2.json";

/// The configuration file of Docker's daemon, which may set another data directory.
const DAEMON_CONFIG_PATH: &str = "etc/docker/daemon.json";

/// The fields of Docker's config.v2.json that this module needs. `name` begins with a slash.
#[derive(Deserialize)]
pub(super) struct DockerContainer {
    #[serde(rename = "ID")]
    pub(super) id: String,
    #[serde(rename = "Name")]
    pub(super) name: String,
    #[serde(rename = "State")]
    pub(super) state: DockerState,
    #[serde(rename = "Config")]
    pub(super) config: DockerConfig,
}

#[derive(Deserialize)]
pub(super) struct DockerState {
    /// True if the container was running when Docker last wrote the file.
    #[serde(rename = "Running", default)]
    pub(super) is_running: bool,
    /// True while Docker waits before it starts the container again. `is_running` is then true as
    /// well (moby, daemon/container/state.go).
    #[serde(rename = "Restarting", default)]
    pub(super) is_restarting: bool,
    #[serde(rename = "Pid", default)]
    pub(super) pid: i32,
    #[serde(rename = "ExitCode", default)]
    pub(super) exit_code: i64,
    #[serde(rename = "Error", default)]
    pub(super) error: String,
    /// The time of the last start in UTC, in the format of RFC 3339 with nanoseconds.
    #[serde(rename = "StartedAt", default)]
    pub(super) start_time: String,
}

#[derive(Deserialize)]
pub(super) struct DockerConfig {
    /// `None` stands for JSON's null, which Docker writes if neither the image nor the user sets a
    /// variable.
    #[serde(rename = "Env", default)]
    pub(super) env: Option<Vec<String>>,
}

/// The fields of Docker's hostconfig.json that this module needs.
#[derive(Deserialize)]
pub(super) struct HostConfig {
    #[serde(rename = "Runtime", default)]
    pub(super) runtime: Option<String>,
    #[serde(rename = "DeviceRequests", default)]
    pub(super) device_requests: Option<Vec<DeviceRequest>>,
    #[serde(rename = "Devices", default)]
    pub(super) devices: Option<Vec<DeviceMapping>>,
}

#[derive(Deserialize)]
pub(super) struct DeviceMapping {
    #[serde(rename = "PathOnHost")]
    pub(super) host_path: PathBuf,
}

/// A device request from `--gpus` or `--device`. For a CDI device name, `driver` is `cdi`.
#[derive(Debug, Clone, Deserialize)]
pub(in crate::command) struct DeviceRequest {
    #[serde(rename = "Driver", default)]
    pub(in crate::command) driver: String,
    /// The number of devices. A negative number requests all devices.
    #[serde(rename = "Count", default)]
    pub(in crate::command) count: i64,
    #[serde(rename = "DeviceIDs", default)]
    pub(super) device_ids: Option<Vec<String>>,
    /// Alternative lists of capabilities, such as `[["gpu"]]`. The driver must have all
    /// capabilities of one list.
    #[serde(rename = "Capabilities", default)]
    capabilities: Option<Vec<Vec<String>>>,
}

impl DeviceRequest {
    pub(in crate::command) fn device_ids(&self) -> &[String] {
        self.device_ids.as_deref().unwrap_or_default()
    }

    /// Returns the capabilities of all lists in the field `capabilities`. `--gpus` and compose
    /// write only one list.
    pub(in crate::command) fn capabilities(&self) -> impl Iterator<Item = &str> {
        let alternatives = self.capabilities.iter().flatten();
        alternatives.flatten().map(String::as_str)
    }
}

#[derive(Deserialize)]
struct DaemonConfig {
    #[serde(rename = "data-root")]
    data_root: Option<PathBuf>,
}

/// Returns the id and the name of each container in Docker's data directories. The containers may
/// be running or not.
pub(super) fn read_container_names(host_root: &Path) -> impl Iterator<Item = (String, String)> {
    read_containers(host_root).map(|(_, container)| {
        let name = container.name.trim_start_matches('/').to_owned();
        (container.id, name)
    })
}

/// Returns the name of the runtime that Docker uses for the container `container_id`, such as
/// `runc`, from Docker's file hostconfig.json.
pub(in crate::command) fn find_docker_runtime(
    container_id: &str,
    host_root: &Path,
) -> Option<String> {
    if container_id.is_empty() || container_id.contains('/') {
        return None;
    }
    let data_dirs = list_data_dirs(host_root).into_iter();
    let mut config_paths = data_dirs.map(|data_dir| {
        data_dir
            .join("containers")
            .join(container_id)
            .join("hostconfig.json")
    });
    config_paths.find_map(|config_path| read_json::<HostConfig>(&config_path)?.runtime)
}

/// Returns the containers in Docker's data directories. Each item has the container's directory and
/// the content of its config.v2.json.
pub(super) fn read_containers(
    host_root: &Path,
) -> impl Iterator<Item = (PathBuf, DockerContainer)> {
    let data_dirs = list_data_dirs(host_root).into_iter();
    let container_dirs =
        data_dirs.flat_map(|data_dir| read_directory(&data_dir.join("containers")));
    container_dirs.filter_map(|container_dir| {
        let container = read_json(&container_dir.join(CONFIG_FILE))?;
        Some((container_dir, container))
    })
}

fn list_data_dirs(host_root: &Path) -> Vec<PathBuf> {
    let to_host_path = |path: &Path| host_root.join(path.strip_prefix("/").unwrap_or(path));
    let daemon_config: Option<DaemonConfig> = read_json(&host_root.join(DAEMON_CONFIG_PATH));
    let configured_dir = daemon_config.and_then(|daemon_config| daemon_config.data_root);
    let default_directories = DOCKER_DATA_DIRS.iter().map(Path::new).map(to_host_path);
    configured_dir
        .iter()
        .map(|path| to_host_path(path))
        .chain(default_directories)
        .collect()
}
