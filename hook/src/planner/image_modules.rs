//! Moves injected modules to the directory in which a library of the image searches for them. For
//! example, the image's libgbm searches for its backends in the directory `gbm/` beside itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::host::ProgramAbi;
use injection_plan::plan::{Action, InjectionPlan};

use crate::apply::{IMAGE_LIBRARY_DIRS, find_image_directory};
use crate::container::{Directory, Resolver, RootDir};

/// Changes the paths of the plan's modules from the library directory of the host's distribution to
/// that of the image at `rootfs`. Changes nothing if the root directory cannot be opened or is
/// empty. This means that the image is not mounted there, or only in the namespace of a rootless
/// engine.
pub(super) fn relocate_image_modules(plan: &mut InjectionPlan, rootfs: &Path) {
    let has_modules = plan.steps.iter().any(|step| match &step.action {
        Action::File(mount) => mount.is_image_module,
        _ => false,
    });
    if !has_modules {
        return;
    }
    let Ok(root) = RootDir::open(rootfs, Resolver::Openat2) else {
        return;
    };
    if !has_files(&root) {
        return;
    }
    let open_file = |path: &Path| root.lookup(path).ok().flatten();
    let image_dir = find_image_directory(ProgramAbi::Native, open_file);
    // The host may have the same module in the library directories of two distributions. Both now
    // have the same path in the container, so only the first one is kept.
    let mut module_paths = BTreeSet::new();
    plan.steps.retain_mut(|step| match &mut step.action {
        Action::File(mount) if mount.is_image_module => {
            if let Some(path) = find_module_path(&mount.path, image_dir) {
                mount.path = path;
            }
            module_paths.insert(mount.path.clone())
        }
        _ => true,
    });
}

/// Reports whether the root directory has an entry. It has none if the image is not mounted there.
fn has_files(root: &RootDir) -> bool {
    let directory = root.handle().ok();
    let directory = directory.map(|handle| Directory::new(handle.into_fd(), Path::new("/")));
    directory.is_some_and(|directory| directory.has_entry(1, |_| true).unwrap_or_default())
}

/// Returns the path in the image's library directory for the module with the host path `path`.
/// Returns `None` if `path` does not have the form `LIBRARY_DIR/DIR/FILE`. `LIBRARY_DIR` must be a
/// distribution's directory for native programs: `/usr/lib/i386-linux-gnu`, for 32-bit programs, is
/// not.
fn find_module_path(path: &Path, image_dir: &Path) -> Option<PathBuf> {
    let relative_path = IMAGE_LIBRARY_DIRS
        .iter()
        .find_map(|directory| path.strip_prefix(directory).ok())?;
    (relative_path.components().count() == 2).then(|| image_dir.join(relative_path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use injection_plan::plan::{BindMount, InjectionStep, MountAttributes, SourceKind};

    use super::*;

    const NATIVE: &str = IMAGE_LIBRARY_DIRS[0];

    fn file(path: &str, is_image_module: bool) -> InjectionStep {
        let mount = BindMount {
            source: path.into(),
            path: path.into(),
            source_kinds: &[SourceKind::File],
            recursive: false,
            attributes: MountAttributes::FILE,
            is_optional: true,
            is_image_module,
        };
        InjectionStep {
            action: Action::File(mount),
            owner_labels: String::new(),
            owners: Vec::new(),
        }
    }

    #[test]
    fn a_module_is_where_the_image_has_its_libraries() {
        let native_module = format!("{NATIVE}/gbm/x_gbm.so");
        for (directories, path, is_module, expected) in [
            (
                &["usr/lib"][..],
                &*native_module,
                true,
                "/usr/lib/gbm/x_gbm.so",
            ),
            (
                &["usr/lib64"],
                &native_module,
                true,
                "/usr/lib64/gbm/x_gbm.so",
            ),
            (
                &[&NATIVE[1..], "usr/lib64"],
                "/usr/lib64/gbm/x_gbm.so",
                true,
                &native_module,
            ),
            (&[&NATIVE[1..]], &native_module, true, &native_module),
            (&["etc"], &native_module, true, "/usr/lib/gbm/x_gbm.so"),
            (&[], &native_module, true, &native_module),
            (&["usr/lib64"], &native_module, false, &native_module),
            (
                &["usr/lib64"],
                "/usr/lib/i386-linux-gnu/gbm/x_gbm.so",
                true,
                "/usr/lib/i386-linux-gnu/gbm/x_gbm.so",
            ),
            (
                &["usr/lib64"],
                "/opt/x/gbm/x_gbm.so",
                true,
                "/opt/x/gbm/x_gbm.so",
            ),
        ] {
            let rootfs = tempfile::tempdir().unwrap();
            for directory in directories {
                let directory = rootfs.path().join(directory);
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join("libc.so.6"), "").unwrap();
            }
            let mut plan = InjectionPlan {
                steps: vec![file(path, is_module), file("/etc/other", false)],
                ..InjectionPlan::default()
            };
            relocate_image_modules(&mut plan, rootfs.path());
            let expected_steps = [expected, "/etc/other"];
            let paths = plan.steps.iter().map(|step| match &step.action {
                Action::File(mount) => mount.path.display().to_string(),
                action => panic!("{action:?}"),
            });
            assert!(paths.eq(expected_steps), "{directories:?} {path}: {plan:?}");
        }
    }

    #[test]
    fn modules_of_two_places_on_the_host_are_one_in_the_image() {
        let rootfs = tempfile::tempdir().unwrap();
        let paths = [
            format!("{NATIVE}/gbm/x_gbm.so"),
            "/usr/lib64/gbm/x_gbm.so".to_owned(),
        ];
        let mut plan = InjectionPlan {
            steps: paths.iter().map(|path| file(path, true)).collect(),
            ..InjectionPlan::default()
        };
        relocate_image_modules(&mut plan, &rootfs.path().join("absent"));
        assert_eq!(plan.steps.len(), 2);
        relocate_image_modules(&mut plan, rootfs.path());
        assert_eq!(plan.steps.len(), 2, "{plan:?}");
        fs::create_dir(rootfs.path().join("usr")).unwrap();
        relocate_image_modules(&mut plan, rootfs.path());
        assert_eq!(plan.steps.len(), 1, "{plan:?}");
    }
}
