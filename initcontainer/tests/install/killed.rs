//! Installations that are killed with SIGKILL after each step, and at random times.
//!
//! At any time each file has its old or its new text, the link leads to a complete version, and an
//! engine that refers to the hook finds the hook. A second run then completes the installation, and
//! a removal restores the host.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use initcontainer::host::Host;
use initcontainer::payload::PROGRAM_NAMES;
use initcontainer::step::{self, Step};
use initcontainer::uninstall;
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::stat::{Mode, umask};
use nix::unistd::Pid;
use runtime_config::Engine;

use crate::site::{Site, fixture, payload, write};
use crate::tree;

/// The variable with the child's orders: the release, the host, the version, the engine, and the
/// number of the step after which the child kills itself.
const CHILD: &str = "INSTALL_TEST_CHILD";

/// Engines with one file, with two files and a directory, and with an edit of the user's file.
const CASES: [(&str, Engine); 4] = [
    ("containerd/1.7-kubeadm", Engine::Containerd),
    ("containerd/2.0-no-imports", Engine::Containerd),
    ("crio/1.36-package", Engine::Crio),
    ("docker/20.10-nvidia-runtime", Engine::Docker),
];

/// This is no test of its own, but the code of the child process of [`killed_at`].
#[test]
fn child() {
    let Ok(orders) = std::env::var(CHILD) else {
        return;
    };
    let orders: Vec<&str> = orders.split('\n').collect();
    let [release, root, version, engine, last] = orders[..] else {
        panic!("{orders:?}");
    };
    let (host, last) = (Host::open(root).unwrap(), last.parse::<usize>());
    let last = last.unwrap();
    let steps = steps(&host, release, version, engine.parse().unwrap());
    // The modes of files must not depend on the umask.
    umask(Mode::empty());
    let mut done = 0;
    step::execute_steps(&host, &steps, |_| {
        done += 1;
        if done == last {
            raise(Signal::SIGKILL).unwrap();
        }
        Ok(())
    })
    .unwrap();
}

fn steps(host: &Host, release: &str, version: &str, engine: Engine) -> Vec<Step> {
    if version == "none" {
        return uninstall::plan(host, &[], false).unwrap().steps;
    }
    let payload = payload(version, release.as_ref());
    crate::site::plan(host, &payload, &[engine]).unwrap().steps
}

/// Installs `version`, or uninstalls if it is "none", in a child process that kills itself after
/// the step `last`. Returns whether the child was killed.
fn killed_at(site: &Site, version: &str, engine: Engine, last: usize) -> bool {
    let (release, root) = (site.release(), site.root());
    let (release, root) = (release.display(), root.display());
    let orders = format!("{release}\n{root}\n{version}\n{engine}\n{last}");
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "killed::child"]).env(CHILD, orders);
    let status = child.output().unwrap().status;
    assert!(status.success() || status.signal() == Some(9), "{status}");
    !status.success()
}

/// Checks that the host works: a file that refers to the hook leads to a complete version.
fn assert_whole(site: &Site, engine: Engine) {
    let files = tree::snapshot(site.root());
    for path in files.keys() {
        let meta = site.path(path).symlink_metadata().unwrap();
        let is_shared = meta.mode() & 0o022 != 0 && !meta.is_symlink();
        assert!(!is_shared, "{} is {:o}", path.display(), meta.mode());
    }
    let refers = |name: &str| {
        let text = fs::read_to_string(site.path(name)).unwrap_or_default();
        text.contains("/opt/boathook/current/")
    };
    let record = format!("opt/boathook/state/{engine}.json");
    let configured = files.keys().any(|path| {
        let name = path.to_str().unwrap();
        // Boathook's own configuration and its scratch file do not belong to an engine.
        name.starts_with("etc/") && !name.starts_with("etc/boathook/") && refers(name)
    });
    if configured {
        assert!(site.path(&record).exists());
        for name in PROGRAM_NAMES {
            let program = fs::read(site.path("opt/boathook/current/bin").join(name));
            let released = fs::read(site.release().join("bin").join(name));
            assert_eq!(program.unwrap(), released.unwrap());
        }
    }
}

/// Makes a host on which manual pages are linked, and a release with a manual page. With Docker,
/// the release also has the names of a toolkit.
fn with_pages(name: &str) -> Site {
    let site = Site::new(&fixture(name));
    site.make_dirs(&["usr/local/share", "etc/systemd/system"]);
    let page = site.release().join("share/man/man1/boathook.1");
    write(&page, "a page");
    if name.starts_with("docker/") {
        site.add_toolkit();
    }
    site
}

/// Checks that the host is as it was before the installation.
fn assert_undone(site: &Site, before: &BTreeMap<PathBuf, String>, case: &str) {
    assert_eq!(tree::snapshot(site.root()), *before, "{case}");
}

#[test]
fn an_installation_killed_after_any_step_goes_on_or_back() {
    for (name, engine) in CASES {
        let reference = with_pages(name);
        reference.install("0.1.0", &[engine]);
        let installed = tree::files(reference.root());
        for last in 1.. {
            let site = with_pages(name);
            let before = tree::snapshot(site.root());
            if !killed_at(&site, "0.1.0", engine, last) {
                assert!(last > 6, "{name}: only {last} steps");
                break;
            }
            assert_whole(&site, engine);
            site.install("0.1.0", &[engine]);
            let case = format!("{name}: step {last}");
            assert_eq!(tree::files(site.root()), installed, "{case}");
            site.uninstall();
            assert_undone(&site, &before, &case);

            let site = with_pages(name);
            killed_at(&site, "0.1.0", engine, last);
            site.uninstall();
            assert_undone(&site, &before, &case);
        }
    }
}

#[test]
fn an_upgrade_killed_after_any_step_is_the_old_version_or_the_new() {
    let (name, engine) = CASES[1];
    for last in 1.. {
        let site = with_pages(name);
        let before = tree::snapshot(site.root());
        site.install("0.1.0", &[engine]);
        if !killed_at(&site, "0.2.0", engine, last) {
            assert!(last > 2, "only {last} steps");
            break;
        }
        assert_whole(&site, engine);
        let current = fs::read_link(site.path("opt/boathook/current")).unwrap();
        assert!(["0.1.0", "0.2.0"].contains(&current.to_str().unwrap()));
        site.uninstall();
        assert_eq!(tree::snapshot(site.root()), before, "back from step {last}");
    }
}

#[test]
fn a_removal_killed_after_any_step_can_be_finished() {
    for (name, engine) in CASES {
        for last in 1.. {
            let site = with_pages(name);
            let before = tree::snapshot(site.root());
            site.install("0.1.0", &[engine]);
            if !killed_at(&site, "none", engine, last) {
                assert!(last > 3, "{name}: only {last} steps");
                break;
            }
            assert_whole(&site, engine);
            site.uninstall();
            assert_undone(&site, &before, &format!("{name}: step {last}"));
        }
    }
}

#[test]
fn the_program_killed_at_any_time_leaves_a_host_that_can_be_undone() {
    let mut killed = 0;
    for tick in 0..40 {
        let site = with_pages("crio/1.36-package");
        site.set_programs(&vec![7; 1 << 20]);
        let before = tree::snapshot(site.root());
        let mut command = site.command(&["install", "--engine", "crio"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(500 * tick));
        let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
        killed += i32::from(child.wait().unwrap().signal() == Some(9));
        assert_whole(&site, Engine::Crio);
        assert!(site.run(&["uninstall"]).status.success());
        assert_undone(&site, &before, &format!("after {} us", 500 * tick));
    }
    assert!(killed > 0, "the program was never killed in time");
}

#[test]
fn a_half_written_configuration_is_removed_too() {
    let (name, engine) = CASES[1];
    let site = with_pages(name);
    let before = tree::snapshot(site.root());
    site.install("0.1.0", &[engine]);
    site.write("etc/boathook/.config.toml.boathook-new", "# The confi");
    site.uninstall();
    assert_eq!(tree::snapshot(site.root()), before);
}
