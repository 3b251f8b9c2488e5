//! Images whose variables choose a class's trusted capability, such as the node that destroys
//! the instances of others: outside pods nothing but the image asks for it.

use harness::bundle::{Bundle, BundleBuilder};
use harness::captured::Captured;
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;
use harness::runc::Runc;

use crate::lab::{Lab, STAGE, granting, hook, on_each_cgroup_version};
use crate::live::boathook;

on_each_cgroup_version!(
    an_image_alone_has_no_trusted_capability,
    an_image_alone_has_no_trusted_capability_behind_the_wrapper,
    what_is_attached_brings_no_trusted_capability,
);

/// `config` and `manage` are trusted, and `all-parts` brings one of them.
const CLASS: &str = "version = 1\nresource = 'example.com/part'\n\
    discover = [{ path = '/dev/dummy-npu{index:number}' }]\n\
    [request]\nenv = 'PARTS'\ncapabilities_env = 'PARTS_CAPABILITIES'\n\
    trusted_capabilities = ['config', 'manage']\nimplies = { all-parts = ['manage'] }\n\
    switches = { PARTS_CONFIG = { all = 'config' } }\n\
    [device]\nid = 'part-{index}'\nindex = '{index}'\n\
    nodes = [{ path = '/dev/dummy-npu{index}', container_path = '/dev/parts/{index}' }]\n\
    [[edits]]\ncapability = 'config'\n\
    nodes = [{ path = '/dev/dummy-npu5', container_path = '/dev/parts/config' }]\n\
    [[edits]]\ncapability = 'manage'\n\
    nodes = [{ path = '/dev/dummy-npu5', container_path = '/dev/parts/manage' }]\n\
    [[edits]]\ncapability = 'all-parts'\n\
    nodes = [{ path = '/dev/dummy-npu7', container_path = '/dev/parts/all' }]\n";

fn host() -> DemoHost {
    let host = DemoHost::new().unwrap();
    host.add_class("parts", CLASS).unwrap();
    host
}

/// The variable by which an image chooses a capability, and the nodes that it gets.
const CHOICES: [(&str, &str, &str); 3] = [
    ("PARTS_CONFIG", "all", "3\nconfig\n"),
    ("PARTS_CAPABILITIES", "manage", "3\nmanage\n"),
    ("PARTS_CAPABILITIES", "all-parts", "3\nall\nmanage\n"),
];

/// The user of the container, and whether it may have CAP_SYS_ADMIN.
type Kind = (&'static str, fn(BundleBuilder) -> BundleBuilder, bool);
const KINDS: [Kind; 4] = [
    ("root", |it| it, false),
    ("an ordinary user", |it| it.user(1000, 1000), false),
    ("with CAP_SYS_ADMIN", BundleBuilder::sys_admin, true),
    (
        "a user, with it",
        |it| it.sys_admin().user(1000, 1000),
        true,
    ),
];

#[track_caller]
fn assert_given(ran: &Captured, nodes: Option<&str>, case: &str) {
    match nodes {
        Some(nodes) => {
            assert!(ran.status.success(), "{case}: {ran:?}");
            assert_eq!(ran.stdout, nodes, "{case}");
        }
        None => {
            assert!(!ran.status.success(), "{case}: {ran:?}");
            let said = " of class parts without CAP_SYS_ADMIN in its config.json";
            assert!(ran.stderr.contains(said), "{case}: {ran:?}");
        }
    }
}

/// The hook of each container, and that of a CDI specification.
fn an_image_alone_has_no_trusted_capability(lab: &Lab) {
    let host = host();
    let list = ["/bin/ls", "/dev/parts"];
    for (kind, apply, may) in KINDS {
        let container = || Bundle::builder(Rootfs::Busybox).args(list);
        let by_hook = || apply(container().hook(STAGE, hook(&host)).env("PARTS", "3"));
        let by_cdi = || apply(container().hook(STAGE, granting(&host, "parts=part-3")));
        let makers: [&dyn Fn() -> BundleBuilder; 2] = [&by_hook, &by_cdi];
        for make in makers {
            let plain = lab.run(&make().build().unwrap());
            assert_eq!(plain, "3\n", "{kind}");
            for (variable, value, nodes) in CHOICES {
                let bundle = make().env(variable, value).build().unwrap();
                let ran = lab.runc.run(&bundle).unwrap();
                let case = format!("{kind}, {variable}={value}");
                assert_given(&ran, may.then_some(nodes), &case);
                lab.assert_nothing_left(&bundle);
            }
        }
    }
}

fn an_image_alone_has_no_trusted_capability_behind_the_wrapper(lab: &Lab) {
    let host = host();
    let runtime = harness::runc::program().unwrap();
    host.write_config(&format!("[runtime]\npath = {runtime:?}\n"))
        .unwrap();
    let runc = Runc::new(lab.runc.view()).unwrap();
    let runc = runc.behind_wrapper(&host.config_file());
    for (kind, apply, may) in KINDS {
        for (variable, value, nodes) in CHOICES {
            let container = Bundle::builder(Rootfs::Busybox).args(["/bin/ls", "/dev/parts"]);
            let container = container.env("PARTS", "3").env(variable, value);
            let ran = runc.run(&apply(container).build().unwrap()).unwrap();
            assert_given(
                &ran,
                may.then_some(nodes),
                &format!("{kind}, {variable}={value}"),
            );
        }
    }
}

/// Root attaches a device, and the image chooses what comes with it.
fn what_is_attached_brings_no_trusted_capability(lab: &Lab) {
    let host = host();
    for (kind, apply, may) in KINDS {
        let container = Bundle::builder(Rootfs::Busybox).env("PARTS_CONFIG", "all");
        let bundle = apply(container).build().unwrap();
        let running = lab.start(&bundle);
        let ran = boathook(lab, &host, &["attach", bundle.id(), "parts=3"]);
        let list = ["/bin/sh", "-c", "ls /dev/parts 2> /dev/null; :"];
        let seen = running.output(&list).unwrap();
        if may {
            assert!(ran.status.success(), "{kind}: {ran:?}");
            assert_eq!(seen, "3\nconfig\n", "{kind}");
        } else {
            assert_given(&ran, None, kind);
            assert_eq!(seen, "", "{kind}");
        }
    }
}
