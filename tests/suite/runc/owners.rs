//! Nodes for users who are not root: a class or config.toml gives them a mode and a group.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use harness::bundle::{Bundle, BundleBuilder};
use harness::demo_host::DemoHost;
use harness::probe::{Access, Questions};
use harness::rootfs::Rootfs;
use harness::runc::Runc;
use serde_json::{Value, json};

use super::node;
use crate::lab::{Lab, asking, on_each_cgroup_version, requesting};
use crate::said::assert_says;

on_each_cgroup_version!(
    a_group_of_the_container_may_open_it,
    under_a_user_namespace_the_log_names_the_group,
    the_wrapper_adds_the_groups_of_nodes,
);

const VARIABLE: &str = "OWNED_VISIBLE_DEVICES";

/// The same nodes as the demo host's, which nobody but the host's root may
/// open, with `keys` for the container's.
fn host(keys: &str) -> DemoHost {
    let host = DemoHost::new().unwrap();
    fs::set_permissions(host.node(3), Permissions::from_mode(0o600)).unwrap();
    let class = format!(
        "version = 1\nresource = 'owned.com/npu'\nrequest = {{ env = '{VARIABLE}' }}\n\
         [[discover]]\npath = '/dev/dummy-npu{{index:number}}'\n\
         [device]\nid = 'npu-{{index}}'\n\
         nodes = [{{ path = '/dev/dummy-npu{{index}}'{keys} }}]\n"
    );
    host.add_class("owned", &class).unwrap();
    host
}

fn ordinary_user(host: &DemoHost) -> BundleBuilder {
    requesting(host, Rootfs::Busybox, VARIABLE, "npu-3")
        .args(asking(&Questions::new().path(node(3))))
}

fn a_group_of_the_container_may_open_it(lab: &Lab) {
    let configured = "[class.owned]\nnode_mode = '0640'\nnode_gid = 2000\n";
    for (keys, config, wanted) in [
        (", mode = '0640', gid = 2000", "", Access::Granted),
        (", mode = '0644'", "", Access::Granted),
        (", gid = 3000", "", Access::refused("EACCES")),
        ("", "", Access::refused("EACCES")),
        ("", configured, Access::Granted),
        (", mode = '0600', gid = 3000", configured, Access::Granted),
    ] {
        let host = host(keys);
        host.write_config(config).unwrap();
        let bundle = ordinary_user(&host).user(1000, 2000).build().unwrap();
        let report = lab.probe(&bundle);
        let seen = report.path(node(3)).unwrap();
        assert_eq!(seen.read, wanted, "{keys} {config}");
        let number = host.device(3).number();
        assert_eq!(seen.number(), Some(number), "{keys} {config}");
    }
}

/// A node that is made there could not be opened by anybody.
fn under_a_user_namespace_the_log_names_the_group(lab: &Lab) {
    let host = host(", mode = '0640', gid = 2000");
    fs::set_permissions(host.node(3), Permissions::from_mode(0o666)).unwrap();
    let bundle = ordinary_user(&host).user_namespace().build().unwrap();
    let report = lab.probe(&bundle);
    assert_eq!(report.path(node(3)).unwrap().read, Access::Granted);
    let log = host.log();
    assert_says(
        &log,
        &["/dev/dummy-npu3: the container has a user namespace"],
    );
}

/// The host's group of a node is that of udev's rules, such as `render`. A hook comes too late to
/// change a process's groups.
fn the_wrapper_adds_the_groups_of_nodes(lab: &Lab) {
    const GROUP: u32 = 2044;
    let user: fn(BundleBuilder) -> BundleBuilder = |builder| builder.user(1000, 1000);
    let runtime = harness::runc::program().unwrap();
    for (kind, mode, keys, apply, groups) in [
        ("a user", 0o660, "", user, json!([GROUP])),
        ("a group that may read", 0o640, "", user, json!([GROUP])),
        (
            "a node of its own",
            0o600,
            ", gid = 3000",
            user,
            json!([3000]),
        ),
        ("a node for everyone", 0o666, "", user, Value::Null),
        ("a node for root", 0o600, "", user, Value::Null),
        (
            "the group itself",
            0o660,
            "",
            |it| it.user(1000, GROUP),
            Value::Null,
        ),
        ("root", 0o660, "", |it| it.user(0, 0), Value::Null),
        (
            "a user namespace",
            0o666,
            "",
            |it| it.user(1000, 1000).user_namespace(),
            Value::Null,
        ),
    ] {
        let host = host(keys);
        let node_of_host = host.node(3);
        chown(&node_of_host, Some(0), Some(GROUP)).unwrap();
        fs::set_permissions(&node_of_host, Permissions::from_mode(mode)).unwrap();
        host.write_config(&format!("[runtime]\npath = {runtime:?}\n"))
            .unwrap();
        let runc = Runc::new(lab.runc.view()).unwrap();
        let runc = runc.behind_wrapper(&host.config_file());
        let builder = Bundle::builder(Rootfs::Busybox).env(VARIABLE, "npu-3");
        let bundle = apply(builder)
            .args(["/bin/sh", "-c", "[ -r /dev/dummy-npu3 ]"])
            .build();
        let bundle = bundle.unwrap();
        let ran = runc.run(&bundle).unwrap();
        let may_read = kind != "a node for root";
        assert_eq!(ran.status.success(), may_read, "{kind}: {ran:?}");
        let text = fs::read_to_string(bundle.config_file()).unwrap();
        let config: Value = serde_json::from_str(&text).unwrap();
        let added = &config["process"]["user"]["additionalGids"];
        assert_eq!(*added, groups, "{kind}");
    }
}
