//! Containers that run while a device is attached to them or detached: their processes
//! change what the program is about to touch.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use harness::bundle::{Bundle, BundleBuilder};
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::probe::Access;
use harness::rootfs::Rootfs;
use harness::runc::Container;
use harness::scratch;

use super::long;
use super::volume::Volume;
use crate::lab::{Lab, on_each_cgroup_version};
use crate::live::follow::may_open;
use crate::live::{boathook, done, reads, records};

on_each_cgroup_version!(
    what_was_planted_at_the_targets_leads_nowhere,
    what_replaced_a_device_meanwhile_is_not_taken_away,
    a_container_in_another_root_or_namespace_is_refused,
    another_process_with_the_number_is_refused,
    targets_that_come_and_go,
    a_frozen_container_cannot_delay_it,
    what_cannot_be_taken_away_keeps_no_rule,
    a_process_that_moves_deeper_keeps_no_rule,
);

const CLASS: &str = "version = 1\nresource = 'example.com/chip'\n\
    request = { env = 'CHIPS' }\n\
    discover = [{ path = '/dev/dummy-npu{index:number}' }]\n\
    [device]\nid = 'chip-{index}'\nindex = '{index}'\n\
    nodes = [{ path = '/dev/dummy-npu{index}', container_path = '/dev/chips/{index}', \
    links = ['/dev/by-id/chip-{index}'] }]\n";

/// A container that runs a script, with a volume that nobody may write to by its links.
pub(super) struct Victim {
    volume: Volume,
    bundle: Bundle,
}

impl Victim {
    pub(super) fn new(script: &str, kind: impl FnOnce(BundleBuilder) -> BundleBuilder) -> Self {
        let volume = Volume::with(&["file"], &["directory"]);
        let script = format!("{script}\ntouch /ready; while :; do sleep 100; done");
        let bundle = Bundle::builder(Rootfs::Busybox)
            .bind(volume.path(), "/volume")
            .args(["/bin/sh", "-c", &script]);
        let bundle = kind(bundle).build().unwrap();
        Victim { volume, bundle }
    }

    /// Starts it, and waits until the script is done.
    pub(super) fn start<'a>(&'a self, lab: &'a Lab) -> Container<'a> {
        let running = lab.start(&self.bundle);
        let ready = self.bundle.in_rootfs("/ready");
        assert!(wait_until(|| ready.exists()), "not ready");
        running
    }

    pub(super) fn id(&self) -> &str {
        self.bundle.id()
    }

    pub(super) fn assert_volume_unchanged(&self, case: &str) {
        self.volume.assert_untouched(case);
    }
}

pub(crate) fn chips() -> DemoHost {
    let host = DemoHost::new().unwrap();
    host.add_class("chips", CLASS).unwrap();
    let links = host.root().join("dev/by-id");
    fs::create_dir(&links).unwrap();
    symlink("../dummy-npu3", links.join("chip-3")).unwrap();
    host
}

const NOT_ON_ROOT: &str = "not on the container's root";

/// Each is refused with nothing done, or done beside what was planted, in /dev.
fn what_was_planted_at_the_targets_leads_nowhere(lab: &Lab) {
    let host = chips();
    for (plant, word) in [
        ("mkdir chips; ln -s /volume/file chips/3", "symbolic link"),
        ("mkdir chips; ln -s /volume/new chips/3", "symbolic link"),
        ("ln -s /volume/directory chips", NOT_ON_ROOT),
        ("ln -s /volume/new chips", "does not exist"),
        ("ln -s /proc/self/cwd chips", "never followed"),
        ("ln -s ../../../../../../tmp chips", ""),
        ("mkdir -p chips/3", "is a directory"),
        ("mkdir chips; mkfifo chips/3", "is a named pipe"),
        ("ln -s /volume/directory by-id", NOT_ON_ROOT),
        ("mkdir by-id; ln -s /volume/file by-id/chip-3", ""),
        ("mkdir chips; echo mine > chips/3", ""),
    ] {
        let victim = Victim::new(&format!("(cd /dev; {plant})"), |it| it);
        let running = victim.start(lab);
        let before = running.output(&["ls", "-lR", "/dev"]).unwrap();
        let id = victim.bundle.id();
        let ran = boathook(lab, &host, &["attach", id, "chips=3"]);
        victim.assert_volume_unchanged(plant);
        if ran.status.success() {
            assert_eq!(word, "", "{plant}");
            done(lab, &host, &["detach", id]);
        } else {
            let is_refused = !word.is_empty() && ran.stderr.contains(word);
            assert!(is_refused, "{plant}: {ran:?}");
        }
        let after = running.output(&["ls", "-lR", "/dev"]).unwrap();
        assert_eq!(after, before, "{plant}");
        assert!(records(&host).is_empty(), "{plant}");
        assert!(!may_open(&running, &host, 3), "{plant}: the rule is left");
        victim.assert_volume_unchanged(plant);
    }
}

/// With CAP_SYS_ADMIN it can also unmount and mount.
fn what_replaced_a_device_meanwhile_is_not_taken_away(lab: &Lab) {
    let host = chips();
    for (replace, left) in [
        ("umount chips/3; echo mine > chips/3", "cat chips/3"),
        (
            "umount chips/3; mount --bind /volume/file chips/3",
            "cat chips/3",
        ),
        ("mount --bind /volume chips", "cat chips/file"),
        (
            "rm by-id/chip-3; ln -s /volume/file by-id/chip-3",
            "cat by-id/chip-3",
        ),
        ("rm -r by-id; ln -s /volume by-id", "cat by-id/file"),
        ("rm -r by-id; ln -s by-id by-id", "readlink by-id"),
        ("rm -r by-id; ln -s /proc/self/cwd by-id", "readlink by-id"),
        ("rm -r by-id; echo mine > by-id", "cat by-id"),
        (
            "mount -t tmpfs none chips; echo mine > chips/mine",
            "cat chips/mine",
        ),
    ] {
        let victim = Victim::new(":", BundleBuilder::sys_admin);
        let running = victim.start(lab);
        let id = victim.bundle.id();
        done(lab, &host, &["attach", id, "chips=3"]);
        let in_dev = |script: &str| {
            let script = format!("cd /dev; {script}");
            running.output(&["/bin/sh", "-c", &script]).unwrap()
        };
        in_dev(replace);
        let before = in_dev(left);
        assert!(!before.is_empty(), "{replace}");
        done(lab, &host, &["detach", id]);
        assert_eq!(in_dev(left), before, "{replace}");
        victim.assert_volume_unchanged(replace);
        assert!(!may_open(&running, &host, 3), "{replace}: the rule is left");
    }
}

/// A link on a file system that is read-only meanwhile. `boathook follow` gives back recorded
/// rules that an update of the container takes away: one that was revoked is none of them.
pub(crate) fn what_cannot_be_taken_away_keeps_no_rule(lab: &Lab) {
    let host = chips();
    let victim = Victim::new(":", BundleBuilder::sys_admin);
    let running = victim.start(lab);
    let id = victim.bundle.id();
    let remount = |option| running.output(&["mount", "-o", option, "/dev"]).unwrap();
    let rules = || {
        let record = host.root().join("run/boathook/attached").join(id);
        let record = fs::read_to_string(record).unwrap();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        record["rules"].as_array().unwrap().len()
    };
    done(lab, &host, &["attach", id, "chips=3"]);
    assert_eq!(rules(), 1);
    remount("remount,ro");
    let ran = boathook(lab, &host, &["detach", id]);
    assert!(ran.stderr.contains("/dev/by-id/chip-3"), "{ran:?}");
    assert_eq!(rules(), 0);
    remount("remount,rw");
    assert!(!may_open(&running, &host, 3));
    done(lab, &host, &["detach", id]);
    assert!(records(&host).is_empty());
}

/// As systemd in a container does, whose cgroup is delegated to it.
fn a_process_that_moves_deeper_keeps_no_rule(lab: &Lab) {
    let host = chips();
    let victim = Victim::new(":", |it| it);
    let running = victim.start(lab);
    let pid = running.pid().unwrap().to_string();
    done(lab, &host, &["attach", victim.id(), "chips=3"]);
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let (hierarchy, top) = match lab.runc.view() {
        CgroupView::V1 => (":devices:", "/sys/fs/cgroup/devices"),
        CgroupView::V2 => ("0::", "/sys/fs/cgroup/unified"),
    };
    let path = |line: &str| Some(line.split_once(hierarchy)?.1.to_owned());
    let deeper = format!("{top}{}/init/of-it", own.lines().find_map(path).unwrap());
    if !Path::new(top).exists() {
        return skip::report("a process that moves", "cgroups are elsewhere here");
    }
    fs::create_dir_all(&deeper).unwrap();
    fs::write(Path::new(&deeper).join("cgroup.procs"), &pid).unwrap();
    done(lab, &host, &["detach", victim.id()]);
    assert!(!may_open(&running, &host, 3), "the rule is left");
    assert!(records(&host).is_empty());
}

fn a_container_in_another_root_or_namespace_is_refused(lab: &Lab) {
    let host = chips();
    let loops = "touch /ready; while :; do sleep 100; done";
    for (script, word) in [
        // Writes into /dev would be writes into the volume's directory.
        (
            "mkdir -p /var/jail; cp -r /bin /lib* /var/jail 2>/dev/null; touch /ready; \
             exec chroot /var/jail /bin/sh -c 'while :; do sleep 100; done'"
                .to_owned(),
            "another root",
        ),
        (
            format!("exec unshare -U -m -r /bin/sh -c '{loops}'"),
            "user namespace",
        ),
    ] {
        let victim = Victim::new(&script, BundleBuilder::sys_admin);
        let running = victim.start(lab);
        let pid = running.pid().unwrap();
        // The script goes on after it is ready.
        let seen = |pid: i32| {
            ["root", "ns/user"].map(|it| fs::metadata(format!("/proc/{pid}/{it}")).unwrap().ino())
        };
        let of_image = fs::metadata(victim.bundle.rootfs()).unwrap().ino();
        let host_users = seen(std::process::id().cast_signed())[1];
        assert!(
            wait_until(|| seen(pid) != [of_image, host_users]),
            "{script}"
        );
        let id = victim.bundle.id();
        let ran = boathook(lab, &host, &["attach", id, "chips=3"]);
        assert_eq!(ran.status.code(), Some(6), "{script}: {ran:?}");
        assert!(ran.stderr.contains(word), "{script}: {ran:?}");
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        victim.assert_volume_unchanged(&script);
        assert!(records(&host).is_empty(), "{script}");
    }
}

/// The runtime's state says a number that another process has by now.
fn another_process_with_the_number_is_refused(lab: &Lab) {
    let host = chips();
    let victim = Victim::new(":", |it| it);
    let running = victim.start(lab);
    let other = Victim::new(":", |it| it);
    let others = other.start(lab);
    // The program itself may have one.
    let of_me = match lab.runc.view() {
        CgroupView::V1 => "own mount namespace",
        CgroupView::V2 => "another root",
    };
    let me = i32::try_from(std::process::id()).unwrap();
    let pid = running.pid().unwrap();
    for (pid, started, code, word) in [
        (pid, Some(1), 2, "there is no process of container reused"),
        (others.pid().unwrap(), None, 6, "another root"),
        (me, None, 6, of_me),
    ] {
        let state = scratch::directory("state").unwrap();
        let directory = state.path().join("reused");
        fs::create_dir(&directory).unwrap();
        let mut json = serde_json::json!({ "init_process_pid": pid,
            "config": { "labels": [format!("bundle={}", victim.bundle.directory().display())] } });
        if let Some(started) = started {
            json["init_process_start"] = started.into();
        }
        fs::write(directory.join("state.json"), json.to_string()).unwrap();
        let root = state.path().to_str().unwrap();
        let arguments = ["attach", "reused", "chips=3", "--root", root];
        let ran = boathook(lab, &host, &arguments);
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        assert!(ran.stderr.contains(word), "{word}: {ran:?}");
        assert!(records(&host).is_empty());
    }
    for running in [&running, &others] {
        assert!(!may_open(running, &host, 3));
    }
}

/// A link to the volume is there or not when the program looks, and another time when it
/// mounts or removes.
fn targets_that_come_and_go(lab: &Lab) {
    let host = chips();
    let swap = "mkdir -p /dev/chips /dev/by-id; (while :; do \
        ln -sfn /volume/file /dev/chips/3; ln -sfn /volume/directory /dev/chips/d; \
        rm -f /dev/chips/3 /dev/by-id/chip-3; ln -sfn /volume/file /dev/by-id/chip-3; \
        rmdir /dev/by-id; ln -sfn /volume/directory /dev/by-id; rm -f /dev/by-id; \
        mkdir -p /dev/chips /dev/by-id; done) 2>/dev/null &";
    let victim = Victim::new(swap, |it| it);
    let running = victim.start(lab);
    let id = victim.bundle.id();
    for _ in 0..if long() { 1000 } else { 12 } {
        boathook(lab, &host, &["attach", id, "chips=3"]);
        victim.assert_volume_unchanged("attach");
        boathook(lab, &host, &["detach", id]);
        victim.assert_volume_unchanged("detach");
    }
    assert!(!may_open(&running, &host, 3), "the rule is left");
}

fn a_frozen_container_cannot_delay_it(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let victim = Victim::new(":", |it| it);
    let running = victim.start(lab);
    let id = victim.bundle.id();
    let pid = nix::unistd::Pid::from_raw(running.pid().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    done(lab, &host, &["attach", id, "dummy-npu=3"]);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    assert_eq!(reads(&running, 3), Some(Access::Granted));
    done(lab, &host, &["detach", id]);
    assert_eq!(reads(&running, 3), None);
}
