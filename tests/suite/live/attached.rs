//! The devices of a container after `attach`, and after `detach`.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use harness::demo_host::DemoHost;
use harness::demo_host::in_container::node;
use harness::probe::{Access, Kind};
use harness::rootfs::Rootfs;
use harness::runc::Container;

use super::follow::with_device;
use super::outdated::CLASS as CHIPS;
use super::{boathook, done, plain, reads, records};
use crate::lab::{Lab, images_with_a_loader, on_each_cgroup_version, requesting};
use crate::said::assert_says;

on_each_cgroup_version!(
    a_running_container_gets_a_device_and_loses_it,
    nothing_is_done_by_a_dry_run_or_twice,
    what_the_hook_gave_stays,
    a_file_that_the_hook_gave_stays,
    what_two_classes_need_stays_with_either,
    classes_are_attached_in_any_order,
    libraries_come_and_go_too,
    an_optional_file_without_a_place_is_left_out,
    leftovers_of_the_image_come_back,
    containers_of_every_kind,
    the_other_commands_know_it,
    a_restarted_container_has_nothing_attached,
);

fn a_running_container_gets_a_device_and_loses_it(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    let before = seen(&running);
    assert_eq!(reads(&running, 3), None);

    let text = done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    assert!(
        text.starts_with("npu-3 of dummy-npu: attached to"),
        "{text}"
    );
    let seen_in_it = running.look(node(3)).unwrap();
    assert_eq!(seen_in_it.read, Access::Granted);
    let inode = fs::metadata(host.node(3)).unwrap().ino();
    assert_eq!(seen_in_it.inode, inode, "the host's own node");
    assert_eq!(reads(&running, 2), None);
    let refused = Some(Access::refused("EPERM"));
    let opens = |index| running.open_own(host.device(index).number()).unwrap();
    assert_eq!(opens(DemoHost::UNLIKE), refused, "another number");
    assert_eq!(records(&host), [bundle.id()]);

    let text = done(lab, &host, &["detach", bundle.id()]);
    assert!(text.starts_with("npu-3 of dummy-npu: detached"), "{text}");
    assert_eq!(reads(&running, 3), None);
    assert_eq!(opens(3), refused, "the rule is gone too");
    assert!(records(&host).is_empty());
    assert_eq!(seen(&running), before);
}

/// Its mounts, and the names in /dev and /usr.
fn seen(container: &Container<'_>) -> String {
    let list = "cut -d ' ' -f 4-6 /proc/self/mountinfo; ls -aR /dev; ls -R /usr/lib";
    container.output(&["/bin/sh", "-c", list]).unwrap()
}

pub(super) fn nothing_is_done_by_a_dry_run_or_twice(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    let before = seen(&running);
    let attach = ["attach", bundle.id(), "dummy-npu=npu-3,npu-5"];
    let dry = [&attach[..], &["--dry-run"]].concat();
    let plan = done(lab, &host, &dry);
    assert_says(
        &plan,
        &["allow", "/dev/dummy-npu3", "/dev/dummy-npu5", "library"],
    );
    assert_eq!(seen(&running), before);
    assert!(records(&host).is_empty());

    done(lab, &host, &attach);
    let attached = seen(&running);
    let again = done(lab, &host, &attach);
    assert!(again.contains("has it already"), "{again}");
    assert_eq!(seen(&running), attached);
    assert!(done(lab, &host, &dry).contains("has it already"));

    // One of two, and what both need stays until the second goes.
    done(lab, &host, &["detach", bundle.id(), "dummy-npu=npu-3"]);
    assert_eq!(reads(&running, 3), None);
    assert_eq!(reads(&running, 5), Some(Access::Granted));
    done(lab, &host, &["detach", bundle.id(), "dummy-npu=all"]);
    assert_eq!(seen(&running), before);
    let nothing = done(lab, &host, &["detach", bundle.id()]);
    assert!(nothing.starts_with("nothing is attached"), "{nothing}");
}

/// The device that the container was started with is neither attached nor detached.
pub(super) fn what_the_hook_gave_stays(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = with_device(&host, "npu-3").build().unwrap();
    let running = lab.start(&bundle);
    let own = done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    assert!(own.contains("has it already"), "{own}");
    let unlike = DemoHost::UNLIKE;
    let named = format!("dummy-npu={unlike}");
    done(lab, &host, &["attach", bundle.id(), &named]);
    for index in [3, unlike] {
        assert_eq!(reads(&running, index), Some(Access::Granted), "{index}");
    }
    let refused = boathook(lab, &host, &["detach", bundle.id(), "dummy-npu=3"]);
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    assert_says(&refused.stderr, &["attached are dummy-npu=npu-7"]);
    // One of several that is not attached is no reason to take the others.
    let both = format!("dummy-npu={unlike},5");
    let refused = boathook(lab, &host, &["detach", bundle.id(), &both]);
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    assert_says(&refused.stderr, &["dummy-npu=5 is not attached"]);
    let quoted = boathook(lab, &host, &["detach", bundle.id(), "dummy-npu=\"all\""]);
    assert_eq!(quoted.status.code(), Some(5), "{quoted:?}");
    assert_eq!(reads(&running, unlike), Some(Access::Granted));
    done(lab, &host, &["detach", bundle.id()]);
    assert_eq!(reads(&running, 3), Some(Access::Granted));
    assert_eq!(reads(&running, unlike), None);
}

/// Also one in place of the image's, when a class with libraries comes and goes.
fn a_file_that_the_hook_gave_stays(lab: &Lab) {
    const FILE: &str = "/etc/chip.conf";
    let host = DemoHost::new().unwrap();
    let class = format!("{CHIPS}[[edits]]\nfiles = ['{FILE}']\n");
    host.add_class("chips", &class).unwrap();
    host.add_file(FILE, "the host's").unwrap();
    let bundle = requesting(&host, Rootfs::Busybox, "CHIPS", "chip-0");
    let bundle = bundle.build().unwrap();
    fs::write(bundle.in_rootfs(FILE), "the image's").unwrap();
    let running = lab.start(&bundle);
    let file = || running.output(&["cat", FILE]).unwrap();
    assert_eq!(file(), "the host's");
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    assert_eq!(file(), "the host's");
    done(lab, &host, &["detach", bundle.id()]);
    assert_eq!(file(), "the host's");
}

/// Whichever of the two was attached first.
fn what_two_classes_need_stays_with_either(lab: &Lab) {
    const FILE: &str = "/etc/chip.conf";
    let host = DemoHost::new().unwrap();
    host.add_file(FILE, "the host's").unwrap();
    let edits = format!("[[edits]]\nfiles = ['{FILE}']\n");
    for (name, class) in [("chips", CHIPS.to_owned()), ("units", units())] {
        host.add_class(name, &(class + &edits)).unwrap();
    }
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    fs::write(bundle.in_rootfs(FILE), "the image's").unwrap();
    let running = lab.start(&bundle);
    let file = || running.output(&["cat", FILE]).unwrap();
    done(lab, &host, &["attach", bundle.id(), "chips=all"]);
    assert_eq!(file(), "the host's");
    done(lab, &host, &["attach", bundle.id(), "units=all"]);
    done(lab, &host, &["detach", bundle.id(), "chips=all"]);
    assert_eq!(file(), "the host's");
    assert_eq!(reads(&running, 0), None);
    done(lab, &host, &["detach", bundle.id()]);
    assert_eq!(file(), "the image's");
    assert_eq!(records(&host), [""; 0]);
}

/// By each command, also of a class whose name is before those of others.
fn classes_are_attached_in_any_order(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let class = "version = 1\nresource = 'example.com/first'\nrequest = { env = 'FIRST' }\n\
        discover = [{ path = '/dev/dummy-npu5', attributes = [{ name = 'n', value = '5' }] }]\n\
        [device]\nid = 'a-first'\nnodes = ['/dev/dummy-npu{n}']\n";
    host.add_class("a-first", class).unwrap();
    // It was started with a device of the other class, which stays.
    let bundle = with_device(&host, "npu-1").build().unwrap();
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=npu-2"]);
    let said = done(lab, &host, &["attach", bundle.id(), "dummy-npu=npu-3"]);
    assert!(said.starts_with("npu-3 of dummy-npu: attached"), "{said}");
    done(lab, &host, &["detach", bundle.id(), "dummy-npu=npu-2"]);
    let said = done(lab, &host, &["attach", bundle.id(), "a-first=a-first"]);
    assert!(said.contains("a-first of a-first: attached"), "{said}");
    let used = done(lab, &host, &["list", "--used"]);
    assert_eq!(used.matches("(attached)").count(), 2, "{used}");
    done(lab, &host, &["detach", bundle.id(), "a-first=a-first"]);
    assert_eq!(reads(&running, 5), None);
    assert_eq!(reads(&running, 3), Some(Access::Granted));
    // By another name than it was attached by.
    done(lab, &host, &["detach", bundle.id(), "dummy-npu=3"]);
    assert_eq!(reads(&running, 3), None);
    let refused = boathook(lab, &host, &["detach", bundle.id(), "dummy-npu=npu-1"]);
    assert!(refused.stderr.contains("is not attached"), "{refused:?}");
    assert_eq!(reads(&running, 1), Some(Access::Granted));
}

/// A class like the other, with another device.
fn units() -> String {
    let class = CHIPS.replace("chip", "unit").replace("CHIPS", "UNITS");
    class.replace("dummy-npu{index}", "dummy-npu3")
}

/// Programs that are started later find the vendor's library, by the image's own loader.
/// Files of the image with a library's name are covered, and links to them replaced, only while a
/// device is attached.
fn leftovers_of_the_image_come_back(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = plain(Rootfs::Busybox)
        .env(
            "LD_LIBRARY_PATH",
            "/loop/lib:/file:/link:/elsewhere:/place/lib",
        )
        .build()
        .unwrap();
    let soname = "libdummy-npu.so.1";
    for (file, text) in [
        (format!("/file/{soname}"), "1"),
        (format!("/link/{soname}.0.0"), "2"),
        (format!("/place/other/{soname}.0.0"), "4"),
        ("/other".to_owned(), "3"),
    ] {
        let file = bundle.in_rootfs(&file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    for (link, target) in [
        (format!("/link/{soname}"), format!("{soname}.0.0")),
        (format!("/elsewhere/{soname}"), "/other".to_owned()),
        (format!("/place/other/{soname}"), format!("{soname}.0.0")),
        (format!("/place/lib/{soname}"), format!("../other/{soname}")),
        (format!("/usr/lib/{soname}"), "/nothing".to_owned()),
    ] {
        let link = bundle.in_rootfs(&link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(target, link).unwrap();
    }
    // A directory that cannot be opened is left out.
    symlink("loop", bundle.in_rootfs("/loop")).unwrap();
    let running = lab.start(&bundle);
    let read = "for at in file link elsewhere place/lib usr/lib; do \
        readlink /$at/libdummy-npu.so.1; head -c 4 /$at/libdummy-npu.so.1; done; cat /other";
    let read = || running.exec(&["/bin/sh", "-c", read]).unwrap().stdout;
    let mounts = || {
        let mounts = running.exec(&["cat", "/proc/self/mountinfo"]).unwrap();
        mounts.stdout.matches(soname).count()
    };
    let before = (read(), mounts());
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    let attached = read();
    assert_eq!(attached.matches("ELF").count(), 5, "{attached}");
    assert!(attached.ends_with('3'), "{attached}");
    done(lab, &host, &["detach", bundle.id()]);
    assert_eq!((read(), mounts()), before);
}

fn libraries_come_and_go_too(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for rootfs in images_with_a_loader() {
        let bundle = plain(rootfs).build().unwrap();
        let running = lab.start(&bundle);
        let library = "/usr/lib/boathook/lib/libdummy-npu.so.1";
        let is_there = || running.look(library).unwrap().kind != Kind::Missing;
        assert!(!is_there(), "{rootfs:?}");
        done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
        assert!(is_there(), "{rootfs:?}");
        done(lab, &host, &["detach", bundle.id()]);
        assert!(!is_there(), "{rootfs:?}");
    }
}

/// An image can have a file where the host has a directory, such as /etc/OpenCL. At a start this is
/// a warning, too.
fn an_optional_file_without_a_place_is_left_out(lab: &Lab) {
    let class = "version = 1\nresource = 'dummy.com/chip'\nrequest = { env = 'CHIPS' }\n\
        discover = [{ count = 1 }]\ndevice = { id = 'chip-{index}' }\n\
        [[edits]]\nfiles = [{ path = '/etc/chip.d/x/a.json', optional = OPTIONAL }, '/etc/b.json']\n";
    for is_optional in [true, false] {
        let host = DemoHost::new().unwrap();
        let class = class.replace("OPTIONAL", &is_optional.to_string());
        host.add_class("chip", &class).unwrap();
        host.add_file("/etc/chip.d/x/a.json", "{}").unwrap();
        host.add_file("/etc/b.json", "b").unwrap();
        let bundle = plain(Rootfs::Busybox).build().unwrap();
        fs::create_dir_all(bundle.rootfs().join("etc")).unwrap();
        fs::write(bundle.rootfs().join("etc/chip.d"), "").unwrap();
        let running = lab.start(&bundle);
        let ran = boathook(lab, &host, &["attach", bundle.id(), "chip=0"]);
        assert_eq!(ran.status.success(), is_optional, "{ran:?}");
        assert!(ran.stderr.contains("/etc/chip.d"), "{ran:?}");
        let read = running.output(&["/bin/sh", "-c", "cat /etc/b.json 2>/dev/null; true"]);
        assert_eq!(read.unwrap(), if is_optional { "b" } else { "" });
        if is_optional {
            done(lab, &host, &["detach", bundle.id()]);
        }
        assert!(records(&host).is_empty());
        let kept = fs::symlink_metadata(bundle.rootfs().join("etc/chip.d")).unwrap();
        assert!(kept.is_file());
    }
}

fn containers_of_every_kind(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for (kind, bundle) in [
        ("read-only", plain(Rootfs::Busybox).readonly()),
        ("a user's", plain(Rootfs::Busybox).user(1000, 1000)),
        ("user namespace", plain(Rootfs::Busybox).user_namespace()),
    ] {
        let bundle = bundle.build().unwrap();
        let running = lab.start(&bundle);
        let ran = boathook(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
        if kind == "read-only" {
            // The library has no place: nothing is done.
            assert_eq!(ran.status.code(), Some(6), "{ran:?}");
            assert!(ran.stderr.contains("read-only"), "{ran:?}");
            assert_eq!(reads(&running, 3), None);
            assert!(records(&host).is_empty());
            continue;
        }
        ran.success().unwrap();
        assert_eq!(reads(&running, 3), Some(Access::Granted), "{kind}");
        done(lab, &host, &["detach", bundle.id()]);
        assert_eq!(reads(&running, 3), None, "{kind}");
    }
}

fn the_other_commands_know_it(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    let directory = bundle.directory().to_str().unwrap();
    let explained = done(lab, &host, &["explain", "--bundle", directory]);
    assert_says(&explained, &["requested by  attached \"npu-3\""]);
    let doctor = ["doctor", "--container", bundle.id()];
    let healthy = done(lab, &host, &doctor);
    assert!(healthy.contains("every device is allowed"), "{healthy}");
    let listed = done(lab, &host, &["list"]);
    let line = listed.lines().find(|line| line.contains("npu-3 "));
    let short = &bundle.id()[..12.min(bundle.id().len())];
    assert!(line.unwrap().contains(short), "{listed}");

    running.output(&["umount", "/dev/dummy-npu3"]).unwrap_err();
    done(lab, &host, &["detach", bundle.id()]);
    let after = boathook(lab, &host, &doctor);
    assert_eq!(after.status.code(), Some(11), "{after:?}");
}

/// A record of an earlier run of the same container is not believed.
fn a_restarted_container_has_nothing_attached(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    {
        let _running = lab.start(&bundle);
        done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    }
    assert_eq!(records(&host), [bundle.id()]);
    let running = lab.start(&bundle);
    assert!(!done(lab, &host, &["list"]).contains("HOLDER"));
    let nothing = done(lab, &host, &["detach", bundle.id()]);
    assert!(nothing.starts_with("nothing is attached"), "{nothing}");
    assert_eq!(reads(&running, 3), None);
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    assert_eq!(reads(&running, 3), Some(Access::Granted));
}
