//! Libraries for 32-bit programs beside those for the machine's own.

use std::process::Command;

use harness::captured::Captured;
use harness::fingerprint;
use harness::loader::{self, Loaded};
use harness::probe::Questions;
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;

use crate::lab::{Lab, asking, on_each_cgroup_version, requesting};

on_each_cgroup_version!(the_loader_finds_both_sorts);

const CLASS: &str = r#"
    version = 1
    resource = "example.com/chip"
    [request]
    env = "CHIP_VISIBLE_DEVICES"
    capabilities_env = "CHIP_CAPABILITIES"
    capability_32bit = "compat32"
    [[discover]]
    path = "/dev/chip{index:number}"
    [device]
    id = "chip-{index}"
    nodes = ["/dev/chip{index}"]
    [[edits]]
    libraries = ["libchip.so.1"]
    [[edits]]
    capability = "other"
"#;

const HOST: &str = "
char /dev/chip0 240:0
file /usr/lib/x86_64-linux-gnu/libchip.so.1.0
link /usr/lib/x86_64-linux-gnu/libchip.so.1 libchip.so.1.0
lib libchip.so.1 /usr/lib/x86_64-linux-gnu/libchip.so.1
file /usr/lib/i386-linux-gnu/libchip.so.1.0
link /usr/lib/i386-linux-gnu/libchip.so.1 libchip.so.1.0
lib32 libchip.so.1 /usr/lib/i386-linux-gnu/libchip.so.1
";

const FILE: &str = "/usr/lib/boathook/lib32/libchip.so.1.0";

/// `ldconfig` prints, from the cache that the hook wrote, which library a 32-bit
/// program would load. (Running one requires a 32-bit C library.)
fn the_loader_finds_both_sorts(lab: &Lab) {
    if cfg!(not(target_arch = "x86_64")) {
        return skip::report("the_loader_finds_both_sorts", "only known for x86");
    }
    let host = RecordedHost::bare(HOST).unwrap();
    host.add_class("chips", CLASS).unwrap();
    let own = host.root().join("usr/lib/i386-linux-gnu/libchip.so.1.0");
    for (capabilities, both) in [("compat32", true), ("other", false)] {
        let container = |command: Vec<String>| {
            let container = requesting(&host, Rootfs::Glibc, "CHIP_VISIBLE_DEVICES", "all");
            let container = container.env("CHIP_CAPABILITIES", capabilities);
            container.args(command).build().unwrap()
        };
        let bundle = container(asking(&Questions::new().path(FILE)));
        let seen = lab.probe(&bundle);
        let expected = both.then(|| fingerprint::of_file(&own).unwrap());
        assert_eq!(seen.path(FILE).unwrap().fingerprint, expected);

        let cache = bundle.in_rootfs("/etc/ld.so.cache");
        let mut ldconfig = Command::new("/sbin/ldconfig");
        let printed = Captured::run(ldconfig.arg("-p").arg("-C").arg(cache)).unwrap();
        let printed = printed.success().unwrap().stdout;
        for (line, expected) in [
            (
                "libchip.so.1 (libc6,x86-64) => /usr/lib/boathook/lib/libchip.so.1",
                true,
            ),
            (
                "libchip.so.1 (libc6) => /usr/lib/boathook/lib32/libchip.so.1",
                both,
            ),
        ] {
            assert_eq!(printed.contains(line), expected, "{line} in {printed}");
        }

        let bundle = container(loader::command(&[RecordedHost::wanted("libchip.so.1")]));
        let loaded = loader::parse(&lab.run(&bundle)).unwrap();
        assert!(matches!(&loaded[..], [Loaded::Found { .. }]), "{loaded:?}");
    }
}
