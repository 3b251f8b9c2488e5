//! The parts of config.json that are the same in every bundle.
//!
//! They are those of a container that an engine starts without options, less
//! what a test machine may lack: there are no resource limits and no change of
//! the OOM score, which both may need CAP_SYS_RESOURCE.

use oci_spec::runtime::{
    get_default_maskedpaths, get_default_mounts, get_default_namespaces, get_default_readonly_paths,
};
use serde_json::{Value, json};

use crate::probe;

/// The first host uid and gid of a container in a user namespace.
pub(super) const MAPPED_FIRST: u32 = 100_000;
/// The number of ids that are mapped.
const MAPPED_COUNT: u32 = 65_536;

/// Capabilities of a container's root, as engines give them by default.
const CAPABILITIES: &str = "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD \
    NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_CHROOT";

/// A container that runs the probe as root.
pub(super) fn of_container() -> Value {
    // Nothing here uses the cgroup file system from inside.
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
            // With this every engine begins: no device but those that the runtime adds
            // itself, such as /dev/null.
            "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            "maskedPaths": get_default_maskedpaths(),
            "readonlyPaths": get_default_readonly_paths(),
        },
    })
}

pub(super) fn id_mappings() -> Value {
    json!([{"containerID": 0, "hostID": MAPPED_FIRST, "size": MAPPED_COUNT}])
}

/// These capabilities, as root has them; their names without `CAP_`.
pub(crate) fn capabilities(names: &str) -> Value {
    let names = names.split(' ').map(|name| format!("CAP_{name}"));
    let all: Vec<_> = names.collect();
    json!({"bounding": all, "effective": all, "permitted": all, "inheritable": [], "ambient": []})
}
