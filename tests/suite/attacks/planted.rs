//! Files that the user of a daemon plants in the directory that root gave it, for containers
//! that get the daemon's socket, a file and a directory from there.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;
use harness::scratch;

use super::races::{rounds, while_exchanging};
use super::{container_with_hook, hook, host_with_tools};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    what_root_gave_away_reaches_a_container,
    links_and_other_things_of_a_daemons_user_do_not,
    links_that_come_and_go_do_not,
);

const DAEMON: u32 = 1000;

/// The machine itself as the host, and a daemon's directory on it.
struct Machine {
    host: DemoHost,
    daemons: tempfile::TempDir,
    roots: tempfile::TempDir,
}

impl Machine {
    /// `optional` is whether the class can do without the daemon.
    fn new(optional: bool) -> Self {
        let host = host_with_tools();
        let srv = Path::new("/srv");
        let daemons = scratch::directory_in(srv, "daemon").unwrap();
        let roots = scratch::directory_in(srv, "root").unwrap();
        fs::set_permissions(roots.path(), Permissions::from_mode(0o700)).unwrap();
        fs::write(roots.path().join("secret"), "secret").unwrap();
        fs::set_permissions(roots.path().join("secret"), Permissions::from_mode(0o600)).unwrap();
        let machine = Machine {
            host,
            daemons,
            roots,
        };
        let class = format!(
            "version = 1\n\
             resource = 'tools.com/npu'\n\
             request = {{ env = 'TOOLS_VISIBLE_DEVICES' }}\n\
             [[discover]]\n\
             count = 1\n\
             [device]\n\
             id = 'tool'\n\
             [[edits]]\n\
             optional = {optional}\n\
             files = [{{ path = '{0}/socket', type = 'socket', container_path = '/npu/socket' }},\n\
             {{ path = '{0}/file', container_path = '/npu/file' }}]\n\
             directories = [{{ path = '{0}/work', container_path = '/npu/work', writable = true }}]\n",
            machine.daemons.path().display()
        );
        machine.host.add_class("tools", &class).unwrap();
        let config = format!("classes = [{:?}]\n", machine.host.classes());
        fs::write(machine.host.config_file(), config).unwrap();
        machine.start_daemon();
        machine
    }

    /// The daemon's own socket, file and directory.
    fn start_daemon(&self) {
        let at = self.daemons.path();
        UnixListener::bind(at.join("socket")).unwrap();
        fs::set_permissions(at.join("socket"), Permissions::from_mode(0o777)).unwrap();
        fs::write(at.join("file"), "daemon's").unwrap();
        fs::create_dir(at.join("work")).unwrap();
        for name in ["socket", "file", "work", ""] {
            chown(at.join(name), Some(DAEMON), Some(DAEMON)).unwrap();
        }
    }

    /// What a container prints that reads and writes all that it got; `None` if it was
    /// refused. Root's file and directory are as before.
    fn attack(&self, lab: &Lab) -> Option<String> {
        let script = "cd /npu; ls -l . work; cat socket file work/secret; echo > work/written; \
                      echo attack >> socket; echo attack >> file; echo done";
        let hook = hook(&self.host).with_private_run().unwrap();
        let bundle = container_with_hook(hook, Rootfs::Busybox)
            .env(DemoHost::VARIABLE, "void")
            .args(["/bin/sh", "-c", script])
            .build()
            .unwrap();
        let ran = lab.runc.run(&bundle).unwrap();
        lab.assert_nothing_left(&bundle);
        assert!(!ran.stdout.contains("secret\n"), "{}", ran.stdout);
        let secret = fs::read_to_string(self.roots.path().join("secret")).unwrap();
        assert_eq!(secret, "secret");
        assert_eq!(fs::read_dir(self.roots.path()).unwrap().count(), 1);
        if ran.status.success() {
            Some(ran.stdout)
        } else {
            assert!(ran.stderr.contains("boathook: "), "{}", ran.stderr);
            None
        }
    }
}

fn what_root_gave_away_reaches_a_container(lab: &Lab) {
    let machine = Machine::new(false);
    let seen = machine.attack(lab).unwrap();
    assert!(seen.contains("daemon's"), "{seen}");
    assert!(
        seen.contains(" socket -> ") && seen.ends_with("done\n"),
        "{seen}"
    );
    assert!(machine.daemons.path().join("work/written").exists());
}

/// Optional things are left out, so that the daemon's user cannot stop containers;
/// others are refused.
fn links_and_other_things_of_a_daemons_user_do_not(lab: &Lab) {
    type Plant = fn(&Path, &Path);
    let plants: [(&str, Plant); 6] = [
        ("links", |at, roots| {
            symlink(roots.join("secret"), at.join("socket")).unwrap();
            symlink(roots.join("secret"), at.join("file")).unwrap();
            symlink(roots, at.join("work")).unwrap();
        }),
        ("links by way of others", |at, roots| {
            symlink(roots, at.join("way")).unwrap();
            symlink("way/secret", at.join("socket")).unwrap();
            symlink("way/secret", at.join("file")).unwrap();
            symlink("way/.", at.join("work")).unwrap();
        }),
        // As without fs.protected_hardlinks.
        ("further names of root's file", |at, roots| {
            fs::hard_link(roots.join("secret"), at.join("socket")).unwrap();
            fs::hard_link(roots.join("secret"), at.join("file")).unwrap();
        }),
        ("pipes", |at, _| {
            for name in ["socket", "file", "work"] {
                nix::unistd::mkfifo(&at.join(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
            }
        }),
        ("things in each other's places", |at, _| {
            fs::write(at.join("socket"), "").unwrap();
            fs::create_dir(at.join("file")).unwrap();
            UnixListener::bind(at.join("work")).unwrap();
        }),
        ("links to themselves", |at, _| {
            for name in ["socket", "file", "work"] {
                symlink(name, at.join(name)).unwrap();
            }
        }),
    ];
    for (name, plant) in plants {
        for optional in [true, false] {
            let machine = Machine::new(optional);
            let at = machine.daemons.path();
            fs::remove_file(at.join("socket")).unwrap();
            fs::remove_file(at.join("file")).unwrap();
            fs::remove_dir(at.join("work")).unwrap();
            plant(at, machine.roots.path());
            for planted in fs::read_dir(at).unwrap() {
                let planted = planted.unwrap().path();
                if fs::symlink_metadata(&planted).unwrap().is_symlink() {
                    lchown(&planted, Some(DAEMON), Some(DAEMON)).unwrap();
                }
            }
            let seen = machine.attack(lab);
            assert_eq!(seen.is_some(), optional, "{name}: {seen:?}");
            let seen = seen.unwrap_or_default();
            assert!(
                !seen.contains("socket") && !seen.contains("file"),
                "{name}: {seen}"
            );
        }
    }
}

/// The link is there or not when the hook looks, and another time when it mounts.
fn links_that_come_and_go_do_not(lab: &Lab) {
    let machine = Machine::new(true);
    let (at, roots) = (machine.daemons.path(), machine.roots.path());
    let secret = roots.join("secret");
    let pairs = [("file", &*secret), ("socket", &secret), ("work", roots)].map(|(name, target)| {
        let link = at.join(format!("link-{name}"));
        symlink(target, &link).unwrap();
        lchown(&link, Some(DAEMON), Some(DAEMON)).unwrap();
        (at.join(name), link)
    });
    let pairs = pairs.each_ref().map(|(name, link)| (&**name, &**link));
    while_exchanging(&pairs, || {
        for _ in rounds() {
            machine.attack(lab);
        }
    });
}
