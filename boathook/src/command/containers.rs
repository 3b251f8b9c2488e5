//! Finds the containers of this host without asking the engines. Containers are found in the bundle
//! directories of engines, in the state directories of runtimes, and through the processes that
//! monitor containers (containerd's shims and conmon).

mod bundles;
mod by_id;
mod docker_files;
mod ended;
mod label;
mod name;
mod nerdctl;
mod podman;
mod processes;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use device_class::collect_by_insertion;
use device_class::name::{SHORT_ID_CHARS, excerpt};
use hook::attachment;
use hook::container::read_start_time;
use hook::oci::Bundle;
use hook::trust::ContainerOrigin;
use runtime_config::Engine;
use serde::Serialize;

pub(super) use bundles::is_same_bundle;
use bundles::{find_container_of_bundle, find_matching_paths, has_config, matches_pattern};
use by_id::select_by_id_or_name;
pub(super) use docker_files::{DeviceRequest, find_docker_runtime};
pub(super) use ended::EndedContainer;
pub(super) use label::format_label;
use processes::{ProcessSnapshot, is_in_container_cgroup};

use crate::cli::ContainerSelector;

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Container {
    /// The container's id. It is empty for the hypothetical container of `boathook doctor --env`.
    pub(super) id: String,
    pub(super) pid: Option<i32>,
    /// The start time that the runtime recorded for the process `pid`: field 22 of /proc/PID/stat,
    /// in clock ticks since boot.
    #[serde(skip)]
    pub(super) start_time: Option<u64>,
    pub(super) bundle: Option<PathBuf>,
    /// The directory in which the container's runtime stores the state of its containers, such as
    /// /run/runc.
    #[serde(skip)]
    state_root: Option<PathBuf>,
    /// The data from Docker's files about a container that has ended or could not be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<EndedContainer>,
}

/// The error if an argument does not identify exactly one container.
pub(super) struct ContainerLookupError {
    pub(super) name: String,
    pub(super) reason: String,
    pub(super) fix: String,
}

impl Container {
    pub(super) fn from_id(id: &str) -> Self {
        Container {
            id: id.to_owned(),
            ..Container::default()
        }
    }

    /// Returns whether this is the hypothetical container of `boathook doctor --env NAME=VALUE`,
    /// which has no process and no bundle.
    pub(super) fn is_from_env_option(&self) -> bool {
        self.pid.is_none() && self.bundle.is_none()
    }

    /// Returns the name that the engine gave to the container. Returns `None` if no file of the
    /// engine contains a name, or if two files contain different names.
    pub(super) fn name(&self, host_root: &Path) -> Option<String> {
        if let Some(ended_container) = &self.ended {
            return Some(ended_container.name.clone());
        }
        let mut names_by_file = name::read_names_by_file(self, host_root).into_iter();
        let first_names = names_by_file.next()?;
        let is_consistent = names_by_file.all(|other_names| other_names.names == first_names.names);
        is_consistent.then(|| first_names.names.into_iter().next())?
    }

    /// Returns whether the container's init process still runs. Also compares the start time,
    /// because the kernel may give the pid of an ended process to a new process.
    fn is_running(&self, processes: &ProcessSnapshot) -> bool {
        self.pid.is_some_and(|pid| {
            let start_time = self.start_time;
            processes.cgroup_lines(pid).is_some()
                && start_time.is_none_or(|start_time| read_start_time(pid) == Some(start_time))
        })
    }

    /// Returns whether `other` is a different container although it has the same id. Two runtimes,
    /// or two containerd namespaces, may use the same id.
    fn is_different_container(&self, other: &Self, processes: &ProcessSnapshot) -> bool {
        if self.is_running(processes) && other.is_running(processes) {
            return self.pid != other.pid;
        }
        match (&self.bundle, &other.bundle) {
            // A bundle without config.json is not compared. crun may record its working directory
            // instead of the bundle.
            (Some(bundle), Some(other_bundle))
                if has_config(bundle) && has_config(other_bundle) =>
            {
                !is_same_bundle(bundle, other_bundle)
            }
            _ => false,
        }
    }

    /// Returns whether the container has ended since it was found. It has ended if its process has
    /// ended. A container without a process has ended if its bundle no longer has a config.json.
    pub(super) fn has_vanished(&self) -> bool {
        match self.pid {
            Some(_) => !self.is_running(&ProcessSnapshot::read()),
            None => {
                let bundle = self.bundle.as_deref();
                self.ended.is_none() && bundle.is_some_and(|bundle| !has_config(bundle))
            }
        }
    }

    /// Returns the name of the engine that created the container, such as `docker`. The path of the
    /// bundle identifies the engine, because engines keep their bundles in different directories.
    pub(super) fn engine_name(&self) -> Option<&'static str> {
        if self.ended.is_some() {
            return Some(Engine::Docker.name());
        }
        let bundle = self.bundle.as_deref()?;
        if name::is_docker_bundle(bundle) {
            return Some(Engine::Docker.name());
        }
        // CRI-O keeps its bundles in the same directory as podman of root, so this returns podman
        // for both. A caller can recognize CRI-O's containers by their annotations.
        if name::is_storage_bundle(bundle) {
            return Some(Engine::Podman.name());
        }
        let has_bundle_pattern = |engine: &&Engine| {
            let patterns = engine.properties().bundle_patterns;
            patterns
                .iter()
                .any(|pattern| matches_pattern(bundle, pattern))
        };
        let mut candidates = [Engine::Docker].iter().chain(Engine::ALL.iter());
        candidates
            .find(has_bundle_pattern)
            .map(|engine| engine.name())
    }
}

/// Finds the containers that the user selected with the arguments of `boathook doctor`.
pub(super) fn find_selected_containers(
    selector: &ContainerSelector,
    state_root: Option<PathBuf>,
    host_root: &Path,
) -> Result<Vec<Container>, ContainerLookupError> {
    if !selector.env.is_empty() {
        return Ok(vec![Container::default()]);
    }
    if let Some(id) = selector.id_or_name() {
        return Ok(vec![find_running_or_ended_container(
            id, state_root, host_root,
        )?]);
    }
    let processes = ProcessSnapshot::read();
    let all_containers = find_all_containers(state_root, host_root, &processes);
    let selected_containers = if let Some(pod) = &selector.pod {
        find_by_pod(pod, all_containers)?
    } else if let Some(pid) = selector.pid {
        let container = find_by_process(pid, &processes, &all_containers)?;
        let bundle = selector.bundle.clone().or(container.bundle);
        return Ok(vec![Container {
            bundle,
            ..container
        }]);
    } else {
        // The user may name the bundle by a relative path, or by a path with symbolic links.
        let to_canonical_path = |bundle: &Option<PathBuf>| {
            bundle
                .as_ref()
                .and_then(|bundle| bundle.canonicalize().ok())
        };
        let selected_bundle = to_canonical_path(&selector.bundle);
        let has_selected_bundle = |container: &Container| {
            container.bundle == selector.bundle
                || selected_bundle.is_some()
                    && to_canonical_path(&container.bundle) == selected_bundle
        };
        vec![
            all_containers
                .into_iter()
                .find(has_selected_bundle)
                .unwrap_or(Container {
                    bundle: selector.bundle.clone(),
                    ..Container::default()
                }),
        ]
    };
    Ok(selected_containers
        .into_iter()
        .map(|container| refresh_init_pid(container, &processes))
        .collect())
}

/// Finds the container with the id or name `id_or_name`. The container is running, or it has ended
/// and an engine still has files about it.
fn find_running_or_ended_container(
    id_or_name: &str,
    state_root: Option<PathBuf>,
    host_root: &Path,
) -> Result<Container, ContainerLookupError> {
    // Docker may start a container again between the search of its processes and the reading of
    // Docker's files. Both searches then miss the container, so the first search is repeated.
    find_by_id_or_name(id_or_name, state_root.clone(), host_root)
        .or_else(|unknown| find_ended_container(id_or_name, host_root).ok_or(unknown))
        .or_else(|_| find_by_id_or_name(id_or_name, state_root, host_root))
        .map_err(
            |unknown| match nerdctl::find_nerdctl_container(id_or_name, host_root) {
                Some(container) => container.into_lookup_error(),
                None => {
                    podman::explain_unstarted_container(id_or_name, host_root).unwrap_or(unknown)
                }
            },
        )
}

/// Finds a container of Docker that has no process ([`ended::find_ended_container`]).
pub(super) fn find_ended_container(id_or_name: &str, host_root: &Path) -> Option<Container> {
    ended::find_ended_container(id_or_name, &ProcessSnapshot::read(), host_root)
}

/// Finds the containers that Docker starts again and again, and that have no process now.
pub(super) fn find_restarting_containers(host_root: &Path) -> Vec<Container> {
    ended::find_restarting_containers(&ProcessSnapshot::read(), host_root)
}

/// Finds the running containers of this host that have a known bundle. Each item contains the
/// container, the pid of its init process, and the path of its bundle.
pub(super) fn find_running_containers(
    state_root: Option<PathBuf>,
    host_root: &Path,
) -> impl Iterator<Item = (Container, i32, PathBuf)> {
    let processes = ProcessSnapshot::read();
    let all_containers = find_all_containers(state_root, host_root, &processes).into_iter();
    let containers = all_containers.map(move |container| refresh_init_pid(container, &processes));
    containers.filter_map(|container| {
        let (pid, bundle) = (container.pid?, container.bundle.clone()?);
        Some((container, pid, bundle))
    })
}

/// Finds a container of this host. Compares `id_or_name` first with the ids, then with the names,
/// then with the beginnings of the ids, and finally with the service names of compose.
pub(super) fn find_by_id_or_name(
    id_or_name: &str,
    state_root: Option<PathBuf>,
    host_root: &Path,
) -> Result<Container, ContainerLookupError> {
    let processes = ProcessSnapshot::read();
    let all_containers = find_all_containers(state_root.clone(), host_root, &processes);
    select_by_id_or_name(
        id_or_name,
        state_root.as_deref(),
        &all_containers,
        host_root,
    )
    .map(|container| refresh_init_pid(container, &processes))
}

/// Returns the id of the container with the id or name `id_or_name`. The container runs, or Docker
/// or nerdctl still has files about it. Returns `None` unless there is exactly one such container.
pub(super) fn find_container_id(id_or_name: &str, host_root: &Path) -> Option<String> {
    find_by_id_or_name(id_or_name, None, host_root)
        .ok()
        .or_else(|| find_ended_container(id_or_name, host_root))
        .map(|container| container.id)
        .or_else(|| {
            nerdctl::find_nerdctl_container(id_or_name, host_root).map(|container| container.id)
        })
}

/// Returns the ids of all containers that are found on this host, including those of Docker and
/// nerdctl that do not run.
pub(super) fn list_container_ids(host_root: &Path) -> BTreeSet<String> {
    let containers = find_all_containers(None, host_root, &ProcessSnapshot::read()).into_iter();
    let nerdctl_containers = nerdctl::read_all_containers(host_root);
    let ids = containers.map(|container| container.id);
    ids.chain(docker_files::read_container_names(host_root).map(|(id, _)| id))
        .chain(nerdctl_containers.map(|container| container.id))
        .collect()
}

/// Returns the names of the running containers of this host, and the ids of those without a name.
pub(super) fn list_running_container_names(host_root: &Path) -> Vec<String> {
    let processes = ProcessSnapshot::read();
    let all_containers = find_all_containers(None, host_root, &processes).into_iter();
    let running_containers = all_containers.filter(|container| {
        let container = refresh_init_pid(container.clone(), &processes);
        container.pid.is_some()
    });
    running_containers
        .map(|container| container.name(host_root).unwrap_or(container.id))
        .collect()
}

/// Returns the names of all containers that are found on this host, by container id. The name of a
/// container in a pod includes the pod's name, as in `app of pod default/training`.
pub(super) fn read_container_names_by_id(host_root: &Path) -> BTreeMap<String, String> {
    let containers = find_all_containers(None, host_root, &ProcessSnapshot::read()).into_iter();
    let container_names = containers.filter_map(|container| {
        let name = container
            .name(host_root)
            .or_else(|| read_pod_name(&container))?;
        Some((container.id, name))
    });
    let nerdctl_names =
        nerdctl::read_all_containers(host_root).map(|container| (container.id, container.name));
    collect_by_insertion(
        nerdctl_names
            .chain(docker_files::read_container_names(host_root))
            .chain(container_names),
    )
}

fn read_pod_name(container: &Container) -> Option<String> {
    let bundle = Bundle::read(container.bundle.as_deref()?).ok()?;
    match ContainerOrigin::from_bundle(&bundle).ok()? {
        ContainerOrigin::Pod(pod) => {
            let (pod, container) = pod.pod_and_container_names();
            Some(format!("{container} of pod {pod}"))
        }
        ContainerOrigin::NoPod | ContainerOrigin::Sandbox => None,
    }
}

/// Returns the containers of `containers` that belong to the pod `pod_name` (`NAMESPACE/NAME`). The
/// sandbox container of the pod is left out.
fn find_by_pod(
    pod_name: &str,
    containers: Vec<Container>,
) -> Result<Vec<Container>, ContainerLookupError> {
    let is_in_pod = |container: &Container| {
        let bundle = container.bundle.as_deref().map(Bundle::read);
        let Some(Ok(bundle)) = bundle else {
            return false;
        };
        let origin = ContainerOrigin::from_bundle(&bundle);
        matches!(origin, Ok(ContainerOrigin::Pod(origin)) if origin.has_name(pod_name))
    };
    let containers: Vec<Container> = containers.into_iter().filter(is_in_pod).collect();
    if !containers.is_empty() {
        return Ok(containers);
    }
    Err(ContainerLookupError {
        name: pod_name.to_owned(),
        reason: format!("no container of pod {} on this node", excerpt(pod_name)),
        fix: "write NAMESPACE/NAME, and run this on the pod's node (kubectl get pod -o wide); \
              a container that was refused is gone, and `boathook log` has the reason"
            .to_owned(),
    })
}

/// Finds the container to which the process `pid` belongs. The cgroup of the process identifies the
/// container.
fn find_by_process(
    pid: i32,
    processes: &ProcessSnapshot,
    containers: &[Container],
) -> Result<Container, ContainerLookupError> {
    let Some(process_cgroups) = processes.cgroup_lines(pid) else {
        return Err(ContainerLookupError {
            name: pid.to_string(),
            reason: format!("no process {pid}"),
            fix: "give the id of a process as the host counts it (docker inspect -f \
                  '{{.State.Pid}}' NAME, crictl inspect, runc state)"
                .to_owned(),
        });
    };
    let includes_process = |container: &&Container| {
        container.pid == Some(pid) || is_in_container_cgroup(process_cgroups, &container.id)
    };
    let container = containers
        .iter()
        .filter(includes_process)
        .max_by_key(|container| container.id.len());
    Ok(Container {
        pid: Some(pid),
        start_time: None,
        ..container.cloned().unwrap_or_default()
    })
}

/// Returns the container with the pid of its running init process, or without a pid if this process
/// has ended.
fn refresh_init_pid(container: Container, processes: &ProcessSnapshot) -> Container {
    // The kernel may have given the pid to a new process after the init process ended. The new
    // process has a later start time.
    let has_same_start_time = |pid: i32| {
        let start_time = container.start_time;
        start_time.is_none_or(|start_time| read_start_time(pid) == Some(start_time))
    };
    let is_running =
        |pid: &i32| processes.cgroup_lines(*pid).is_some() && has_same_start_time(*pid);
    let pid = match container.pid {
        Some(pid) => Some(pid).filter(is_running),
        // The cgroups of all processes are searched for the container's id. With a shorter id, the
        // cgroup of another container could match.
        None if container.id.len() >= SHORT_ID_CHARS => processes.find_first_pid(&container.id),
        None => None,
    };
    let start_time = container.start_time.filter(|_| pid == container.pid);
    Container {
        pid,
        start_time,
        ..container
    }
}

/// Finds the containers of this host, sorted by id. A container that is found in several ways has
/// one entry in the result.
fn find_all_containers(
    state_root: Option<PathBuf>,
    host_root: &Path,
    processes: &ProcessSnapshot,
) -> Vec<Container> {
    let mut containers: Vec<Container> = Vec::new();
    let containers_by_state = state::find_containers(state_root, host_root);
    let patterns = Engine::ALL
        .iter()
        .flat_map(|engine| engine.properties().bundle_patterns);
    let bundle_dirs = patterns.flat_map(|pattern| find_matching_paths(host_root, pattern));
    let containers_by_bundle = bundle_dirs
        .chain(processes.find_monitored_bundles())
        .filter_map(find_container_of_bundle);
    // If a container's bundle was removed, the container may be found only through its attachment
    // record.
    let records = attachment::read_records(host_root).into_iter();
    let recorded_containers = records.map(|record| Container {
        id: record.id,
        pid: Some(record.pid),
        start_time: Some(record.start_time),
        bundle: Some(record.bundle_dir),
        ..Container::default()
    });
    for container in containers_by_state
        .into_iter()
        .chain(containers_by_bundle)
        .chain(recorded_containers)
    {
        let is_same_container = |known_container: &&mut Container| {
            known_container.id == container.id
                && !known_container.is_different_container(&container, processes)
        };
        let Some(known_container) = containers.iter_mut().find(is_same_container) else {
            let has_greater_id = |known_container: &Container| known_container.id > container.id;
            let index = containers
                .iter()
                .position(has_greater_id)
                .unwrap_or(containers.len());
            containers.insert(index, container);
            continue;
        };
        if known_container.pid.is_none() {
            (known_container.pid, known_container.start_time) =
                (container.pid, container.start_time);
            known_container.state_root = container.state_root;
        }
        if !known_container.bundle.as_deref().is_some_and(has_config) {
            known_container.bundle = container.bundle.or(known_container.bundle.take());
        }
    }
    containers
}

#[cfg(test)]
mod tests;
