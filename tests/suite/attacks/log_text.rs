//! Text of images and users in the log and on the terminal.

use harness::bundle::BundleBuilder;
use harness::captured::Captured;
use harness::demo_host::DemoHost;
use harness::probe::Questions;
use harness::rootfs::Rootfs;

use super::volume::put_link;
use super::{container, host_with_tools};
use crate::lab::{Lab, asking, on_each_cgroup_version};

on_each_cgroup_version!(an_image_cannot_write_lines_or_escapes);

/// A new line that looks like one of the hook's, and a sequence that a terminal
/// obeys, in both forms.
const HOSTILE: &str = "x\nboathook: forged\r\u{1b}[2J\u{9b}31m\u{7f}\u{202e}";

fn an_image_cannot_write_lines_or_escapes(lab: &Lab) {
    let variations: [fn(BundleBuilder) -> BundleBuilder; 6] = [
        |builder| builder.env(DemoHost::VARIABLE, HOSTILE),
        |builder| builder.env(DemoHost::VARIABLE, &format!("npu-3,{HOSTILE}")),
        |builder| builder.annotation("devices.boathook.dev/dummy-npu", HOSTILE),
        |builder| builder.annotation("io.kubernetes.cri-o.ContainerType", HOSTILE),
        |builder| {
            builder
                .annotation("io.kubernetes.cri.container-type", "container")
                .annotation("io.kubernetes.cri.sandbox-uid", HOSTILE)
        },
        |builder| {
            builder
                .annotation("io.kubernetes.cri.container-type", "container")
                .annotation("io.kubernetes.cri.sandbox-name", HOSTILE)
        },
    ];
    for (number, variation) in variations.into_iter().enumerate() {
        let host = host_with_tools();
        let builder = variation(ending(container(&host, Rootfs::Busybox)));
        let ran = lab.runc.run(&builder.build().unwrap()).unwrap();
        assert_clean(&host, &ran, &format!("variation {number}"));
    }
    for place in [
        "/etc/ld.so.cache",
        "/etc",
        "/usr/lib/boathook",
        "/usr/bin/npu-tool",
        "/etc/npu.conf",
        "/var/lib/npu",
    ] {
        let host = host_with_tools();
        let bundle = ending(container(&host, Rootfs::Glibc)).build().unwrap();
        put_link(&bundle, place, HOSTILE);
        let ran = lab.runc.run(&bundle).unwrap();
        assert_clean(&host, &ran, place);
    }
}

/// A container that ends at once, should it start.
fn ending(builder: BundleBuilder) -> BundleBuilder {
    builder.args(asking(&Questions::new()))
}

/// runc prints a hook's output in a message of its own; the log is the hook's.
#[track_caller]
fn assert_clean(host: &DemoHost, ran: &Captured, case: &str) {
    for text in [host.log(), ran.stderr.clone()] {
        let control = text
            .chars()
            .find(|&c| (c.is_control() && c != '\n') || c == '\u{202e}');
        assert_eq!(control, None, "{case}: {text:?}");
        let forged = text
            .lines()
            .any(|line| line.starts_with("boathook: forged"));
        assert!(!forged, "{case}: {text}");
    }
}
