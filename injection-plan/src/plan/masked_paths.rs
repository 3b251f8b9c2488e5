//! Finds and replaces the masked paths of config.json (OCI runtime specification, "Masked Paths")
//! that would hide files of a plan. The runtime hides these paths after its hooks have run,
//! including the files that a hook has mounted below them.
//!
//! So `boathook-runtime` removes such a path from config.json, and the hook hides it instead: it
//! mounts a tmpfs there, in which only the files and directories of the plan are visible.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::{Path, PathBuf};

use super::{Action, BindMount, InjectionPlan, InjectionStep};

/// The paths of a plan that one masked path of config.json would hide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HiddenPaths {
    /// The devices and classes that need the paths, as text for messages.
    pub owner_labels: BTreeSet<String>,
    pub paths: BTreeSet<PathBuf>,
}

impl InjectionPlan {
    /// Returns all mounts of files and directories. The mounts inside hidden directories
    /// ([`Action::Mask`]) are included.
    pub fn file_mounts_mut(&mut self) -> impl Iterator<Item = &mut BindMount> {
        self.steps.iter_mut().flat_map(|step| {
            let (step_mount, mounts_in_mask) = match &mut step.action {
                Action::File(mount) | Action::Directory(mount) => (Some(mount), None),
                Action::Mask { visible_mounts, .. } => (None, Some(visible_mounts)),
                _ => (None, None),
            };
            step_mount
                .into_iter()
                .chain(mounts_in_mask.into_iter().flatten())
        })
    }

    /// Returns the masked paths, such as `/proc/acpi`, that hide files or directories of this plan.
    /// The value of each lists the hidden paths.
    pub fn find_hidden_paths(&self, masked_paths: &[PathBuf]) -> BTreeMap<PathBuf, HiddenPaths> {
        let mut hidden_paths = BTreeMap::<PathBuf, HiddenPaths>::new();
        for step in &self.steps {
            for path in find_file_paths(&step.action) {
                let masked_paths = masked_paths.iter();
                for masked_path in masked_paths.filter(|masked_path| path.starts_with(masked_path))
                {
                    let entry = hidden_paths.entry(masked_path.clone()).or_default();
                    entry.owner_labels.insert(step.owner_labels.clone());
                    entry.paths.insert(path.to_owned());
                }
            }
        }
        hidden_paths
    }

    /// Removes the steps whose files or directories are at or below a masked path, because the
    /// runtime hides everything there.
    pub fn remove_masked_files(&mut self, masked_paths: &[PathBuf]) {
        let is_masked = |path: &Path| {
            let mut masked_paths = masked_paths.iter();
            masked_paths.any(|masked_path| path.starts_with(masked_path))
        };
        self.steps.retain(|step| match &step.action {
            Action::File(mount) | Action::Directory(mount) => !is_masked(&mount.path),
            Action::Mask { path, .. } => !is_masked(path),
            _ => true,
        });
    }

    /// Returns the read-only paths of config.json (`linux.readonlyPaths`) where this plan mounts a
    /// writable directory. The runtime would make the directory read-only.
    pub fn find_read_only_directories(&self, read_only_paths: &[PathBuf]) -> Vec<PathBuf> {
        let is_writable = |path: &&PathBuf| {
            self.steps.iter().any(|step| match &step.action {
                Action::Directory(mount) => mount.path == **path && !mount.attributes.read_only,
                _ => false,
            })
        };
        read_only_paths
            .iter()
            .filter(is_writable)
            .cloned()
            .collect()
    }

    /// Adds a step that hides a path again, for each of `paths`. They are the masked paths that
    /// `boathook-runtime` has removed from config.json. The step is needed so that the container
    /// sees only the plan's files and directories below it.
    pub fn add_path_masks(&mut self, paths: &[PathBuf]) {
        for path in paths {
            self.add_path_mask(path);
        }
    }

    fn add_path_mask(&mut self, masked_path: &Path) {
        // If the plan mounts the masked path itself, all files below the path must be visible. So
        // the path is not hidden.
        let is_mounted = self.steps.iter().any(|step| match &step.action {
            Action::File(mount) | Action::Directory(mount) => mount.path == masked_path,
            _ => false,
        });
        if is_mounted {
            return;
        }
        let (mut visible_mounts, mut files, mut links) =
            (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let (mut owner_label_set, mut owners) = (BTreeSet::new(), BTreeSet::new());
        for mut step in mem::take(&mut self.steps) {
            match &mut step.action {
                Action::File(mount) | Action::Directory(mount)
                    if mount.path.starts_with(masked_path) =>
                {
                    visible_mounts.push(mount.clone());
                }
                Action::Mask {
                    path,
                    files: mask_files,
                    visible_mounts: mask_mounts,
                    links: mask_links,
                    ..
                } if path.starts_with(masked_path) => {
                    visible_mounts.append(mask_mounts);
                    files.append(mask_files);
                    links.append(mask_links);
                }
                _ => {
                    self.steps.push(step);
                    continue;
                }
            }
            owner_label_set.insert(step.owner_labels);
            owners.extend(step.owners);
        }
        remove_nested_mounts(&mut visible_mounts);
        let action = Action::Mask {
            path: masked_path.to_owned(),
            should_create: false,
            files,
            visible_mounts,
            links,
        };
        let owner_labels = if owner_label_set.is_empty() {
            "config.json".to_owned()
        } else {
            owner_label_set.into_iter().collect::<Vec<_>>().join(", ")
        };
        let is_before_masks =
            |step: &InjectionStep| matches!(step.action, Action::Prepare(_) | Action::Allow { .. });
        let mask_index = self.steps.partition_point(is_before_masks);
        let mask = InjectionStep {
            action,
            owner_labels,
            owners: owners.into_iter().collect(),
        };
        self.steps.insert(mask_index, mask);
    }
}

/// Returns the container paths of the files and directories that an action creates or mounts.
fn find_file_paths(action: &Action) -> Vec<&Path> {
    match action {
        Action::File(mount) | Action::Directory(mount) => vec![&mount.path],
        Action::Mask {
            files,
            visible_mounts,
            links,
            ..
        } => {
            let visible_mounts = visible_mounts.iter().map(|mount| &*mount.path);
            let created_paths = files.keys().chain(links.keys());
            created_paths
                .map(PathBuf::as_path)
                .chain(visible_mounts)
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Removes duplicate mounts, and each mount below a directory that is itself mounted, because the
/// directory's mount already shows the files below it.
fn remove_nested_mounts(mounts: &mut Vec<BindMount>) {
    mounts.sort_by(|a, b| a.path.cmp(&b.path));
    let mut last_path: Option<PathBuf> = None;
    mounts.retain(|mount| {
        let is_nested = matches!(&last_path, Some(last) if mount.path.starts_with(last));
        if !is_nested {
            last_path = Some(mount.path.clone());
        }
        !is_nested
    });
}

#[cfg(test)]
mod tests {
    use device_class::class::FileKind;
    use device_class::discover::FileSource;

    use super::*;
    use crate::plan::StepOwner;

    fn file(path: &str) -> InjectionStep {
        let source = FileSource {
            path: path.into(),
            kind: FileKind::File,
            is_writable: false,
            is_image_module: false,
        };
        step(Action::File(BindMount::file(source, path.into())))
    }

    fn directory(path: &str, writable: bool) -> InjectionStep {
        let mount = BindMount::directory(path.into(), path.into(), writable);
        step(Action::Directory(mount))
    }

    fn mask(path: &str, shown: &str) -> InjectionStep {
        step(Action::Mask {
            path: path.into(),
            should_create: true,
            files: BTreeMap::new(),
            visible_mounts: vec![BindMount::new_visible_file(shown.into(), shown.into())],
            links: BTreeMap::new(),
        })
    }

    fn step(action: Action) -> InjectionStep {
        InjectionStep {
            action,
            owner_labels: "npu".into(),
            owners: vec![StepOwner::Class("npu".parse().unwrap())],
        }
    }

    fn plan(steps: &[InjectionStep]) -> InjectionPlan {
        InjectionPlan {
            steps: steps.to_vec(),
            ..InjectionPlan::default()
        }
    }

    fn steps_text(plan: &InjectionPlan) -> Vec<String> {
        let text = plan.to_string();
        let lines = text.lines().skip(1);
        lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn only_what_is_below_a_masked_path_is_hidden() {
        let plan = plan(&[
            file("/sys/firmware/devicetree/base/model"),
            file("/sys/firmwares/a"),
            directory("/proc/asound", false),
            mask("/proc/driver/chips", "/proc/driver/chips/1"),
        ]);
        for (masked, hidden) in [
            (
                "/sys/firmware",
                &["/sys/firmware/devicetree/base/model"][..],
            ),
            ("/sys/firmware/", &["/sys/firmware/devicetree/base/model"]),
            ("/proc/asound", &["/proc/asound"]),
            ("/proc/driver", &["/proc/driver/chips/1"]),
            ("/proc/driver/chips/0", &[]),
            ("/proc/kcore", &[]),
        ] {
            let found = plan.find_hidden_paths(&[masked.into()]);
            let paths = found.values().flat_map(|steps| &steps.paths);
            let paths: Vec<&str> = paths.filter_map(|path| path.to_str()).collect();
            assert_eq!(paths, hidden, "{masked}");
        }
    }

    #[test]
    fn a_mask_of_the_plan_takes_the_place_of_the_engines() {
        for (steps, masked, wanted) in [
            (
                vec![file("/sys/firmware/a/model"), file("/etc/a.conf")],
                "/sys/firmware",
                &[
                    "mask npu /sys/firmware shows only a/model",
                    "file npu /etc/a.conf (bind,ro,nosuid,nodev)",
                ][..],
            ),
            // The whole directory is visible, so no mask is needed.
            (
                vec![directory("/proc/asound", false)],
                "/proc/asound",
                &["directory npu /proc/asound (rbind,ro,nosuid,nodev)"],
            ),
            // A directory has what is below it.
            (
                vec![file("/proc/a/b/c"), directory("/proc/a/b", false)],
                "/proc/a",
                &["mask npu /proc/a shows only b"],
            ),
            // A mask of the class below the path has only its own contents.
            (
                vec![mask("/proc/a/b", "/proc/a/b/1")],
                "/proc/a",
                &["mask npu /proc/a shows only b/1"],
            ),
            // The class file was changed after boathook-runtime had read it.
            (
                vec![],
                "/sys/firmware",
                &["mask config.json /sys/firmware shows nothing"],
            ),
        ] {
            let mut plan = plan(&steps);
            plan.add_path_masks(&[masked.into()]);
            assert_eq!(steps_text(&plan), wanted, "{masked}");
        }
    }

    #[test]
    fn a_writable_directory_needs_its_own_path_alone() {
        let plan = plan(&[directory("/proc/bus", true), directory("/proc/irq", false)]);
        let read_only = ["/proc/bus", "/proc/irq", "/proc/bus/pci"].map(PathBuf::from);
        assert_eq!(
            plan.find_read_only_directories(&read_only),
            [PathBuf::from("/proc/bus")]
        );
    }
}
