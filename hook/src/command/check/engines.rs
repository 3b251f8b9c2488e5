//! Which engines and runtimes the host has.

use std::path::Path;

use super::{Finding, Verdict};
use crate::wrapper::PROGRAM_DIRECTORIES;

const PROGRAMS: [&str; 9] = [
    "containerd",
    "crio",
    "dockerd",
    "podman",
    "k3s",
    "rke2",
    "runc",
    "crun",
    "youki",
];

pub(super) fn check(host_root: &Path) -> Vec<Finding> {
    let found: Vec<Finding> = PROGRAMS
        .iter()
        .filter_map(|program| {
            let paths = PROGRAM_DIRECTORIES
                .iter()
                .map(|dir| host_root.join(dir.trim_start_matches('/')).join(program));
            let path = paths.into_iter().find(|path| path.is_file())?;
            let text = path.display().to_string();
            Some(Finding::new(Verdict::Ok, format!("engine {program}"), text))
        })
        .collect();
    if found.is_empty() {
        let text = "none found in the usual directories; nobody will call the hook";
        return vec![Finding::new(Verdict::Warning, "engines", text)];
    }
    found
}
