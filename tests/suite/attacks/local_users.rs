//! Users of the host who may write where a class, its file or its programs are.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use super::outcome::Outcome;
use super::{container, container_with_hook, hook, host_with_tools};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    a_users_directory_is_not_given_to_a_container,
    a_users_class_file_is_refused,
);

const USER: u32 = 1000;

/// A class whose directory anyone may make, since it is in /tmp.
const CLASS: &str = "version = 1\n\
    resource = 'daemon.com/npu'\n\
    request = { env = 'DAEMON_VISIBLE_DEVICES' }\n\
    [[discover]]\n\
    count = 1\n\
    [device]\n\
    id = 'daemon'\n\
    [[edits]]\n\
    optional = true\n\
    directories = ['/tmp/npu-daemon']\n\
    files = ['/tmp/npu-socket']\n";

fn set_owner(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
}

/// A local user puts a directory and a file of his own, links, and what stops other containers
/// there.
fn a_users_directory_is_not_given_to_a_container(lab: &Lab) {
    type Attack = fn(&Path, &Path);
    let attacks: [(&str, Attack); 6] = [
        ("a directory", |directory, _| {
            fs::create_dir(directory).unwrap();
            set_owner(directory, USER);
        }),
        ("a file", |directory, file| {
            fs::write(file, "attack").unwrap();
            set_owner(file, USER);
            fs::write(directory, "attack").unwrap();
            set_owner(directory, USER);
        }),
        ("a link to root's directory", |directory, _| {
            symlink("../root-only", directory).unwrap();
            lchown(directory, Some(USER), None).unwrap();
        }),
        ("a link to nothing", |directory, file| {
            symlink("nothing", directory).unwrap();
            symlink("nothing", file).unwrap();
        }),
        ("a link to itself", |directory, file| {
            symlink("npu-daemon", directory).unwrap();
            symlink("npu-socket", file).unwrap();
        }),
        ("a fifo", |directory, file| {
            for path in [directory, file] {
                nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
                set_owner(path, USER);
            }
        }),
    ];
    for (name, attack) in attacks {
        let host = host_with_tools();
        host.add_class("daemon", CLASS).unwrap();
        let root = host.root();
        fs::create_dir(root.join("tmp")).unwrap();
        fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777)).unwrap();
        fs::create_dir(root.join("root-only")).unwrap();
        fs::write(root.join("root-only/secret"), "secret").unwrap();
        fs::set_permissions(root.join("root-only"), Permissions::from_mode(0o700)).unwrap();
        attack(&root.join("tmp/npu-daemon"), &root.join("tmp/npu-socket"));
        let script = "ls -laR /tmp/; cat /tmp/npu-daemon/* /tmp/npu-socket; echo done";
        let bundle = container(&host, Rootfs::Busybox)
            .env("DAEMON_VISIBLE_DEVICES", "all")
            .args(["/bin/sh", "-c", script])
            .build()
            .unwrap();
        let seen = lab.run(&bundle);
        assert!(seen.ends_with("done\n"), "{name}: {seen}");
        assert!(!seen.contains("npu-"), "{name}: {seen}");
        assert!(!seen.contains("secret"), "{name}: {seen}");
    }
}

/// The class file, its directory or the configuration are somebody else's, or
/// anyone may write to them.
fn a_users_class_file_is_refused(lab: &Lab) {
    type Path = fn(&DemoHost) -> std::path::PathBuf;
    let paths: [Path; 3] = [
        |host| host.classes().join("dummy-npu.toml"),
        |host| host.classes(),
        |host| host.config_file(),
    ];
    for path in paths {
        let host = host_with_tools();
        assert_eq!(
            Outcome::run(lab, container(&host, Rootfs::Busybox)).devices(),
            Some(vec![3])
        );
        let path = path(&host);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        for (user, more) in [(USER, 0), (0, 0o002), (0, 0o020)] {
            set_owner(&path, user);
            // A group of root's may be trusted by some: only root's own is.
            fs::set_permissions(&path, Permissions::from_mode(mode | more)).unwrap();
            let gid = if more == 0o020 { 1000 } else { 0 };
            chown(&path, None, Some(gid)).unwrap();
            let hook = hook(&host).with_private_run().unwrap();
            let outcome = Outcome::run(lab, container_with_hook(hook, Rootfs::Busybox));
            let Outcome::Refused(said) = outcome else {
                panic!("{}: {user}, {more:o}: it started", path.display());
            };
            assert!(said.contains(&path.display().to_string()), "{said}");
        }
    }
}
