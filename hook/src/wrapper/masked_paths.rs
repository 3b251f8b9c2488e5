//! Removes paths from config.json that the runtime would mask or make read-only, although the
//! injection plan needs them.
//!
//! The runtime masks paths after its hooks have run, so it would hide files that the hook has
//! injected. After the removal the hook masks the path itself, and shows only the files of the
//! injection plan there.

use std::path::{Path, PathBuf};

use device_class::config::Config;
use injection_plan::plan::InjectionPlan;

use crate::oci::Bundle;

/// The paths that are removed from the lists `linux.maskedPaths` and `linux.readonlyPaths` of
/// config.json.
#[derive(Debug, Default)]
pub(super) struct RemovedPaths {
    /// The paths of `linux.maskedPaths`, which the hook masks instead of the runtime.
    pub(super) masked: Vec<PathBuf>,
    /// The paths of `linux.readonlyPaths`, at which the hook mounts a writable directory.
    pub(super) read_only: Vec<PathBuf>,
}

impl RemovedPaths {
    /// Finds the paths that hide files of the plan or make its directories read-only. Only paths in
    /// `/proc` and `/sys`, which engines mask by default, are returned. A user has chosen to mask
    /// any other path, so that path is not removed.
    pub(super) fn find(plan: &InjectionPlan, bundle: &Bundle, config: &Config) -> Self {
        // The hook refuses a container that could unmount the mask, so nothing is removed for it.
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

    /// Returns the text of config.json without these paths in `linux.maskedPaths` and
    /// `linux.readonlyPaths`.
    pub(super) fn remove_paths(&self, config_text: String) -> String {
        let text = remove_items(config_text, "maskedPaths", &self.masked);
        remove_items(text, "readonlyPaths", &self.read_only)
    }
}

/// Returns `text`, a config.json, without `paths` in the list `list_name` of the object `linux`. The
/// rest of the text is unchanged.
fn remove_items(text: String, list_name: &str, paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return text;
    }
    let is_removed = |item: &&str| {
        let path = serde_json::from_str::<String>(item);
        path.is_ok_and(|path| paths.iter().any(|removed| removed == Path::new(&path)))
    };
    let items = json_text::list_items(&text, &["linux", list_name]);
    let kept_items: Vec<&str> = items.into_iter().filter(|item| !is_removed(item)).collect();
    let new_list = format!("[{}]", kept_items.join(","));
    match json_text::find_value(&text, &["linux"]) {
        Some(linux) => json_text::set_member(&text, linux, list_name, &new_list),
        None => text,
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
