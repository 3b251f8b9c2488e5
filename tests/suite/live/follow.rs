//! `boathook follow`: devices that are unplugged and come back with another number. The
//! devices are nodes of the demo host; the kernel's message is one that it sends on request.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use harness::bundle::BundleBuilder;
use harness::demo_host::DemoHost;
use harness::demo_host::in_container::node;
use harness::patience::wait_until;
use harness::probe::{Access, Kind, Questions};
use harness::rootfs::Rootfs;
use harness::runc::Container;

use super::{boathook, command, done, plain, reads, records};
use crate::lab::{Lab, STAGE, granting, on_each_cgroup_version, requesting};

on_each_cgroup_version!(
    a_device_that_comes_back_with_another_number_is_there_again,
    what_happened_while_nobody_looked_is_made_up_for,
    links_and_names_stay_right,
    attach_makes_up_for_what_nobody_followed,
    several_containers_follow_and_others_do_not,
    a_class_whose_ids_change_gives_nothing,
);

/// A file of the kernel's that sends a message of a device when written to.
const MESSAGE: &str = "/sys/class/mem/null/uevent";

/// A demo host whose devices are followed.
pub(crate) fn followed() -> DemoHost {
    let host = DemoHost::new().unwrap();
    host.write_config("[class.dummy-npu]\nfollow = true\n")
        .unwrap();
    host
}

/// `boathook follow` as long as it is not dropped.
pub(crate) struct Follower {
    child: Child,
    /// The text that it prints on stderr.
    log: PathBuf,
}

impl Follower {
    /// Starts it, and waits until it listens.
    pub(crate) fn start(lab: &Lab, host: &DemoHost) -> Self {
        Self::start_with(lab, host, &[])
    }

    /// The same with options.
    pub(crate) fn start_with(lab: &Lab, host: &DemoHost, options: &[&str]) -> Self {
        let mut command = command(lab, host, &["follow"]);
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

    /// Returns the number of times that it has printed this.
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

/// At once: there is nothing from now on, or a device with this one's number.
pub(crate) fn replug(host: &DemoHost, index: usize, like: Option<usize>) {
    let _ = fs::remove_file(host.node(index));
    match like {
        None => tell(),
        Some(like) => plug_in(host, index, like),
    }
}

pub(crate) fn tell() {
    fs::write(MESSAGE, "change").unwrap();
}

/// Replugs the device so, one after the other; each time the container has it then.
#[track_caller]
pub(crate) fn assert_follows(
    container: &Container<'_>,
    host: &DemoHost,
    index: usize,
    likes: &[Option<usize>],
) {
    for like in likes {
        replug(host, index, *like);
        wait_for(container, host, index, *like);
    }
}

/// Waits until the container's node has the number of this device, or is gone.
#[track_caller]
pub(crate) fn wait_for(
    container: &Container<'_>,
    host: &DemoHost,
    index: usize,
    like: Option<usize>,
) {
    let mut seen = None;
    let is_so = wait_until(|| {
        let seen = seen.insert(container.look(node(index)).unwrap());
        match like {
            None => seen.kind == Kind::Missing,
            Some(like) => {
                let number = host.device(like).number();
                seen.number() == Some(number) && seen.read == Access::Granted
            }
        }
    });
    assert!(is_so, "{index} is not as {like:?}: {seen:?}");
}

/// Whether the container may open a device whose node it makes itself.
pub(crate) fn may_open(container: &Container<'_>, host: &DemoHost, index: usize) -> bool {
    let read = container.open_own(host.device(index).number()).unwrap();
    read == Some(Access::Granted)
}

/// A container that was started with a device.
pub(crate) fn with_device(host: &DemoHost, device: &str) -> BundleBuilder {
    requesting(host, Rootfs::Busybox, DemoHost::VARIABLE, device)
}

pub(super) fn a_device_that_comes_back_with_another_number_is_there_again(lab: &Lab) {
    const OTHER: usize = DemoHost::UNLIKE;
    let host = followed();
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
                let bundle = plain(Rootfs::Busybox).hook(STAGE, granting(&host, "dummy-npu=npu-3"));
                let like = host.device(if given == "by CDI" { 3 } else { OTHER });
                bundle.char_device(node(3), like.number(), "rw")
            }
            _ => with_device(&host, "npu-3").device_rule(host.device(3).number(), "rw"),
        };
        let bundle = bundle.build().unwrap();
        let running = lab.start(&bundle);
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
            assert_follows(&running, &host, 3, &[Some(OTHER), None]);
            may_not_open(3, "unplugged");
            may_not_open(OTHER, "unplugged");
            assert_follows(&running, &host, 3, &[Some(OTHER)]);
            may_not_open(3, "the old number");
            assert_follows(&running, &host, 3, &[Some(3)]);
            may_not_open(OTHER, "the old number");
        }
        // Its journal says what it did.
        for words in ["npu-3 of dummy-npu is gone", "npu-3 of dummy-npu is /"] {
            let line = format!("boathook: info: container {}: {words}", bundle.id());
            assert!(
                wait_until(|| follower.has_said(&line) > 0),
                "{}",
                follower.said()
            );
        }
        // `boathook log` has the start or the attachment, and the changes.
        let log = done(lab, &host, &["log"]);
        let given = if attached {
            "npu-3 of dummy-npu, attached"
        } else {
            "npu-3 of dummy-npu, by "
        };
        for words in [given, "npu-3 of dummy-npu is gone"] {
            let line = format!("boathook: info: container {}: {words}", bundle.id());
            assert!(log.contains(&line), "{line} in {log}");
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
    let running = lab.start(&bundle);
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
    let again = lab.start(&bundle);
    wait_for(&again, &host, 3, Some(DemoHost::UNLIKE));
    assert_follows(&again, &host, 3, &[None]);
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
    let bundle = requesting(&host, Rootfs::Busybox, "PORTS", "all");
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let _follower = Follower::start(lab, &host);
    for name in ["dummy-npu1", "dummy-npu7", "dummy-npu2"] {
        fs::remove_file(&link).unwrap();
        symlink(format!("../{name}"), &link).unwrap();
        tell();
        let expected = format!("../{name} by-id dummy-npu{}", &name[9..]);
        let script = "cat < /dev/null; echo $(readlink /dev/by-id/x1; cd /dev; ls -d by-id dummy*)";
        let seen = || running.output(&["/bin/sh", "-c", script]).unwrap();
        let is_so = wait_until(|| seen().trim() == expected);
        assert!(is_so, "{} is not {expected}", seen());
        assert_eq!(running.look("/dev/by-id/x1").unwrap().read, Access::Granted);
    }
}

fn attach_makes_up_for_what_nobody_followed(lab: &Lab) {
    let (host, link) = with_ports();
    let bundle = requesting(&host, Rootfs::Busybox, "PORTS", "all");
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
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
    let running: Vec<_> = bundles.iter().map(|bundle| lab.start(bundle)).collect();
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

/// The class was all right when the container was started. Of one that cannot be used, devices
/// only go.
fn a_class_whose_ids_change_gives_nothing(lab: &Lab) {
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
    let [ports, other] = [&ports, &other].map(|bundle| lab.start(bundle));
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
    wait_for(&ports, &host, 3, None);
    assert!(!may_open(&ports, &host, 3));
    plug_in(&host, 3, 3);
    assert_follows(&other, &host, 4, &[None, Some(4)]);
    assert_eq!(reads(&ports, 3), None);
    let said = "class ports: containers get none of its devices again, and lose those";
    assert_eq!((follower.has_said(said), follower.has_said(reason)), (1, 1));
    class("count = 8");
    tell();
    wait_for(&ports, &host, 3, Some(3));
}
