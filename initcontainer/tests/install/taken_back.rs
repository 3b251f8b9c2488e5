//! Steps of which one fails: those before it are taken back.

use std::fs;

use initcontainer::step::{self, Step};
use runtime_config::{Change, Engine, HostRoot};

use crate::site::options;
use crate::tree;

fn host_with(path: &str, text: &str) -> (tempfile::TempDir, HostRoot) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
    let host = HostRoot::open(dir.path()).unwrap();
    (dir, host)
}

fn failure(host: &HostRoot, changes: impl IntoIterator<Item = Change>) -> String {
    let steps: Vec<Step> = changes.into_iter().map(Step::Change).collect();
    let error = step::run(host, &steps, |_| Ok(())).unwrap_err();
    error.to_string()
}

/// Somebody else writes a file after the plan was made.
#[test]
fn a_failure_halfway_takes_back_what_came_before() {
    let (file, text) = ("etc/containerd/config.toml", "version = 3\n");
    let (dir, host) = host_with(file, text);
    let now = Engine::Containerd.read(&host, None).unwrap();
    let plan = Engine::Containerd.plan_install(&now, None, &options());
    let plan = plan.unwrap();
    assert!(plan.changes.len() >= 3, "{plan}");
    fs::write(dir.path().join(file), format!("{text}\n")).unwrap();
    let before = tree::snapshot(dir.path());
    let said = failure(&host, plan.changes);
    assert!(said.contains("changed after the plan was made"), "{said}");
    assert_eq!(tree::snapshot(dir.path()), before);
}

#[test]
fn a_directory_created_by_others_during_the_installation_is_not_recorded() {
    let (dir, host) = host_with("etc/docker/daemon.json", "{}");
    let theirs = Change::MakeDir {
        path: "/etc/docker".into(),
    };
    let file = Change::Write {
        path: "/etc/other".into(),
        before: None,
        after: "ours".into(),
        mode: 0o644,
    };
    let said = failure(&host, [file, theirs]);
    assert!(said.contains("/etc/docker"), "{said}");
    assert!(!dir.path().join("etc/other").exists());
    assert!(dir.path().join("etc/docker").is_dir());
}

#[test]
fn a_directory_in_use_does_not_keep_a_removal_from_being_taken_back() {
    let (dir, host) = host_with("etc/docker/daemon.json", "{}");
    fs::write(dir.path().join("etc/ours"), "ours").unwrap();
    let file = Change::Remove {
        path: "/etc/ours".into(),
        before: "ours".into(),
        mode: 0o644,
    };
    let in_use = Change::RemoveDir {
        path: "/etc/docker".into(),
    };
    let fails = Change::MakeDir {
        path: "/etc/docker".into(),
    };
    let said = failure(&host, [file, in_use, fails]);
    assert!(!said.contains("undoing"), "{said}");
    let ours = fs::read_to_string(dir.path().join("etc/ours")).unwrap();
    assert_eq!(ours, "ours");
}
