//! If a step fails, the steps before it are undone.

use std::fs;
use std::path::PathBuf;

use initcontainer::host::Host;
use initcontainer::step::{self, Step};
use runtime_config::Change;

use crate::tree::host_with;

fn failure(host: &Host, changes: impl IntoIterator<Item = Change>) -> String {
    let steps: Vec<Step> = changes.into_iter().map(Step::Change).collect();
    let error = step::execute_steps(host, &steps, |_| Ok(())).unwrap_err();
    error.to_string()
}

#[test]
fn a_directory_created_by_others_during_the_installation_is_not_recorded() {
    let (dir, _) = host_with("etc/docker/daemon.json", "{}");
    let host = Host::open(dir.path()).unwrap();
    let path = "/etc/docker".into();
    let theirs = Change::MakeDir { path };
    let file = Change::Write {
        path: "/etc/other".into(),
        old_text: None,
        new_text: "ours".into(),
        mode: 0o644,
    };
    let said = failure(&host, [file, theirs]);
    assert!(said.contains("/etc/docker"), "{said}");
    assert!(!dir.path().join("etc/other").exists());
    assert!(dir.path().join("etc/docker").is_dir());
}

#[test]
fn a_directory_in_use_does_not_keep_a_removal_from_being_taken_back() {
    let (dir, _) = host_with("etc/docker/daemon.json", "{}");
    let host = Host::open(dir.path()).unwrap();
    fs::write(dir.path().join("etc/ours"), "ours").unwrap();
    let file = Change::Remove {
        path: "/etc/ours".into(),
        old_text: "ours".into(),
        mode: 0o644,
    };
    let path = PathBuf::from("/etc/docker");
    let in_use = Change::RemoveDir { path: path.clone() };
    let fails = Change::MakeDir { path };
    let said = failure(&host, [file, in_use, fails]);
    assert!(!said.contains("undoing"), "{said}");
    let ours = fs::read_to_string(dir.path().join("etc/ours")).unwrap();
    assert_eq!(ours, "ours");
}
