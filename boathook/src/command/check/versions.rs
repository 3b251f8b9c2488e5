//! Checks that the package, the installation and the running programs have the same version.

use std::fs;
use std::path::Path;

use device_class::config::InstalledDirectories;
use host_files::rooted_path::read_own_text;
use runtime_config::{PACKAGED_VERSION_PATH, compare_versions, find_running_programs};

use crate::command::finding::{Finding, Severity};

/// The maximum size in bytes of the file that contains the package's version.
const MAX_VERSION_BYTES: u64 = 64;

/// Returns a finding for each version that differs from the installed version: the version of the
/// distribution's package, or that of a running program. Returns no finding if Boathook is not
/// installed.
pub(super) fn check_versions(host_root: &Path, directories: &InstalledDirectories) -> Vec<Finding> {
    let absolute_path = directories.current_link_path();
    let relative_path = absolute_path.strip_prefix("/").unwrap_or(&absolute_path);
    let link_path = host_root.join(relative_path);
    let Ok(installed_link) = fs::read_link(link_path) else {
        return Vec::new();
    };
    let version_path = host_root.join(PACKAGED_VERSION_PATH.trim_start_matches('/'));
    let package_version = read_own_text(&version_path, MAX_VERSION_BYTES).ok();
    let running_programs =
        find_running_programs(&host_root.join("proc"), &directories.programs_dir);
    let differences = compare_versions(
        &directories.programs_dir,
        &installed_link.to_string_lossy(),
        package_version.as_deref().map(str::trim_end),
        &running_programs,
    );
    differences
        .into_iter()
        .map(|difference| {
            Finding::new(Severity::Warning, "version", difference.text).with_fix(difference.fix)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_package_that_engines_do_not_call_is_reported() {
        let host = tempfile::tempdir().unwrap();
        let package = host.path().join("usr/lib/boathook");
        fs::create_dir_all(&package).unwrap();
        let texts = || -> Vec<String> {
            let findings = check_versions(host.path(), &InstalledDirectories::default());
            findings.into_iter().map(|finding| finding.text).collect()
        };
        for (installed, packaged, expected) in [
            (None, "0.2.0\n", vec![]),
            (Some("0.2.0"), "0.2.0\n", vec![]),
            (
                Some("0.2.0"),
                "0.3.0\n",
                vec!["the package has boathook 0.3.0, but engines call 0.2.0"],
            ),
        ] {
            let link = host.path().join("opt/boathook/current");
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            if let (Some(installed), false) = (installed, link.is_symlink()) {
                symlink(installed, &link).unwrap();
            }
            fs::write(package.join("version"), packaged).unwrap();
            assert_eq!(texts(), expected, "{installed:?} {packaged}");
        }
    }
}
