//! Checks which program Docker calls for `--gpus`. Docker calls a program of a vendor's container
//! toolkit. `boathook-init install --as` creates links to Boathook with the names of such programs.
//! If the vendor's own program is also installed, Docker calls the first one in its PATH.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use device_class::config::{Config, InstalledDirectories};
use device_class::load::read_each_source;
use runtime_config::program_directories;

use crate::command::finding::{Finding, Severity};

const SUBJECT: &str = "toolkit";

/// Returns a finding for each program that a class names in `[compatibility]`, if a link with this
/// name to Boathook is installed. Invalid class files are ignored, because another check reports
/// them.
pub(super) fn check_toolkits(config: &Config, directories: &InstalledDirectories) -> Vec<Finding> {
    let sources = read_each_source(&config.classes).into_iter().flatten();
    let classes = sources.filter_map(|source| source.ok()?.parse().ok());
    let mut program_names = BTreeSet::<String>::new();
    for compatibility in classes.filter_map(|class| class.spec.compatibility) {
        let programs = compatibility
            .hook_programs
            .into_iter()
            .chain(compatibility.runtime_programs);
        program_names.extend(programs.map(String::from));
    }
    program_names
        .iter()
        .filter_map(|name| check_program(&config.host_root, directories, name))
        .collect()
}

fn check_program(
    host_root: &Path,
    directories: &InstalledDirectories,
    name: &str,
) -> Option<Finding> {
    let to_host_path = |path: &Path| host_root.join(path.strip_prefix("/").unwrap_or(path));
    let paths = program_directories().map(|directory| Path::new(directory).join(name));
    let present_paths = paths.filter(|path| to_host_path(path).symlink_metadata().is_ok());
    let (own_links, foreign_programs): (Vec<PathBuf>, Vec<PathBuf>) =
        present_paths.partition(|path| {
            let link = fs::read_link(to_host_path(path));
            link.is_ok_and(|link| link.parent() == directories.hook_path().parent())
        });
    let own_link = own_links.first()?.display();
    Some(match foreign_programs.first() {
        None => Finding::new(
            Severity::Ok,
            SUBJECT,
            format!("{own_link} leads to boathook"),
        ),
        Some(foreign_program) => {
            let text = format!(
                "{own_link} leads to boathook, but {} does not: docker's --gpus calls the one that \
                 comes first in its PATH",
                foreign_program.display()
            );
            Finding::new(Severity::Warning, SUBJECT, text).with_fix(
                "remove the other toolkit's package, or run `boathook-init install --no-as`",
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_program_beside_ours_is_reported() {
        let host = tempfile::tempdir().unwrap();
        let root = host.path();
        let class = "version = 1\nresource = \"a.com/b\"\nrequest = { env = \"A\" }\n\
            discover = [{ count = 1 }]\ndevice = { id = \"b\" }\n\
            [compatibility]\nname = \"a\"\nhook_programs = [\"a-hook\"]\n";
        for directory in ["usr/local/bin", "usr/bin", "classes"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join("classes/a.toml"), class).unwrap();
        let text = format!(
            "host_root = {root:?}\nclasses = [{:?}]\n",
            root.join("classes")
        );
        let config = Config::parse(Path::new("config.toml"), &text).unwrap();
        let lines = || {
            let findings = check_toolkits(&config, &InstalledDirectories::default());
            let lines = findings
                .iter()
                .map(|finding| format!("{:?}: {}", finding.severity, finding.text));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(lines(), Vec::<String>::new());
        symlink(
            InstalledDirectories::default().hook_path(),
            root.join("usr/local/bin/a-hook"),
        )
        .unwrap();
        assert_eq!(lines(), ["Ok: /usr/local/bin/a-hook leads to boathook"]);
        fs::write(root.join("usr/bin/a-hook"), "").unwrap();
        let warning = "Warning: /usr/local/bin/a-hook leads to boathook, but /usr/bin/a-hook does \
                       not: docker's --gpus calls the one that comes first in its PATH";
        assert_eq!(lines(), [warning]);
        fs::remove_file(root.join("usr/local/bin/a-hook")).unwrap();
        assert_eq!(lines(), Vec::<String>::new());
    }
}
