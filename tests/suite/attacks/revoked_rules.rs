//! The device rules of a container after a device is taken away: those of that device alone are
//! gone, and no later change sets them again.

use std::fs::{self};
use std::thread::sleep;

use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::probe::Access;
use harness::rootfs::Rootfs;

use super::cgroup_access::{cgroup, opens, opens_to_write};
use super::revocation::{A_WHILE, BROKEN, class, idle};
use crate::lab::{Lab, STAGE, granting, on_each_cgroup_version};
use crate::live::follow::{Follower, followed, may_open, plug_in, replug, tell};
use crate::live::{boathook, done, plain, reads, records};

on_each_cgroup_version!(
    a_rule_that_two_classes_share_goes_with_the_device,
    what_the_container_was_allowed_before_stays,
    a_process_that_leaves_its_cgroup_keeps_no_rule,
    an_exception_of_the_specification_holds_again,
    each_of_two_classes_has_its_own_access,
    an_update_gives_back_no_revoked_rule,
    an_earlier_number_of_a_cdi_device_is_denied,
);

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

/// On cgroup v1 the kernel does not show the exceptions of a list that allows everything.
fn an_exception_of_the_specification_holds_again(lab: &Lab) {
    let host = followed();
    let number = host.device(3).number();
    let bundle = plain(Rootfs::Busybox).all_devices_except(number);
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let cgroup = cgroup(lab, &running);
    assert!(!opens(&cgroup, &host, 3), "before");
    let _follower = Follower::start(lab, &host);
    for device in ["dummy-npu=3", "dummy-npu=npu-2"] {
        done(lab, &host, &["attach", bundle.id(), device]);
        assert!(opens(&cgroup, &host, 3), "{device}");
        let detached = boathook(lab, &host, &["detach", bundle.id(), device]);
        assert!(detached.status.success(), "{detached:?}");
        assert!(!detached.stderr.contains("still"), "{detached:?}");
        sleep(A_WHILE);
        assert!(!opens(&cgroup, &host, 3), "{device} stays");
        assert!(opens(&cgroup, &host, DemoHost::UNLIKE), "{device}");
        assert!(records(&host).is_empty());
    }
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    replug(&host, 3, None);
    assert!(wait_until(|| !opens(&cgroup, &host, 3)), "unplugged");
}

/// One class may only read the device, the other may write to it.
fn each_of_two_classes_has_its_own_access(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for (name, access) in [("one", "r"), ("two", "rw")] {
        let access = format!("optional = true, access = '{access}'");
        let class = class(name, "follow = true").replace("optional = true", &access);
        host.add_class(name, &class).unwrap();
    }
    let bundle = idle();
    let running = lab.start(&bundle);
    let cgroup = cgroup(lab, &running);
    let may = || (opens(&cgroup, &host, 3), opens_to_write(&cgroup, &host, 3));
    for first in ["one=3", "two=3"] {
        let second = ["two=3", "one=3"][usize::from(first == "two=3")];
        for (detached, left) in [("two=3", (true, false)), ("one=3", (true, true))] {
            let case = format!("{first} attached first, {detached} detached first");
            done(lab, &host, &["attach", bundle.id(), first]);
            done(lab, &host, &["attach", bundle.id(), second]);
            assert_eq!(may(), (true, true), "{case}");
            let follower = Follower::start(lab, &host);
            tell();
            sleep(A_WHILE);
            assert_eq!(may(), (true, true), "{case}: {}", follower.said());
            done(lab, &host, &["detach", bundle.id(), detached]);
            assert_eq!(may(), left, "{case}");
            tell();
            sleep(A_WHILE);
            assert_eq!(may(), left, "{case}: {}", follower.said());
            done(lab, &host, &["detach", bundle.id()]);
            assert_eq!(may(), (false, false), "{case}");
            assert!(records(&host).is_empty());
        }
    }
}

/// crun sets all rules of the specification again at each update. Here the test does it.
fn an_update_gives_back_no_revoked_rule(lab: &Lab) {
    if lab.runc.view() == CgroupView::V2 {
        return;
    }
    let host = followed();
    let (major, minor) = host.device(3).number();
    let bundle = plain(Rootfs::Busybox).hook(STAGE, granting(&host, "dummy-npu=npu-3"));
    let bundle = bundle.char_device("/dev/dummy-npu3", (major, minor), "rw");
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let cgroup = cgroup(lab, &running);
    let follower = Follower::start(lab, &host);
    assert!(opens(&cgroup, &host, 3));
    replug(&host, 3, None);
    assert!(wait_until(|| !opens(&cgroup, &host, 3)));
    sleep(A_WHILE);
    fs::write(
        cgroup.join("devices.allow"),
        format!("c {major}:{minor} rw"),
    )
    .unwrap();
    assert!(opens(&cgroup, &host, 3));
    fs::write(cgroup.join("devices.deny"), "c 1:999 w").unwrap();
    let is_gone = || !opens(&cgroup, &host, 3);
    assert!(wait_until(is_gone), "{}", follower.said());
    plug_in(&host, 3, 3);
    assert!(
        wait_until(|| opens(&cgroup, &host, 3)),
        "{}",
        follower.said()
    );
}

/// The engine's CDI specification is older than the device's number, which is another device's.
fn an_earlier_number_of_a_cdi_device_is_denied(lab: &Lab) {
    let other = DemoHost::UNLIKE;
    for follow in ["", "[class.dummy-npu]\nfollow = true\n"] {
        let host = DemoHost::new().unwrap();
        host.write_config(follow).unwrap();
        let bundle = plain(Rootfs::Busybox).hook(STAGE, granting(&host, "dummy-npu=npu-3"));
        let bundle = bundle.char_device("/dev/dummy-npu3", host.device(other).number(), "rw");
        let bundle = bundle.args(["/bin/sleep", "1000"]).build().unwrap();
        let running = lab.start(&bundle);
        let cgroup = cgroup(lab, &running);
        assert!(!opens(&cgroup, &host, other), "{follow}");
        assert_eq!(reads(&running, 3), Some(Access::Granted), "{follow}");
        assert!(host.log().contains("out of date"), "{}", host.log());
        if !follow.is_empty() {
            let _follower = Follower::start(lab, &host);
            sleep(A_WHILE);
            assert!(!opens(&cgroup, &host, other));
            assert_eq!(reads(&running, 3), Some(Access::Granted));
        }
    }
}
