//! Warns about services of vendors that write CDI specifications with the same device names as
//! `boathook cdi generate`. Engines reject a device name that two files define. Pods are not
//! affected, because the plugin's specifications have other CDI kinds.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use device_class::config::Config;
use device_class::load::read_each_source;
use injection_plan::cdi::{SPEC_FILE_PREFIX, SpecificationOwner};

use super::delivery::CDI_SPEC_DIRS;
use crate::command::finding::{Finding, Severity};
use crate::command::launcher::is_cluster_node;

/// The directories in which systemd searches for unit files, in search order (systemd.unit(5)).
const UNIT_DIRECTORIES: [&str; 4] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// The path of the symbolic link that systemd creates when boathook-cdi.service is enabled.
const ENABLED_UNIT_LINK_PATH: &str =
    "etc/systemd/system/multi-user.target.wants/boathook-cdi.service";

/// Returns a finding if a vendor's service that writes CDI specifications is installed on this
/// host. It is a warning if `boathook cdi generate` writes specifications as well, and a note
/// otherwise.
pub(super) fn check_cdi_services(config: &Config) -> Option<Finding> {
    let host_root = &config.host_root;
    let sources = read_each_source(&config.classes).into_iter().flatten();
    let classes = sources.filter_map(|source| source.ok()?.parse().ok());
    let services: BTreeSet<String> = classes
        .filter_map(|class| class.spec.compatibility)
        .flat_map(|table| table.cdi_services)
        .map(String::from)
        .filter(|unit| is_unit_installed(host_root, unit))
        .collect();
    if services.is_empty() {
        return None;
    }
    let services = Vec::from_iter(services).join(" ");
    let pods_note = if is_cluster_node(config) {
        "; pods are not concerned"
    } else {
        ""
    };
    let removal_advice =
        format!("run `systemctl disable --now {services}` and remove its file from /var/run/cdi");
    if !has_generated_specifications(host_root) {
        let text = format!(
            "{services} may write a specification of the vendor, whose names mean the vendor's \
             files and hooks{pods_note}"
        );
        let fix = format!("to have Boathook's devices by these names, {removal_advice}");
        return Some(Finding::new(Severity::Note, "CDI names", text).with_fix(fix));
    }
    let text = format!(
        "{services} may write a specification with the names of Boathook's, and engines refuse a \
         name that two files have{pods_note}"
    );
    let fix = format!(
        "{removal_advice}; or disable boathook-cdi.service and remove /var/run/cdi/{SPEC_FILE_PREFIX}*"
    );
    Some(Finding::new(Severity::Warning, "CDI names", text).with_fix(fix))
}

/// Returns whether systemd has a file for the unit `unit` and the unit is not masked. If a unit is
/// masked, its file is a symbolic link to /dev/null.
fn is_unit_installed(host_root: &Path, unit: &str) -> bool {
    let mut paths = UNIT_DIRECTORIES
        .iter()
        .map(|directory| host_root.join(directory).join(unit));
    let unit_file = paths.find(|path| path.symlink_metadata().is_ok());
    unit_file.is_some_and(|path| {
        fs::read_link(path).map_or(true, |target| target != Path::new("/dev/null"))
    })
}

/// Returns whether `boathook cdi generate` has written specifications on this host, or will write
/// them at the next boot.
fn has_generated_specifications(host_root: &Path) -> bool {
    let directory_readers = CDI_SPEC_DIRS
        .iter()
        .filter_map(|directory| fs::read_dir(host_root.join(directory)).ok());
    let mut file_names = directory_readers
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    host_root
        .join(ENABLED_UNIT_LINK_PATH)
        .symlink_metadata()
        .is_ok()
        || file_names.any(|name| {
            name.starts_with(SPEC_FILE_PREFIX) && SpecificationOwner::User.owns_file(&name)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_reported_where_people_use_names() {
        let host = tempfile::tempdir().unwrap();
        let root = host.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "classes/a.toml",
            "version = 1\nresource = \"a.com/b\"\nrequest = { env = \"A\" }\n\
             discover = [{ count = 1 }]\ndevice = { id = \"b\" }\n\
             [compatibility]\nname = \"a\"\ncdi_services = [\"a-refresh.path\"]\n",
        );
        let classes = root.join("classes");
        let text = format!("host_root = {root:?}\nclasses = [{classes:?}]\n");
        let config = Config::parse(Path::new("config.toml"), &text).unwrap();
        let severity = || check_cdi_services(&config).map(|finding| finding.severity);
        assert_eq!(severity(), None);
        write("usr/lib/systemd/system/a-refresh.path", "");
        assert_eq!(severity(), Some(Severity::Note));
        // The plugin's specification is for pods only.
        write("run/cdi/boathook-a.com.pods.boathook.dev-b.json", "");
        assert_eq!(severity(), Some(Severity::Note));
        write("run/cdi/boathook-a.com-b.json", "");
        assert_eq!(severity(), Some(Severity::Warning));
        let text = check_cdi_services(&config).unwrap().text;
        assert!(text.starts_with("a-refresh.path may write "), "{text}");
        fs::create_dir_all(root.join(UNIT_DIRECTORIES[0])).unwrap();
        let mask = root.join(UNIT_DIRECTORIES[0]).join("a-refresh.path");
        std::os::unix::fs::symlink("/dev/null", mask).unwrap();
        assert_eq!(severity(), None);
    }
}
