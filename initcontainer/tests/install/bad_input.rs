//! What is refused: clearly, and with the host left as it was.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use initcontainer::lock::Lock;
use runtime_config::Engine;

use crate::site::{Site, complaint, fixture, said, with_mounts};
use crate::tree;

/// Runs the program, which must fail with a message that holds `expected` and
/// change nothing.
fn assert_refused(site: &Site, arguments: &[&str], expected: &str) {
    let before = tree::snapshot(site.root());
    let message = complaint(&site.run(arguments));
    assert!(message.contains(expected), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_program_for_another_machine() {
    let site = Site::with_containerd();
    let program = site.release().join("bin/boathook-runtime");
    let mut bytes = fs::read(&program).unwrap();
    // e_machine: SPARC V9, which nothing here is built for.
    bytes[18..20].copy_from_slice(&43_u16.to_le_bytes());
    fs::write(&program, bytes).unwrap();
    assert_refused(
        &site,
        &["install"],
        "is a program for machine 43, but this host is",
    );
}

#[test]
fn a_file_that_is_no_program() {
    let site = Site::with_containerd();
    fs::write(
        site.release().join("bin/boathook"),
        "#!/bin/sh\necho not a program\n",
    )
    .unwrap();
    assert_refused(&site, &["install"], "it is no ELF program");
    fs::write(site.release().join("bin/boathook"), "short").unwrap();
    assert_refused(&site, &["install"], "it is too short to be a program");
    fs::remove_file(site.release().join("bin/boathook")).unwrap();
    assert_refused(&site, &["install"], "bin/boathook: No such file");
}

#[test]
fn a_class_file_that_the_hook_would_refuse() {
    let site = Site::with_containerd();
    let class = site.release().join("classes.d/dummy-npu.toml");
    fs::write(&class, "version = 1\nresuorce = \"x.com/y\"\n").unwrap();
    assert_refused(&site, &["install"], "classes.d/dummy-npu.toml:2");
}

#[test]
fn a_second_installer_at_the_same_time() {
    let site = Site::with_containerd();
    let lock = Lock::take(&site.host).unwrap();
    assert_refused(&site, &["install"], "another boathook-init is running");
    drop(lock);
    site.install("0.1.0", &[Engine::Containerd]);
    let _lock = Lock::take(&site.host).unwrap();
    assert_refused(&site, &["uninstall"], "another boathook-init is running");
}

/// A container may not have the engine's directory, or the engine was removed.
#[test]
fn an_engines_file_that_cannot_be_seen() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    fs::rename(site.root().join("etc/containerd"), site.root().join("away")).unwrap();
    assert_refused(
        &site,
        &["uninstall"],
        "the directory of /etc/containerd/config.toml, by which containerd calls boathook, is not there",
    );
    said(&site.run(&["uninstall", "--force"]));
}

/// Every process can lock a directory that it can read.
#[test]
fn a_lock_that_everyone_can_hold_holds_nobody_up() {
    let site = Site::with_containerd();
    let hold = |path: &str| {
        let file = fs::File::open(site.root().join(path)).unwrap();
        file.try_lock().unwrap();
        file
    };
    let _root = hold("");
    assert!(site.run(&["install"]).status.success());
    let _installation = [
        hold("opt"),
        hold("opt/boathook"),
        hold("opt/boathook/state"),
    ];
    assert!(site.run(&["install"]).status.success());
    assert!(site.run(&["uninstall"]).status.success());
}

#[test]
fn the_lock_can_be_opened_by_root_alone_and_leaves_nothing() {
    let site = Site::with_containerd();
    let before = tree::snapshot(site.root());
    let lock = Lock::take(&site.host).unwrap();
    let mode = |path: &str| {
        let metadata = fs::symlink_metadata(site.root().join(path)).unwrap();
        metadata.permissions().mode() & 0o7777
    };
    assert_eq!(
        (mode(".boathook-lock"), mode(".boathook-lock/lock")),
        (0o700, 0o600)
    );
    drop(lock);
    assert_eq!(tree::snapshot(site.root()), before);

    // What a run that was killed has left is used, unless others can open it.
    let left = site.root().join(".boathook-lock");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("lock"), "").unwrap();
    fs::set_permissions(left.join("lock"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_refused(&site, &["install"], "can be opened by others");
    fs::set_permissions(left.join("lock"), fs::Permissions::from_mode(0o600)).unwrap();
    drop(Lock::take(&site.host).unwrap());
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn an_engine_configuration_that_does_not_parse() {
    let site = Site::new(&fixture("containerd/refused-broken"));
    assert_refused(
        &site,
        &["install", "--engine", "containerd"],
        "/etc/containerd/config.toml:2: ",
    );
    let site = Site::new(&fixture("docker/refused-broken"));
    assert_refused(
        &site,
        &["install", "--engine", "docker"],
        "/etc/docker/daemon.json:3: ",
    );
}

#[test]
fn an_engine_configuration_that_changes_in_between() {
    let site = Site::with_containerd();
    let plan = site.plan("0.1.0", &[Engine::Containerd]).unwrap();
    let config = site.root().join("etc/containerd/config.toml");
    fs::write(&config, "version = 2 # edited\n").unwrap();
    let before = tree::snapshot(site.root());
    let error = initcontainer::step::run(&site.host, &plan.steps, |_| Ok(())).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("changed after the plan was made"),
        "{error}"
    );
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_host_without_an_engine() {
    let site = Site::new(Path::new("/nonexistent"));
    let installed = said(&site.run(&["install", "--dry-run"]));
    assert!(
        installed.contains("no engine to configure was found"),
        "{installed}"
    );
}

#[test]
fn a_manifest_that_was_damaged() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    fs::write(site.root().join("opt/boathook/state/install.json"), "{").unwrap();
    assert_refused(
        &site,
        &["install"],
        "/opt/boathook/state/install.json is not valid",
    );
}

#[test]
fn a_half_finished_earlier_installation_is_no_hindrance() {
    let site = Site::with_containerd();
    let before = tree::snapshot(site.root());
    let root = site.root().join("opt/boathook");
    let staged = root.join(".boathook-new-0.1.0/bin");
    fs::create_dir_all(&staged).unwrap();
    fs::write(staged.join("boathook"), "half a prog").unwrap();
    std::os::unix::fs::symlink("0.1.0", root.join(".boathook-new-current")).unwrap();
    site.install("0.1.0", &[Engine::Containerd]);
    let names = site.host.list(Path::new("/opt/boathook")).unwrap();
    assert_eq!(names, ["0.1.0", "current", "state"]);
    assert!(site.root().join("opt/boathook/0.1.0/bin/boathook").exists());
    site.uninstall();
    let mut left = tree::snapshot(site.root());
    // The directory was there before, by whoever's hand.
    left.retain(|path, _| !path.starts_with("opt"));
    assert_eq!(left, before);
}

#[test]
fn a_full_disk_is_as_it_was() {
    let site = Site::with_containerd();
    site.set_programs(&vec![7; 2 << 20]);
    let opt = site.root().join("opt");
    fs::create_dir(&opt).unwrap();
    let before = tree::snapshot(site.root());
    let (program, root) = (env!("CARGO_BIN_EXE_boathook-init"), site.root().display());
    let release = site.release();
    let Some(output) = with_mounts(&format!(
        "mount -t tmpfs -o size=3m,mode=755 none {opt}; \
         {program} --host-root {root} install --source {release} && exit 9; \
         ls -A {opt}; umount {opt}",
        opt = opt.display(),
        release = release.display(),
    )) else {
        return;
    };
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        message.contains("No space left on device") && message.contains("make room"),
        "{message}"
    );
    let left = String::from_utf8_lossy(&output.stdout);
    assert!(!left.lines().any(|line| line == "boathook"), "{left}");
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn an_upgrade_on_a_full_disk_leaves_nothing_behind() {
    let site = Site::with_containerd();
    let opt = site.root().join("opt");
    fs::create_dir(&opt).unwrap();
    let (program, root) = (env!("CARGO_BIN_EXE_boathook-init"), site.root().display());
    let Some(output) = with_mounts(&format!(
        "mount -t tmpfs -o size=3m,mode=755 none {opt}; \
         install='{program} --host-root {root} install --source {release}'; \
         $install >/dev/null || exit 8; before=$(ls -AR {opt}); \
         for file in {release}/bin/*; do head -c 2097152 /dev/zero >>$file; done; \
         $install && exit 9; \
         [ \"$before\" = \"$(ls -AR {opt})\" ] || {{ ls -AR {opt}; exit 7; }}; umount {opt}",
        opt = opt.display(),
        release = site.release().display(),
    )) else {
        return;
    };
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(message.contains("No space left on device"), "{message}");
}

#[test]
fn a_host_that_is_mounted_read_only() {
    refused_where_read_only("", "mount the host's file system writable");
}

#[test]
fn an_engine_directory_alone_that_is_read_only_is_seen_before_the_first_step() {
    refused_where_read_only("/etc/containerd", "/etc/containerd: Read-only file system");
}

/// A host of which `part` cannot be written is left as it is.
fn refused_where_read_only(part: &str, wanted: &str) {
    let site = Site::with_containerd();
    let before = tree::snapshot(site.root());
    let (program, root) = (env!("CARGO_BIN_EXE_boathook-init"), site.root().display());
    let Some(output) = with_mounts(&format!(
        "mount --bind {root}{part} {root}{part}; mount -o remount,bind,ro {root}{part}; \
         {program} --host-root {root} install --source {}",
        site.release().display(),
    )) else {
        return;
    };
    let message = complaint(&output);
    assert!(message.contains(wanted), "{message}");
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn the_modes_do_not_hang_on_the_callers_umask() {
    let site = Site::with_containerd();
    let (program, root) = (env!("CARGO_BIN_EXE_boathook-init"), site.root().display());
    let line = format!(
        "umask 077; {program} --host-root {root} install --source {}",
        site.release().display()
    );
    assert!(
        Command::new("sh")
            .args(["-c", &line])
            .output()
            .unwrap()
            .status
            .success()
    );
    let version = site.root().join("opt/boathook/current");
    let mode = |name: &str| version.join(name).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode(""), mode("bin"), mode("bin/boathook")], [0o755; 3]);
    assert_eq!(mode("classes.d/dummy-npu.toml"), 0o644);
}
