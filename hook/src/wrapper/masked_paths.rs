//! Removes paths from `maskedPaths` and `readonlyPaths` of config.json if the injection plan needs
//! files or directories there.
//!
//! The runtime masks paths after it has called the hooks, so it would hide files that the hook
//! injected. If a path is removed, the hook masks it itself, and leaves only the files of the
//! injection plan visible.

use std::path::{Path, PathBuf};

use device_class::config::Config;
use host_files::json_text;
use injection_plan::plan::InjectionPlan;

use crate::oci::Bundle;

/// The paths that `boathook-runtime` removes from `linux.maskedPaths` and `linux.readonlyPaths` in
/// config.json.
#[derive(Debug, Default)]
pub(super) struct RemovedPaths {
    /// The paths from `linux.maskedPaths`, such as `/sys/firmware`. The hook masks them instead of
    /// the runtime.
    pub(super) masked: Vec<PathBuf>,
    /// The paths from `linux.readonlyPaths`. The hook mounts a writable directory at each of them.
    pub(super) read_only: Vec<PathBuf>,
}

impl RemovedPaths {
    /// Finds the masked paths that hide files of the plan, and the read-only paths where it needs a
    /// writable directory. Returns only paths in `/proc` and `/sys`, because engines mask these by
    /// default. Any other path was masked by a user, so it stays masked.
    pub(super) fn find(plan: &InjectionPlan, bundle: &Bundle, config: &Config) -> Self {
        // The container's processes could unmount the hook's masks, and the hook would refuse such
        // a container. So no path is removed, and the runtime masks all of them.
        let can_unmount_masks = bundle.has_sys_admin
            && bundle.has_user_namespace
            && !config.trust.allow_removable_masks;
        if can_unmount_masks {
            return Self::default();
        }
        let masked_steps = plan.find_hidden_paths(&bundle.masked_paths.masked);
        let read_only_directories = plan.find_read_only_directories(&bundle.masked_paths.read_only);
        let is_in_kernel_file_system =
            |path: &PathBuf| path.starts_with("/proc") || path.starts_with("/sys");
        RemovedPaths {
            masked: masked_steps
                .into_keys()
                .filter(is_in_kernel_file_system)
                .collect(),
            read_only: read_only_directories
                .into_iter()
                .filter(is_in_kernel_file_system)
                .collect(),
        }
    }

    /// Removes these paths from `linux.maskedPaths` and `linux.readonlyPaths`. `config_text` is the
    /// text of a config.json. Returns the changed text.
    pub(super) fn remove_paths(&self, config_text: String) -> String {
        let text = remove_list_items(config_text, "maskedPaths", &self.masked);
        remove_list_items(text, "readonlyPaths", &self.read_only)
    }
}

/// Removes `paths` from the list `linux.LIST_NAME` in `config_text`, the text of a config.json.
/// Does not change the rest of the text.
fn remove_list_items(config_text: String, list_name: &str, paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return config_text;
    }
    let is_removed = |item: &&str| {
        let path = serde_json::from_str::<String>(item);
        path.is_ok_and(|path| {
            paths
                .iter()
                .any(|removed_path| removed_path == Path::new(&path))
        })
    };
    let items = json_text::list_items(&config_text, &["linux", list_name]);
    let kept_items: Vec<&str> = items.into_iter().filter(|item| !is_removed(item)).collect();
    let new_list = format!("[{}]", kept_items.join(","));
    match json_text::find_value(&config_text, &["linux"]) {
        Some(linux) => json_text::set_member(&config_text, linux, list_name, &new_list),
        None => config_text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_paths_are_removed() {
        let removed = RemovedPaths {
            masked: vec!["/sys/firmware".into()],
            read_only: vec!["/proc/bus".into()],
        };
        for (before, after) in [
            (
                r#"{"linux": {"maskedPaths": ["/proc/kcore", "/sys/firmware"], "readonlyPaths": ["/proc/bus/", "/proc/irq"]}, "a": 1}"#,
                r#"{"linux": {"maskedPaths": ["/proc/kcore"], "readonlyPaths": ["/proc/irq"]}, "a": 1}"#,
            ),
            (
                r#"{"linux": {"readonlyPaths": [], "maskedPaths": ["/sys/firmware/efi", 1]}}"#,
                r#"{"linux": {"readonlyPaths": [], "maskedPaths": ["/sys/firmware/efi",1]}}"#,
            ),
        ] {
            assert_eq!(removed.remove_paths(before.to_owned()), after);
        }
    }

    #[test]
    fn nothing_is_changed_without_paths() {
        let text = r#"{"linux":{"maskedPaths":[ "/sys/firmware" ]}}"#;
        assert_eq!(RemovedPaths::default().remove_paths(text.to_owned()), text);
    }
}
