//! Looks up files in the root file system of a running container, without changing them.

use std::path::{Path, PathBuf};

use injection_plan::plan::{InjectionPlan, InjectionStep};
use serde::{Serialize, de::DeserializeOwned};

use crate::apply;
use crate::container::{Handle, Resolver, RootDir};
use crate::log::format_error_chain;
use crate::sys;
use crate::sys::deadline::{self, Deadline};

/// Calls `inspect` in a child process, and returns its result. Returns `None` if the child does not
/// answer within the time limit, because a container can mount a file system that never answers.
pub(super) fn run_in_child<T: Serialize + DeserializeOwned>(
    inspect: impl FnOnce() -> T,
) -> Option<T> {
    let answer = sys::process::run_in_child(deadline::CHILD_TIMEOUT, || {
        let _deadline = Deadline::start(deadline::DEADLINE_SECONDS);
        serde_json::to_string(&inspect()).unwrap_or_default()
    });
    serde_json::from_str(&answer.ok()??).ok()
}

/// The root directory of a running container. All paths are resolved inside this directory, because
/// the image may contain symbolic links that lead to files of the host.
pub(super) struct RunningRoot {
    pub(super) pid: i32,
    path: PathBuf,
}

impl RunningRoot {
    pub(super) fn from_pid(pid: i32) -> Self {
        let path = Path::new("/proc").join(pid.to_string()).join("root");
        RunningRoot { pid, path }
    }

    /// Resolves a path in the container. Returns `None` if there is no file at the path.
    pub(super) fn look_up(&self, path: &Path) -> Result<Option<Handle>, String> {
        let root = RootDir::open(&self.path, Resolver::Openat2);
        root.and_then(|root| root.lookup(path))
            .map_err(|error| format_error_chain(&error))
    }

    /// Returns a line for each step of the injection plan whose file or node is missing in the
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
