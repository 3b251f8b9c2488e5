//! Finds containers of Docker that have ended, that Docker starts again and again, or that could
//! not be started. Docker removes their bundles but keeps its own files about them until
//! `docker rm`.

use std::fmt;
use std::ops::RangeTo;
use std::path::{Path, PathBuf};

use hook::log::format_time;
use hook::oci::read_json;
use host_files::rooted_path::read_regular_text;
use serde::Serialize;

use super::Container;
use super::docker_files::{
    DeviceRequest, DockerContainer, DockerState, HostConfig, read_containers,
};
use super::processes::ProcessSnapshot;

/// The part of a time stamp that Docker's files and the log have in the same format: the date and
/// the time in seconds, such as `2026-11-28T10:15:00`.
const DATE_TIME_RANGE: RangeTo<usize> = ..19;

/// A container that does not run, as Docker's files describe it: it has ended, or could not be
/// started.
#[derive(Debug, Clone, Serialize)]
pub(in crate::command) struct EndedContainer {
    pub(in crate::command) name: String,
    #[serde(skip)]
    end_reason: EndReason,
    /// The exit code of the container's program. It is `None` if Docker has not noticed the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i64>,
    /// The time of the last successful start, as in Docker's file. A later start that fails sets
    /// `error`, and does not change this time.
    #[serde(skip)]
    start_time: String,
    /// The error message of Docker if it could not start the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::command) error: Option<String>,
    /// The name of the runtime that Docker used for the container. It is `None` if the container
    /// requests devices by `--device KIND=NAME` or `--gpus`, because every runtime then calls the
    /// hook.
    #[serde(skip)]
    pub(in crate::command) runtime: Option<String>,
    /// The CDI device names that the user gave for the container (`docker run --device KIND=NAME`).
    #[serde(skip)]
    pub(in crate::command) cdi_names: Vec<String>,
    /// The other device requests (`--gpus`). Docker turns them into environment variables when it
    /// starts the container, so `env` does not have these variables.
    #[serde(skip)]
    pub(in crate::command) device_requests: Vec<DeviceRequest>,
    /// The paths of device nodes on the host that the user gave for the container (`--device PATH`,
    /// `devices:` of compose).
    #[serde(skip)]
    pub(in crate::command) node_paths: Vec<PathBuf>,
    /// The environment variables of the container, each as `NAME=VALUE`.
    #[serde(skip)]
    pub(in crate::command) env: Vec<String>,
}

impl EndedContainer {
    /// Returns the earliest possible time of the refused start that `error` reports. This is the
    /// time of the last successful start. The text has the format of the log's time stamps, and is
    /// empty if the time is unknown.
    pub(in crate::command) fn earliest_refusal_time(&self) -> &str {
        self.start_time.get(DATE_TIME_RANGE).unwrap_or_default()
    }
}

/// The reason why a container of Docker does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum EndReason {
    Ended {
        exit_code: i64,
    },
    /// Docker starts the container again after a pause, because of its restart policy.
    Restarting {
        exit_code: i64,
    },
    /// Docker's file still says that the container runs, but its process has ended. It may have
    /// ended just now, or while Docker did not run.
    EndNotRecorded,
    /// Docker's file still says that the container runs, as it did when the machine stopped. The
    /// machine has booted since, at `boot_time`.
    HostRebooted {
        boot_time: String,
    },
}

impl EndedContainer {
    /// Returns whether Docker uses a runtime for the container that certainly does not call the
    /// hook. A runtime with an unknown name may be Boathook's.
    pub(in crate::command) fn has_runtime_without_hook(&self) -> bool {
        const RUNTIMES_WITHOUT_HOOK: [&str; 4] = ["runc", "io.containerd.runc.v2", "crun", "youki"];
        let runtime = self.runtime.as_deref();
        runtime.is_some_and(|runtime| RUNTIMES_WITHOUT_HOOK.contains(&runtime))
    }
}

impl fmt::Display for EndedContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.end_reason, &self.error) {
            (EndReason::Restarting { .. }, Some(_)) => {
                f.write_str("docker tries to start it again and again, and could not")
            }
            (EndReason::Restarting { exit_code }, None) => write!(
                f,
                "docker starts it again and again; its program ended with code {exit_code}"
            ),
            (EndReason::Ended { .. }, Some(_)) => f.write_str("docker could not start it"),
            (EndReason::Ended { exit_code }, None) => {
                write!(f, "its program ended with code {exit_code}")
            }
            (EndReason::EndNotRecorded, _) => {
                f.write_str("it ended, and docker has not noticed it")
            }
            (EndReason::HostRebooted { boot_time }, _) => write!(
                f,
                "it ran when the machine stopped, and docker has not noticed its end; the machine \
                 booted at {boot_time}"
            ),
        }
    }
}

impl DockerState {
    /// Returns whether the container's init process runs.
    fn has_process(&self, processes: &ProcessSnapshot) -> bool {
        self.is_running && !self.is_restarting && processes.cgroup_lines(self.pid).is_some()
    }

    fn find_end_reason(&self) -> EndReason {
        let exit_code = self.exit_code;
        match (self.is_running, self.is_restarting) {
            (_, true) => EndReason::Restarting { exit_code },
            (false, false) => EndReason::Ended { exit_code },
            (true, false) => match read_boot_time() {
                Some(boot_time) if self.was_started_before(&boot_time) => {
                    EndReason::HostRebooted { boot_time }
                }
                _ => EndReason::EndNotRecorded,
            },
        }
    }

    /// Returns whether the container was started before `time`, which is in UTC and in the format
    /// of RFC 3339.
    fn was_started_before(&self, time: &str) -> bool {
        match (
            self.start_time.get(DATE_TIME_RANGE),
            time.get(DATE_TIME_RANGE),
        ) {
            (Some(start_time), Some(time)) => start_time < time,
            _ => false,
        }
    }
}

/// Returns the time at which the machine booted, in UTC and in the format of RFC 3339.
fn read_boot_time() -> Option<String> {
    /// The maximum size in bytes of /proc/stat, which has a line for each processor and a long line
    /// for interrupts.
    const MAX_STAT_BYTES: u64 = 4 << 20;
    let text = read_regular_text(Path::new("/proc/stat"), MAX_STAT_BYTES).ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(format_time(seconds.trim().parse().ok()?))
}

/// Finds a container that Docker's files describe and that has no process: it has ended, Docker
/// starts it again and again, or it could not be started. Compares `id_or_name` first with the ids
/// and names. If there is no such container, finds the one whose id begins with `id_or_name`,
/// provided that there is only one.
pub(super) fn find_ended_container(
    id_or_name: &str,
    processes: &ProcessSnapshot,
    host_root: &Path,
) -> Option<Container> {
    let is_named = |container: &DockerContainer| {
        container.id == id_or_name || container.name.strip_prefix('/') == Some(id_or_name)
    };
    let containers: Vec<_> = read_containers(host_root)
        .filter(|(_, container)| !container.state.has_process(processes))
        .collect();
    let index_by_name = containers
        .iter()
        .position(|(_, container)| is_named(container));
    let find_index_by_id = || {
        let has_id_prefix = |container: &DockerContainer| {
            !id_or_name.is_empty() && container.id.starts_with(id_or_name)
        };
        let mut indexed_containers = containers.iter().enumerate();
        let mut prefix_matches = indexed_containers
            .by_ref()
            .filter(|(_, (_, container))| has_id_prefix(container));
        let (first_match, second_match) = (prefix_matches.next(), prefix_matches.next());
        first_match
            .filter(|_| second_match.is_none())
            .map(|(index, _)| index)
    };
    let (container_dir, container) = containers.get(index_by_name.or_else(find_index_by_id)?)?;
    Some(describe_ended_container(container_dir, container))
}

/// Returns the containers that Docker will start again after a pause, and that have no process now.
pub(super) fn find_restarting_containers(
    processes: &ProcessSnapshot,
    host_root: &Path,
) -> Vec<Container> {
    let is_restarting = |container: &DockerContainer| {
        let end_reason = container.state.find_end_reason();
        matches!(end_reason, EndReason::Restarting { .. })
            && !container.state.has_process(processes)
    };
    read_containers(host_root)
        .filter(|(_, container)| is_restarting(container))
        .map(|(container_dir, container)| describe_ended_container(&container_dir, &container))
        .collect()
}

fn describe_ended_container(container_dir: &Path, container: &DockerContainer) -> Container {
    let host_config: Option<HostConfig> = read_json(&container_dir.join("hostconfig.json"));
    let (runtime, device_requests, devices) =
        host_config.map_or_else(Default::default, |host_config| {
            (
                host_config.runtime,
                host_config.device_requests.unwrap_or_default(),
                host_config.devices.unwrap_or_default(),
            )
        });
    let runtime = runtime.filter(|runtime| device_requests.is_empty() && !runtime.is_empty());
    let (cdi_requests, device_requests): (Vec<_>, Vec<_>) = device_requests
        .into_iter()
        .partition(|request| request.driver == "cdi");
    let cdi_names = cdi_requests
        .into_iter()
        .filter_map(|request| request.device_ids)
        .flatten();
    let state = &container.state;
    let end_reason = state.find_end_reason();
    Container {
        id: container.id.clone(),
        ended: Some(EndedContainer {
            name: container.name.trim_start_matches('/').to_owned(),
            exit_code: match &end_reason {
                EndReason::Ended { exit_code } | EndReason::Restarting { exit_code } => {
                    Some(*exit_code)
                }
                EndReason::EndNotRecorded | EndReason::HostRebooted { .. } => None,
            },
            end_reason,
            start_time: state.start_time.clone(),
            error: Some(state.error.clone()).filter(|error| !error.is_empty()),
            runtime,
            cdi_names: cdi_names.collect(),
            device_requests,
            node_paths: devices.into_iter().map(|device| device.host_path).collect(),
            env: container.config.env.clone().unwrap_or_default(),
        }),
        ..Container::default()
    }
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
        // The process of pid 1 runs, and the greatest pid of Linux is less than the other one.
        for (id, state) in [
            ("0e", r#""Running": true, "Pid": 1"#),
            ("0f", r#""Running": true, "Pid": 1073741823"#),
            (
                "10",
                r#""Running": true, "Pid": 1073741823, "StartedAt": "2001-02-03T04:05:06.7Z""#,
            ),
            (
                "11",
                r#""Running": true, "Pid": 1073741823, "StartedAt": "9001-02-03T04:05:06.7Z""#,
            ),
            (
                "0b",
                r#""Running": true, "Restarting": true, "Pid": 0, "ExitCode": 3"#,
            ),
        ] {
            write(
                &format!("var/lib/docker/containers/{id}/config.v2.json"),
                &format!(
                    r#"{{"ID": "{id}", "Name": "/of-{id}", "State": {{{state}}},
                        "Config": {{"Env": null}}}}"#
                ),
            );
        }
        let processes = ProcessSnapshot::read();
        let found = |text| find_ended_container(text, &processes, host.path());
        for (text, id) in [
            ("zha", Some("0a1b")),
            ("0a1b", Some("0a1b")),
            ("0a2", Some("0a2c")),
            // The beginning of two ids.
            ("0a", None),
            ("gone", None),
            ("", None),
            ("of-0e", None),
            ("of-0f", Some("0f")),
            ("of-0b", Some("0b")),
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
        let boot_time = read_boot_time().unwrap();
        assert!(boot_time.as_str() < hook::log::format_current_time().as_str());
        for (name, description) in [
            (
                "other",
                "other (0a2c), not running: its program ended with code 1",
            ),
            (
                "of-0b",
                "of-0b (0b), not running: docker starts it again and again; its program ended \
                 with code 3",
            ),
            (
                "of-0f",
                "of-0f (0f), not running: it ended, and docker has not noticed it",
            ),
            (
                "of-10",
                &format!(
                    "of-10 (10), not running: it ran when the machine stopped, and docker has not \
                     noticed its end; the machine booted at {boot_time}"
                ),
            ),
            (
                "of-11",
                "of-11 (11), not running: it ended, and docker has not noticed it",
            ),
        ] {
            assert_eq!(found(name).unwrap().describe(host.path()), description);
        }
    }
}
