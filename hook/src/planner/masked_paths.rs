//! Adapts an injection plan to paths that the container cannot use. config.json masks such a path
//! or makes it read-only, or the AppArmor profile denies it.

use std::path::{Path, PathBuf};

use device_class::host::HostView;
use injection_plan::plan::InjectionPlan;

use super::apparmor;
use crate::authorization::Caller;
use crate::oci::Bundle;

/// Adds to the plan the masks that the hook must create instead of the runtime. Adds a warning for
/// files of the plan that the container cannot see or use, because the runtime masks their paths or
/// AppArmor denies them. In a running container, nothing can be created below a masked path, so
/// such files are removed from the plan.
pub(super) fn apply_masked_paths(
    plan: &mut InjectionPlan,
    bundle: &Bundle,
    caller: &Caller,
    host: &dyn HostView,
) {
    let spec_paths = &bundle.masked_paths;
    let profile = bundle.apparmor_profile.as_deref();
    let masked_paths = spec_paths
        .masked
        .iter()
        .chain(&spec_paths.removed_masked_paths);
    let hidden_paths: Vec<PathBuf> = masked_paths
        .cloned()
        .chain(apparmor::list_denied_paths(profile))
        .collect();
    resolve_kernel_links(plan, &hidden_paths, host);
    apparmor::warn_of_denied_paths(plan, profile);
    plan.add_path_masks(&spec_paths.removed_masked_paths);
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

/// Returns the first half of an advice, which is to use `boathook-runtime`. `effect` says what that
/// program does about the path. The text is empty for devices of a CDI specification, because
/// `boathook-runtime` does not handle these.
fn describe_wrapper_advice(caller: &Caller, effect: &str) -> String {
    match caller {
        Caller::Cdi(_) => String::new(),
        _ => format!("use the runtime boathook, {effect}, or "),
    }
}

/// Resolves symbolic links of /proc and /sys in paths of the plan, such as /proc/device-tree, if
/// the target is below one of `hidden_paths`. Otherwise it would not be noticed that the file is
/// hidden. The kernel creates these links, so they are the same on the host and in the container.
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
