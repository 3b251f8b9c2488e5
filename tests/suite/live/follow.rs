//! `boathook follow`: devices that are unplugged and come back with another number. The
//! devices are nodes of the demo host; the kernel's message is one that it sends on request.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::bundle::{Bundle, BundleBuilder, HookCommand, Stage};
use harness::demo_host::DemoHost;
use harness::demo_host::in_container::node;
use harness::patience::PATIENCE;
use harness::probe::{Access, PATH, PAUSE, Questions};
use harness::rootfs::Rootfs;
use harness::runc::Container;

use super::{boathook, command, done, host, plain, reads, records};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    a_device_that_comes_back_with_another_number_is_there_again,
    what_happened_while_nobody_looked_is_made_up_for,
    links_and_names_stay_right,
    attach_makes_up_for_what_nobody_followed,
    several_containers_follow_and_others_do_not,
    a_class_whose_ids_change_is_left_alone,
);

/// A file of the kernel's that sends a message of a device when written to.
const MESSAGE: &str = "/sys/class/mem/null/uevent";

/// A demo host whose devices are followed.
pub(crate) fn followed() -> DemoHost {
    let host = host();
    host.write_config("[class.dummy-npu]\nfollow = true\n")
        .unwrap();
    host
}

/// `boathook follow` as long as it is not dropped.
pub(crate) struct Follower {
    child: Child,
    /// What it prints on stderr.
    log: PathBuf,
}

impl Follower {
    /// Starts it, and waits until it listens.
    pub(crate) fn start(lab: &Lab, host: &DemoHost) -> Self {
        Self::start_with(lab, host, &[])
    }

    /// The same with options.
    pub(crate) fn start_with(lab: &Lab, host: &DemoHost, options: &[&str]) -> Self {
        let mut command = command(lab, host, &["follow", "--verbose"]);
        command.args(options);
        Self::start_by(host, command)
    }

    /// The same by this command.
    pub(crate) fn start_by(host: &DemoHost, mut command: Command) -> Self {
        let log = host.path().join("follow.log");
        command.stderr(File::create(&log).unwrap());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.as_mut().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "following devices\n");
        Follower { child, log }
    }

    /// Its process; on v2 of the program that gives it the view, which becomes it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How often it has said this.
    pub(crate) fn has_said(&self, words: &str) -> usize {
        self.said().matches(words).count()
    }

    /// All that it has said.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

pub(crate) fn unplug(host: &DemoHost, index: usize) {
    fs::remove_file(host.node(index)).unwrap();
    tell();
}

/// With the number of another device, or its own.
pub(crate) fn plug_in(host: &DemoHost, index: usize, like: usize) {
    host.device(like).make_node(&host.node(index)).unwrap();
    tell();
}

pub(crate) fn tell() {
    fs::write(MESSAGE, "change").unwrap();
}

/// Waits until the container's node has the number of this device, or is gone.
#[track_caller]
pub(crate) fn wait_for(
    container: &Container<'_>,
    host: &DemoHost,
    index: usize,
    like: Option<usize>,
) {
    let wanted = like.map(|like| (host.device(like), Access::Granted));
    let end = Instant::now() + PATIENCE;
    loop {
        let report = container
            .probe(&Questions::new().path(node(index)))
            .unwrap();
        let seen = report.path(node(index)).unwrap();
        let is_there = match (&wanted, &seen.device) {
            (None, None) => seen.kind == harness::probe::Kind::Missing,
            (Some((device, access)), Some(found)) => {
                (found.major, found.minor) == (device.major, device.minor) && seen.read == *access
            }
            _ => false,
        };
        if is_there {
            return;
        }
        assert!(Instant::now() < end, "{index} is not as {like:?}: {seen:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the container may open a device whose node it makes itself.
pub(crate) fn may_open(container: &Container<'_>, host: &DemoHost, index: usize) -> bool {
    let device = host.device(index);
    let asked = Questions::new().new_node("/dev/own", device.major, device.minor);
    let report = container.probe(&asked).unwrap();
    container.output(&["rm", "-f", "/dev/own"]).unwrap();
    report.new_node("/dev/own").unwrap().read == Some(Access::Granted)
}

/// A container that was started with a device.
pub(crate) fn with_device(host: &DemoHost, device: &str) -> BundleBuilder {
    let bundle = Bundle::with_hook(Rootfs::Busybox, &host.config_file()).unwrap();
    bundle.env(DemoHost::VARIABLE, device).args([PATH, PAUSE])
}

pub(super) fn a_device_that_comes_back_with_another_number_is_there_again(lab: &Lab) {
    const OTHER: usize = DemoHost::UNLIKE;
    let host = followed();
    let number = |index| {
        let device = host.device(index);
        (device.major, device.minor)
    };
    // By CDI the engine makes the node, also with an old number; the wrapper writes the rule.
    for given in [
        "by the hook",
        "by attach",
        "by CDI",
        "by old CDI",
        "by the wrapper",
    ] {
        let attached = given == "by attach";
        let bundle = match given {
            "by the hook" => with_device(&host, "npu-3"),
            "by attach" => plain(Rootfs::Busybox),
            "by CDI" | "by old CDI" => {
                let hook = HookCommand::boathook(Stage::CreateRuntime, &host.config_file());
                let hook = hook.unwrap().arg("--cdi").arg("dummy-npu=npu-3");
                let bundle = plain(Rootfs::Busybox).hook(Stage::CreateRuntime, hook);
                let number = number(if given == "by CDI" { 3 } else { OTHER });
                bundle.char_device(node(3), number, "rw").unwrap()
            }
            _ => with_device(&host, "npu-3")
                .device_rule(number(3), "rw")
                .unwrap(),
        };
        let bundle = bundle.build().unwrap();
        let running = lab.runc.create(&bundle).unwrap();
        running.start().unwrap();
        if attached {
            done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
        }
        let follower = Follower::start(lab, &host);
        for round in 0..3 {
            let may_not_open = |index, when| {
                let opens = may_open(&running, &host, index);
                assert!(!opens, "{given}, {round}: {index}, {when}");
            };
            // At once, without having been away.
            let replug = |like| {
                fs::remove_file(host.node(3)).unwrap();
                plug_in(&host, 3, like);
                wait_for(&running, &host, 3, Some(like));
            };
            replug(OTHER);
            unplug(&host, 3);
            wait_for(&running, &host, 3, None);
            may_not_open(3, "unplugged");
            may_not_open(OTHER, "unplugged");
            plug_in(&host, 3, OTHER);
            wait_for(&running, &host, 3, Some(OTHER));
            may_not_open(3, "the old number");
            replug(3);
            may_not_open(OTHER, "the old number");
        }
        let report = running.probe(&Questions::new()).unwrap();
        let mounts = report.mounts.iter();
        let on_node = mounts.filter(|it| it.mount_point.to_str() == Some(&node(3)));
        assert_eq!(on_node.count(), 1, "{given}");
        assert_eq!(records(&host), [bundle.id()]);
        if !attached {
            let text = done(lab, &host, &["detach", bundle.id()]);
            assert!(text.starts_with("nothing is attached"), "{text}");
            assert_eq!(reads(&running, 3), Some(Access::Granted));
            let again = done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
            assert!(again.contains("has it already"), "{again}");
        } else {
            done(lab, &host, &["detach", bundle.id()]);
            assert_eq!(reads(&running, 3), None);
        }
        drop(follower);
        fs::remove_dir_all(host.root().join("run/boathook")).unwrap();
    }
}

fn what_happened_while_nobody_looked_is_made_up_for(lab: &Lab) {
    let host = followed();
    let bundle = with_device(&host, "npu-3").build().unwrap();
    let running = lab.runc.create(&bundle).unwrap();
    running.start().unwrap();
    fs::remove_file(host.node(3)).unwrap();
    {
        let _follower = Follower::start(lab, &host);
        wait_for(&running, &host, 3, None);
    }
    plug_in(&host, 3, DemoHost::UNLIKE);
    {
        let _follower = Follower::start(lab, &host);
        wait_for(&running, &host, 3, Some(DemoHost::UNLIKE));
    }
    drop(running);
    tell();
    let _follower = Follower::start(lab, &host);
    let again = lab.runc.create(&bundle).unwrap();
    again.start().unwrap();
    wait_for(&again, &host, 3, Some(DemoHost::UNLIKE));
    unplug(&host, 3);
    wait_for(&again, &host, 3, None);
}

/// As of a serial port: its name has the number, and udev's link leads to it.
fn with_ports() -> (DemoHost, PathBuf) {
    let host = followed();
    let class = "version = 1\nresource = 'example.com/port'\nfollow = true\n\
        request = { env = 'PORTS' }\n\
        discover = [{ path = '/dev/by-id/{serial}', attributes = \
        [{ name = 'name', link = '/dev/by-id/{serial}' }] }]\n\
        [device]\nid = 'port-{serial}'\n\
        nodes = [{ path = '/dev/{name}', links = ['/dev/by-id/{serial}'] }]\n";
    host.add_class("ports", class).unwrap();
    let link = host.root().join("dev/by-id/x1");
    fs::create_dir(link.parent().unwrap()).unwrap();
    symlink("../dummy-npu1", &link).unwrap();
    (host, link)
}

pub(super) fn links_and_names_stay_right(lab: &Lab) {
    let (host, link) = with_ports();
    let bundle = Bundle::with_hook(Rootfs::Busybox, &host.config_file()).unwrap();
    let bundle = bundle
        .env("PORTS", "all")
        .args([PATH, PAUSE])
        .build()
        .unwrap();
    let running = lab.runc.create(&bundle).unwrap();
    running.start().unwrap();
    let _follower = Follower::start(lab, &host);
    let end = Instant::now() + PATIENCE;
    for name in ["dummy-npu1", "dummy-npu7", "dummy-npu2"] {
        fs::remove_file(&link).unwrap();
        symlink(format!("../{name}"), &link).unwrap();
        tell();
        let expected = format!("../{name} by-id dummy-npu{}", &name[9..]);
        loop {
            let script =
                "cat < /dev/null; echo $(readlink /dev/by-id/x1; cd /dev; ls -d by-id dummy*)";
            let seen = running.output(&["/bin/sh", "-c", script]).unwrap();
            if seen.trim() == expected {
                break;
            }
            assert!(Instant::now() < end, "{seen} is not {expected}");
            std::thread::sleep(Duration::from_millis(10));
        }
        let report = running
            .probe(&Questions::new().path("/dev/by-id/x1"))
            .unwrap();
        assert_eq!(report.path("/dev/by-id/x1").unwrap().read, Access::Granted);
    }
}

fn attach_makes_up_for_what_nobody_followed(lab: &Lab) {
    let (host, link) = with_ports();
    let bundle = Bundle::with_hook(Rootfs::Busybox, &host.config_file()).unwrap();
    let bundle = bundle.env("PORTS", "all").args([PATH, PAUSE]);
    let bundle = bundle.build().unwrap();
    let running = lab.runc.create(&bundle).unwrap();
    running.start().unwrap();
    fs::remove_file(&link).unwrap();
    symlink("../dummy-npu7", &link).unwrap();
    let said = done(lab, &host, &["attach", bundle.id(), "ports=port-x1"]);
    assert!(said.contains("has it already"), "{said}");
    let script = "echo $(readlink /dev/by-id/x1; cd /dev; ls -d dummy*)";
    let seen = running.output(&["/bin/sh", "-c", script]).unwrap();
    assert_eq!(seen.trim(), "../dummy-npu7 dummy-npu7");
    assert_eq!(reads(&running, 7), Some(Access::Granted));
}

fn several_containers_follow_and_others_do_not(lab: &Lab) {
    let host = followed();
    let bundles = ["npu-3", "npu-3,npu-4", "npu-4", "void"];
    let bundles = bundles.map(|devices| with_device(&host, devices).build().unwrap());
    let running: Vec<_> = bundles
        .iter()
        .map(|bundle| {
            let running = lab.runc.create(bundle).unwrap();
            running.start().unwrap();
            running
        })
        .collect();
    assert_eq!(records(&host).len(), 3);
    let _follower = Follower::start(lab, &host);
    let mounts = |at: usize| {
        fs::read_to_string(format!("/proc/{}/mountinfo", running[at].pid().unwrap())).unwrap()
    };
    let before = [2, 3].map(mounts);
    unplug(&host, 3);
    wait_for(&running[0], &host, 3, None);
    wait_for(&running[1], &host, 3, None);
    assert_eq!(reads(&running[1], 4), Some(Access::Granted));
    plug_in(&host, 3, DemoHost::UNLIKE);
    for container in &running[..2] {
        wait_for(container, &host, 3, Some(DemoHost::UNLIKE));
    }
    assert_eq!(reads(&running[1], 4), Some(Access::Granted));
    assert_eq!([2, 3].map(mounts), before);
    assert!(!may_open(&running[2], &host, DemoHost::UNLIKE));
}

/// The class was all right when the container was started.
fn a_class_whose_ids_change_is_left_alone(lab: &Lab) {
    let host = followed();
    let class = |source: &str| {
        let class = format!(
            "version = 1\nresource = 'example.com/port'\nfollow = true\n\
             request = {{ env = 'PORTS' }}\ndiscover = [{{ {source} }}]\n\
             [device]\nid = 'port-{{index}}'\nindex = '{{index}}'\n\
             nodes = ['/dev/dummy-npu{{index}}']\n"
        );
        host.add_class("ports", &class).unwrap();
    };
    class("count = 8");
    let ports = with_device(&host, "void").env("PORTS", "3");
    let [ports, other] = [ports, with_device(&host, "npu-4")].map(|it| it.build().unwrap());
    let [ports, other] = [&ports, &other].map(|bundle| {
        let running = lab.runc.create(bundle).unwrap();
        running.start().unwrap();
        running
    });
    class("path = '/dev/dummy-npu{index:number}'");
    let reason = "the id `port-{index}` may not have `index`";
    let checked = boathook(lab, &host, &["check"]);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    let words = checked.stdout.split_whitespace().collect::<Vec<_>>();
    assert!(words.join(" ").contains(reason), "{checked:?}");

    let follower = Follower::start(lab, &host);
    for _ in 0..2 {
        unplug(&host, 4);
        fs::remove_file(host.node(3)).ok();
        wait_for(&other, &host, 4, None);
        plug_in(&host, 4, 4);
        wait_for(&other, &host, 4, Some(4));
    }
    assert_eq!(reads(&ports, 3), Some(Access::Granted));
    let said = "class ports: containers keep its devices as they are: ";
    assert_eq!((follower.has_said(said), follower.has_said(reason)), (1, 1));
    class("count = 8");
    tell();
    wait_for(&ports, &host, 3, None);
}
