//! Devices that are taken away while something else happens: nothing gives them back, and nothing
//! that the container had otherwise goes with them.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use harness::bundle::Bundle;
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::probe::Kind;
use harness::rootfs::Rootfs;
use harness::runc::Runc;
use nix::fcntl::{Flock, FlockArg};

use super::changed_processes::{cgroup, opens};
use crate::lab::{Lab, on_each_cgroup_version, requesting};
use crate::live::follow::{Follower, followed, may_open, plug_in, replug, tell, with_device};
use crate::live::{boathook, command, done, plain, reads, records};

on_each_cgroup_version!(
    a_follower_that_waited_gives_back_no_detached_device,
    what_was_revoked_without_the_lock_is_not_given_back,
    a_rule_that_two_classes_share_goes_with_the_device,
    what_the_container_was_allowed_before_stays,
    another_container_with_the_same_id_keeps_the_record,
    a_device_that_came_back_stays_though_its_class_is_broken,
    a_device_of_two_classes_goes_with_the_second,
    a_file_of_a_broken_class_is_not_covered,
    a_device_that_is_named_by_a_link_goes_with_it,
    a_process_that_leaves_its_cgroup_keeps_no_rule,
);

/// A class whose node of device N is the demo host's, at /dev/NAME/N in containers.
fn class(name: &str, more: &str) -> String {
    format!(
        "version = 1\nresource = 'example.com/{name}'\n{more}\n\
         request = {{ env = 'V{name}' }}\ndiscover = [{{ count = 8 }}]\n\
         [device]\nid = '{name}-{{index}}'\nindex = '{{index}}'\n\
         nodes = [{{ path = '/dev/dummy-npu{{index}}', container_path = '/dev/{name}/{{index}}', \
         optional = true }}]\n"
    )
}

const BROKEN: &str = "version = 1\nresource = \n";
/// Longer than a follower takes for what it would do wrong.
const A_WHILE: Duration = Duration::from_millis(1500);

fn idle() -> Bundle {
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

/// One class or both cannot be used, or one is not followed.
fn a_rule_that_two_classes_share_goes_with_the_device(lab: &Lab) {
    for (second, broken) in [
        ("follow = true", &["one"][..]),
        ("follow = true", &["one", "two"]),
        ("", &[]),
    ] {
        let case = format!("{second}, {broken:?}");
        let host = DemoHost::new().unwrap();
        for (name, more) in [("one", "follow = true"), ("two", second)] {
            host.add_class(name, &class(name, more)).unwrap();
        }
        let bundle = idle();
        let running = lab.start(&bundle);
        done(lab, &host, &["attach", bundle.id(), "one=3"]);
        done(lab, &host, &["attach", bundle.id(), "two=3"]);
        for name in broken {
            host.add_class(name, BROKEN).unwrap();
        }
        let _follower = Follower::start(lab, &host);
        assert!(may_open(&running, &host, 3), "{case}");
        replug(&host, 3, None);
        assert!(wait_until(|| !may_open(&running, &host, 3)), "{case}");
    }
}

/// It may read a device by its specification, and not write to it.
fn what_the_container_was_allowed_before_stays(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    host.add_class("one", &class("one", "")).unwrap();
    let number = host.device(DemoHost::UNLIKE).number();
    let device = format!("one={}", DemoHost::UNLIKE);
    let bundle = plain(Rootfs::Busybox).char_device("/dev/mine", number, "r");
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let cgroup = cgroup(lab, &running);
    let reads_it = || opens(&cgroup, &host, DemoHost::UNLIKE);
    assert!(reads_it());
    // It fails after the rules are set.
    let path = format!("/dev/one/{}", DemoHost::UNLIKE);
    running.output(&["mkdir", "-p", &path]).unwrap();
    let refused = boathook(lab, &host, &["attach", bundle.id(), &device]);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    assert!(reads_it(), "refused: {refused:?}");
    running.output(&["rmdir", &path]).unwrap();
    done(lab, &host, &["attach", bundle.id(), &device]);
    done(lab, &host, &["detach", bundle.id()]);
    assert!(reads_it(), "detached");
}

fn another_container_with_the_same_id_keeps_the_record(lab: &Lab) {
    let host = followed();
    let first = idle();
    let running = lab.start(&first);
    let id = first.id();
    done(lab, &host, &["attach", id, "dummy-npu=3"]);
    let other = Runc::new(lab.runc.view()).unwrap();
    let second = with_device(&host, "npu-7").args(["/bin/sleep", "1000"]);
    let second = second
        .cgroups_path(format!("/{id}-second"))
        .build()
        .unwrap();
    let mut run = other.command("run").unwrap();
    run.args(["--detach", "--bundle"])
        .arg(second.directory())
        .arg(id);
    run.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    assert!(run.status().unwrap().success());
    let ran = boathook(lab, &host, &["detach", id]);
    other.delete(id);
    assert!(ran.status.success(), "{ran:?}");
    assert!(!may_open(&running, &host, 3), "{ran:?}");
    assert_eq!(reads(&running, 3), None);
}

/// With the number that it had.
fn a_device_that_came_back_stays_though_its_class_is_broken(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    host.add_class("one", &class("one", "follow = true"))
        .unwrap();
    let bundle = requesting(&host, Rootfs::Busybox, "Vone", "3").args(["/bin/sleep", "1000"]);
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let _follower = Follower::start(lab, &host);
    replug(&host, 3, Some(3));
    sleep(A_WHILE);
    host.add_class("one", BROKEN).unwrap();
    tell();
    sleep(A_WHILE);
    assert!(may_open(&running, &host, 3));
    replug(&host, 3, None);
    assert!(wait_until(|| !may_open(&running, &host, 3)));
    plug_in(&host, 3, 3);
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

fn a_device_that_is_named_by_a_link_goes_with_it(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let by_link = class("one", "follow = true").replace("/dev/dummy-npu", "/dev/by-x/x");
    host.add_class("one", &by_link).unwrap();
    fs::create_dir(host.root().join("dev/by-x")).unwrap();
    symlink("../dummy-npu3", host.root().join("dev/by-x/x3")).unwrap();
    let bundle = idle();
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "one=3"]);
    host.add_class("one", BROKEN).unwrap();
    let _follower = Follower::start(lab, &host);
    replug(&host, 3, None);
    assert!(wait_until(|| !may_open(&running, &host, 3)));
}

/// Its cgroup is delegated to it; that in which it was when the device was attached is gone.
fn a_process_that_leaves_its_cgroup_keeps_no_rule(lab: &Lab) {
    if lab.runc.view() == CgroupView::V1 {
        return;
    }
    let host = DemoHost::new().unwrap();
    let name = format!("/boathook-left-{}.scope", std::process::id());
    let bundle = plain(Rootfs::Busybox).cgroups_path(&name).build().unwrap();
    let running = lab.start(&bundle);
    let pid = running.pid().unwrap().to_string();
    let scope = cgroup(lab, &running);
    let move_to = |name: &str| {
        fs::create_dir_all(scope.join(name)).unwrap();
        fs::write(scope.join(name).join("cgroup.procs"), &pid).unwrap();
    };
    move_to("init");
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    assert!(opens(&scope.join("init"), &host, 3));
    move_to("a/b");
    assert!(wait_until(|| fs::remove_dir(scope.join("init")).is_ok()));
    done(lab, &host, &["detach", bundle.id()]);
    assert!(!opens(&scope.join("a/b"), &host, 3), "the rule is left");
    drop(running);
    for name in ["a/b", "a", ""] {
        let _ = fs::remove_dir(scope.join(name));
    }
}
