//! The root of a container that runs, for reading only.

use std::path::{Path, PathBuf};

use injection_plan::plan::{InjectionPlan, InjectionStep};

use crate::apply;
use crate::container::{Handle, Resolver, RootDir};
use crate::log::chain;

/// The root of a running container. Paths in it are resolved inside it: the image
/// may have made links of them.
pub(super) struct RunningRoot {
    pub(super) pid: i32,
    path: PathBuf,
}

impl RunningRoot {
    pub(super) fn of(pid: i32) -> Self {
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
