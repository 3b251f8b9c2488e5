//! The parts of config.json that are the same in every bundle.
//!
//! They are those of a container that an engine starts without options, except for the resource
//! limits and the OOM score: to set these needs CAP_SYS_RESOURCE, which a test machine may lack.

use oci_spec::runtime::{
    get_default_maskedpaths, get_default_mounts, get_default_namespaces, get_default_readonly_paths,
};
use serde_json::{Value, json};

use crate::probe;

/// The user and group of the host that are root in a container with a user namespace.
pub(super) const MAPPED_FIRST: u32 = 100_000;
/// The number of user and group ids that a user namespace maps: all 16-bit ids.
const MAPPED_COUNT: u32 = 65_536;

/// The capabilities, without `CAP_`, that engines give the root of a container by default.
const CAPABILITIES: &str = "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD \
    NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_CHROOT";

/// Returns the config.json of a container that runs the probe as root.
pub(super) fn of_container() -> Value {
    // No test reads the cgroup file system inside a container, and cgroup v2 cannot be mounted on
    // every test machine.
    let mut mounts = get_default_mounts();
    mounts.retain(|mount| !mount.destination().starts_with("/sys/fs/cgroup"));
    json!({
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs", "readonly": false},
        "hostname": "boathook-test",
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": [probe::PATH, probe::PAUSE],
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "capabilities": capabilities(CAPABILITIES),
            "noNewPrivileges": true,
        },
        "mounts": mounts,
        "annotations": {},
        "hooks": {"prestart": [], "createRuntime": []},
        "linux": {
            "namespaces": get_default_namespaces(),
            // Every engine begins with this rule: it denies all devices except those that the
            // runtime allows itself, such as /dev/null.
            "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            "maskedPaths": get_default_maskedpaths(),
            "readonlyPaths": get_default_readonly_paths(),
        },
    })
}

pub(super) fn id_mappings() -> Value {
    json!([{"containerID": 0, "hostID": MAPPED_FIRST, "size": MAPPED_COUNT}])
}

/// Returns `process.capabilities` of a root user with the capabilities in `names`, which are
/// separated by spaces and have no `CAP_`.
pub(crate) fn capabilities(names: &str) -> Value {
    let names = names.split(' ').map(|name| format!("CAP_{name}"));
    let all: Vec<_> = names.collect();
    json!({"bounding": all, "effective": all, "permitted": all, "inheritable": [], "ambient": []})
}
