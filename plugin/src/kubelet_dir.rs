//! Builds the paths of the kubelet's sockets and the names of the plugin's sockets.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use device_class::name::ResourceName;
use injection_plan::claim_record::{DRIVER_DIRECTORY, records_directory};
use kubelet_api::{KUBELET_SOCKET, POD_RESOURCES_SOCKET};

/// The maximum length of a Unix socket's path, in bytes: `sun_path` has 108, and the last one is
/// zero (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// The maximum length of the name of a plugin's socket, in bytes.
pub(crate) const MAX_SOCKET_NAME: usize = 48;

/// The prefix of the plugin's socket names.
pub(crate) const SOCKET_PREFIX: &str = "boathook-";

/// The suffix of the plugin's socket names.
pub(crate) const SOCKET_SUFFIX: &str = ".sock";

/// The suffix of the name of a handover mark.
const HANDOVER_SUFFIX: &str = ".handover";

/// The directory that the kubelet's plugin watcher watches, relative to the kubelet's root
/// directory.
const PLUGINS_REGISTRY: &str = "plugins_registry";

/// The root directory of a kubelet, `/var/lib/kubelet` on most hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KubeletDir(PathBuf);

/// Returns the directory of the claim records of `boathook-dra`, below a kubelet's root directory.
pub(crate) fn claim_records(kubelet: &Path) -> PathBuf {
    records_directory(&kubelet.join(DRIVER_DIRECTORY))
}

impl KubeletDir {
    /// Takes the kubelet's root directory, which need not exist yet.
    pub(crate) fn new(path: PathBuf) -> anyhow::Result<Self> {
        let shown = path.display();
        // Other processes open the sockets by these paths, so the paths must not depend on a
        // working directory.
        ensure!(
            path.is_absolute(),
            "--kubelet-dir {shown}: give an absolute path"
        );
        // This directory has the longer path of the two that have sockets.
        let longest = path.join(PLUGINS_REGISTRY).as_os_str().len();
        ensure!(
            longest + 1 + MAX_SOCKET_NAME <= MAX_SOCKET_PATH,
            "--kubelet-dir {shown}: a socket below it would have a path of more than \
             {MAX_SOCKET_PATH} bytes; use a shorter path or a symbolic link to it"
        );
        Ok(KubeletDir(path))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// Returns the directory with the sockets of the kubelet's device manager and of device
    /// plugins.
    pub(crate) fn device_plugins(&self) -> PathBuf {
        self.0.join("device-plugins")
    }

    pub(crate) fn plugins_registry(&self) -> PathBuf {
        self.0.join(PLUGINS_REGISTRY)
    }

    /// Returns the socket of the kubelet's PodResources API.
    pub(crate) fn pod_resources_socket(&self) -> PathBuf {
        self.0.join(POD_RESOURCES_SOCKET)
    }

    /// Returns the socket at which the kubelet accepts registrations.
    pub(crate) fn kubelet_socket(&self) -> PathBuf {
        self.device_plugins().join(KUBELET_SOCKET)
    }
}

/// One of the two names that the socket of a resource can have. Two names let two instances of the
/// plugin serve the resource at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SocketSlot {
    First,
    Second,
}

impl SocketSlot {
    pub(crate) fn next_slot(self) -> Self {
        match self {
            SocketSlot::First => SocketSlot::Second,
            SocketSlot::Second => SocketSlot::First,
        }
    }
}

/// Builds the file name of a resource's socket.
pub(crate) fn socket_name(resource: &ResourceName, slot: SocketSlot) -> String {
    // The name of a resource cannot contain `@`, so the two names differ from all others.
    let suffix = match slot {
        SocketSlot::First => SOCKET_SUFFIX.to_owned(),
        SocketSlot::Second => format!("@2{SOCKET_SUFFIX}"),
    };
    file_name(resource, &suffix)
}

/// Builds the file name of a resource's handover mark.
pub(crate) fn handover_mark_file_name(resource: &ResourceName) -> String {
    file_name(resource, HANDOVER_SUFFIX)
}

/// Builds a file name from a resource name and a suffix. Different resources get different names.
/// A name that is too long for a Unix socket is replaced by a hash.
fn file_name(resource: &ResourceName, suffix: &str) -> String {
    // The first `_` stands for the slash. A domain cannot contain `_`, so the name is unambiguous.
    let spelled = resource.as_str().replacen('/', "_", 1);
    let name = format!("{SOCKET_PREFIX}{spelled}{suffix}");
    if name.len() <= MAX_SOCKET_NAME {
        return name;
    }
    format!(
        "{SOCKET_PREFIX}{:016x}{suffix}",
        device_class::name::fnv1a(resource.as_str().as_bytes())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_name_is_readable_or_hashed_and_always_fits() {
        let long = "fpga.intel.com/region-ce48969398f05f33946d560708be108a";
        for (resource, wanted) in [
            ("dummy.com/npu", "boathook-dummy.com_npu"),
            ("a.b/c_d", "boathook-a.b_c_d"),
            (long, "boathook-a04560402a8286d1"),
        ] {
            let resource = resource.to_owned().try_into().unwrap();
            for (slot, suffix) in [(SocketSlot::First, ""), (SocketSlot::Second, "@2")] {
                let name = socket_name(&resource, slot);
                assert_eq!(name, format!("{wanted}{suffix}.sock"));
                assert!(name.len() <= MAX_SOCKET_NAME);
            }
            let mark = handover_mark_file_name(&resource);
            assert_eq!(mark, format!("{wanted}.handover"));
        }
    }

    #[test]
    fn a_kubelet_dir_is_absolute_and_leaves_room_for_sockets() {
        let dir = |path: &str| KubeletDir::new(path.into());
        assert_eq!(
            dir("/var/lib/kubelet").unwrap().kubelet_socket(),
            Path::new("/var/lib/kubelet/device-plugins/kubelet.sock")
        );
        // The longest root of a known distribution fits to the byte.
        assert!(dir("/var/snap/microk8s/common/var/lib/kubelet").is_ok());
        let long = format!("/{}", "x".repeat(80));
        for (path, said) in [
            ("var/lib/kubelet", "absolute"),
            (&long, "more than 107 bytes"),
        ] {
            let error = dir(path).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
