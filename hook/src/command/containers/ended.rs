//! Finds Docker's containers that have ended, or that were refused and never ran. Docker removes
//! their bundles, and keeps its own files about them until `docker rm`.

use std::fmt;
use std::path::{Path, PathBuf};

use device_class::name::excerpt;
use serde::{Deserialize, Serialize};

use super::Container;
use super::bundles::read_directory;
use crate::oci::read_json;

/// The data directories of Docker, relative to the host's root: the default directory, and the
/// directory of the snap package.
const DATA_DIRECTORIES: [&str; 2] = ["var/lib/docker", "var/snap/docker/common/var-lib-docker"];

/// The configuration of Docker's daemon, which may name another data directory.
const DAEMON_CONFIG: &str = "etc/docker/daemon.json";

/// The data that Docker keeps about a container that does not run.
#[derive(Debug, Clone, Serialize)]
pub(in crate::command) struct EndedContainer {
    pub(in crate::command) name: String,
    exit_code: i64,
    /// The reason for which Docker could not start the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::command) error: Option<String>,
    /// The runtime that created the container. `None` if a CDI name requests devices.
    #[serde(skip)]
    pub(in crate::command) runtime: Option<String>,
    /// The variables of the container, each as `NAME=VALUE`.
    #[serde(skip)]
    pub(in crate::command) env: Vec<String>,
}

impl fmt::Display for EndedContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = excerpt(&self.name);
        match self.error {
            Some(_) => write!(f, "docker's {name}, which it could not start"),
            None => write!(
                f,
                "docker's {name}, which ended with code {}",
                self.exit_code
            ),
        }
    }
}

/// The part of config.v2.json that is used. The name in it begins with a slash.
#[derive(Deserialize)]
struct DockerContainer {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "State")]
    state: DockerState,
    #[serde(rename = "Config")]
    config: DockerConfig,
}

#[derive(Deserialize)]
struct DockerState {
    /// Whether the container runs, according to Docker's last entry.
    #[serde(rename = "Running", default)]
    running: bool,
    #[serde(rename = "ExitCode", default)]
    exit_code: i64,
    #[serde(rename = "Error", default)]
    error: String,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "Env", default)]
    env: Vec<String>,
}

/// The part of hostconfig.json that is used.
#[derive(Deserialize)]
struct HostConfig {
    #[serde(rename = "Runtime", default)]
    runtime: Option<String>,
    #[serde(rename = "DeviceRequests", default)]
    device_requests: Option<Vec<serde_json::Value>>,
}

#[derive(Deserialize)]
struct DaemonConfig {
    #[serde(rename = "data-root")]
    data_root: Option<PathBuf>,
}

/// Finds the container with this id or name, or the only container whose id begins with the text.
pub(super) fn find(id_or_name: &str, host_root: &Path) -> Option<Container> {
    let find_directories = || {
        let directories = data_directories(host_root).into_iter();
        directories.flat_map(|data| read_directory(&data.join("containers")))
    };
    let read_container = |directory: &PathBuf| -> Option<(PathBuf, DockerContainer)> {
        let container = read_json(&directory.join("config.v2.json"))?;
        Some((directory.clone(), container))
    };
    let is_named = |container: &DockerContainer| {
        container.id == id_or_name || container.name.strip_prefix('/') == Some(id_or_name)
    };
    let containers = find_directories().filter_map(|directory| read_container(&directory));
    let containers: Vec<_> = containers
        .filter(|(_, container)| !container.state.running)
        .collect();
    let index_by_name = containers
        .iter()
        .position(|(_, container)| is_named(container));
    let find_index_by_id = || {
        let begins_with_prefix = |container: &DockerContainer| {
            !id_or_name.is_empty() && container.id.starts_with(id_or_name)
        };
        let mut found = containers.iter().enumerate();
        let mut found = found
            .by_ref()
            .filter(|(_, (_, container))| begins_with_prefix(container));
        let (first_match, second_match) = (found.next(), found.next());
        first_match
            .filter(|_| second_match.is_none())
            .map(|(index, _)| index)
    };
    let (directory, container) = containers.get(index_by_name.or_else(find_index_by_id)?)?;
    let host_config: Option<HostConfig> = read_json(&directory.join("hostconfig.json"));
    let runtime = host_config.and_then(|host_config| {
        let uses_cdi_name = host_config
            .device_requests
            .is_some_and(|requests| !requests.is_empty());
        host_config
            .runtime
            .filter(|runtime| !uses_cdi_name && !runtime.is_empty())
    });
    let DockerState {
        exit_code, error, ..
    } = &container.state;
    Some(Container {
        id: container.id.clone(),
        ended: Some(EndedContainer {
            name: container.name.trim_start_matches('/').to_owned(),
            exit_code: *exit_code,
            error: Some(error.clone()).filter(|error| !error.is_empty()),
            runtime,
            env: container.config.env.clone(),
        }),
        ..Container::default()
    })
}

fn data_directories(host_root: &Path) -> Vec<PathBuf> {
    let in_host_root = |path: &Path| host_root.join(path.strip_prefix("/").unwrap_or(path));
    let daemon: Option<DaemonConfig> = read_json(&host_root.join(DAEMON_CONFIG));
    let configured = daemon.and_then(|daemon| daemon.data_root);
    let default_directories = DATA_DIRECTORIES.iter().map(Path::new).map(in_host_root);
    configured
        .iter()
        .map(|path| in_host_root(path))
        .chain(default_directories)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_container_that_docker_keeps_is_found_by_name_and_id() {
        let host = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("etc/docker/daemon.json", r#"{"data-root": "/data"}"#);
        write(
            "data/containers/0a1b/config.v2.json",
            r#"{"ID": "0a1b", "Name": "/zha", "State": {"ExitCode": 137, "Error": "refused"},
                "Config": {"Env": ["A=1"]}}"#,
        );
        write(
            "data/containers/0a1b/hostconfig.json",
            r#"{"Runtime": "runc"}"#,
        );
        write(
            "var/lib/docker/containers/0a2c/config.v2.json",
            r#"{"ID": "0a2c", "Name": "/other", "State": {"ExitCode": 1}, "Config": {}}"#,
        );
        write("var/lib/docker/containers/0d/config.v2.json", "no JSON");
        let found = |text| find(text, host.path());
        for (text, id) in [
            ("zha", Some("0a1b")),
            ("0a1b", Some("0a1b")),
            ("0a2", Some("0a2c")),
            // The beginning of two ids.
            ("0a", None),
            ("gone", None),
            ("", None),
        ] {
            assert_eq!(
                found(text).map(|container| container.id).as_deref(),
                id,
                "{text}"
            );
        }
        let ended = found("zha").unwrap().ended.unwrap();
        assert_eq!(ended.error.as_deref(), Some("refused"));
        assert_eq!(ended.runtime.as_deref(), Some("runc"));
        assert_eq!(ended.env, ["A=1"]);
        assert_eq!(
            found("other").unwrap().to_string(),
            "0a2c, not running, docker's other, which ended with code 1"
        );
    }
}
