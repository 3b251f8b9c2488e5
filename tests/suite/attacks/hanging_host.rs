//! Files that never answer: a driver while containers of its class are started, and a file system
//! of which a container has a file open while a device is detached from it.

use std::fs;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use harness::bundle::Bundle;
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::hanging::{self, HangingFileSystem};
use harness::patience::wait_until;
use harness::rootfs::Rootfs;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::{container_with_device, host_with_tools};
use crate::lab::{Lab, STAGE, hook, with_lab};
use crate::live::follow::{
    Follower, assert_follows, followed, may_open, replug, wait_for, with_device,
};
use crate::live::{boathook, done, plain};

/// The time that the hook's deadline of 10 s and SIGKILL a second later leave to the runtime.
const ENOUGH: Duration = Duration::from_secs(14);

const CLASS: &str = "version = 1\n\
    resource = 'hanging.com/npu'\n\
    request = { env = 'HANGING_VISIBLE_DEVICES' }\n\
    discover = [{ path = '/sys/class/hanging/{name}' }]\n\
    device = { id = '{name}' }\n";

#[test]
fn a_container_of_the_class_is_refused_in_time() {
    with_hanging(refused_in_time);
}

#[test]
fn an_open_file_holds_up_no_detaching() {
    with_hanging(detached_in_time);
}

#[test]
fn a_container_that_never_answers_is_left_alone() {
    with_hanging(others_are_followed);
}

/// Runs a test's body where file systems can be made that never answer.
fn with_hanging(body: fn(&Lab)) {
    match hanging::missing() {
        Some(reason) => skip::report(module_path!(), &reason),
        None => with_lab(module_path!(), CgroupView::V2, body),
    }
}

/// Calls `work`, and gives how long that took. It must not wait for the file system.
fn timed<T>(hanging: HangingFileSystem, work: impl FnOnce() -> T) -> (T, Duration) {
    let (over, is_over) = mpsc::channel::<()>();
    // So that a failure ends, too.
    let end = thread::spawn(move || {
        let _ = is_over.recv_timeout(2 * ENOUGH);
        drop(hanging);
    });
    let timed = timed_alone(work);
    drop(over);
    end.join().unwrap();
    timed
}

fn timed_alone<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let since = Instant::now();
    (work(), since.elapsed())
}

fn detached_in_time(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=npu-3"]);
    let directory = tempfile::tempdir().unwrap();
    let hanging = HangingFileSystem::mount_over(directory.path()).unwrap();
    // Inherited, and opened without the server being asked.
    let held = open(directory.path(), OFlag::O_PATH, Mode::empty()).unwrap();
    let mut holder = Command::new("/bin/sleep").arg("1000").spawn().unwrap();
    drop(held);
    let cgroup = format!("/proc/{}/cgroup", running.pid().unwrap());
    let cgroup = fs::read_to_string(cgroup).unwrap();
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"));
    let join = format!(
        "echo {} > /sys/fs/cgroup{}/cgroup.procs",
        holder.id(),
        path.unwrap()
    );
    let mut shell = lab.runc.view().command("/bin/sh".as_ref()).unwrap();
    assert!(shell.args(["-c", &join]).status().unwrap().success());
    let (ran, took) = timed(hanging, || boathook(lab, &host, &["detach", bundle.id()]));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(ran.status.success() && took < ENOUGH, "{took:?}: {ran:?}");
}

/// In one of two containers a link is planted at a device's name, into a file system that
/// never answers. Not even SIGKILL ends who follows it.
fn others_are_followed(lab: &Lab) {
    let host = followed();
    let directory = tempfile::tempdir().unwrap();
    let hanging = HangingFileSystem::taking(directory.path()).unwrap();
    let victim = with_device(&host, "npu-3").sys_admin();
    let victim = victim.bind(directory.path(), "/volume");
    let [victim, other] = [victim, with_device(&host, "npu-3")].map(|it| it.build().unwrap());
    let (planting, other) = (lab.start(&victim), lab.start(&other));
    let follower = Follower::start(lab, &host);
    assert_follows(&planting, &host, 3, &[None]);
    let attached = format!("dummy-npu={}", DemoHost::UNLIKE);
    done(lab, &host, &["attach", victim.id(), &attached]);
    let plant = ["ln", "-s", "/volume/name", "/dev/dummy-npu3"];
    planting.output(&plant).unwrap();
    // The rule of the other one is revoked while the follower waits for this one.
    replug(&host, 3, Some(3));
    wait_for(&other, &host, 3, Some(3));
    let since = Instant::now();
    replug(&host, 3, None);
    assert!(wait_until(|| !may_open(&other, &host, 3)));
    assert!(
        since.elapsed() < Duration::from_secs(5),
        "{:?}",
        since.elapsed()
    );
    assert_follows(&other, &host, 3, &[None, Some(3), None]);
    let said = format!("container {}: the container did not let it", victim.id());
    assert_eq!(follower.has_said(&said), 1);
    let (ran, took) = timed_alone(|| boathook(lab, &host, &["detach", victim.id()]));
    assert!(!ran.status.success() && took < ENOUGH, "{took:?}: {ran:?}");
    // Another process has the container's lock for ever.
    let said = "its device rules are revoked, but not all that was attached is removed";
    assert!(ran.stderr.contains(said), "{ran:?}");
    assert!(!may_open(&planting, &host, DemoHost::UNLIKE));
    let plant = "umount -l /usr/lib/boathook; rmdir /usr/lib/boathook; \
        ln -s /volume/name /usr/lib/boathook";
    planting.output(&["/bin/sh", "-c", plant]).unwrap();
    let (ran, took) = timed(hanging, || boathook(lab, &host, &["check"]));
    assert!(took < ENOUGH, "{took:?}: {ran:?}");
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(victim.id()), "{ran:?}");
    assert!(text.contains("does not answer"), "{ran:?}");
}

fn refused_in_time(lab: &Lab) {
    let host = host_with_tools();
    host.add_class("hanging", CLASS).unwrap();
    let driver = host.root().join("sys/class/hanging");
    fs::create_dir_all(&driver).unwrap();
    let hanging = HangingFileSystem::mount_over(&driver).unwrap();
    // Of others they are started as always.
    let other = container_with_device(&host, Rootfs::Busybox).args(["/bin/true"]);
    lab.run(&other.build().unwrap());
    let bundle = Bundle::builder(Rootfs::Busybox)
        .hook(STAGE, hook(&host).timeout(60))
        .env("HANGING_VISIBLE_DEVICES", "all")
        .args(["/bin/true"])
        .build()
        .unwrap();
    let (ran, took) = timed(hanging, || lab.runc.run(&bundle).unwrap());
    assert!(!ran.status.success());
    assert!(took < ENOUGH, "{took:?}: {}", ran.stderr);
    lab.assert_nothing_left(&bundle);
}
