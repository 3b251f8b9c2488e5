//! Device programs that another component of the node has attached to the container's
//! cgroup. (Not by an attacker: it is the container that would gain by their loss.)

use harness::bundle::{Bundle, HookCommand};
use harness::cgroup_view::CgroupView;
use harness::compile::{self, Libc};
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use super::{STAGE, hook};
use crate::lab::{Lab, with_lab};
use crate::said::assert_says;

#[test]
fn another_components_program_is_kept_or_the_container_refused() {
    with_lab(module_path!(), CgroupView::V2, kept_or_refused);
}

fn kept_or_refused(lab: &Lab) {
    let none: [&str; 0] = [];
    let other = compile::program("other-device-program.c", Libc::Glibc, &none).unwrap();
    let host = DemoHost::new().unwrap();
    let container = |request| {
        let bundle = Bundle::builder(Rootfs::Busybox)
            .hook(STAGE, HookCommand::new(&other))
            .hook(STAGE, hook(&host))
            .env(DemoHost::VARIABLE, request)
            .args([
                "/bin/sh",
                "-c",
                "head -c 1 /dev/zero >/dev/null && echo read",
            ]);
        let bundle = bundle.build().unwrap();
        let ran = lab.runc.run(&bundle).unwrap();
        lab.assert_nothing_left(&bundle);
        ran
    };
    let ran = container("void");
    assert!(!ran.stdout.contains("read"), "it denies: {}", ran.stdout);
    assert!(ran.stderr.contains("/dev/zero"), "{}", ran.stderr);
    let ran = container("npu-3");
    assert!(!ran.status.success(), "{}", ran.stdout);
    assert!(!ran.stdout.contains("read"), "{}", ran.stdout);
    assert_says(
        &ran.stderr,
        &["boathook: ", "other_agent", "was left alone"],
    );
}
