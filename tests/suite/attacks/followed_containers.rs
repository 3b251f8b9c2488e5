//! Containers whose devices are followed, and that keep `boathook follow` busy or waiting, or
//! plant something while a device is away.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use harness::bundle::BundleBuilder;
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::demo_host::in_container::node;
use harness::patience::wait_until;
use harness::probe::{Access, Questions};
use harness::rootfs::Rootfs;
use harness::runc::Container;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::makedev;

use super::live_containers::{self, Victim};
use super::long;
use crate::lab::{Lab, on_each_cgroup_version, with_lab};
use crate::live::follow::{
    Follower, assert_follows, followed, may_open, plug_in, replug, tell, wait_for, with_device,
};
use crate::live::{done, plain, reads, records};

on_each_cgroup_version!(
    a_device_that_flaps_is_looked_at_more_and_more_seldom,
    a_frozen_container_keeps_nobody_waiting,
    a_process_that_has_the_number_of_one_that_ended_is_left_alone,
    limits_that_are_written_all_the_time_cost_little,
    what_is_planted_while_a_device_is_away_leads_nowhere,
    a_device_that_flaps_and_a_follower_that_is_killed,
);

fn a_device_that_flaps_is_looked_at_more_and_more_seldom(lab: &Lab) {
    let host = followed();
    let bundle = with_device(&host, "npu-3").build().unwrap();
    let running = lab.start(&bundle);
    let _follower = Follower::start(lab, &host);
    let looks = Looks::watch(&host);
    looks.assert_few_while(Duration::from_millis(10), |turn| {
        replug(&host, 3, Some([DemoHost::UNLIKE, 3][turn % 2]));
    });
    assert_follows(&running, &host, 3, &[None, Some(3)]);
}

fn a_frozen_container_keeps_nobody_waiting(lab: &Lab) {
    let host = followed();
    let bundles = [0, 1].map(|_| with_device(&host, "npu-3").build().unwrap());
    let [frozen, other] = bundles.each_ref().map(|bundle| lab.start(bundle));
    let _follower = Follower::start(lab, &host);
    let runc = |subcommand: &str| {
        let mut command = lab.runc.command(subcommand).unwrap();
        assert!(command.arg(bundles[0].id()).status().unwrap().success());
    };
    for like in [DemoHost::UNLIKE, 3] {
        assert_follows(&other, &host, 3, &[None]);
        runc("pause");
        assert_follows(&other, &host, 3, &[Some(like)]);
        let (major, minor) = host.device(like).number();
        let is_so = wait_until(|| number(&frozen) == Some(makedev(major, minor)));
        assert!(is_so, "{like}");
        runc("resume");
        assert_eq!(reads(&frozen, 3), Some(Access::Granted), "{like}");
    }
}

/// The number of the container's node, seen from outside.
fn number(container: &Container<'_>) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let path = format!("/proc/{}/root{}", container.pid().unwrap(), node(3));
    Some(fs::metadata(path).ok()?.rdev())
}

fn a_process_that_has_the_number_of_one_that_ended_is_left_alone(lab: &Lab) {
    let host = followed();
    let bundles = ["npu-3", "void"].map(|device| with_device(&host, device).build().unwrap());
    let [ended, other] = bundles.each_ref().map(|bundle| lab.start(bundle));
    let mounts = || fs::read(format!("/proc/{}/mountinfo", other.pid().unwrap())).unwrap();
    let before = mounts();
    let directory = host.root().join("run/boathook/attached");
    let path = directory.join(bundles[0].id());
    let record = fs::read_to_string(&path).unwrap();
    let pid = |container: &Container<'_>| format!("\"pid\":{}", container.pid().unwrap());
    assert!(record.contains(&pid(&ended)), "{record}");
    let reused = record.replace(&pid(&ended), &pid(&other));
    drop(ended);
    fs::write(&path, reused).unwrap();
    let follower = Follower::start(lab, &host);
    // One that is there shows that it has looked.
    let third = with_device(&host, "npu-3").build().unwrap();
    let third = lab.start(&third);
    assert_follows(&third, &host, 3, &[None, Some(DemoHost::UNLIKE), Some(3)]);
    assert_eq!(mounts(), before);
    for index in [3, DemoHost::UNLIKE] {
        assert!(!may_open(&other, &host, index));
    }
    let left = records(&host).len();
    assert_eq!(left, 1, "that of the container that ended is left");
    assert_eq!(follower.has_said(bundles[0].id()), 0);
}

/// As a container can that may write its own cgroup's files.
fn limits_that_are_written_all_the_time_cost_little(lab: &Lab) {
    let host = followed();
    let bundles = [0, 1].map(|_| with_device(&host, "npu-3").build().unwrap());
    let [busy, other] = bundles.each_ref().map(|bundle| lab.start(bundle));
    let _follower = Follower::start(lab, &host);
    let Some(file) = limit(lab, &busy) else {
        return skip::report("limits that are written", "cgroups have no limits here");
    };
    let looks = Looks::watch(&host);
    looks.assert_few_while(Duration::from_millis(2), |_| {
        // With what it has.
        let value = if file.ends_with("devices.deny") {
            "b 1:77 m".to_owned()
        } else {
            fs::read_to_string(&file).unwrap()
        };
        fs::write(&file, value).unwrap();
    });
    replug(&host, 3, Some(DemoHost::UNLIKE));
    for container in [&busy, &other] {
        wait_for(container, &host, 3, Some(DemoHost::UNLIKE));
    }
}

/// One who changes a container holds its lock, and may be kept waiting by it.
#[test]
fn what_is_lost_meanwhile_is_given_back_later() {
    with_lab(module_path!(), CgroupView::V1, |lab| {
        let host = followed();
        let bundle = with_device(&host, "npu-3").build().unwrap();
        let running = lab.start(&bundle);
        let follower = Follower::start(lab, &host);
        let directory = host.root().join("run/boathook/attached");
        let lock = fs::File::create(directory.join(format!(".{}.lock", bundle.id()))).unwrap();
        let lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
        deny(lab, &host, &running, 3);
        assert!(wait_until(|| follower.has_said("does not end") == 1));
        assert!(!may_open(&running, &host, 3));
        drop(lock);
        assert!(wait_until(|| may_open(&running, &host, 3)));
    });
}

/// Its number may be another device's by then.
#[test]
fn what_the_host_has_no_more_is_not_given_back() {
    with_lab(module_path!(), CgroupView::V1, |lab| {
        let host = live_containers::chips();
        let bundle = plain(Rootfs::Busybox).build().unwrap();
        let running = lab.start(&bundle);
        for device in ["chips=3", "chips=7"] {
            done(lab, &host, &["attach", bundle.id(), device]);
        }
        let _follower = Follower::start(lab, &host);
        let lose = || {
            for index in [3, DemoHost::UNLIKE] {
                deny(lab, &host, &running, index);
            }
        };
        fs::remove_file(host.node(3)).unwrap();
        lose();
        assert!(wait_until(|| may_open(&running, &host, DemoHost::UNLIKE)));
        assert!(!may_open(&running, &host, 3));
        plug_in(&host, 3, 3);
        lose();
        assert!(wait_until(|| may_open(&running, &host, 3)));
    });
}

/// As somebody who writes the file of its cgroup.
fn deny(lab: &Lab, host: &DemoHost, container: &Container<'_>, index: usize) {
    let (major, minor) = host.device(index).number();
    let rule = format!("c {major}:{minor} rwm");
    fs::write(limit(lab, container).unwrap(), rule).unwrap();
}

/// A file of the container's cgroup that is written with its rules.
fn limit(lab: &Lab, container: &Container<'_>) -> Option<PathBuf> {
    let of = fs::read_to_string(format!("/proc/{}/cgroup", container.pid().unwrap())).unwrap();
    let path = |controller: &str| of.lines().find_map(|line| line.split_once(controller));
    match lab.runc.view() {
        CgroupView::V1 => {
            let (_, path) = path(":devices:")?;
            let cgroup = Path::new("/sys/fs/cgroup/devices").join(&path[1..]);
            Some(cgroup.join("devices.deny"))
        }
        CgroupView::V2 => {
            let (_, path) = path("0::")?;
            let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
            let files =
                mounts.map(|mount| Path::new(mount).join(&path[1..]).join("hugetlb.2MB.max"));
            files.into_iter().find(|file| file.exists())
        }
    }
}

/// Counts how often `boathook follow` opens the directory of the records.
struct Looks(Inotify);

impl Looks {
    fn watch(host: &DemoHost) -> Self {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        let records = host.root().join("run/boathook/attached");
        inotify.add_watch(&records, AddWatchFlags::IN_OPEN).unwrap();
        Self(inotify)
    }

    /// Fails unless there are few, and any, while this is done for some seconds at this pace.
    fn assert_few_while(&self, pace: Duration, mut work: impl FnMut(usize)) {
        let start = Instant::now();
        let mut turn = 0;
        while start.elapsed() < Duration::from_secs(4) {
            work(turn);
            turn += 1;
            sleep(pace);
        }
        let events = std::iter::from_fn(|| self.0.read_events().ok()).flatten();
        let of_all = |mask: AddWatchFlags| mask.contains(AddWatchFlags::IN_ISDIR);
        let looks = events.filter(|event| of_all(event.mask)).count();
        // `boathook follow` may look at the devices ten times at once, twice in each second after
        // that, and once at the end. A look opens the directory twice to read the records. If the
        // devices have changed, it also writes the record up to three times, and looks at the
        // rules. A write opens the directory twice, and a look at the rules does the same.
        let seconds = usize::try_from(start.elapsed().as_secs()).unwrap() + 1;
        let most = (2 + 3 * 2 + 2) * (10 + 2 * seconds + 1);
        assert!((1..=most).contains(&looks), "{looks} of {most} in {turn}");
    }
}

/// The other container gets the device, and the one that planted something only once it has
/// taken that away.
fn what_is_planted_while_a_device_is_away_leads_nowhere(lab: &Lab) {
    let host = followed();
    for plant in [
        "ln -s /volume/file /dev/dummy-npu3",
        "ln -s /volume/new /dev/dummy-npu3",
        "mkdir /dev/dummy-npu3",
        "mkfifo /dev/dummy-npu3",
        "echo mine > /dev/dummy-npu3; mount --bind /volume/file /dev/dummy-npu3",
    ] {
        let victim = Victim::new(":", BundleBuilder::sys_admin);
        let running = victim.start(lab);
        done(lab, &host, &["attach", victim.id(), "dummy-npu=3"]);
        let bundle = with_device(&host, "npu-3").build().unwrap();
        let other = lab.start(&bundle);
        let _follower = Follower::start(lab, &host);
        assert_follows(&running, &host, 3, &[None]);
        running.output(&["/bin/sh", "-c", plant]).unwrap();
        assert_follows(&other, &host, 3, &[Some(DemoHost::UNLIKE)]);
        victim.assert_volume_unchanged(plant);
        // A file of the container's own may be covered.
        let covered = plant.contains("mine");
        let seen = reads(&running, 3);
        assert!(covered || seen.is_none(), "{plant}: {seen:?}");
        assert_follows(&other, &host, 3, &[Some(3)]);
        victim.assert_volume_unchanged(plant);
    }
}

/// In the end every container has the device once, and no other number.
fn a_device_that_flaps_and_a_follower_that_is_killed(lab: &Lab) {
    let host = followed();
    let bundles = [0, 1, 2].map(|_| with_device(&host, "npu-3").build().unwrap());
    let running = bundles.each_ref().map(|bundle| lab.start(bundle));
    for round in 0..if long() { 1000 } else { 25 } {
        let follower = Follower::start(lab, &host);
        for like in [DemoHost::UNLIKE, 3, DemoHost::UNLIKE] {
            fs::remove_file(host.node(3)).unwrap();
            if round % 2 == 0 {
                tell();
            }
            plug_in(&host, 3, like);
        }
        sleep(Duration::from_millis(round % 25));
        drop(follower);
    }
    let _follower = Follower::start(lab, &host);
    for running in &running {
        wait_for(running, &host, 3, Some(DemoHost::UNLIKE));
        assert!(!may_open(running, &host, 3), "the old number");
        let report = running.probe(&Questions::new()).unwrap();
        let mounts = report.mounts.iter();
        let on_node = mounts.filter(|it| it.mount_point.to_str() == Some(&node(3)));
        assert_eq!(on_node.count(), 1);
    }
    assert_eq!(records(&host).len(), 3);
}
