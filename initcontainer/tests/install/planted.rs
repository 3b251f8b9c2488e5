//! At no moment of an installation can another user put a file into a directory from which root
//! runs programs or reads class files.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::binaries;
use runtime_config::Engine;

use crate::site::{Site, complaint};
use crate::tree;

/// The id of a user other than root.
const USER: u32 = 1000;
/// The number of installations that the attacker races against.
const ROUNDS: usize = 60;
/// The variable that tells the child process which host to attack.
const ATTACKED: &str = "INSTALL_TEST_ATTACKED";

/// Every directory that an installation makes, under its temporary and its final name.
const DIRS: [&str; 11] = [
    "opt/.boathook-new-boathook",
    "opt/.boathook-new-boathook/state",
    "opt/boathook",
    "opt/boathook/state",
    "opt/boathook/.boathook-new-0.1.0",
    "opt/boathook/.boathook-new-0.1.0/bin",
    "opt/boathook/.boathook-new-0.1.0/classes.d",
    "opt/boathook/0.1.0/classes.d",
    "etc/boathook",
    "etc/boathook/classes.d",
    "etc/crio/hooks.d",
];

/// This is no test of its own, but the attacker's process in
/// [`another_user_plants_nothing_while_it_runs`].
#[test]
fn attacker() {
    let Ok(root) = std::env::var(ATTACKED) else {
        return;
    };
    let paths = DIRS.map(|dir| Path::new(&root).join(dir).join("planted.toml"));
    loop {
        for path in &paths {
            let _ = fs::write(path, "planted");
        }
    }
}

#[test]
fn another_user_plants_nothing_while_it_runs() {
    if !nix::unistd::geteuid().is_root() {
        skip::report("planted::another_user_plants_nothing", "needs root");
        return;
    }
    let site = Site::new(&crate::site::fixture("crio/1.36-package"));
    fs::create_dir(site.path("opt")).unwrap();
    let above = site.root().parent().unwrap();
    fs::set_permissions(above, Permissions::from_mode(0o755)).unwrap();
    let program = above.join("attacker");
    binaries::copy(&std::env::current_exe().unwrap(), &program).unwrap();
    let mut attacker = Command::new(program)
        .args(["--exact", "planted::attacker"])
        .env(ATTACKED, site.root())
        .uid(USER)
        .gid(USER)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut planted = BTreeSet::new();
    for _ in 0..ROUNDS {
        for arguments in ["install --engine crio", "uninstall"] {
            // The umask 0 gives all users the right to write to new files, unless the installer
            // sets modes itself.
            let mut command = Command::new("sh");
            command.args(["-c", "umask 0; exec \"$@\"", "sh"]);
            let words: Vec<_> = arguments.split(' ').collect();
            let run = site.command(&words);
            command.arg(run.get_program()).args(run.get_args());
            assert!(command.output().unwrap().status.success());
            planted.extend(foreign(site.root()));
        }
    }
    assert!(attacker.try_wait().unwrap().is_none(), "the attacker ended");
    attacker.kill().unwrap();
    attacker.wait().unwrap();
    assert!(planted.is_empty(), "{planted:?}");
}

/// Returns the paths of the files that belong to the attacker.
fn foreign(root: &Path) -> Vec<PathBuf> {
    let is_theirs = |path: &PathBuf| root.join(path).symlink_metadata().unwrap().uid() == USER;
    tree::snapshot(root).into_keys().filter(is_theirs).collect()
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    for dir in [
        "opt",
        "opt/boathook",
        "etc/boathook",
        "etc/boathook/classes.d",
    ] {
        let site = Site::with_containerd();
        site.make_dirs(&[dir]);
        fs::set_permissions(site.path(dir), Permissions::from_mode(0o777)).unwrap();
        let before = tree::snapshot(site.root());
        let message = complaint(&site.run(&["install"]));
        let expected = format!("/{dir}: every user can write to it");
        assert!(message.contains(&expected), "{message}");
        assert_eq!(tree::snapshot(site.root()), before);
    }
}

#[test]
fn files_that_others_could_have_changed_are_installed_again() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    let installed = tree::snapshot(site.root());
    let version = site.path("opt/boathook/0.1.0");
    let program = version.join("bin/boathook");
    let repaired = |what: &str| {
        let plan = site.plan("0.1.0", &[Engine::Containerd]).unwrap();
        assert!(!plan.steps.is_empty(), "{what}");
        site.install("0.1.0", &[Engine::Containerd]);
        assert_eq!(tree::snapshot(site.root()), installed, "{what}");
    };
    fs::set_permissions(&program, Permissions::from_mode(0o777)).unwrap();
    repaired("a program that everyone can write to");
    fs::set_permissions(version.join("classes.d"), Permissions::from_mode(0o777)).unwrap();
    repaired("a directory that everyone can write to");

    let elsewhere = site.path("elsewhere");
    fs::rename(&program, &elsewhere).unwrap();
    std::os::unix::fs::symlink("/elsewhere", &program).unwrap();
    fs::copy(site.release().join("bin/boathook"), &elsewhere).unwrap();
    site.install("0.1.0", &[Engine::Containerd]);
    fs::remove_file(elsewhere).unwrap();
    let now = tree::snapshot(site.root());
    assert_eq!(now, installed, "a link in place of a program");

    fs::write(version.join("classes.d/more.toml"), "").unwrap();
    let message = site.plan("0.1.0", &[]).unwrap_err().to_string();
    for said in ["lacks", "more.toml"] {
        assert!(message.contains(said), "{message}");
    }
}
