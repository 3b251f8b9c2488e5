//! Adapts an injection plan to the paths that config.json masks.

use std::path::{Path, PathBuf};

use device_class::host::HostView;
use injection_plan::plan::InjectionPlan;

use crate::authorization::Caller;
use crate::oci::MaskedPaths;

/// Masks the paths that the runtime does not mask any more, and adds a warning for each path that
/// hides files or directories of the plan. In a running container the mask exists already and
/// nothing can be created below it, so hidden files are removed from the plan.
pub(super) fn apply_masked_paths(
    plan: &mut InjectionPlan,
    paths: &MaskedPaths,
    caller: &Caller,
    host: &dyn HostView,
) {
    resolve_kernel_links(plan, paths, host);
    plan.cover_masked_paths(&paths.covered_by_hook);
    for (masked_path, hidden) in plan.find_hidden_paths(&paths.masked) {
        let owner_labels = Vec::from_iter(hidden.owner_labels).join(", ");
        let hidden_paths: Vec<String> = hidden
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let (hidden_paths, masked_path) = (hidden_paths.join(", "), masked_path.display());
        let wrapper = advise_wrapper(caller, "which shows only that");
        plan.warnings.push(format!(
            "{owner_labels}: the container does not see {hidden_paths}, because config.json masks {masked_path}: \
             {wrapper}remove the mask (Docker: --security-opt systempaths=unconfined, podman: \
             --security-opt unmask={masked_path})"
        ));
    }
    if matches!(caller, Caller::RunningContainerChange | Caller::Attach) {
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

/// Returns the advice to use `boathook-runtime`. There is no advice for devices that a CDI
/// specification grants, because `boathook-runtime` leaves these to the hook.
fn advise_wrapper(caller: &Caller, effect: &str) -> String {
    match caller {
        Caller::Cdi(_) => String::new(),
        _ => format!("use the runtime boathook, {effect}, or "),
    }
}

/// Resolves the plan's paths in /proc and /sys that lead through the kernel's own links, such as
/// /proc/device-tree, to a masked path. The links are the same in the container and on the host.
fn resolve_kernel_links(plan: &mut InjectionPlan, paths: &MaskedPaths, host: &dyn HostView) {
    let masked_paths: Vec<&PathBuf> = paths.masked.iter().chain(&paths.covered_by_hook).collect();
    let is_masked = |path: &Path| masked_paths.iter().any(|masked| path.starts_with(masked));
    for mount in plan.file_mounts_mut() {
        let is_in_kernel_file_system =
            mount.path.starts_with("/proc") || mount.path.starts_with("/sys");
        if !is_in_kernel_file_system || is_masked(&mount.path) {
            continue;
        }
        if let Ok(path) = host.canonical(&mount.path)
            && is_masked(&path)
        {
            mount.path = path;
        }
    }
}
