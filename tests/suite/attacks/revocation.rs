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
use harness::demo_host::in_container::node;
use harness::patience::wait_until;
use harness::probe::{Access, Kind};
use harness::rootfs::Rootfs;
use harness::runc::Runc;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::changed_processes::{cgroup, opens, opens_to_write};
use crate::lab::{Lab, STAGE, granting, on_each_cgroup_version, requesting};
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
    an_exception_of_the_specification_holds_again,
    each_of_two_classes_has_its_own_access,
    a_node_of_a_class_is_followed,
    an_older_record_of_processes_that_go_on_is_used,
    a_device_that_is_detached_while_another_is_attached_is_gone,
    an_update_gives_back_no_revoked_rule,
    an_earlier_number_of_a_cdi_device_is_denied,
    a_device_with_the_requested_name_is_followed,
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

/// A driver that is loaded again may get other numbers for the nodes of all its devices together.
fn a_node_of_a_class_is_followed(lab: &Lab) {
    const CONTROL: &str = "/dev/one-control";
    let host = DemoHost::new().unwrap();
    let control = host.root().join("dev/one-control");
    let edits = format!("[[edits]]\nnodes = [{{ path = '{CONTROL}', optional = true }}]\n");
    let class = class("one", "follow = true") + &edits;
    let other = DemoHost::UNLIKE;
    for given in ["by the hook", "by attach"] {
        host.add_class("one", &class).unwrap();
        let _ = fs::remove_file(&control);
        host.device(other).make_node(&control).unwrap();
        let bundle = if given == "by the hook" {
            requesting(&host, Rootfs::Busybox, "Vone", "3")
        } else {
            plain(Rootfs::Busybox)
        };
        let bundle = bundle.args(["/bin/sleep", "1000"]).build().unwrap();
        let running = lab.start(&bundle);
        if given == "by attach" {
            done(lab, &host, &["attach", bundle.id(), "one=3"]);
        }
        let cgroup = cgroup(lab, &running);
        let reads_control = || {
            let seen = running.look(CONTROL).unwrap();
            seen.read == Access::Granted && seen.number() == Some(host.device(other).number())
        };
        assert!(reads_control(), "{given}");
        let follower = Follower::start(lab, &host);
        let said = || follower.said();
        // The device keeps its number, and the other number is another device's by now.
        fs::remove_file(&control).unwrap();
        host.device(3).make_node(&control).unwrap();
        tell();
        assert!(
            wait_until(|| !opens(&cgroup, &host, other)),
            "{given}: {}",
            said()
        );
        let is_new = || running.look(CONTROL).unwrap().number() == Some(host.device(3).number());
        assert!(wait_until(is_new), "{given}: {}", said());
        assert!(opens(&cgroup, &host, 3), "{given}");
        fs::remove_file(&control).unwrap();
        tell();
        host.device(other).make_node(&control).unwrap();
        tell();
        assert!(wait_until(reads_control), "{given}: {}", said());
        // Also if the class cannot be read.
        host.add_class("one", BROKEN).unwrap();
        fs::remove_file(&control).unwrap();
        tell();
        assert!(
            wait_until(|| !opens(&cgroup, &host, other)),
            "{given}: {}",
            said()
        );
        assert!(opens(&cgroup, &host, 3), "{given}");
    }
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

/// A stick whose id is the socket that it is plugged into, and that has a serial number.
fn a_device_with_the_requested_name_is_followed(lab: &Lab) {
    const STICKS: &str = "version = 1\nresource = 'example.com/stick'\nfollow = true\n\
        request = { env = 'STICKS' }\n\
        [[discover]]\npath = '/sys/sockets/{n:number}'\n\
        attributes = [{ name = 'serial', file = 'serial' }, { name = 'socket', file = 'socket' }]\n\
        nodes = [{ path = '/dev/dummy-npu{n}', links = ['/dev/by-id/{serial}'] }]\n\
        [device]\nid = 'socket-{socket}'\nindex = '{n}'\naliases = ['{serial}', 'dummy-npu{n}']\n";
    let other = DemoHost::UNLIKE;
    for request in [
        "AAAA",
        "/dev/by-id/AAAA",
        "socket-3",
        "3",
        "dummy-npu3",
        "3-3",
    ] {
        for attached in [false, true] {
            let case = format!("{request}, attached: {attached}");
            let host = DemoHost::new().unwrap();
            host.add_class("stick", STICKS).unwrap();
            let links = host.root().join("dev/by-id");
            fs::create_dir(&links).unwrap();
            let plug = |socket: usize, serial: &str| {
                let number = socket.to_string();
                for (name, text) in [("serial", serial), ("socket", &number)] {
                    let file = format!("/sys/sockets/{socket}/{name}");
                    host.add_file(&file, &format!("{text}\n")).unwrap();
                }
                symlink(format!("../dummy-npu{socket}"), links.join(serial)).unwrap();
                tell();
            };
            let unplug = |socket: usize, serial: &str| {
                let directory = host.root().join(format!("sys/sockets/{socket}"));
                fs::remove_dir_all(directory).unwrap();
                fs::remove_file(links.join(serial)).unwrap();
                tell();
            };
            plug(3, "AAAA");
            let _follower = Follower::start(lab, &host);
            let bundle = if attached {
                plain(Rootfs::Busybox)
            } else {
                requesting(&host, Rootfs::Busybox, "STICKS", request)
            };
            let bundle = bundle.args(["/bin/sleep", "1000"]).build().unwrap();
            let running = lab.start(&bundle);
            let device = format!("stick={request}");
            if attached {
                done(lab, &host, &["attach", bundle.id(), &device]);
            }
            let cgroup = cgroup(lab, &running);
            assert!(opens(&cgroup, &host, 3), "{case}");
            unplug(3, "AAAA");
            assert!(wait_until(|| !opens(&cgroup, &host, 3)), "{case}");
            plug(3, "BBBB");
            let by_serial = request.contains("AAAA");
            if by_serial {
                sleep(A_WHILE);
                assert!(!opens(&cgroup, &host, 3), "{case}: another stick");
            } else {
                assert!(wait_until(|| opens(&cgroup, &host, 3)), "{case}");
            }
            plug(other, "AAAA");
            let has_other = || running.look(node(other)).unwrap().read == Access::Granted;
            if by_serial {
                assert!(wait_until(has_other), "{case}: in another socket");
                assert!(!opens(&cgroup, &host, 3), "{case}");
            } else {
                sleep(A_WHILE);
                assert!(!opens(&cgroup, &host, other), "{case}");
            }
            if attached {
                done(lab, &host, &["detach", bundle.id(), &device]);
                assert!(
                    !opens(&cgroup, &host, 3) && !opens(&cgroup, &host, other),
                    "{case}"
                );
                assert!(records(&host).is_empty(), "{case}");
            }
        }
    }
}
