//! Checks that the package, the installation and the programs that run have one version.

use std::fs;
use std::path::Path;

use rooted_path::read_own_text;
use runtime_config::{PACKAGED_VERSION, compare_versions, find_running_programs};

use crate::command::finding::{Finding, Verdict};

/// The link to the version that engines call.
const INSTALLED: &str = "opt/boathook/current";
/// The maximum size of the file with the package's version, in bytes.
const MAX_VERSION: u64 = 64;

/// Returns a finding for each other version. The list is empty if nothing is installed.
pub(super) fn check(host_root: &Path) -> Vec<Finding> {
    let Ok(installed) = fs::read_link(host_root.join(INSTALLED)) else {
        return Vec::new();
    };
    let packaged = host_root.join(PACKAGED_VERSION.trim_start_matches('/'));
    let packaged = read_own_text(&packaged, MAX_VERSION).ok();
    let running = find_running_programs(&host_root.join("proc"));
    let others = compare_versions(
        &installed.to_string_lossy(),
        packaged.as_deref().map(str::trim_end),
        &running,
    );
    others
        .into_iter()
        .map(|other| Finding::new(Verdict::Warning, "version", other.text).fix(other.fix))
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
            let findings = check(host.path());
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
            let link = host.path().join(INSTALLED);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            if let (Some(installed), false) = (installed, link.is_symlink()) {
                symlink(installed, &link).unwrap();
            }
            fs::write(package.join("version"), packaged).unwrap();
            assert_eq!(texts(), expected, "{installed:?} {packaged}");
        }
    }
}
