//! Makes the container's programs load the injected libraries even if `LD_LIBRARY_PATH` is set. The
//! dynamic loader searches the directories in this variable first, and would load the image's
//! library from there. So the hook mounts the injected libraries over files of the same names in
//! these directories.

use std::path::{Path, PathBuf};

use device_class::name::excerpt;

use super::{Action, InjectionPlan};

/// The environment variable that names additional library directories for the dynamic loader
/// (ld.so(8); musl reads it as well).
pub const LIBRARY_PATH_ENV: &str = "LD_LIBRARY_PATH";

/// The maximum number of directories of `LD_LIBRARY_PATH` in which libraries are mounted over
/// files. Usual values have about five directories.
const MAX_DIRECTORIES: usize = 16;

impl InjectionPlan {
    /// Adds the directories of the container's `LD_LIBRARY_PATH` to the plan's step for the dynamic
    /// loader. Then the hook mounts injected libraries over files with the same names in these
    /// directories. An entry that is not an absolute path causes a warning, because the loader may
    /// find another library there.
    pub fn add_library_path_dirs(&mut self, ld_library_path: &str) {
        let loader_step = self
            .steps
            .iter_mut()
            .find_map(|step| match &mut step.action {
                Action::Loader {
                    library_path_dirs,
                    directories,
                    ..
                } => Some((library_path_dirs, directories)),
                _ => None,
            });
        let Some((library_path_dirs, library_directories)) = loader_step else {
            return;
        };
        let (mut non_absolute_entries, mut omitted_count) = (Vec::new(), 0);
        // glibc separates the entries at colons and semicolons.
        for entry in ld_library_path.split([':', ';']) {
            let directory = Path::new(entry);
            if entry.is_empty() {
                // An empty entry means the working directory. Such an entry is usually a mistake,
                // as in `PATH:$VARIABLE` with an unset variable, so it causes no warning.
                continue;
            }
            if !directory.is_absolute() || entry.contains('$') {
                non_absolute_entries.push(excerpt(entry));
                continue;
            }
            let is_same_path = |other: &PathBuf| other == directory;
            if library_path_dirs.iter().any(is_same_path)
                || library_directories.iter().any(is_same_path)
            {
                continue;
            }
            if library_path_dirs.len() == MAX_DIRECTORIES {
                omitted_count += 1;
                continue;
            }
            library_path_dirs.push(directory.to_owned());
        }
        if !non_absolute_entries.is_empty() {
            self.warnings.push(format!(
                "{LIBRARY_PATH_ENV} has {}: programs search there first, and may load another library \
                 than the host's if there is one of the same name; write absolute paths",
                non_absolute_entries.join(", ")
            ));
        }
        if omitted_count > 0 {
            self.warnings.push(format!(
                "{LIBRARY_PATH_ENV} has {omitted_count} more than {MAX_DIRECTORIES} directories: libraries \
                 in the last ones are not covered by those of the host"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::InjectionStep;

    /// Returns the directories that are added for a value, and the warnings.
    fn collect_library_dirs(value: &str) -> (Vec<PathBuf>, Vec<String>) {
        let action = Action::Loader {
            directories: vec!["/usr/lib/boathook/lib".into()],
            libraries: Vec::new(),
            image_libraries: Vec::new(),
            library_path_dirs: Vec::new(),
            directory_32bit: None,
            libraries_32bit: Vec::new(),
        };
        let mut plan = InjectionPlan {
            steps: vec![InjectionStep {
                action,
                owner_labels: "libraries".into(),
                owners: Vec::new(),
            }],
            ..InjectionPlan::default()
        };
        plan.add_library_path_dirs(value);
        match plan.steps.remove(0).action {
            Action::Loader {
                library_path_dirs, ..
            } => (library_path_dirs, plan.warnings),
            _ => (Vec::new(), plan.warnings),
        }
    }

    #[test]
    fn absolute_directories_are_covered_and_others_warned_of() {
        for (value, directories, unclear) in [
            ("", vec![], None),
            ("/usr/lib64", vec!["/usr/lib64"], None),
            ("/a:/b;/a:", vec!["/a", "/b"], None),
            ("/usr/lib/boathook/lib:/b", vec!["/b"], None),
            (".:/b", vec!["/b"], Some(".: ")),
            ("lib:$ORIGIN/../lib", vec![], Some("lib, $ORIGIN/../lib: ")),
        ] {
            let (found, warnings) = collect_library_dirs(value);
            let expected: Vec<&Path> = directories.into_iter().map(Path::new).collect();
            assert_eq!(found, expected, "{value}");
            assert_eq!(warnings.len(), usize::from(unclear.is_some()), "{value}");
            let has = |text: &str| warnings.iter().any(|warning| warning.contains(text));
            assert!(unclear.is_none_or(has), "{value}: {warnings:?}");
        }
    }

    #[test]
    fn the_number_of_directories_is_bounded() {
        let value: Vec<String> = (0..20).map(|number| format!("/{number}")).collect();
        let (found, warnings) = collect_library_dirs(&value.join(":"));
        assert_eq!(found.len(), MAX_DIRECTORIES);
        assert!(warnings[0].contains("4 more than 16"), "{warnings:?}");
    }
}
