//! Adapts an injection plan to the paths that config.json masks.

use std::path::{Path, PathBuf};

use device_class::host::HostView;
use injection_plan::plan::InjectionPlan;

use crate::oci::MaskedPaths;

/// Masks the paths that the runtime does not mask any more, and adds a warning for each path that
/// hides files or directories of the plan.
pub(super) fn apply_masked_paths(
    plan: &mut InjectionPlan,
    paths: &MaskedPaths,
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
        plan.warnings.push(format!(
            "{users}: the container does not see {hidden}, because config.json masks {masked}: use \
             the runtime boathook, which shows only that, or remove the mask (Docker: \
             --security-opt systempaths=unconfined, podman: --security-opt unmask={masked})"
        ));
    }
    for path in plan.find_read_only_directories(&paths.read_only) {
        let path = path.display();
        plan.warnings.push(format!(
            "the container cannot write to {path}, which is in readonlyPaths of config.json: use \
             the runtime boathook, which removes it there, or remove it (Docker: --security-opt \
             systempaths=unconfined, podman: --security-opt unmask={path})"
        ));
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
