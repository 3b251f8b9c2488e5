//! Many containers and many devices that are unplugged and come back, at any time: nothing is
//! lost, nothing is left, and no other container is touched.
//!
//! With `BOATHOOK_LOAD=long` (`make load`) there are 100 containers, 50 devices and 1,000
//! replugs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use nix::sys::stat::makedev;

use super::follow::{Follower, followed, tell, with_device};
use super::records;
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(nothing_is_lost_or_left_or_touched);

fn nothing_is_lost_or_left_or_touched(lab: &Lab) {
    let long = std::env::var("BOATHOOK_LOAD").is_ok_and(|value| value == "long");
    let (containers, devices, replugs) = if long { (100, 50, 1000) } else { (6, 4, 40) };
    let host = followed();
    let class = format!(
        "version = 1\nresource = 'example.com/port'\nfollow = true\n\
         request = {{ env = 'PORTS' }}\ndiscover = [{{ count = {devices} }}]\n\
         [device]\nid = 'port-{{index}}'\nindex = '{{index}}'\nnodes = ['/dev/port{{index}}']\n"
    );
    host.add_class("ports", &class).unwrap();
    let node = |device: usize| host.root().join(format!("dev/port{device}"));
    let mut numbers = vec![3; devices];
    for device in 0..devices {
        host.device(3).make_node(&node(device)).unwrap();
    }
    // Each has two devices, and the last one another class's.
    let held = |container: usize| [container % devices, (container * 7 + 1) % devices];
    let bundle = |container: usize| {
        let [one, other] = held(container);
        let bundle = if container == containers {
            with_device(&host, "npu-4")
        } else {
            with_device(&host, "void").env("PORTS", &format!("{one},{other}"))
        };
        bundle.build().unwrap()
    };
    let bundles: Vec<_> = (0..=containers).map(bundle).collect();
    let running = bundles.iter().map(|bundle| lab.start(bundle));
    let running: Vec<_> = running.collect();
    let pids: Vec<i32> = running.iter().map(|it| it.pid().unwrap()).collect();
    let mounts = |pid: i32| fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let other = mounts(pids[containers]);

    let follower = Follower::start(lab, &host);
    let mut random = 1_u64;
    for replug in 0..replugs {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let device = (random >> 33) as usize % devices;
        fs::remove_file(node(device)).unwrap();
        if replug % 2 == 0 {
            tell();
        }
        let [same, new] = [numbers[device], 3 + DemoHost::UNLIKE - numbers[device]];
        numbers[device] = if replug % 5 == 0 { same } else { new };
        host.device(numbers[device])
            .make_node(&node(device))
            .unwrap();
        tell();
    }
    for (container, pid) in pids[..containers].iter().enumerate() {
        for device in held(container) {
            let path = PathBuf::from(format!("/proc/{pid}/root/dev/port{device}"));
            let (major, minor) = host.device(numbers[device]).number();
            let wanted = makedev(major, minor);
            let is_so = || fs::metadata(&path).is_ok_and(|found| found.rdev() == wanted);
            assert!(wait_until(is_so), "container {container}: {path:?}");
        }
    }
    for (container, running) in running[..containers].iter().enumerate() {
        let held = held(container);
        for number in [3, DemoHost::UNLIKE] {
            let has = held.iter().any(|device| numbers[*device] == number);
            // A node that is in its place may have come there before the last replugs, whose
            // rules are still to be changed.
            let is_as_held = || super::follow::may_open(running, &host, number) == has;
            let what = "the number of";
            assert!(
                wait_until(is_as_held),
                "container {container}, {what} {number}: {has}"
            );
        }
        let mounts = mounts(pids[container]);
        for device in 0..devices {
            let path = format!("/dev/port{device}");
            let on_it = mounts
                .lines()
                .filter(|line| line.split(' ').nth(4) == Some(&path));
            let expected = usize::from(held.contains(&device));
            assert_eq!(on_it.count(), expected, "container {container}: {path}");
        }
    }
    assert_eq!(mounts(pids[containers]), other);
    assert_eq!(records(&host).len(), containers + 1);
    drop(running);
    // What follows is told of containers that have ended by the next message.
    let directory = host.root().join("run/boathook/attached");
    let is_empty = wait_until(|| {
        tell();
        std::thread::sleep(Duration::from_millis(50));
        fs::read_dir(&directory).unwrap().next().is_none()
    });
    assert!(is_empty, "{:?}", records(&host));
    drop(follower);
    for bundle in &bundles {
        lab.assert_nothing_left(bundle);
    }
}
