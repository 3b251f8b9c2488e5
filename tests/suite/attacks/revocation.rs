//! Devices that are detached or unplugged while something else changes the container's record:
//! nothing gives them back, and nothing that the container had otherwise goes with them.

use std::fs::{self, File};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use harness::bundle::Bundle;
use harness::demo_host::DemoHost;
use harness::probe::Kind;
use harness::rootfs::Rootfs;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cgroup_access::{cgroup, opens, start_with_same_id};
use crate::lab::{Lab, on_each_cgroup_version};
use crate::live::follow::{Follower, followed, may_open, tell};
use crate::live::{boathook, command, done, plain, reads, records};

on_each_cgroup_version!(
    a_follower_that_waited_gives_back_no_detached_device,
    what_was_revoked_without_the_lock_is_not_given_back,
    another_container_with_the_same_id_keeps_the_record,
    a_device_of_two_classes_goes_with_the_second,
    a_file_of_a_broken_class_is_not_covered,
    an_older_record_of_processes_that_go_on_is_used,
    a_device_that_is_detached_while_another_is_attached_is_gone,
);

/// A class whose node of device N is the demo host's, at /dev/NAME/N in containers.
pub(super) fn class(name: &str, more: &str) -> String {
    format!(
        "version = 1\nresource = 'example.com/{name}'\n{more}\n\
         request = {{ env = 'V{name}' }}\ndiscover = [{{ count = 8 }}]\n\
         [device]\nid = '{name}-{{index}}'\nindex = '{{index}}'\n\
         nodes = [{{ path = '/dev/dummy-npu{{index}}', container_path = '/dev/{name}/{{index}}', \
         optional = true }}]\n"
    )
}

pub(super) const BROKEN: &str = "version = 1\nresource = \n";
/// Longer than a follower takes for what it would do wrong.
pub(super) const A_WHILE: Duration = Duration::from_millis(1500);

pub(super) fn idle() -> Bundle {
    plain(Rootfs::Busybox).build().unwrap()
}

fn lock(host: &DemoHost, bundle: &Bundle) -> Flock<File> {
    let name = format!("run/boathook/attached/.{}.lock", bundle.id());
    let path = host.root().join(name);
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).open(path);
    Flock::lock(file.unwrap(), FlockArg::LockExclusive).unwrap()
}

/// Both wait for the lock; the one that detaches has it first, or the follower.
fn a_follower_that_waited_gives_back_no_detached_device(lab: &Lab) {
    let host = followed();
    let bundle = idle();
    let running = lab.start(&bundle);
    for round in 0..4 {
        done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
        let held = lock(&host, &bundle);
        let mut detach = command(lab, &host, &["detach", bundle.id()]);
        let detach = detach.stdout(Stdio::piped()).stderr(Stdio::piped());
        let detach = detach.spawn().unwrap();
        sleep(Duration::from_millis(200));
        let follower = Follower::start(lab, &host);
        sleep(Duration::from_millis(300));
        drop(held);
        assert!(detach.wait_with_output().unwrap().status.success());
        sleep(A_WHILE);
        assert!(
            !may_open(&running, &host, 3),
            "{round}: {}",
            follower.said()
        );
        assert_eq!(reads(&running, 3), None, "{round}");
        assert!(records(&host).is_empty(), "{round}");
    }
}

fn what_was_revoked_without_the_lock_is_not_given_back(lab: &Lab) {
    let host = followed();
    let bundle = idle();
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    let held = lock(&host, &bundle);
    let _follower = Follower::start(lab, &host);
    let ran = boathook(lab, &host, &["detach", bundle.id()]);
    assert_eq!(ran.status.code(), Some(6), "{ran:?}");
    assert!(
        ran.stderr.contains("its device rules are revoked"),
        "{ran:?}"
    );
    assert!(!may_open(&running, &host, 3));
    drop(held);
    tell();
    sleep(A_WHILE);
    assert!(!may_open(&running, &host, 3), "it is given back");
    done(lab, &host, &["detach", bundle.id()]);
    assert_eq!(reads(&running, 3), None);
    assert!(records(&host).is_empty());
}

fn another_container_with_the_same_id_keeps_the_record(lab: &Lab) {
    let host = followed();
    let first = idle();
    let running = lab.start(&first);
    let id = first.id();
    done(lab, &host, &["attach", id, "dummy-npu=3"]);
    let (other, _second) = start_with_same_id(lab, &host, id, "npu-7");
    let ran = boathook(lab, &host, &["detach", id]);
    other.delete(id);
    assert!(ran.status.success(), "{ran:?}");
    assert!(!may_open(&running, &host, 3), "{ran:?}");
    assert_eq!(reads(&running, 3), None);
}

fn a_device_of_two_classes_goes_with_the_second(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for name in ["one", "two"] {
        let class = class(name, "").replace(&format!("/dev/{name}/"), "/dev/dummy-npu");
        host.add_class(name, &class).unwrap();
    }
    let bundle = idle();
    let running = lab.start(&bundle);
    for order in [["one=3", "two=3"], ["two=3", "one=3"]] {
        done(lab, &host, &["attach", bundle.id(), "one=3"]);
        let already = done(lab, &host, &["attach", bundle.id(), "two=3"]);
        assert!(already.contains("has it already"), "{already}");
        done(lab, &host, &["detach", bundle.id(), order[0]]);
        assert!(may_open(&running, &host, 3), "{order:?}");
        assert!(reads(&running, 3).is_some(), "{order:?}");
        done(lab, &host, &["detach", bundle.id(), order[1]]);
        assert!(!may_open(&running, &host, 3), "{order:?}");
        assert!(records(&host).is_empty(), "{order:?}");
    }
}

fn a_file_of_a_broken_class_is_not_covered(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for name in ["one", "two"] {
        host.add_file(&format!("/etc/{name}.conf"), name).unwrap();
        let files = format!("[[edits]]\nfiles = ['/etc/{name}.conf']\n");
        host.add_class(name, &(class(name, "") + &files)).unwrap();
    }
    let bundle = idle();
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "one=3"]);
    host.add_class("one", BROKEN).unwrap();
    let refused = boathook(lab, &host, &["attach", bundle.id(), "two=7"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert_eq!(running.output(&["cat", "/etc/one.conf"]).unwrap(), "one");
    done(lab, &host, &["detach", bundle.id()]);
    assert_eq!(running.look("/dev/one").unwrap().kind, Kind::Missing);
    assert!(records(&host).is_empty());
}

/// Versions before 0.1.0 recorded neither the specification nor the inode number of the cgroup.
fn an_older_record_of_processes_that_go_on_is_used(lab: &Lab) {
    let host = followed();
    let bundle = plain(Rootfs::Busybox).host_pids();
    let bundle = bundle.args(["/bin/sh", "-c", "sleep 1000 & exec sleep 1000"]);
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let cgroup = cgroup(lab, &running);
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    let record = host.root().join("run/boathook/attached").join(bundle.id());
    let text = fs::read_to_string(&record).unwrap();
    let mut older: serde_json::Value = serde_json::from_str(&text).unwrap();
    for key in ["spec", "cgroup_inode", "is_init"] {
        older.as_object_mut().unwrap().remove(key).unwrap();
    }
    fs::write(&record, older.to_string()).unwrap();
    let first = Pid::from_raw(running.pid().unwrap());
    kill(first, Signal::SIGKILL).unwrap();
    assert!(opens(&cgroup, &host, 3), "before");
    let used = done(lab, &host, &["list", "--used", "dummy-npu"]);
    assert!(used.contains("(attached)"), "{used}");
    let detached = boathook(lab, &host, &["detach", bundle.id()]);
    assert!(!opens(&cgroup, &host, 3), "{detached:?}");
    // The mount namespace of the first process is gone with it.
    assert_eq!(detached.status.code(), Some(8), "{detached:?}");
    for pid in fs::read_to_string(cgroup.join("cgroup.procs"))
        .unwrap()
        .lines()
    {
        let _ = kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL);
    }
}

/// To attach the other device takes longer than `detach` waits for the lock.
fn a_device_that_is_detached_while_another_is_attached_is_gone(lab: &Lab) {
    const SLOW: &str = "version = 1\nresource = 'example.com/slow'\n\
        request = { env = 'SLOW', pairs = { select_env = 'REGION_', select = '{id}', \
        value_env = 'IMAGE_', attribute = 'wanted' } }\n\
        [[discover]]\npath = '/sys/regions/{n:number}'\n\
        attributes = [{ name = 'id', value = 'r{n}' }, { name = 'image', file = 'image' }]\n\
        nodes = ['/dev/dummy-npu{n}']\n[device]\nid = 'slow-{n}'\n\
        [prepare]\nprogram = '/usr/bin/prepare'\narguments = ['{wanted}']\ntimeout = 60\n\
        file = 'image'\nequals = '{wanted}'\n";
    let host = followed();
    host.add_class("slow", SLOW).unwrap();
    host.add_file("/sys/regions/7/image", "0\n").unwrap();
    let image = host.root().join("sys/regions/7/image");
    let program = format!("#!/bin/sh\nsleep 8\necho 1 > {}\n", image.display());
    host.add_file("/usr/bin/prepare", &program).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(host.root().join("usr/bin/prepare"), mode).unwrap();
    let bundle = plain(Rootfs::Busybox)
        .env("REGION_1", "r7")
        .env("IMAGE_1", "1");
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let cgroup = cgroup(lab, &running);
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    let _follower = Follower::start(lab, &host);
    let mut attach = command(lab, &host, &["attach", bundle.id(), "slow=slow-7"]);
    let attach = attach.stdout(Stdio::piped()).stderr(Stdio::piped());
    let attach = attach.spawn().unwrap();
    sleep(Duration::from_millis(500));
    let detached = boathook(lab, &host, &["detach", bundle.id()]);
    assert_eq!(detached.status.code(), Some(6), "{detached:?}");
    assert!(!opens(&cgroup, &host, 3), "{detached:?}");
    let attached = attach.wait_with_output().unwrap();
    assert_eq!(attached.status.code(), Some(6), "{attached:?}");
    assert!(!opens(&cgroup, &host, 3), "{attached:?}");
    tell();
    sleep(A_WHILE);
    assert!(!opens(&cgroup, &host, 3), "it is given back");
    done(lab, &host, &["detach", bundle.id()]);
    assert!(records(&host).is_empty());
}
