//! Looks up files in the root file system of a running container, without entering its namespaces.

use std::path::{Path, PathBuf};

use hook::apply;
use hook::container::{Handle, Resolver, RootDir};
use hook::log::format_error_chain;
use hook::sys;
use hook::sys::deadline::{self, Deadline};
use injection_plan::plan::{InjectionPlan, InjectionStep};
use serde::{Serialize, de::DeserializeOwned};

/// Calls `inspect_container` in a child process and returns its result. Returns `None` if the child
/// process exceeds the time limit: a container can mount a file system that never answers.
pub(super) fn run_in_child<T: Serialize + DeserializeOwned>(
    inspect_container: impl FnOnce() -> T,
) -> Option<T> {
    let answer_json = sys::process::run_in_child(deadline::CHILD_TIMEOUT, || {
        let _deadline = Deadline::start(deadline::DEADLINE_SECONDS);
        serde_json::to_string(&inspect_container()).unwrap_or_default()
    });
    serde_json::from_str(&answer_json.ok()??).ok()
}

/// The root directory of a running container. All paths are resolved inside this directory, because
/// the image may contain symbolic links that would otherwise lead to files of the host.
pub(super) struct RunningContainerRoot {
    pub(super) pid: i32,
    path: PathBuf,
}

impl RunningContainerRoot {
    pub(super) fn from_pid(pid: i32) -> Self {
        let path = Path::new("/proc").join(pid.to_string()).join("root");
        RunningContainerRoot { pid, path }
    }

    /// Opens the file at `container_path` in the container. Returns `None` if there is no file.
    pub(super) fn look_up(&self, container_path: &Path) -> Result<Option<Handle>, String> {
        let root = RootDir::open(&self.path, Resolver::Openat2);
        root.and_then(|root| root.lookup(container_path))
            .map_err(|error| format_error_chain(&error))
    }

    /// Returns a description of each file or device node of the plan that is missing in the
    /// container.
    pub(super) fn find_missing_files(&self, plan: &InjectionPlan) -> Result<Vec<String>, String> {
        let describe_missing_file = |step: &InjectionStep| {
            apply::find_missing_file(&step.action, &|path| self.look_up(path))
        };
        let steps = plan.steps.iter();
        steps
            .filter_map(|step| describe_missing_file(step).transpose())
            .collect()
    }
}
