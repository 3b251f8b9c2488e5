//! Checks that the class index of the installation is up to date with its class files.

use std::path::{Path, PathBuf};

use device_class::config::InstalledDirectories;
use device_class::load::{CLASS_INDEX_NAME, list_unindexed_classes};

use crate::command::finding::{Finding, Severity};

/// The maximum number of class names in the finding.
const MAX_SHOWN_NAMES: usize = 4;

/// Returns a finding if the class index lacks the present content of a class file. The hook then
/// reads this class file at each start of a container. Returns no finding if Boathook is not
/// installed.
pub(super) fn check_class_index(
    host_root: &Path,
    directories: &InstalledDirectories,
) -> Option<Finding> {
    let [installed_classes_dir, ..] = directories.class_dirs();
    let dir = to_host_path(host_root, &installed_classes_dir);
    let class_names = list_unindexed_classes(&dir).ok()?;
    if class_names.is_empty() {
        return None;
    }
    let (severity, text) = if dir.join(CLASS_INDEX_NAME).symlink_metadata().is_err() {
        let text = "missing; each start of a container reads all class files";
        (Severity::Note, text.to_owned())
    } else {
        let (shown_names, omitted_names) =
            class_names.split_at(class_names.len().min(MAX_SHOWN_NAMES));
        let shown_names: Vec<&str> = shown_names.iter().map(|name| name.as_str()).collect();
        let omitted_note = match omitted_names.len() {
            0 => String::new(),
            omitted_count => format!(" and {omitted_count} more"),
        };
        let text = format!(
            "out of date for {}{omitted_note}; each start of a container reads these class files",
            shown_names.join(", ")
        );
        (Severity::Warning, text)
    };
    let finding = Finding::new(severity, "class index", text);
    Some(finding.with_fix(format!(
        "move your changes to {}, where an installation does not overwrite them, and run \
         `boathook-init install`, which restores the shipped class files and their index",
        directories.admin_classes_dir().display()
    )))
}

fn to_host_path(host_root: &Path, path: &Path) -> PathBuf {
    host_root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use device_class::load::{ClassFile, build_index};
    use nix::sys::stat::stat;

    use super::*;

    #[test]
    fn an_index_of_other_class_files_is_reported() {
        let host = tempfile::tempdir().unwrap();
        let dir = host.path().join("opt/boathook/current/classes.d");
        let check = || {
            let finding = check_class_index(host.path(), &InstalledDirectories::default())?;
            Some((finding.severity, finding.text))
        };
        assert_eq!(check(), None, "not installed");

        fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        };
        let text = "version = 1\nresource = \"example.com/card\"\nrequest.env = \"CARDS\"\n\
                    discover = [{ path = \"/dev/card{index:number}\" }]\n\
                    device = { id = \"card-{index}\", nodes = [\"/dev/card{index}\"] }\n";
        write("card.toml", text);
        let (severity, absent) = check().unwrap();
        assert_eq!(severity, Severity::Note);
        assert!(absent.starts_with("missing"), "{absent}");

        let file = ClassFile {
            name: "card.toml".into(),
            text: text.into(),
            stat: stat(&dir.join("card.toml")).unwrap(),
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
        write(CLASS_INDEX_NAME, &build_index(&[file]));
        assert_eq!(check(), None, "the index is current");

        write("card.toml", &text.replace("CARDS", "CARDZ"));
        let (severity, outdated) = check().unwrap();
        assert_eq!(severity, Severity::Warning);
        assert!(outdated.contains("out of date for card;"), "{outdated}");
    }
}
