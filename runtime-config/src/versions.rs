//! Compares the versions of Boathook on a host: the version of the distribution's package, the
//! installed version that engines call, and the versions of running programs.

use std::fs;
use std::path::{Path, PathBuf};

/// The path of a file of the distribution's package. It contains the version of the package.
pub const PACKAGED_VERSION_PATH: &str = "/usr/lib/boathook/version";

/// The directory with the programs of the distribution's package.
const PACKAGED_PROGRAMS_DIR: &str = "/usr/lib/boathook";
/// The text that the kernel appends to the path of an executable that was removed.
const REMOVED_SUFFIX: &str = " (deleted)";

/// A process of the host that runs one of Boathook's programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningProgram {
    pub pid: u32,
    /// The path of the executable, as the link `exe` in /proc shows it.
    pub path: PathBuf,
}

/// A difference from the version that engines call: the package has another version, or a process
/// runs an earlier program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionMismatch {
    /// Describes the program and its version, for messages.
    pub text: String,
    /// The command or action with which an administrator gets the right version.
    pub fix: &'static str,
}

/// Finds the processes that run Boathook's programs from the host's file system, and not from an
/// image. `proc_dir` is the host's /proc. `programs_dir` is the directory of the installed
/// versions.
pub fn find_running_programs(proc_dir: &Path, programs_dir: &Path) -> Vec<RunningProgram> {
    let processes = fs::read_dir(proc_dir).into_iter().flatten().flatten();
    processes
        .filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let path = fs::read_link(process.path().join("exe")).ok()?;
            let is_boathook_program =
                path.starts_with(programs_dir) || path.starts_with(PACKAGED_PROGRAMS_DIR);
            is_boathook_program.then_some(RunningProgram { pid, path })
        })
        .collect()
}

/// Compares the version that engines call with the version of the package and with the running
/// programs. Returns the differences. The version that engines call is `installed_version`, a
/// directory in `programs_dir`.
pub fn compare_versions(
    programs_dir: &Path,
    installed_version: &str,
    package_version: Option<&str>,
    running_programs: &[RunningProgram],
) -> Vec<VersionMismatch> {
    let mut mismatches = Vec::new();
    if let Some(version) = package_version.filter(|version| *version != installed_version) {
        mismatches.push(VersionMismatch {
            text: format!(
                "the package has boathook {version}, but engines call {installed_version}"
            ),
            fix: "run boathook-init upgrade",
        });
    }
    for RunningProgram { pid, path } in running_programs {
        let path_in_dir = path.strip_prefix(programs_dir).ok();
        let is_installed = path_in_dir.is_none_or(|path| path.starts_with(installed_version));
        let path = path.to_string_lossy();
        if !is_installed || path.ends_with(REMOVED_SUFFIX) {
            let path = path.trim_end_matches(REMOVED_SUFFIX);
            mismatches.push(VersionMismatch {
                text: format!("process {pid} runs an earlier {path}"),
                fix: "restart its service",
            });
        }
    }
    mismatches
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_package_and_running_programs_are_compared_with_the_installed_version() {
        let package = "the package has boathook 0.2.0, but engines call 0.1.0";
        let process = "process 7 runs an earlier ";
        for (installed, packaged, running, expected) in [
            ("0.1.0", None, None, vec![]),
            ("0.1.0", Some("0.1.0"), None, vec![]),
            ("0.1.0", Some("0.2.0"), None, vec![package.to_owned()]),
            (
                "0.1.0",
                None,
                Some("/opt/boathook/0.1.0/bin/boathook"),
                vec![],
            ),
            (
                "0.1.0",
                None,
                Some("/usr/lib/boathook/bin/boathook"),
                vec![],
            ),
            (
                "0.1.0",
                None,
                Some("/opt/boathook/0.1.0-2/bin/boathook"),
                vec![format!("{process}/opt/boathook/0.1.0-2/bin/boathook")],
            ),
            (
                "0.2.0",
                None,
                Some("/opt/boathook/0.1.0/bin/boathook"),
                vec![format!("{process}/opt/boathook/0.1.0/bin/boathook")],
            ),
            (
                "0.1.0",
                None,
                Some("/opt/boathook/0.1.0/bin/boathook (deleted)"),
                vec![format!("{process}/opt/boathook/0.1.0/bin/boathook")],
            ),
            (
                "0.1.0",
                None,
                Some("/usr/lib/boathook/bin/boathook (deleted)"),
                vec![format!("{process}/usr/lib/boathook/bin/boathook")],
            ),
        ] {
            let running: Vec<_> = running
                .map(|path| RunningProgram {
                    pid: 7,
                    path: path.into(),
                })
                .into_iter()
                .collect();
            let found = compare_versions(Path::new("/opt/boathook"), installed, packaged, &running);
            let texts: Vec<_> = found.into_iter().map(|other| other.text).collect();
            assert_eq!(texts, expected, "{installed} {packaged:?} {running:?}");
        }
    }

    #[test]
    fn running_programs_are_found_by_their_executables() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, program) in [
            ("12", "/opt/boathook/0.1.0/bin/boathook"),
            ("13", "/usr/bin/bash"),
            // The program is in the image of a container.
            ("14", "/boathook/bin/boathook-plugin"),
            ("self", "/opt/boathook/0.1.0/bin/boathook"),
        ] {
            let process = proc.path().join(pid);
            fs::create_dir(&process).unwrap();
            symlink(program, process.join("exe")).unwrap();
        }
        let expected = RunningProgram {
            pid: 12,
            path: "/opt/boathook/0.1.0/bin/boathook".into(),
        };
        let found = find_running_programs(proc.path(), Path::new("/opt/boathook"));
        assert_eq!(found, [expected]);
    }
}
