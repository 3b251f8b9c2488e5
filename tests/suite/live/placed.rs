//! Devices that are requested by a link of the host, or with a path in the container: the
//! container has the link, and the node is at the path, also after the device was replugged.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use harness::captured::Captured;
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::probe::{Access, Kind};
use harness::rootfs::Rootfs;
use harness::runc::Container;
use harness::scratch;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::follow::{Follower, followed, may_open, tell};
use super::{boathook, done, plain, records};
use crate::lab::{Lab, on_each_cgroup_version, requesting};

on_each_cgroup_version!(
    a_link_and_a_path_stay_with_their_device,
    a_node_at_the_path_of_its_link_stays_with_its_device,
    all_links_of_a_node_come_with_it,
    a_device_is_attached_at_a_path_and_detached,
    a_path_is_listed_with_the_lines_to_paste,
    no_device_is_attached_over_another_one,
    nothing_is_created_in_a_file_system_of_the_host,
);

/// Sticks of two serial numbers: the class finds them by udev's links, and the host's
/// administrator has a link for one of them.
pub(crate) const STICKS: &str = "version = 1\nresource = 'example.com/stick'\nfollow = true\n\
    request = { env = 'STICKS' }\n\
    discover = [{ path = '/dev/by-id/{serial}', attributes = \
    [{ name = 'name', link = '/dev/by-id/{serial}' }] }]\n\
    [device]\nid = 'stick-{serial}'\naliases = ['{serial}']\nnodes = ['/dev/{name}']\n";

/// Lets a link of the host lead to this device.
pub(crate) fn lead(host: &DemoHost, link: &str, index: usize) {
    let link = host.root().join(link.trim_start_matches('/'));
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    let _ = fs::remove_file(&link);
    let up = if link.parent().unwrap().ends_with("dev") {
        ""
    } else {
        "../"
    };
    symlink(format!("{up}dummy-npu{index}"), &link).unwrap();
}

fn with_sticks() -> DemoHost {
    let host = followed();
    host.add_class("sticks", STICKS).unwrap();
    lead(&host, "/dev/by-id/x1", 1);
    lead(&host, "/dev/by-id/x2", 2);
    lead(&host, "/dev/zigbee", 1);
    host
}

/// Returns the nodes of the sticks in the container: the names below /dev, and the link's target.
fn seen(container: &Container<'_>) -> String {
    let script = "cd /dev; echo $(ls -d dummy* modem zigbee by-id 2>/dev/null) $(readlink zigbee)";
    let seen = container.output(&["/bin/sh", "-c", script]).unwrap();
    seen.trim().to_owned()
}

#[track_caller]
fn wait_to_see(container: &Container<'_>, expected: &str) {
    let is_so = wait_until(|| seen(container) == expected);
    assert!(is_so, "{} is not {expected}", seen(container));
}

fn a_link_and_a_path_stay_with_their_device(lab: &Lab) {
    let host = with_sticks();
    for (request, at, first, later, away) in [
        (
            "/dev/zigbee",
            "zigbee",
            "dummy-npu1 zigbee dummy-npu1",
            "dummy-npu7 zigbee dummy-npu7",
            "",
        ),
        (
            "x1,/dev/zigbee",
            "zigbee",
            "dummy-npu1 zigbee dummy-npu1",
            "dummy-npu7 zigbee dummy-npu7",
            "",
        ),
        ("x1:/dev/modem", "modem", "modem", "modem", ""),
        ("/dev/zigbee:/dev/modem", "modem", "modem", "modem", ""),
        ("/dev/dummy-npu1:/dev/modem", "modem", "modem", "modem", ""),
        // The other stick is where the first one was, and stays there.
        (
            "stick-x1:/dev/dummy-npu2,x2:/dev/dummy-npu1",
            "dummy-npu2",
            "dummy-npu1 dummy-npu2",
            "dummy-npu1 dummy-npu2",
            "dummy-npu1",
        ),
    ] {
        let bundle = requesting(&host, Rootfs::Busybox, "STICKS", request);
        let bundle = bundle.build().unwrap();
        let running = lab.start(&bundle);
        assert_eq!(seen(&running), first, "{request}");
        let stick = format!("/dev/{at}");
        let number = || running.look(&stick).unwrap().number();
        assert_eq!(number(), Some(host.device(1).number()), "{request}");
        assert_eq!(running.look(&stick).unwrap().read, Access::Granted);
        let doctor = boathook(lab, &host, &["doctor", "--container", bundle.id()]);
        assert!(
            doctor.stdout.contains("no fault found"),
            "{request}: {doctor:?}"
        );
        {
            let _follower = Follower::start(lab, &host);
            lead(&host, "/dev/by-id/x1", 7);
            lead(&host, "/dev/zigbee", 7);
            tell();
            let is_so = wait_until(|| number() == Some(host.device(7).number()));
            assert!(is_so, "{request}: {:?}", number());
            wait_to_see(&running, later);
            // The other stick has the first number as well.
            assert_eq!(may_open(&running, &host, 1), !away.is_empty(), "{request}");
            for link in ["dev/by-id/x1", "dev/zigbee"] {
                fs::remove_file(host.root().join(link)).unwrap();
            }
            tell();
            wait_to_see(&running, away);
            lead(&host, "/dev/by-id/x1", 1);
            lead(&host, "/dev/zigbee", 1);
            tell();
            wait_to_see(&running, first);
            assert_eq!(number(), Some(host.device(1).number()), "{request}");
            assert!(!may_open(&running, &host, 7), "{request}");
        }
        drop(running);
        fs::remove_dir_all(host.root().join("run/boathook")).unwrap();
    }
}

/// `/dev/by-id/X:/dev/by-id/X`, as compose's `devices:` has it.
fn a_node_at_the_path_of_its_link_stays_with_its_device(lab: &Lab) {
    let host = with_sticks();
    let nodes = "nodes = [{ path = '/dev/{name}', links = ['/dev/by-id/{serial}'] }]";
    let class = STICKS.replace("nodes = ['/dev/{name}']", nodes);
    host.add_class("sticks", &class).unwrap();
    let link = "/dev/by-id/x1";
    let request = format!("{link}:{link}");
    let bundle = requesting(&host, Rootfs::Busybox, "STICKS", &request);
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let number = || running.look(link).unwrap().number();
    assert_eq!(number(), Some(host.device(1).number()));
    // The number of the node changes between two looks of the follower.
    lead(&host, link, 7);
    fs::remove_file(host.node(1)).unwrap();
    let _follower = Follower::start(lab, &host);
    tell();
    let is_moved = wait_until(|| number() == Some(host.device(7).number()));
    assert!(is_moved, "{:?}", number());
    assert_eq!(running.look(link).unwrap().read, Access::Granted);
}

/// udev's links by the class's `udev_links`, and those of the new node after a replug.
fn all_links_of_a_node_come_with_it(lab: &Lab) {
    let host = with_sticks();
    let nodes = "nodes = [{ path = '/dev/{name}', udev_links = true }]";
    let class = STICKS.replace("nodes = ['/dev/{name}']", nodes);
    host.add_class("sticks", &class).unwrap();
    let write_links = |index: usize, links: &str| {
        let (major, minor) = host.device(index).number();
        let known = format!("/run/udev/data/c{major}:{minor}");
        host.add_file(&known, links).unwrap();
    };
    // The first two have one number.
    write_links(1, "S:by-id/x1\nS:by-path/socket-3\nS:zigbee\nS:modem\n");
    lead(&host, "/dev/by-path/socket-3", 1);
    // udev has given this link to the other stick.
    lead(&host, "/dev/modem", 2);
    let bundle = requesting(&host, Rootfs::Busybox, "STICKS", "x1");
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let links = || {
        let script = "cd /dev; for link in by-*/* zigbee modem; do [ -L $link ] && \
                      echo $link $(readlink $link); done; true";
        running.output(&["/bin/sh", "-c", script]).unwrap()
    };
    let first = "by-id/x1 ../dummy-npu1\nby-path/socket-3 ../dummy-npu1\nzigbee dummy-npu1\n";
    assert_eq!(links(), first);
    let directory = bundle.directory().to_str().unwrap();
    let explained = done(lab, &host, &["explain", "--bundle", directory]);
    assert!(
        explained.contains("/dev/by-path/socket-3 -> ../dummy-npu1"),
        "{explained}"
    );
    let _follower = Follower::start(lab, &host);
    fs::remove_file(host.root().join("dev/by-path/socket-3")).unwrap();
    for link in ["/dev/by-id/x1", "/dev/by-path/socket-4", "/dev/zigbee"] {
        lead(&host, link, 7);
    }
    write_links(7, "S:by-id/x1\nS:by-path/socket-4\nS:zigbee\n");
    tell();
    let later = "by-id/x1 ../dummy-npu7\nby-path/socket-4 ../dummy-npu7\nzigbee dummy-npu7\n";
    assert!(wait_until(|| links() == later), "{}", links());
    assert_eq!(running.look("/dev/zigbee").unwrap().read, Access::Granted);
    // A rule of udev that comes later gives one more.
    lead(&host, "/dev/coordinator", 7);
    write_links(7, "S:by-id/x1\nS:coordinator\n");
    tell();
    let later = "by-id/x1 ../dummy-npu7\n";
    assert!(wait_until(|| links() == later), "{}", links());
    let link = running.output(&["/bin/readlink", "/dev/coordinator"]);
    assert_eq!(link.unwrap(), "dummy-npu7\n");
}

fn a_path_is_listed_with_the_lines_to_paste(lab: &Lab) {
    let host = with_sticks();
    for (path, request) in [("/dev/zigbee", "/dev/zigbee?"), ("/dev/dummy-npu1", "x1?")] {
        let text = done(lab, &host, &["list", path]);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            format!("{path} is stick-x1 of class sticks"),
            format!("its names in a request: x1, stick-x1, {path}"),
            format!("docker run --runtime boathook -e STICKS='{request}'"),
            format!("compose runtime: boathook environment: STICKS: '{request}'"),
            format!("podman run -e STICKS='{request}'"),
            format!("quadlet Environment=\"STICKS={request}\""),
            "pod resources: {limits: {example.com/stick: 1}}".to_owned(),
        ] {
            assert!(text.contains(&words), "no {words} in {text}");
        }
        // The line gives the device.
        let bundle = requesting(&host, Rootfs::Busybox, "STICKS", request);
        let bundle = bundle.build().unwrap();
        let running = lab.start(&bundle);
        assert_eq!(
            running.look("/dev/dummy-npu1").unwrap().read,
            Access::Granted
        );
    }
    let json = done(lab, &host, &["list", "--json", "/dev/zigbee"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let stick = json["devices"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["class"] == "sticks")
        .unwrap();
    assert_eq!(
        (&stick["id"], &stick["names"][0]),
        (&"stick-x1".into(), &"x1".into())
    );
    // `class new` warns that an installed class has the device already.
    let new = boathook(lab, &host, &["class", "new", "/dev/zigbee"]);
    let said = "the class sticks has this device already, as stick-x1: STICKS requests it \
        (`boathook list sticks`)";
    assert!(new.stderr.contains(said), "{new:?}");
    // A link of udev stays, also where a class has no other name that does.
    let class = "version = 1\nfollow = true\nresource = 'example.com/link'\n\
        request = { env = 'LINKS' }\n\
        discover = [{ path = '/dev/zigbee' }]\n\
        device = { id = 'link', nodes = ['/dev/zigbee'] }\n";
    host.add_class("link", class).unwrap();
    for (path, is_node) in [("/dev/zigbee", false), ("/dev/dummy-npu1", true)] {
        let listed = done(lab, &host, &["list", path]);
        assert!(listed.contains("is link of class link"), "{listed}");
        let none_stays = listed.contains("none of them stays when it is plugged in");
        assert_eq!(none_stays, is_node, "{listed}");
    }
    let list_other = |expected: &str| {
        let none = boathook(lab, &host, &["list", "/dev/other"]);
        assert_eq!(none.status.code(), Some(5), "{none:?}");
        assert!(none.stderr.contains(expected), "{none:?}");
    };
    list_other("/dev/other does not exist on this host: connect the device");
    fs::write(host.root().join("dev/other"), "").unwrap();
    list_other("`boathook class new /dev/other` writes a class file");
}

/// The request of the container has put a device where another one has its node.
fn no_device_is_attached_over_another_one(lab: &Lab) {
    let host = with_sticks();
    let bundle = requesting(&host, Rootfs::Busybox, "STICKS", "x1:/dev/dummy-npu2");
    let bundle = bundle.args(["/bin/sleep", "1000"]).build().unwrap();
    let running = lab.start(&bundle);
    let look = || running.look("/dev/dummy-npu2").unwrap().inode;
    let before = look();
    let refused = boathook(lab, &host, &["attach", bundle.id(), "sticks=x2"]);
    assert_ne!(refused.status.code(), Some(0), "{refused:?}");
    assert!(refused.stderr.contains("is claimed by both"), "{refused:?}");
    assert_eq!(look(), before);
}

fn a_device_is_attached_at_a_path_and_detached(lab: &Lab) {
    let host = with_sticks();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    let stick = "sticks=x1:/dev/a/modem";
    let text = done(lab, &host, &["attach", bundle.id(), stick, "--dry-run"]);
    assert!(text.contains("/dev/a/modem from /dev/dummy-npu1"), "{text}");
    done(lab, &host, &["attach", bundle.id(), stick]);
    let look = || running.look("/dev/a/modem").unwrap();
    assert_eq!(look().number(), Some(host.device(1).number()));
    // Another device does not change where the first one is.
    done(lab, &host, &["attach", bundle.id(), "sticks=/dev/by-id/x2"]);
    assert_eq!(seen(&running), "by-id dummy-npu2");
    let doctor = boathook(lab, &host, &["doctor", "--container", bundle.id()]);
    assert!(doctor.stdout.contains("no fault found"), "{doctor:?}");
    let taken = boathook(
        lab,
        &host,
        &["attach", bundle.id(), "sticks=x2:/dev/a/modem"],
    );
    assert!(taken.stderr.contains("is claimed by both"), "{taken:?}");
    {
        let _follower = Follower::start(lab, &host);
        lead(&host, "/dev/by-id/x1", 7);
        tell();
        let is_so = wait_until(|| look().number() == Some(host.device(7).number()));
        assert!(is_so, "{:?}", look());
    }
    done(lab, &host, &["detach", bundle.id(), stick]);
    assert_eq!(look().kind, Kind::Missing);
    assert!(!may_open(&running, &host, 7));
    done(lab, &host, &["detach", bundle.id()]);
    assert_eq!((seen(&running), records(&host)), (String::new(), vec![]));
}

/// A process of the container with CAP_SYS_ADMIN has put a volume, which is a tmpfs of the host
/// such as /run/udev, in the place of the container's /dev.
fn nothing_is_created_in_a_file_system_of_the_host(lab: &Lab) {
    let host = with_sticks();
    let volume = scratch::directory("volume").unwrap();
    let (kind, no_data) = (Some("tmpfs"), None::<&str>);
    mount(kind, volume.path(), kind, MsFlags::empty(), no_data).unwrap();
    let bundle = plain(Rootfs::Busybox).bind(volume.path(), "/volume");
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let mut swap = Command::new("nsenter");
    swap.args([
        "--mount",
        "--root",
        "--target",
        &running.pid().unwrap().to_string(),
    ]);
    swap.args([
        "/bin/sh",
        "-c",
        "umount -l /dev && mount -o bind /volume /dev",
    ]);
    Captured::run(&mut swap).unwrap().success().unwrap();
    let refused = boathook(
        lab,
        &host,
        &["attach", bundle.id(), "sticks=x1:/dev/a/modem"],
    );
    let files = fs::read_dir(volume.path()).unwrap().count();
    drop(running);
    umount2(volume.path(), MntFlags::MNT_DETACH).unwrap();
    assert_eq!(files, 0);
    assert_ne!(refused.status.code(), Some(0), "{refused:?}");
    let reason = "it is on a volume or another mount";
    assert!(refused.stderr.contains(reason), "{refused:?}");
}
