//! The root of a container that runs, for reading only.

use std::path::{Path, PathBuf};

use injection_plan::plan::{InjectionPlan, InjectionStep};
use serde::{Serialize, de::DeserializeOwned};

use crate::apply;
use crate::container::{Handle, Resolver, RootDir};
use crate::log::chain;
use crate::sys;
use crate::sys::deadline::{self, Deadline};

/// What a child sees of a container, which may have put a file system there that never answers:
/// `None`.
pub(super) fn in_child<T: Serialize + DeserializeOwned>(look: impl FnOnce() -> T) -> Option<T> {
    let answer = sys::process::in_child(deadline::LIMIT, || {
        let _deadline = Deadline::start(deadline::SECONDS);
        serde_json::to_string(&look()).unwrap_or_default()
    });
    serde_json::from_str(&answer.ok()??).ok()
}

/// The root of a running container. Paths in it are resolved inside it: the image
/// may have made links of them.
pub(super) struct RunningRoot {
    pub(super) pid: i32,
    path: PathBuf,
}

impl RunningRoot {
    pub(super) fn from_pid(pid: i32) -> Self {
        let path = Path::new("/proc").join(pid.to_string()).join("root");
        RunningRoot { pid, path }
    }

    /// What a path in the container leads to.
    pub(super) fn look(&self, path: &Path) -> Result<Option<Handle>, String> {
        let root = RootDir::open(&self.path, Resolver::Openat2);
        root.and_then(|root| root.lookup(path))
            .map_err(|error| chain(&error))
    }

    /// What of the plan the container lacks, a line each.
    pub(super) fn missing(&self, plan: &InjectionPlan) -> Result<Vec<String>, String> {
        let lacks = |step: &InjectionStep| apply::lacks(&step.action, &|path| self.look(path));
        let steps = plan.steps.iter();
        steps.filter_map(|step| lacks(step).transpose()).collect()
    }
}
