//! Changes an injection plan where config.json masks paths that the plan uses, or has an AppArmor
//! profile that denies them.

use std::path::{Path, PathBuf};

use device_class::host::HostView;
use injection_plan::plan::InjectionPlan;

use super::apparmor;
use crate::authorization::Caller;
use crate::oci::Bundle;

/// Adds to the plan the masks that the hook must create. Adds a warning for each path that hides
/// files of the plan because the runtime masks it or AppArmor denies it. Nothing can be created
/// below masked paths of a running container, so its hidden files are removed from the plan.
pub(super) fn apply_masked_paths(
    plan: &mut InjectionPlan,
    bundle: &Bundle,
    caller: &Caller,
    host: &dyn HostView,
) {
    let spec_paths = &bundle.masked_paths;
    let profile = bundle.apparmor_profile.as_deref();
    let masked_paths = spec_paths.masked.iter().chain(&spec_paths.masked_by_hook);
    let hidden_paths: Vec<PathBuf> = masked_paths
        .cloned()
        .chain(apparmor::list_denied_paths(profile))
        .collect();
    resolve_kernel_links(plan, &hidden_paths, host);
    apparmor::warn_of_denied_paths(plan, profile);
    plan.add_path_masks(&spec_paths.masked_by_hook);
    for (masked_path, hidden_steps) in plan.find_hidden_paths(&spec_paths.masked) {
        let owner_labels = Vec::from_iter(hidden_steps.owner_labels).join(", ");
        let hidden_paths: Vec<String> = hidden_steps
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let (hidden_paths, masked_path) = (hidden_paths.join(", "), masked_path.display());
        let wrapper_advice = describe_wrapper_advice(caller, "which shows only that");
        plan.warnings.push(format!(
            "{owner_labels}: the container does not see {hidden_paths}, because config.json masks {masked_path}: \
             {wrapper_advice}remove the mask (Docker: --security-opt systempaths=unconfined, podman: \
             --security-opt unmask={masked_path})"
        ));
    }
    if matches!(caller, Caller::RunningContainerChange | Caller::Attach) {
        plan.remove_masked_files(&spec_paths.masked);
    }
    for path in plan.find_read_only_directories(&spec_paths.read_only) {
        let path = path.display();
        let wrapper_advice = describe_wrapper_advice(caller, "which removes it there");
        plan.warnings.push(format!(
            "the container cannot write to {path}, which is in readonlyPaths of config.json: \
             {wrapper_advice}remove it (Docker: --security-opt systempaths=unconfined, podman: \
             --security-opt unmask={path})"
        ));
    }
}

/// Returns the advice to use `boathook-runtime`. The caller appends other advice to it. Returns an
/// empty text for devices of a CDI specification, which `boathook-runtime` does not handle.
fn describe_wrapper_advice(caller: &Caller, effect: &str) -> String {
    match caller {
        Caller::Cdi(_) => String::new(),
        _ => format!("use the runtime boathook, {effect}, or "),
    }
}

/// Replaces paths of the plan, such as /proc/device-tree, that lead through a symbolic link of
/// /proc or /sys to one of `hidden_paths`. The kernel creates these links, so they are the same on
/// the host and in the container.
fn resolve_kernel_links(plan: &mut InjectionPlan, hidden_paths: &[PathBuf], host: &dyn HostView) {
    let is_hidden = |path: &Path| {
        let mut hidden_paths = hidden_paths.iter();
        hidden_paths.any(|hidden_path| path.starts_with(hidden_path))
    };
    for mount in plan.file_mounts_mut() {
        let is_in_kernel_file_system =
            mount.path.starts_with("/proc") || mount.path.starts_with("/sys");
        if !is_in_kernel_file_system || is_hidden(&mount.path) {
            continue;
        }
        if let Ok(canonical_path) = host.canonicalize(&mount.path)
            && is_hidden(&canonical_path)
        {
            mount.path = canonical_path;
        }
    }
}
