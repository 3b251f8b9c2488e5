//! Finds the containers of this host without an engine's API. The sources are the bundles of
//! engines, the state directories of runtimes, and the processes that monitor containers, such
//! as containerd's shims and conmon.

mod bundles;
mod by_id;
mod ended;
mod name;
mod processes;
mod state;

use std::fmt;
use std::path::{Path, PathBuf};

use device_class::name::excerpt;
use runtime_config::Engine;
use serde::Serialize;

pub(super) use bundles::is_same_bundle;
use bundles::{find_matching, has_config, matches_pattern, read_bundle};
use by_id::by_id_or_name;
pub(super) use ended::EndedContainer;
use processes::{Processes, is_of_container};

use crate::cli::ContainerSelector;
use crate::container::read_start_time;
use crate::live;
use crate::oci::Bundle;
use crate::trust::Origin;

/// The length, in characters, of the short ids that engines print.
pub(super) const SHORT_ID: usize = 12;

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Container {
    /// The container's id. It is empty for a hypothetical container of `doctor --env`.
    pub(super) id: String,
    pub(super) pid: Option<i32>,
    /// The start time of the process `pid`, as the runtime recorded it: field 22 of
    /// /proc/PID/stat, in clock ticks since boot.
    #[serde(skip)]
    pub(super) started: Option<u64>,
    pub(super) bundle: Option<PathBuf>,
    /// The directory in which the container's runtime keeps the states of containers.
    #[serde(skip)]
    state_root: Option<PathBuf>,
    /// The data that the engine keeps of a container that has ended or was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<EndedContainer>,
}

/// The error if no container was found: the name, the reason and the fix.
pub(super) struct Unknown {
    pub(super) name: String,
    pub(super) reason: String,
    pub(super) fix: String,
}

impl Container {
    pub(super) fn named(id: &str) -> Self {
        Container {
            id: id.to_owned(),
            ..Container::default()
        }
    }

    /// Returns whether the container does not exist, and only variables were given.
    pub(super) fn is_hypothetical(&self) -> bool {
        self.pid.is_none() && self.bundle.is_none()
    }

    /// Returns the name that the engine gave to the container. Returns `None` if two files of
    /// the engine disagree.
    pub(super) fn name(&self, host_root: &Path) -> Option<String> {
        let mut files = name::names_by_file(self, host_root).into_iter();
        let first = files.next()?;
        let agree = files.all(|file| file.names == first.names);
        agree.then(|| first.names.into_iter().next())?
    }

    /// Returns whether the container's first process still runs. The start time is compared,
    /// because the kernel may have given the pid of an ended process to another process.
    fn runs(&self, processes: &Processes) -> bool {
        self.pid.is_some_and(|pid| {
            let started = self.started;
            processes.cgroup(pid).is_some()
                && started.is_none_or(|started| read_start_time(pid) == Some(started))
        })
    }

    /// Returns whether `other`, which has the same id, is another container. Two runtimes or two
    /// namespaces of containerd may use the same id.
    fn is_other_than(&self, other: &Self, processes: &Processes) -> bool {
        if self.runs(processes) && other.runs(processes) {
            return self.pid != other.pid;
        }
        match (&self.bundle, &other.bundle) {
            // A bundle without a config.json proves nothing: crun may record its working
            // directory as the bundle.
            (Some(one), Some(other)) if has_config(one) && has_config(other) => {
                !is_same_bundle(one, other)
            }
            _ => false,
        }
    }

    /// Returns the engine that keeps its bundles in the directory of this container's bundle.
    pub(super) fn engine(&self) -> Option<&'static str> {
        if self.ended.is_some() {
            return Some(Engine::Docker.name());
        }
        let bundle = self.bundle.as_deref()?;
        if name::is_bundle_of_docker(bundle) {
            return Some(Engine::Docker.name());
        }
        let keeps = |engine: &&Engine| {
            let patterns = engine.facts().bundles;
            patterns
                .iter()
                .any(|pattern| matches_pattern(bundle, pattern))
        };
        // CRI-O and podman keep bundles in the same place. Only a container of CRI-O has a
        // pod's annotation.
        let engines = [Engine::Docker, Engine::Podman];
        let mut all = engines.iter().chain(Engine::ALL.iter());
        all.find(keeps).map(|engine| engine.name())
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.id.is_empty() {
            parts.push(excerpt(&self.id));
        }
        parts.push(match self.pid {
            Some(pid) => format!("pid {pid}"),
            None => "not running".to_owned(),
        });
        if let Some(ended) = &self.ended {
            parts.push(ended.to_string());
        }
        if let Some(bundle) = &self.bundle {
            parts.push(format!("bundle {}", bundle.display()));
        }
        f.write_str(&parts.join(", "))
    }
}

/// Finds the containers that the command line selects.
pub(super) fn find(
    whose: &ContainerSelector,
    root: Option<PathBuf>,
    host_root: &Path,
) -> Result<Vec<Container>, Unknown> {
    if !whose.env.is_empty() {
        return Ok(vec![Container::default()]);
    }
    let processes = Processes::read();
    let known = find_all(root.clone(), host_root, &processes);
    let found = if let Some(id) = whose.container() {
        let found = by_id_or_name(id, root.as_deref(), &known, host_root);
        vec![found.or_else(|unknown| ended::find(id, host_root).ok_or(unknown))?]
    } else if let Some(pod) = &whose.pod {
        find_by_pod(pod, known)?
    } else if let Some(pid) = whose.pid {
        let container = find_by_process(pid, &processes, &known)?;
        let bundle = whose.bundle.clone().or(container.bundle);
        return Ok(vec![Container {
            bundle,
            ..container
        }]);
    } else {
        let same = |container: &Container| container.bundle == whose.bundle;
        vec![known.into_iter().find(same).unwrap_or(Container {
            bundle: whose.bundle.clone(),
            ..Container::default()
        })]
    };
    let containers = found
        .into_iter()
        .map(|one| with_current_pid(one, &processes));
    Ok(containers.collect())
}

/// Finds the running containers of this host whose bundles are known.
pub(super) fn running(
    root: Option<PathBuf>,
    host_root: &Path,
) -> impl Iterator<Item = (Container, i32, PathBuf)> {
    let processes = Processes::read();
    let known = find_all(root, host_root, &processes).into_iter();
    let containers = known.map(move |one| with_current_pid(one, &processes));
    containers.filter_map(|one| {
        let (pid, bundle) = (one.pid?, one.bundle.clone()?);
        Some((one, pid, bundle))
    })
}

/// Finds a container of this host by its id, by its name, or by the first characters of its id,
/// in this order.
pub(super) fn named(
    text: &str,
    root: Option<PathBuf>,
    host_root: &Path,
) -> Result<Container, Unknown> {
    let processes = Processes::read();
    let known = find_all(root.clone(), host_root, &processes);
    by_id_or_name(text, root.as_deref(), &known, host_root)
        .map(|found| with_current_pid(found, &processes))
}

/// Returns the id of a container that runs, or that its engine keeps. Returns `None` if there is no
/// such container, or several.
pub(super) fn find_id(text: &str, host_root: &Path) -> Option<String> {
    let found = named(text, None, host_root).ok();
    let found = found.or_else(|| ended::find(text, host_root));
    found.map(|container| container.id)
}

/// Returns the names by which a user may name the containers of this host: the engine's name, or
/// the id without one.
pub(super) fn list_names(host_root: &Path) -> Vec<String> {
    let processes = Processes::read();
    let known = find_all(None, host_root, &processes).into_iter();
    let running = known.filter(|container| {
        let current = with_current_pid(container.clone(), &processes);
        current.pid.is_some()
    });
    running
        .map(|container| container.name(host_root).unwrap_or(container.id))
        .collect()
}

/// Returns the containers of a pod. The pod's sandbox is left out.
fn find_by_pod(pod: &str, known: Vec<Container>) -> Result<Vec<Container>, Unknown> {
    let is_of = |container: &Container| {
        let bundle = container.bundle.as_deref().map(Bundle::read);
        let Some(Ok(bundle)) = bundle else {
            return false;
        };
        let origin = Origin::from_bundle(&bundle);
        matches!(origin, Ok(Origin::Pod(of)) if of.is_named(pod))
    };
    let containers: Vec<Container> = known.into_iter().filter(is_of).collect();
    match containers.is_empty() {
        false => Ok(containers),
        true => Err(Unknown {
            name: pod.to_owned(),
            reason: format!("no container of pod {} on this node", excerpt(pod)),
            fix: "write NAMESPACE/NAME, and run this on the pod's node (kubectl get pod -o wide); \
                  a container that was refused is gone, and `boathook log` has the reason"
                .to_owned(),
        }),
    }
}

/// Finds the container of a process by the process's cgroup.
fn find_by_process(
    pid: i32,
    processes: &Processes,
    known: &[Container],
) -> Result<Container, Unknown> {
    let Some(cgroup) = processes.cgroup(pid) else {
        return Err(Unknown {
            name: pid.to_string(),
            reason: format!("no process {pid}"),
            fix: "give the id of a process as the host counts it (docker inspect -f \
                  '{{.State.Pid}}' NAME, crictl inspect, runc state)"
                .to_owned(),
        });
    };
    let is_its = |container: &&Container| {
        container.pid == Some(pid) || is_of_container(cgroup, &container.id)
    };
    let found = known
        .iter()
        .filter(is_its)
        .max_by_key(|container| container.id.len());
    Ok(Container {
        pid: Some(pid),
        started: None,
        ..found.cloned().unwrap_or_default()
    })
}

/// Returns the container with the pid of its first process, or with `None` if that has ended.
fn with_current_pid(container: Container, processes: &Processes) -> Container {
    // Another process may have the number of one that has ended.
    let is_its = |pid: i32| {
        let started = container.started;
        started.is_none_or(|started| read_start_time(pid) == Some(started))
    };
    let runs = |pid: &i32| processes.cgroup(*pid).is_some() && is_its(*pid);
    let pid = match container.pid {
        Some(pid) => Some(pid).filter(runs),
        // A shorter name could be part of any cgroup's.
        None if container.id.len() >= SHORT_ID => processes.first_of(&container.id),
        None => None,
    };
    let started = container.started.filter(|_| pid == container.pid);
    Container {
        pid,
        started,
        ..container
    }
}

/// Finds the containers of all sources, sorted by id.
fn find_all(root: Option<PathBuf>, host_root: &Path, processes: &Processes) -> Vec<Container> {
    let mut known: Vec<Container> = Vec::new();
    let by_state = state::containers(root, host_root);
    // These are the directories in which engines keep bundles by default.
    let patterns = Engine::ALL.iter().flat_map(|engine| engine.facts().bundles);
    let bundles = patterns.flat_map(|pattern| find_matching(host_root, pattern));
    let by_bundle = bundles.chain(processes.bundles()).filter_map(read_bundle);
    // An attachment record may belong to a container whose bundle was removed.
    let recorded = live::read_records(host_root).into_iter();
    let recorded = recorded.map(|record| Container {
        id: record.id,
        pid: Some(record.pid),
        started: Some(record.start_time),
        bundle: Some(record.bundle),
        ..Container::default()
    });
    for container in by_state.into_iter().chain(by_bundle).chain(recorded) {
        let is_same =
            |it: &&mut Container| it.id == container.id && !it.is_other_than(&container, processes);
        let Some(entry) = known.iter_mut().find(is_same) else {
            let after = |it: &Container| it.id > container.id;
            let at = known.iter().position(after).unwrap_or(known.len());
            known.insert(at, container);
            continue;
        };
        if entry.pid.is_none() {
            (entry.pid, entry.started) = (container.pid, container.started);
            entry.state_root = container.state_root;
        }
        if !entry.bundle.as_deref().is_some_and(has_config) {
            entry.bundle = container.bundle.or(entry.bundle.take());
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A container of crun is found by its state. A container whose runtime keeps the state
    /// elsewhere is found by its bundle only.
    #[test]
    fn containers_of_cri_o_are_found() {
        let host = tempfile::tempdir().unwrap();
        let bundle = |id| format!("run/containers/storage/overlay-containers/{id}/userdata");
        let [one, other] = ["0a1b", "0c1d"].map(|id| host.path().join(bundle(id)));
        for bundle in [&one, &other] {
            fs::create_dir_all(bundle).unwrap();
            fs::write(bundle.join("config.json"), "{}").unwrap();
        }
        let state = host.path().join("run/crun/0a1b");
        fs::create_dir_all(&state).unwrap();
        let status = format!(r#"{{"pid":7,"process-start-time":9,"bundle":{one:?}}}"#);
        fs::write(state.join("status"), status).unwrap();
        let found = find_all(None, host.path(), &Processes::read());
        let seen = |id| {
            let found = found.iter().find(|it| it.id == id).unwrap();
            (found.pid, found.started, found.bundle.clone())
        };
        assert_eq!(seen("0a1b"), (Some(7), Some(9), Some(one)));
        assert_eq!(seen("0c1d"), (None, None, Some(other)));
    }

    #[test]
    fn the_engine_is_determined_by_the_bundles_directory() {
        for (bundle, engine) in [
            (
                "/run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/0a1b",
                Some("docker"),
            ),
            (
                "/host/run/containerd/io.containerd.runtime.v2.task/k8s.io/0a1b",
                Some("containerd"),
            ),
            // Docker with the containerd of the host.
            (
                "/run/containerd/io.containerd.runtime.v2.task/moby/0a1b",
                Some("docker"),
            ),
            (
                "/var/lib/containers/storage/overlay-containers/0a1b/userdata",
                Some("podman"),
            ),
            ("/root/bundle", None),
        ] {
            let container = Container {
                bundle: Some(bundle.into()),
                ..Container::default()
            };
            assert_eq!(container.engine(), engine, "{bundle}");
        }
    }
}
