//! Inputs that are refused with a clear message and without a change of the host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};

use harness::patience::wait_until;
use host_files::release_lock::NodeReleaseLock;
use initcontainer::lock::InstallerLock;
use runtime_config::Engine;

use crate::site::{Site, complaint, fixture, said, with_mounts};
use crate::tree;

/// Runs the program, and checks that it fails with a message that contains `expected`, without a
/// change of the host.
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
    // The value 43 of e_machine is SPARC V9, for which there are no builds.
    bytes[18..20].copy_from_slice(&43_u16.to_le_bytes());
    fs::write(&program, bytes).unwrap();
    let said = "is a program for machine 43, but this host is";
    assert_refused(&site, &["install"], said);
}

#[test]
fn a_file_that_is_no_program() {
    let site = Site::with_containerd();
    let program = site.release().join("bin/boathook");
    fs::write(&program, "#!/bin/sh\necho not a program\n").unwrap();
    assert_refused(&site, &["install"], "it is no ELF program");
    fs::write(&program, "short").unwrap();
    assert_refused(&site, &["install"], "it is too short to be a program");
    fs::remove_file(&program).unwrap();
    assert_refused(&site, &["install"], "bin/boathook: No such file");
}

#[test]
fn a_class_file_that_the_hook_would_refuse() {
    let site = Site::with_containerd();
    let class = site.release().join("classes.d/dummy-npu.toml");
    fs::write(&class, "version = 1\nresuorce = \"x.com/y\"\n").unwrap();
    assert_refused(&site, &["install"], "classes.d/dummy-npu.toml:2");
}

/// The pod of another release runs on the node.
#[test]
fn a_node_of_another_release() {
    let site = Site::with_containerd();
    let pool_a = "boathook-system/pool-a".parse().unwrap();
    let _serving = NodeReleaseLock::acquire_to_install(site.root(), &pool_a).unwrap();
    for command in ["install", "uninstall"] {
        let arguments = [command, "--release=boathook-system/pool-b"];
        let refused = "release boathook-system/pool-a of boathook runs on this node";
        assert_refused(&site, &arguments, refused);
    }
    said(&site.run(&["install", "--release=boathook-system/pool-a"]));
}

/// A program that ends with the test, also if the test fails.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// With the plugin as a service of the host the pod only waits, and has the node meanwhile.
#[test]
fn a_node_on_which_the_pod_of_another_release_waits() {
    let site = Site::with_containerd();
    let pool_a = "--release=boathook-system/pool-a";
    said(&site.run(&["install", pool_a]));
    let mut waiting = KilledOnDrop(site.without_source(&["wait", pool_a]).spawn().unwrap());
    let other = ["install", "--release=boathook-system/pool-b"];
    let call = format!("/proc/{}/syscall", waiting.0.id());
    let has_lock = || {
        let text = fs::read_to_string(&call).unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|number| number.parse().ok())
            == Some(nix::libc::SYS_rt_sigtimedwait)
    };
    let is_ready = wait_until(|| {
        assert!(waiting.0.try_wait().unwrap().is_none(), "it ended");
        has_lock()
    });
    assert!(is_ready, "it does not wait for a signal");
    let (of_other, of_same) = (site.run(&other), site.run(&["install", pool_a]));
    drop(waiting);
    let refused = "release boathook-system/pool-a of boathook runs on this node";
    assert!(complaint(&of_other).contains(refused), "{of_other:?}");
    said(&of_same);
    said(&site.run(&other));
}

#[test]
fn a_second_installer_at_the_same_time() {
    let site = Site::with_containerd();
    let lock = InstallerLock::take(&site.host).unwrap();
    assert_refused(&site, &["install"], "another boathook-init is running");
    drop(lock);
    site.install("0.1.0", &[Engine::Containerd]);
    let _lock = InstallerLock::take(&site.host).unwrap();
    assert_refused(&site, &["uninstall"], "another boathook-init is running");
}

/// The engine's directory may not be mounted in the container, or the engine was removed.
#[test]
fn an_engines_file_that_cannot_be_seen() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    fs::rename(site.path("etc/containerd"), site.path("away")).unwrap();
    let expected = "the directory of /etc/containerd/config.toml, by which containerd calls \
                    boathook, is not there";
    assert_refused(&site, &["uninstall"], expected);
    said(&site.run(&["uninstall", "--force"]));
}

/// Every process can lock a directory that it can read, so the installer locks a file instead.
#[test]
fn a_lock_that_everyone_can_hold_holds_nobody_up() {
    let site = Site::with_containerd();
    let hold = |path: &str| {
        let file = fs::File::open(site.path(path)).unwrap();
        file.try_lock().unwrap();
        file
    };
    let _root = hold("");
    assert!(site.run(&["install"]).status.success());
    let _installation = ["opt", "opt/boathook", "opt/boathook/state"].map(hold);
    assert!(site.run(&["install"]).status.success());
    assert!(site.run(&["uninstall"]).status.success());
}

#[test]
fn the_lock_can_be_opened_by_root_alone_and_leaves_nothing() {
    let site = Site::with_containerd();
    let before = tree::snapshot(site.root());
    let lock = InstallerLock::take(&site.host).unwrap();
    let mode = |path: &str| {
        let metadata = fs::symlink_metadata(site.path(path)).unwrap();
        metadata.permissions().mode() & 0o7777
    };
    assert_eq!(mode(".boathook-lock"), 0o700);
    assert_eq!(mode(".boathook-lock/lock"), 0o600);
    drop(lock);
    assert_eq!(tree::snapshot(site.root()), before);

    // The lock file of a run that was killed is used again, unless other users can open it.
    let left = site.path(".boathook-lock/lock");
    site.write(".boathook-lock/lock", "");
    fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).unwrap();
    assert_refused(&site, &["install"], "can be opened by others");
    fs::set_permissions(&left, fs::Permissions::from_mode(0o600)).unwrap();
    drop(InstallerLock::take(&site.host).unwrap());
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn an_engine_configuration_that_does_not_parse() {
    for (engine, expected) in [
        ("containerd", "/etc/containerd/config.toml:2: "),
        ("docker", "/etc/docker/daemon.json:3: "),
    ] {
        let site = Site::new(&fixture(&format!("{engine}/refused-broken")));
        assert_refused(&site, &["install", "--engine", engine], expected);
    }
}

#[test]
fn an_engine_configuration_that_changes_in_between() {
    let site = Site::with_containerd();
    let plan = site.plan("0.1.0", &[Engine::Containerd]).unwrap();
    site.write("etc/containerd/config.toml", "version = 2 # edited\n");
    let before = tree::snapshot(site.root());
    // The steps before the failed step are undone.
    let mut done = 0;
    let run = initcontainer::step::execute_steps(&site.host, &plan.steps, |_| {
        done += 1;
        Ok(())
    });
    let error = run.unwrap_err();
    let said = "changed after the plan was made";
    assert!(error.to_string().contains(said), "{error}");
    assert!(done > 3, "{done}");
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_host_without_an_engine() {
    let site = Site::new(Path::new("/nonexistent"));
    let installed = said(&site.run(&["install", "--dry-run"]));
    let said = "no engine to configure was found";
    assert!(installed.contains(said), "{installed}");
}

#[test]
fn a_manifest_that_was_damaged() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    site.write("opt/boathook/state/install.json", "{");
    let expected = "/opt/boathook/state/install.json is not valid";
    assert_refused(&site, &["install"], expected);
}

#[test]
fn a_half_finished_earlier_installation_is_no_hindrance() {
    let site = Site::with_containerd();
    let before = tree::snapshot(site.root());
    let staged = "opt/boathook/.boathook-new-0.1.0/bin/boathook";
    site.write(staged, "half a prog");
    let link = site.path("opt/boathook/.boathook-new-current");
    std::os::unix::fs::symlink("0.1.0", link).unwrap();
    site.install("0.1.0", &[Engine::Containerd]);
    let names = site.host.list(Path::new("/opt/boathook")).unwrap();
    assert_eq!(names, ["0.1.0", "current", "state"]);
    assert!(site.path("opt/boathook/0.1.0/bin/boathook").exists());
    site.uninstall();
    let mut left = tree::snapshot(site.root());
    // The directory `opt` existed before the installation, so it stays.
    left.retain(|path, _| !path.starts_with("opt"));
    assert_eq!(left, before);
}

#[test]
fn a_full_disk_is_as_it_was() {
    let site = Site::with_containerd();
    site.set_programs(&vec![7; 2 << 20]);
    let opt = site.path("opt");
    fs::create_dir(&opt).unwrap();
    let before = tree::snapshot(site.root());
    let Some(output) = with_mounts(&format!(
        "mount -t tmpfs -o size=3m,mode=755 none {opt}; {install} && exit 9; \
         ls -A {opt}; umount {opt}",
        opt = opt.display(),
        install = site.install_line(),
    )) else {
        return;
    };
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for said in ["No space left on device", "make room"] {
        assert!(message.contains(said), "{message}");
    }
    let left = String::from_utf8_lossy(&output.stdout);
    assert!(!left.lines().any(|line| line == "boathook"), "{left}");
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn an_upgrade_on_a_full_disk_leaves_nothing_behind() {
    let site = Site::with_containerd();
    let opt = site.path("opt");
    fs::create_dir(&opt).unwrap();
    let Some(output) = with_mounts(&format!(
        "mount -t tmpfs -o size=3m,mode=755 none {opt}; install='{install}'; \
         $install >/dev/null || exit 8; before=$(ls -AR {opt}); \
         for file in {release}/bin/*; do head -c 2097152 /dev/zero >>$file; done; \
         $install && exit 9; \
         [ \"$before\" = \"$(ls -AR {opt})\" ] || {{ ls -AR {opt}; exit 7; }}; umount {opt}",
        opt = opt.display(),
        install = site.install_line(),
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
    refused_where_read_only("", "no directory for the programs: ");
}

#[test]
fn an_engine_directory_alone_that_is_read_only_is_seen_before_the_first_step() {
    refused_where_read_only("/etc/containerd", "/etc/containerd: Read-only file system");
}

/// The chart's `installDir` is mounted at the usual place in the init container, where the host's
/// own /opt cannot be written to.
#[test]
fn an_installation_elsewhere_is_complete_there() {
    let site = Site::with_containerd();
    let elsewhere = site.path("var/lib/boathook");
    fs::create_dir_all(&elsewhere).unwrap();
    let opt = site.path("opt");
    fs::create_dir_all(opt.join("boathook")).unwrap();
    let Some(output) = with_mounts(&format!(
        "mount --bind {opt} {opt}; mount --bind {elsewhere} {opt}/boathook; \
         mount -o remount,bind,ro {opt}; {} --engine none",
        site.install_line(),
        opt = opt.display(),
        elsewhere = elsewhere.display(),
    )) else {
        return;
    };
    said(&output);
    // The link is relative, so that it leads to the version at both places.
    for file in ["bin/boathook-hook", "classes.d/dummy-npu.toml"] {
        assert!(elsewhere.join("current").join(file).exists(), "{file}");
    }
    assert!(!opt.join("boathook/current").exists());
}

/// Checks that a host on which `part` is read-only is not changed.
fn refused_where_read_only(part: &str, wanted: &str) {
    let site = Site::with_containerd();
    let before = tree::snapshot(site.root());
    let part = format!("{}{part}", site.root().display());
    let Some(output) = with_mounts(&format!(
        "mount --bind {part} {part}; mount -o remount,bind,ro {part}; {}",
        site.install_line(),
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
    let line = format!("umask 077; {}", site.install_line());
    said(&Command::new("sh").args(["-c", &line]).output().unwrap());
    let version = site.path("opt/boathook/current");
    let mode = |name: &str| version.join(name).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode(""), mode("bin"), mode("bin/boathook")], [0o755; 3]);
    assert_eq!(mode("classes.d/dummy-npu.toml"), 0o644);
}
