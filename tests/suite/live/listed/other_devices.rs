//! The kernel's lists of devices in a container, when one of several devices comes or goes: those
//! that the container keeps stay listed, and no others are.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use harness::bundle::{Bundle, BundleBuilder, HookCommand};
use harness::captured::Captured;
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::rootfs::Rootfs;
use harness::runc::Container;

use super::super::follow::{Follower, tell};
use super::super::{boathook, done, plain, records};
use super::{LIST, Stick};
use crate::lab::{Lab, STAGE, hook, on_each_cgroup_version};

on_each_cgroup_version!(
    a_device_is_listed_from_attach_to_detach,
    a_failed_attachment_leaves_the_list_as_it_was,
    a_list_with_an_absent_device_gets_another,
    devices_that_nobody_follows_stay_listed,
    a_list_is_there_again_after_an_interruption,
);

const GPU_LIST: &str = "sys/class/drm";

/// A class without `follow`, whose devices are listed in /sys/class/drm.
const GPUS: &str = "version = 1\nresource = 'example.com/NAME'\nrequest = { env = 'VARIABLE' }\n\
    discover = [{ path = '/sys/class/drm/NAME{index:number}' }]\n\
    [device]\nid = 'NAME-{index}'\nindex = '{index}'\nnodes = ['/dev/NAME{index}']\n\
    unmask = ['/sys/class/drm/NAME{index}']\n[[edits]]\nmasks = [{ path = '/sys/class/drm' }]\n";

fn gpu_class(name: &str, variable: &str) -> String {
    GPUS.replace("NAME", name).replace("VARIABLE", variable)
}

/// A host with three GPUs.
fn host_with_gpus() -> DemoHost {
    let host = DemoHost::new().unwrap();
    host.add_class("card", &gpu_class("card", "CARDS")).unwrap();
    for index in 0..3 {
        add_gpu(&host, &format!("card{index}"));
    }
    host
}

fn add_gpu(host: &DemoHost, name: &str) {
    let directory = host.root().join("sys/devices/pci").join(name);
    fs::create_dir_all(&directory).unwrap();
    let list = host.root().join(GPU_LIST);
    fs::create_dir_all(&list).unwrap();
    symlink(format!("../../devices/pci/{name}"), list.join(name)).unwrap();
    host.device(3)
        .make_node(&host.root().join("dev").join(name))
        .unwrap();
}

fn remove_gpu(host: &DemoHost, name: &str) {
    fs::remove_file(host.root().join(GPU_LIST).join(name)).unwrap();
    fs::remove_file(host.root().join("dev").join(name)).unwrap();
}

fn with_sys_of(host: &DemoHost, builder: BundleBuilder) -> BundleBuilder {
    builder.hook(
        STAGE,
        HookCommand::binding(&host.root().join("sys"), "/sys"),
    )
}

fn with_cards(host: &DemoHost, cards: &str) -> BundleBuilder {
    let builder = with_sys_of(host, Bundle::builder(Rootfs::Busybox));
    builder.hook(STAGE, hook(host)).env("CARDS", cards)
}

/// The names in a directory of the container, and the number of mounts on it.
fn listed(container: &Container<'_>, list: &str) -> (String, usize) {
    let process = PathBuf::from(format!("/proc/{}", container.pid().unwrap()));
    let entries = fs::read_dir(process.join("root").join(list)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    let mounts = fs::read_to_string(process.join("mountinfo")).unwrap();
    let path = format!("/{list}");
    let mounts = mounts
        .lines()
        .filter(|line| line.split(' ').nth(4) == Some(&path));
    (names.join(" "), mounts.count())
}

#[track_caller]
fn assert_listed(container: &Container<'_>, names: &str, mask_count: usize) {
    let expected = (names.to_owned(), mask_count);
    assert_eq!(listed(container, GPU_LIST), expected);
}

fn a_device_is_listed_from_attach_to_detach(lab: &Lab) {
    let host = host_with_gpus();
    let bundle = with_cards(&host, "0").build().unwrap();
    let running = lab.start(&bundle);
    assert_listed(&running, "card0", 1);
    let attach = |card| done(lab, &host, &["attach", bundle.id(), card]);
    let detach = |card| done(lab, &host, &["detach", bundle.id(), card]);
    // Once more: the kernel may give a mask the identity of an earlier one.
    for _ in 0..2 {
        attach("card=1");
        assert_listed(&running, "card0 card1", 1);
        attach("card=2");
        assert_listed(&running, "card0 card1 card2", 1);
        detach("card=1");
        assert_listed(&running, "card0 card2", 1);
        detach("card=2");
        assert_listed(&running, "card0", 1);
        assert!(records(&host).is_empty());
    }
    // A device of the container is gone meanwhile, so that there is no plan of it.
    attach("card=1");
    remove_gpu(&host, "card0");
    detach("card=1");
    assert_listed(&running, "card0", 1);
    drop(running);
    lab.assert_nothing_left(&bundle);

    add_gpu(&host, "card0");
    let bundle = with_sys_of(&host, plain(Rootfs::Busybox)).build().unwrap();
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "card=1"]);
    assert_listed(&running, "card1", 1);
    done(lab, &host, &["attach", bundle.id(), "card=2"]);
    done(lab, &host, &["detach", bundle.id(), "card=1"]);
    assert_listed(&running, "card2", 1);
    done(lab, &host, &["detach", bundle.id()]);
    assert_listed(&running, "card0 card1 card2", 0);
}

fn a_failed_attachment_leaves_the_list_as_it_was(lab: &Lab) {
    let host = host_with_gpus();
    add_gpu(&host, "odd0");
    let odd = gpu_class("odd", "ODD");
    let class = format!("{odd}[[edits]]\nfiles = ['/etc/odd.json']\n");
    host.add_class("odd", &class).unwrap();
    host.add_file("/etc/odd.json", "{}").unwrap();
    for has_card in [true, false] {
        let builder = if has_card {
            with_cards(&host, "0")
        } else {
            with_sys_of(&host, plain(Rootfs::Busybox))
        };
        // The list is changed before the file turns out to have no place.
        let bundle = builder.readonly().build().unwrap();
        let running = lab.start(&bundle);
        let before = listed(&running, GPU_LIST);
        for cards in ["card0", "card0 card1"] {
            let failed = boathook(lab, &host, &["attach", bundle.id(), "odd=0"]);
            assert!(!failed.status.success(), "{failed:?}");
            assert!(failed.stderr.contains("read-only"), "{failed:?}");
            if has_card {
                assert_listed(&running, cards, 1);
                done(lab, &host, &["attach", bundle.id(), "card=1"]);
            }
        }
        done(lab, &host, &["detach", bundle.id()]);
        assert_eq!(listed(&running, GPU_LIST), before);
    }
}

/// The plan cannot have the container's other devices, as one of them is absent.
fn a_list_with_an_absent_device_gets_another(lab: &Lab) {
    let host = host_with_gpus();
    let bundle = with_cards(&host, "0,1").build().unwrap();
    let running = lab.start(&bundle);
    remove_gpu(&host, "card1");
    let attached = boathook(lab, &host, &["attach", bundle.id(), "card=2"]);
    let attached = attached.success().unwrap();
    assert!(attached.stderr.contains("are left as they"), "{attached:?}");
    assert_listed(&running, "card0 card2", 1);
}

/// A class that is not followed, or whose file has an error, while another one is followed.
fn devices_that_nobody_follows_stay_listed(lab: &Lab) {
    for (is_attached, is_broken) in [(false, false), (true, false), (false, true)] {
        let host = &DemoHost::new().unwrap();
        host.add_shipped_class("usb-reader").unwrap();
        let modems = format!(
            "version = 1\nresource = 'example.com/modem'\nfollow = {is_broken}\n\
             request = {{ env = 'MODEMS' }}\n\
             discover = [{{ path = '/sys/bus/usb/devices/{{port}}', require = [\
             {{ value = '{{vendor}}', equals = '18d1' }}], attributes = [\
             {{ name = 'vendor', file = 'idVendor' }}, {{ name = 'n', file = 'devnum' }}] }}]\n\
             [device]\nid = 'modem-{{port}}'\nnodes = ['/dev/bus/usb/001/{{n:03}}']\n\
             unmask = ['/sys/bus/usb/devices/{{port}}']\n\
             [[edits]]\nmasks = [{{ path = '/sys/bus/usb/devices' }}]\n"
        );
        host.add_class("modems", &modems).unwrap();
        let stick = |port, number| Stick { host, port, number };
        let modem = stick("1-1", 2);
        modem.plug_in("18d1", DemoHost::UNLIKE);
        // No class has this device.
        stick("1-3", 4).plug_in("ffff", 3);
        let mut reader = stick("1-2", 5);
        reader.plug_in("054c", 3);
        reader.add_interface();
        let mut builder = super::container(host);
        if !is_attached {
            builder = builder.env("MODEMS", "modem-1-1");
        }
        let bundle = builder.build().unwrap();
        let running = lab.start(&bundle);
        if is_attached {
            done(lab, host, &["attach", bundle.id(), "modems=modem-1-1"]);
        }
        if is_broken {
            host.add_class("modems", "version = 'x'\n").unwrap();
        }
        let names = || listed(&running, LIST);
        let expected = |names: &str| (names.to_owned(), 1);
        assert_eq!(names(), expected("1-1 1-2 1-2:1.0"));
        let _follower = Follower::start(lab, host);
        reader.unplug();
        tell();
        let is_gone = wait_until(|| names() == expected("1-1"));
        assert!(is_gone, "{is_attached} {is_broken}: {:?}", names());
        reader = stick("1-4", 9);
        reader.plug_in("054c", 3);
        reader.add_interface();
        tell();
        let is_back = wait_until(|| names() == expected("1-1 1-4 1-4:1.0"));
        assert!(is_back, "{is_attached} {is_broken}: {:?}", names());
        // The modem's link goes with the modem, also if nobody follows it.
        fs::remove_file(host.root().join(LIST).join("1-1")).unwrap();
        reader.remove_interface();
        tell();
        let is_gone = wait_until(|| names() == expected("1-4"));
        assert!(is_gone, "{is_attached} {is_broken}: {:?}", names());
    }
}

/// As if the process had been killed that had unmounted the old mask.
fn a_list_is_there_again_after_an_interruption(lab: &Lab) {
    let host = &DemoHost::new().unwrap();
    host.add_shipped_class("usb-reader").unwrap();
    let stick = |port, number| Stick { host, port, number };
    stick("1-1", 2).plug_in("18d1", DemoHost::UNLIKE);
    let reader = stick("1-2", 5);
    reader.plug_in("054c", 3);
    let bundle = super::container(host).build().unwrap();
    let running = lab.start(&bundle);
    let names = || listed(&running, LIST);
    let expected = |names: &str| (names.to_owned(), 1);
    let follower = Follower::start(lab, host);
    reader.add_interface();
    tell();
    assert!(wait_until(|| names() == expected("1-2 1-2:1.0")));
    drop(follower);
    let mut unmount = Command::new("nsenter");
    unmount.args(["--mount", "--target", &running.pid().unwrap().to_string()]);
    unmount.args(["umount", &format!("/{LIST}")]);
    Captured::run(&mut unmount).unwrap().success().unwrap();
    assert_eq!(names(), ("1-1 1-2 1-2:1.0".to_owned(), 0));
    let _follower = Follower::start(lab, host);
    let is_back = wait_until(|| names() == expected("1-2 1-2:1.0"));
    assert!(is_back, "{:?}", names());
}
