//! Reads the parts of a bundle's config.json that the hook needs (OCI runtime specification 1.2,
//! "Configuration").

use std::collections::BTreeMap;
use std::io;
use std::iter;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use host_files::json_text;
use injection_plan::plan::{DetachedRequest, SpecCapabilities, SpecDevices};
use injection_plan::request::Environment;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::hooks::{CdiGrant, Hooks};
use super::{MaskedPaths, State, devices, read_file_capped};

/// The parts of a container's config.json that the hook needs.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// The directory that contains config.json.
    pub directory: PathBuf,
    pub env: Environment,
    pub annotations: BTreeMap<String, String>,
    /// The host path of the container's root file system.
    pub rootfs: PathBuf,
    /// The paths in the container at which the runtime mounts a new tmpfs. It hides the files of
    /// the image there.
    pub tmpfs_paths: Vec<PathBuf>,
    pub spec_devices: SpecDevices,
    pub bind_mounted_nodes: Vec<BindMountedNode>,
    /// The host's directory that config.json mounts at /dev. It is `None` if a new tmpfs is mounted
    /// there, as is usual.
    host_dev_mount_source: Option<PathBuf>,
    /// The value of `linux.cgroupsPath`, such as `system.slice:docker:0123`. With it, the engine
    /// chooses the container's cgroup.
    pub cgroups_path: Option<String>,
    /// True if the bounding set contains CAP_SYS_ADMIN. Then a process in the container may get
    /// this capability.
    pub has_sys_admin: bool,
    /// The capabilities that config.json gives to the container's init process. The value is `None`
    /// if config.json does not limit them.
    pub capabilities: Option<SpecCapabilities>,
    pub mount_label: Option<String>,
    /// The AppArmor profile of the container's processes, such as `docker-default`. It is `None` if
    /// the engine chose none.
    pub apparmor_profile: Option<String>,
    /// The devices that CDI specifications grant, as the arguments of their hooks name them. They
    /// are in the order in which the runtime calls these hooks.
    pub cdi_grants: Vec<CdiGrant>,
    pub hooks: Hooks,
    pub masked_paths: MaskedPaths,
    /// True if config.json gives the container a user namespace of its own. Otherwise it uses the
    /// runtime's.
    pub has_user_namespace: bool,
    /// The devices that users requested with `boathook attach`, in addition to those in
    /// config.json.
    pub attach_requests: Vec<AttachRequest>,
    /// The requests of the container that `boathook detach` has ended. Only commands for running
    /// containers set this list. They read it from the attachment record.
    pub detached_requests: Vec<DetachedRequest>,
}

/// A file below the host's /dev that config.json bind-mounts into the container. Rootless engines
/// add such a mount for `--device`, because they cannot create device nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindMountedNode {
    /// The destination of the mount in the container, such as `/dev/fuse`.
    pub path: PathBuf,
    /// The source of the mount on the host, a path below /dev.
    pub source: PathBuf,
}

/// A device that a user attached to a running container, or wants to attach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachRequest {
    pub grant: CdiGrant,
    /// True if the user gave `--force`. Then the device may be attached to a pod although the
    /// kubelet did not allocate it.
    pub is_forced: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("{}, which is in each container's bundle, cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{} is larger than {} bytes", .0.display(), Bundle::MAX_CONFIG_BYTES)]
    TooLarge(PathBuf),
    #[error("{} is not an OCI configuration", path.display())]
    Json {
        path: PathBuf,
        #[source]
        error: serde_json::Error,
    },
    #[error(
        "everyone may write to {}, where the runtime says that config.json is; run: chmod o-w {}",
        .0.display(), .0.display()
    )]
    WorldWritable(PathBuf),
    #[error("{} names no root, so there is no container to put devices into", .0.display())]
    NoRoot(PathBuf),
}

const CONFIG_FILE_NAME: &str = "config.json";

/// Returns whether every user may write to the directory, as to /tmp. In such a directory, any user
/// could forge config.json. This can happen because crun may pass its working directory as the
/// bundle.
fn is_world_writable(directory: &Path) -> bool {
    directory
        .metadata()
        .is_ok_and(|directory| directory.mode() & 0o002 != 0)
}

#[derive(Deserialize)]
struct OciConfig {
    process: Option<Process>,
    root: Option<Root>,
    #[serde(default, deserialize_with = "deserialize_valid_items")]
    mounts: Vec<Mount>,
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default, deserialize_with = "deserialize_or_default")]
    hooks: Hooks,
    linux: Option<Linux>,
}

#[derive(Deserialize)]
struct Mount {
    destination: PathBuf,
    source: Option<PathBuf>,
    #[serde(rename = "type")]
    fs_type: String,
    options: Option<Vec<String>>,
}

impl Mount {
    fn is_new_tmpfs(&self) -> bool {
        self.fs_type == "tmpfs" && !self.is_bind_mount()
    }

    fn is_bind_mount(&self) -> bool {
        let mut options = self.options.iter().flatten();
        options.any(|option| option == "bind" || option == "rbind")
    }
}

const DEV_DIR: &str = "/dev";

/// Returns the host's directory that is mounted at /dev, or `None` if a new tmpfs is mounted there.
/// If there are several mounts at /dev, the last one is visible, so it counts.
fn find_dev_source(mounts: &[Mount]) -> Option<PathBuf> {
    let mut dev_mounts = mounts
        .iter()
        .filter(|mount| mount.destination == Path::new(DEV_DIR));
    let mount = dev_mounts.next_back().filter(|mount| !mount.is_new_tmpfs());
    mount?.source.clone()
}

fn list_bind_mounted_nodes(mounts: &[Mount]) -> Vec<BindMountedNode> {
    let bind_mounts = mounts.iter().filter(|mount| mount.is_bind_mount());
    let bind_mounted_nodes = bind_mounts.filter_map(|mount| {
        let source = mount.source.as_ref()?;
        let is_below_dev = source.starts_with(DEV_DIR) && source != Path::new(DEV_DIR);
        is_below_dev.then(|| BindMountedNode {
            path: mount.destination.clone(),
            source: source.clone(),
        })
    });
    bind_mounted_nodes.collect()
}

/// Returns the mount points at and below /dev. Leaves out /dev itself if a new tmpfs is mounted
/// there.
fn list_mount_points_in_dev(mounts: &[Mount]) -> Vec<PathBuf> {
    let dev_dir = Path::new(DEV_DIR);
    let dev_mounts = mounts
        .iter()
        .filter(|mount| mount.destination.starts_with(dev_dir));
    let other_mounts =
        dev_mounts.filter(|mount| mount.destination != dev_dir || !mount.is_new_tmpfs());
    other_mounts
        .map(|mount| mount.destination.clone())
        .collect()
}

#[derive(Deserialize)]
struct Process {
    env: Option<Environment>,
    #[serde(
        default,
        rename = "apparmorProfile",
        deserialize_with = "deserialize_or_default"
    )]
    apparmor_profile: Option<String>,
    #[serde(default, deserialize_with = "deserialize_or_default")]
    capabilities: Option<Capabilities>,
    #[serde(default, deserialize_with = "deserialize_or_default")]
    user: User,
}

#[derive(Default, Deserialize)]
struct Capabilities {
    /// The bounding set. Programs in the container can have no capabilities other than these
    /// (capabilities(7)).
    #[serde(default, deserialize_with = "deserialize_or_default")]
    bounding: Vec<String>,
    #[serde(default, deserialize_with = "deserialize_or_default")]
    ambient: Vec<String>,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    uid: u32,
}

#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Linux {
    #[serde(default, deserialize_with = "deserialize_valid_items")]
    devices: Vec<oci_spec::runtime::LinuxDevice>,
    resources: Option<Resources>,
    cgroups_path: Option<String>,
    mount_label: Option<String>,
    #[serde(default, deserialize_with = "deserialize_valid_items")]
    namespaces: Vec<Namespace>,
    #[serde(default, deserialize_with = "deserialize_valid_items")]
    masked_paths: Vec<PathBuf>,
    #[serde(default, deserialize_with = "deserialize_valid_items")]
    readonly_paths: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Namespace {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Default, Deserialize)]
struct Resources {
    #[serde(default, deserialize_with = "deserialize_valid_items")]
    devices: Vec<oci_spec::runtime::LinuxDeviceCgroup>,
}

/// Deserializes a value of the type `T`. Returns the default value of `T` if the value has another
/// type.
pub(super) fn deserialize_or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Deserializes a list and skips the items that cannot be parsed as `T`. This is harmless, because
/// the runtime, and not the hook, does what the items of these lists say.
pub(super) fn deserialize_valid_items<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let values = Option::<Vec<Value>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(values
        .into_iter()
        .filter_map(|value| serde_json::from_value(value).ok())
        .collect())
}

impl Bundle {
    /// The maximum size of config.json in bytes (10 MiB). A larger file is an error.
    pub const MAX_CONFIG_BYTES: usize = 10 << 20;

    /// Reads the bundle of a container that is being created. crun 1.20 to 1.29 may pass its
    /// working directory instead of the bundle. If that directory has no config.json, reads the one
    /// in the parent directory of the container's root. A relative root, which older versions of
    /// crun pass, is ignored.
    pub fn from_state(state: &State) -> Result<Self, BundleError> {
        let root = state.root.as_deref().filter(|root| root.is_absolute());
        let mut candidate_dirs = iter::once(&*state.bundle).chain(root.and_then(Path::parent));
        let bundle_dir =
            candidate_dirs.find(|bundle_dir| bundle_dir.join(CONFIG_FILE_NAME).exists());
        let mut bundle = Bundle::read(bundle_dir.unwrap_or(&state.bundle))?;
        if let Some(root) = root {
            bundle.rootfs = root.to_owned();
        }
        bundle.annotations.extend(state.annotations.clone());
        Ok(bundle)
    }

    /// Reads config.json in the bundle `bundle_dir`. Fails if every user may write to this
    /// directory, because config.json could then be forged.
    pub fn read(bundle_dir: &Path) -> Result<Self, BundleError> {
        if is_world_writable(bundle_dir) {
            return Err(BundleError::WorldWritable(bundle_dir.to_owned()));
        }
        let path = bundle_dir.join(CONFIG_FILE_NAME);
        match read_file_capped(&path, Self::MAX_CONFIG_BYTES) {
            Ok(Some(bytes)) => Bundle::parse(bundle_dir, &path, &bytes),
            Ok(None) => Err(BundleError::TooLarge(path)),
            Err(error) => Err(BundleError::Read { path, error }),
        }
    }

    /// Returns whether config.json mounts the whole /dev of the host into the container and allows
    /// every device. Such a container has each device as soon as the host has it. `host_root` is
    /// the directory at which this process sees the host's root.
    pub fn has_access_to_all_devices(&self, host_root: &Path) -> bool {
        let host_dev_dir = host_root.join("dev");
        self.host_dev_mount_source.as_deref() == Some(&*host_dev_dir)
            && self.spec_devices.allows_every_device()
    }

    /// Uses the root directory of the running process `pid` as the container's root file system. At
    /// the path in config.json, the host may not see the files, because rootless engines mount them
    /// in a namespace of their own.
    pub fn use_root_of_process(&mut self, pid: i32) {
        self.rootfs = Path::new("/proc").join(pid.to_string()).join("root");
    }

    /// Creates the bundle of a container whose config.json is unknown. `root` is the container's
    /// root directory. `variables` are its environment variables, each as `NAME=VALUE`.
    pub fn from_variables(root: &Path, variables: &[String]) -> Result<Self, BundleError> {
        let config = serde_json::json!({"root": {"path": root}, "process": {"env": variables}});
        Bundle::parse(root, root, config.to_string().as_bytes())
    }

    /// Parses `config_json`, the content of the file `config_path`. If the container's root in it
    /// is a relative path, the path is resolved in `bundle_dir`.
    pub fn parse(
        bundle_dir: &Path,
        config_path: &Path,
        config_json: &[u8],
    ) -> Result<Self, BundleError> {
        let config: OciConfig =
            json_text::parse(config_json).map_err(|error| BundleError::Json {
                path: config_path.into(),
                error,
            })?;
        let Some(root) = config.root else {
            return Err(BundleError::NoRoot(config_path.into()));
        };
        let (env, capabilities, apparmor_profile) = config
            .process
            .map(|process| {
                let capabilities = process.capabilities.map(|sets| SpecCapabilities {
                    bounding_set: sets.bounding,
                    ambient_set: sets.ambient,
                    uid: process.user.uid,
                });
                let env = process.env.unwrap_or_default();
                (env, capabilities, process.apparmor_profile)
            })
            .unwrap_or_default();
        let linux = config.linux.unwrap_or_default();
        Ok(Bundle {
            directory: bundle_dir.to_owned(),
            env,
            annotations: config.annotations.unwrap_or_default(),
            rootfs: bundle_dir.join(root.path),
            spec_devices: SpecDevices {
                mount_points: list_mount_points_in_dev(&config.mounts),
                nodes: devices::convert_nodes(&linux.devices),
                rules: devices::convert_rules(&linux.resources.unwrap_or_default().devices),
            },
            bind_mounted_nodes: list_bind_mounted_nodes(&config.mounts),
            host_dev_mount_source: find_dev_source(&config.mounts),
            tmpfs_paths: config
                .mounts
                .into_iter()
                .filter(Mount::is_new_tmpfs)
                .map(|mount| mount.destination)
                .collect(),
            cgroups_path: linux.cgroups_path,
            has_sys_admin: capabilities.as_ref().is_some_and(|capabilities| {
                let mut bounding_set = capabilities.bounding_set.iter();
                bounding_set.any(|name| name == "CAP_SYS_ADMIN")
            }),
            capabilities,
            apparmor_profile,
            mount_label: linux.mount_label.filter(|label| !label.is_empty()),
            cdi_grants: config.hooks.parse_grants(),
            masked_paths: MaskedPaths {
                masked: linux.masked_paths,
                read_only: linux.readonly_paths,
                removed_masked_paths: config.hooks.list_masked_paths(),
            },
            hooks: config.hooks,
            has_user_namespace: linux.namespaces.iter().any(|entry| entry.kind == "user"),
            attach_requests: Vec::new(),
            detached_requests: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(bundle: &Path, root: Option<&Path>) -> State {
        State {
            oci_version: "1.0".into(),
            id: "a".into(),
            status: "created".into(),
            pid: 1,
            bundle: bundle.to_owned(),
            root: root.map(Path::to_owned),
            annotations: BTreeMap::new(),
        }
    }

    /// crun mounts the roots of some containers in /var/tmp, where a local user may have
    /// created a config.json.
    #[test]
    fn a_file_in_everyones_directory_is_no_configuration() {
        let everyones = tempfile::tempdir().unwrap();
        let config = r#"{"root": {"path": "rootfs"}}"#;
        std::fs::write(everyones.path().join("config.json"), config).unwrap();
        let mode = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(everyones.path(), mode).unwrap();
        };
        let root = everyones.path().join("intermediate-mountpoint-0.0");
        let nowhere = everyones.path().join("nowhere");
        for (bundle, root) in [(&*nowhere, Some(&*root)), (everyones.path(), None)] {
            mode(0o1777);
            let refused = Bundle::from_state(&state(bundle, root))
                .unwrap_err()
                .to_string();
            assert!(refused.starts_with("everyone may write to "), "{refused}");
            let read = Bundle::read(everyones.path()).unwrap_err().to_string();
            assert_eq!(read, refused);
            mode(0o755);
            Bundle::from_state(&state(bundle, root)).unwrap();
        }
    }

    /// The state that runtimes write for a container whose config.json has the root `rootfs`.
    #[test]
    fn the_root_is_found_in_every_form() {
        let bundle = tempfile::tempdir().unwrap();
        let config = r#"{"root": {"path": "rootfs"}}"#;
        std::fs::write(bundle.path().join("config.json"), config).unwrap();
        let rootfs = bundle.path().join("rootfs");
        for (who, said_bundle, said_root) in [
            ("runc", bundle.path(), None),
            ("crun 1.8", bundle.path(), Some(Path::new("rootfs"))),
            ("crun 1.20", bundle.path(), Some(rootfs.as_path())),
            ("crun 1.20", Path::new("/"), Some(rootfs.as_path())),
        ] {
            let state = state(said_bundle, said_root);
            assert_eq!(Bundle::from_state(&state).unwrap().rootfs, rootfs, "{who}");
        }
    }
}
