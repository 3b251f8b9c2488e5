//! Builds the paths of the kubelet's sockets and the names of the plugin's sockets.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use daemon::kubelet_api::{KUBELET_SOCKET_NAME, POD_RESOURCES_SOCKET_PATH};
use device_class::name::ResourceName;
use injection_plan::claim_record::{DRIVER_DIR_PATH, records_dir_path};
use injection_plan::kubelet_checkpoint;

/// The maximum length of the path of a Unix socket, in bytes. The kernel's `sun_path` has 108
/// bytes, of which the last one is zero (unix(7)).
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The maximum length of the file name of a plugin's socket, in bytes. In a longer name, a hash
/// replaces the name of the resource.
pub(crate) const MAX_SOCKET_NAME_BYTES: usize = 48;

/// The prefix of the file names of the plugin's sockets and handover markers, such as
/// `boathook-example.com_npu.sock`.
pub(crate) const SOCKET_PREFIX: &str = "boathook-";

pub(crate) const SOCKET_SUFFIX: &str = ".sock";

/// The suffix of the file name of a handover marker: a file that exists while one instance of the
/// plugin takes a resource over from another one.
const HANDOVER_SUFFIX: &str = ".handover";

/// The directory with the sockets of device plugins and the kubelet checkpoint, relative to the
/// kubelet's root directory.
const DEVICE_PLUGINS_DIR: &str = "device-plugins";

/// The directory that the kubelet's plugin watcher observes, relative to the kubelet's root
/// directory.
const PLUGINS_REGISTRY_DIR: &str = "plugins_registry";

/// The root directory of a kubelet, `/var/lib/kubelet` on most hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KubeletDir(PathBuf);

/// Returns the directory in which `boathook-dra` keeps its claim records. `kubelet_root` is the
/// root directory of a kubelet, such as `/var/lib/kubelet`.
pub(crate) fn claim_records_dir(kubelet_root: &Path) -> PathBuf {
    records_dir_path(&kubelet_root.join(DRIVER_DIR_PATH))
}

/// Returns the path of the kubelet checkpoint, which lists the devices of pods. `kubelet_root` is
/// the root directory of a kubelet, such as `/var/lib/kubelet`.
pub(crate) fn checkpoint_path(kubelet_root: &Path) -> PathBuf {
    kubelet_root
        .join(DEVICE_PLUGINS_DIR)
        .join(kubelet_checkpoint::FILE_NAME)
}

impl KubeletDir {
    /// Checks the path of the kubelet's root directory, which need not exist yet. The path must be
    /// absolute, and short enough for the sockets below it.
    pub(crate) fn new(path: PathBuf) -> anyhow::Result<Self> {
        let displayed_path = path.display();
        // The path must not depend on the working directory, because other processes also open the
        // sockets.
        ensure!(
            path.is_absolute(),
            "--kubelet-dir {displayed_path}: give an absolute path"
        );
        // Sockets are in `plugins_registry` or in `device-plugins`. Only the longer path is
        // checked.
        let longest_dir_bytes = path.join(PLUGINS_REGISTRY_DIR).as_os_str().len();
        ensure!(
            longest_dir_bytes + 1 + MAX_SOCKET_NAME_BYTES <= MAX_SOCKET_PATH_BYTES,
            "--kubelet-dir {displayed_path}: a socket below it would have a path of more than \
             {MAX_SOCKET_PATH_BYTES} bytes; use a shorter path or a symbolic link to it"
        );
        Ok(KubeletDir(path))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the directory with the sockets of the kubelet's device manager and of
    /// device plugins.
    pub(crate) fn device_plugins_dir(&self) -> PathBuf {
        self.0.join(DEVICE_PLUGINS_DIR)
    }

    pub(crate) fn plugins_registry_dir(&self) -> PathBuf {
        self.0.join(PLUGINS_REGISTRY_DIR)
    }

    pub(crate) fn pod_resources_socket_path(&self) -> PathBuf {
        self.0.join(POD_RESOURCES_SOCKET_PATH)
    }

    /// Returns the path of the socket at which the kubelet accepts registrations.
    pub(crate) fn kubelet_socket_path(&self) -> PathBuf {
        self.device_plugins_dir().join(KUBELET_SOCKET_NAME)
    }
}

/// One of the two names that a resource's socket can have. With two names, two instances of the
/// plugin can serve the resource at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SocketSlot {
    First,
    Second,
}

impl SocketSlot {
    pub(crate) fn other_slot(self) -> Self {
        match self {
            SocketSlot::First => SocketSlot::Second,
            SocketSlot::Second => SocketSlot::First,
        }
    }
}

/// Returns the file name of a resource's socket, such as `boathook-example.com_npu.sock`. `slot`
/// chooses one of the two names that the socket can have.
pub(crate) fn socket_name(resource: &ResourceName, slot: SocketSlot) -> String {
    // No other resource has these two names, because the name of a resource cannot contain `@`.
    let suffix = match slot {
        SocketSlot::First => SOCKET_SUFFIX.to_owned(),
        SocketSlot::Second => format!("@2{SOCKET_SUFFIX}"),
    };
    build_file_name(resource, &suffix)
}

/// Returns the file name of a resource's handover marker, such as
/// `boathook-example.com_npu.handover`.
pub(crate) fn handover_marker_file_name(resource: &ResourceName) -> String {
    build_file_name(resource, HANDOVER_SUFFIX)
}

/// Builds a file name from a resource name and a suffix. Different resources get different file
/// names. If the file name would be too long for a socket, a hash replaces the resource name.
fn build_file_name(resource: &ResourceName, suffix: &str) -> String {
    // The first `_` replaces the slash. The file name is unambiguous, because a domain cannot
    // contain `_`.
    let escaped_name = resource.as_str().replacen('/', "_", 1);
    let name = format!("{SOCKET_PREFIX}{escaped_name}{suffix}");
    if name.len() <= MAX_SOCKET_NAME_BYTES {
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
                assert!(name.len() <= MAX_SOCKET_NAME_BYTES);
            }
            let name = handover_marker_file_name(&resource);
            assert_eq!(name, format!("{wanted}.handover"));
        }
    }

    #[test]
    fn a_kubelet_dir_is_absolute_and_leaves_room_for_sockets() {
        let dir = |path: &str| KubeletDir::new(path.into());
        assert_eq!(
            dir("/var/lib/kubelet").unwrap().kubelet_socket_path(),
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
