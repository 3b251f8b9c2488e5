//! Images, requests and specs that make the hook work without end. It gets a few
//! seconds of a processor; what takes longer is killed by the kernel.

use std::fs;
use std::path::Path;

use harness::bundle::{Bundle, BundleBuilder, HookCommand};
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use crate::lab::{Lab, STAGE, hook, on_each_cgroup_version};

on_each_cgroup_version!(
    a_crafted_loader_cache,
    requests_that_overlap,
    an_image_full_of_links,
);

/// Of the debug build, which is several times slower than the installed one.
const SECONDS: &str = "ulimit -t 5; exec \"$@\"";

fn limited(host: &DemoHost, rootfs: Rootfs) -> BundleBuilder {
    let shell = HookCommand::new(Path::new("/bin/sh")).arg("-c");
    let shell = shell.arg(SECONDS).arg("sh");
    Bundle::builder(rootfs).hook(STAGE, hook(host).behind(shell))
}

/// It starts or is refused with a message: the hook was neither killed nor ended by
/// its deadline.
#[track_caller]
fn assert_ended_by_itself(lab: &Lab, bundle: &Bundle, case: &str) {
    if let Err(error) = lab.runc.create(bundle).map(drop) {
        let said = format!("{error:#}");
        let is_ended = !said.contains("boathook: ") || said.contains("deadline exceeded");
        assert!(!is_ended, "{case}: {said}");
    }
    lab.assert_nothing_left(bundle);
}

/// The format is described in `device-class/src/ld_cache`.
fn cache(entries: u32, sections: u32) -> Vec<u8> {
    const HEADER: u32 = 48;
    const ENTRY: u32 = 24;
    let name_length = 4000;
    let names = HEADER + entries * ENTRY;
    let array = (names + name_length + 1).next_multiple_of(4);
    let directory = array + 4096;
    let mut file = b"glibc-ld.so.cache1.1".to_vec();
    for number in [entries, name_length + 1] {
        file.extend(number.to_le_bytes());
    }
    file.extend([2, 0, 0, 0]);
    file.extend(directory.to_le_bytes());
    file.resize(HEADER as usize, 0);
    for _ in 0..entries {
        for number in [0x0303, names, names, 0, 0, 0] {
            file.extend(number.to_le_bytes());
        }
    }
    file.resize((names + name_length) as usize, b'/');
    file.resize(array as usize, 0);
    for _ in 0..1024 {
        file.extend(names.to_le_bytes());
    }
    for number in [0xeaa4_2174, sections] {
        file.extend(number.to_le_bytes());
    }
    for _ in 0..sections {
        for number in [1, 0, array, 4096] {
            file.extend(number.to_le_bytes());
        }
    }
    file
}

fn a_crafted_loader_cache(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for (entries, sections) in [(0, 1000), (0, 100_000), (60_000, 0), (60_000, 1000)] {
        let bundle = limited(&host, Rootfs::Glibc)
            .env(DemoHost::VARIABLE, "npu-3")
            .build()
            .unwrap();
        let place = bundle.in_rootfs("/etc/ld.so.cache");
        fs::write(place, cache(entries, sections)).unwrap();
        let case = format!("{entries} entries, {sections} sections");
        assert_ended_by_itself(lab, &bundle, &case);
    }
}

/// On a host with 2,000 devices.
fn requests_that_overlap(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let class = "version = 1\nresource = 'many.com/npu'\n\
        request = { env = 'MANY_VISIBLE_DEVICES' }\ndiscover = [{ count = 2000 }]\n\
        [device]\nid = 'many-{index}'\nindex = '{index}'\n\
        nodes = [{ path = '/dev/many{index}', optional = true }]\n";
    host.add_class("many", class).unwrap();
    for part in [
        "0-1999,",
        "all,",
        "many-1999,",
        "1999,",
        "0-1999,all,1-1998,",
    ] {
        let request = part.repeat(8000 / part.len());
        let request = request.trim_end_matches(',');
        for count in [1, 20] {
            let builder = limited(&host, Rootfs::Busybox).env("MANY_VISIBLE_DEVICES", request);
            // The last of several variables of one name counts.
            let builder = (1..count).fold(builder, |builder, _| {
                builder.env("MANY_VISIBLE_DEVICES", request)
            });
            let bundle = builder.build().unwrap();
            assert_ended_by_itself(lab, &bundle, &format!("{count} times {part}"));
        }
    }
}

/// Chains that lead on and on, and that double at each step.
fn an_image_full_of_links(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for doubled in [false, true] {
        let bundle = limited(&host, Rootfs::Glibc)
            .env(DemoHost::VARIABLE, "npu-3")
            .build()
            .unwrap();
        for number in 0..60 {
            let next = format!("l{}", number + 1);
            let target = if doubled {
                format!("{next}/../{next}/../{next}")
            } else {
                next
            };
            let link = bundle.in_rootfs(&format!("/l{number}"));
            std::os::unix::fs::symlink(target, link).unwrap();
        }
        fs::create_dir(bundle.in_rootfs("/l60")).unwrap();
        super::volume::put_link(&bundle, "/etc/ld.so.cache", "/l0/cache");
        super::volume::put_link(&bundle, "/etc/ld.so.conf.d", "/l0");
        assert_ended_by_itself(lab, &bundle, &format!("doubled: {doubled}"));
    }
}
