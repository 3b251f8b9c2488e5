//! Adapts an injection plan to the paths that config.json masks.

use std::path::{Path, PathBuf};

use device_class::host::HostView;
use injection_plan::plan::InjectionPlan;

use crate::authorization::Caller;
use crate::oci::MaskedPaths;

/// Masks the paths that the runtime does not mask any more, and adds a warning for each path that
/// hides files or directories of the plan. In a container that runs, the mask is there already, and
/// nothing can be created below it: the plan loses the files that it hides.
pub(super) fn apply_masked_paths(
    plan: &mut InjectionPlan,
    paths: &MaskedPaths,
    caller: &Caller,
    host: &dyn HostView,
) {
    resolve_kernel_links(plan, paths, host);
    plan.cover_masked_paths(&paths.covered_by_hook);
    for (masked, steps) in plan.find_masked_steps(&paths.masked) {
        let users = Vec::from_iter(steps.users).join(", ");
        let hidden: Vec<String> = steps
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let (hidden, masked) = (hidden.join(", "), masked.display());
        let wrapper = advise_wrapper(caller, "which shows only that");
        plan.warnings.push(format!(
            "{users}: the container does not see {hidden}, because config.json masks {masked}: \
             {wrapper}remove the mask (Docker: --security-opt systempaths=unconfined, podman: \
             --security-opt unmask={masked})"
        ));
    }
    if matches!(caller, Caller::ChangeRunning | Caller::Attach) {
        plan.remove_masked_files(&paths.masked);
    }
    for path in plan.find_read_only_directories(&paths.read_only) {
        let path = path.display();
        let wrapper = advise_wrapper(caller, "which removes it there");
        plan.warnings.push(format!(
            "the container cannot write to {path}, which is in readonlyPaths of config.json: \
             {wrapper}remove it (Docker: --security-opt systempaths=unconfined, podman: \
             --security-opt unmask={path})"
        ));
    }
}

/// Returns the advice to use `boathook-runtime`, for a request that it reads. It leaves devices that
/// a CDI specification grants to the hook.
fn advise_wrapper(caller: &Caller, effect: &str) -> String {
    match caller {
        Caller::Cdi(_) => String::new(),
        _ => format!("use the runtime boathook, {effect}, or "),
    }
}

/// Replaces paths in /proc and /sys by those to which the kernel's own links lead, such as
/// /proc/device-tree, if that is a path that is masked. The links are the same in the container.
fn resolve_kernel_links(plan: &mut InjectionPlan, paths: &MaskedPaths, host: &dyn HostView) {
    let masked: Vec<&PathBuf> = paths.masked.iter().chain(&paths.covered_by_hook).collect();
    let is_masked = |path: &Path| masked.iter().any(|masked| path.starts_with(masked));
    for mount in plan.file_mounts_mut() {
        let is_of_kernel = mount.path.starts_with("/proc") || mount.path.starts_with("/sys");
        if !is_of_kernel || is_masked(&mount.path) {
            continue;
        }
        if let Ok(path) = host.canonical(&mount.path)
            && is_masked(&path)
        {
            mount.path = path;
        }
    }
}
