//! The cost of attaching and following. The figures are printed; those of a release are in
//! docs/measurements.md.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use harness::demo_host::DemoHost;
use harness::demo_host::in_container::node;
use harness::patience::PATIENCE;
use harness::rootfs::Rootfs;
use harness::scratch;

use super::follow::{Follower, followed, replug, with_device};
use super::{done, plain};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(attaching_and_following);

/// A class with as many devices as a host has of serial ports or cameras.
const CLASS: &str = "version = 1\nresource = 'example.com/chip'\nfollow = true\n\
    request = { env = 'CHIPS' }\n\
    discover = [{ count = 8 }]\n\
    [device]\nid = 'chip-{index}'\nindex = '{index}'\n\
    nodes = ['/dev/dummy-npu{index}']\n";

const CONTAINERS: usize = 20;
const ROUNDS: usize = 5;

fn attaching_and_following(lab: &Lab) {
    let host = followed();
    // A tmpfs, as /run is.
    let run = scratch::directory_in(Path::new("/dev/shm"), "run").unwrap();
    fs::remove_dir(host.root().join("run")).unwrap();
    symlink(run.path(), host.root().join("run")).unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        done(lab, &host, &["attach", bundle.id(), "dummy-npu=5"]);
        times.push(start.elapsed());
        done(lab, &host, &["detach", bundle.id()]);
    }
    println!("attach: {:?}", median(&mut times));
    drop(running);

    host.add_class("chips", CLASS).unwrap();
    let bundles: Vec<_> = (0..CONTAINERS)
        .map(|_| {
            with_device(&host, "void")
                .env("CHIPS", "3")
                .build()
                .unwrap()
        })
        .collect();
    let containers = bundles.iter().map(|bundle| lab.start(bundle));
    let containers: Vec<_> = containers.collect();
    let paths = containers
        .iter()
        .map(|running| PathBuf::from(format!("/proc/{}/root{}", running.pid().unwrap(), node(3))));
    let paths: Vec<PathBuf> = paths.collect();
    let follower = Follower::start(lab, &host);
    let (mut each, mut last) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let like = [DemoHost::UNLIKE, 3][round % 2];
        let (major, minor) = host.device(like).number();
        let number = nix::sys::stat::makedev(major, minor);
        replug(&host, 3, Some(like));
        let start = Instant::now();
        let mut waiting = paths.clone();
        while !waiting.is_empty() {
            assert!(start.elapsed() < PATIENCE, "{waiting:?}");
            waiting.retain(|path| {
                let there = fs::metadata(path).is_ok_and(|found| found.rdev() == number);
                if there {
                    each.push(start.elapsed());
                }
                !there
            });
            sleep(Duration::from_micros(200));
        }
        last.push(start.elapsed());
    }
    println!(
        "replug to node, {CONTAINERS} containers: median {:?}, the last of all {:?}",
        median(&mut each),
        median(&mut last)
    );
    let status = || fs::read_to_string(format!("/proc/{}/status", follower.pid())).unwrap();
    let line = |status: &str, key: &str| {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    sleep(Duration::from_millis(500));
    let before = status();
    sleep(Duration::from_secs(3));
    let (before, after) = (before, status());
    println!("resident: {} KiB", line(&after, "VmRSS"));
    let switches = "voluntary_ctxt_switches";
    println!(
        "woken in 3 s: {}",
        line(&after, switches) - line(&before, switches)
    );
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}
