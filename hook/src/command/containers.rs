//! Finds the containers of this host without an engine's API. The sources are the bundles of
//! engines, the state directories of runtimes, and the processes that monitor containers, such
//! as containerd's shims and conmon.

mod by_id;
mod name;
mod processes;
mod state;

use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};

use device_class::name::excerpt;
use runtime_config::Engine;
use serde::Serialize;

use by_id::by_id_or_name;
use processes::{Processes, is_of_container};

use crate::cli::ContainerSelector;
use crate::container::start_time_of;
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
                && started.is_none_or(|started| start_time_of(pid) == Some(started))
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
        let bundle = self.bundle.as_deref()?;
        let keeps = |engine: &&Engine| {
            let patterns = engine.facts().bundles;
            patterns.iter().any(|pattern| fits(bundle, pattern))
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
    let found = if let Some(id) = &whose.container {
        vec![by_id_or_name(id, root.as_deref(), &known, host_root)?]
    } else if let Some(pod) = &whose.pod {
        of_pod(pod, known)?
    } else if let Some(pid) = whose.pid {
        let container = of_process(pid, &processes, &known)?;
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
    let located = found.into_iter().map(|one| located(one, &processes));
    Ok(located.collect())
}

/// Finds the running containers of this host whose bundles are known.
pub(super) fn running(
    root: Option<PathBuf>,
    host_root: &Path,
) -> impl Iterator<Item = (Container, i32, PathBuf)> {
    let processes = Processes::read();
    let known = find_all(root, host_root, &processes).into_iter();
    let located = known.map(move |one| located(one, &processes));
    located.filter_map(|one| {
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
    by_id_or_name(text, root.as_deref(), &known, host_root).map(|found| located(found, &processes))
}

/// Returns the containers of a pod. The pod's sandbox is left out.
fn of_pod(pod: &str, known: Vec<Container>) -> Result<Vec<Container>, Unknown> {
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
fn of_process(pid: i32, processes: &Processes, known: &[Container]) -> Result<Container, Unknown> {
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
fn located(container: Container, processes: &Processes) -> Container {
    // Another process may have the number of one that has ended.
    let is_its = |pid: i32| {
        let started = container.started;
        started.is_none_or(|started| start_time_of(pid) == Some(started))
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
    let bundles = patterns.flat_map(|pattern| matching(host_root, pattern));
    let by_bundle = bundles.chain(processes.bundles()).filter_map(of_bundle);
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

/// Returns whether two paths lead to the same bundle. The paths can differ: CRI-O keeps
/// config.json in two directories of one storage, where ids are unique, and below a mount of
/// the host's root a path is longer.
pub(super) fn is_same_bundle(one: &Path, other: &Path) -> bool {
    let is_in_storage = |path: &Path| path.ends_with("userdata");
    let is_end =
        |long: &Path, short: &Path| long.ends_with(short.strip_prefix("/").unwrap_or(short));
    let real = |path| fs::canonicalize(path).ok();
    is_in_storage(one) && is_in_storage(other)
        || is_end(one, other)
        || is_end(other, one)
        || real(one).is_some_and(|one| Some(one) == real(other))
}

/// Returns the paths below `top` that match a pattern. A name in the pattern that ends in `*`
/// matches every name with the same beginning.
fn matching(top: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = match part.strip_suffix('*') {
            None => found.iter().map(|path| path.join(part)).collect(),
            Some(begin) => {
                let fits = |path: &PathBuf| {
                    let name = path.file_name().and_then(|name| name.to_str());
                    name.is_some_and(|name| name.starts_with(begin))
                };
                let all = found.iter().flat_map(|path| entries(path));
                all.filter(fits).collect()
            }
        };
    }
    found
}

fn has_config(bundle: &Path) -> bool {
    bundle.join("config.json").is_file()
}

/// Returns the container of a bundle. The container's id is the name of the bundle's directory,
/// or, with podman and CRI-O, of the directory above `userdata`.
fn of_bundle(bundle: PathBuf) -> Option<Container> {
    has_config(&bundle).then_some(())?;
    let named = match bundle.file_name()?.to_str()? {
        "userdata" => bundle.parent()?.file_name()?.to_str()?,
        name => name,
    };
    Some(Container {
        id: named.to_owned(),
        bundle: Some(bundle),
        ..Container::default()
    })
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|e| e.ok().map(|e| e.path())).collect()
}

/// Returns whether the end of a path matches a pattern, in which `*` matches any one name. The
/// path may begin with the host's root or with a mount of it.
fn fits(path: &Path, pattern: &str) -> bool {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let names: Vec<&str> = names.collect();
    let mut pattern = pattern.split('/').rev().filter(|part| !part.is_empty());
    let mut names = names.iter();
    pattern.all(|part| {
        names
            .next()
            .is_some_and(|name| part == "*" || part == *name)
    })
}

#[cfg(test)]
mod tests {
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
