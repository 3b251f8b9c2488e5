//! Builder of the OCI bundle (config.json and rootfs/) of a test container.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::hook::{HookCommand, Stage};
use super::{Bundle, config};
use crate::captured::Captured;
use crate::driver_tree::add_links;
use crate::rootfs::Rootfs;
use crate::scratch;

/// The content of a bundle. Without further calls the container runs the probe as root.
#[derive(Clone, Debug)]
#[must_use]
pub struct BundleBuilder {
    rootfs: Rootfs,
    tree: Option<PathBuf>,
    parent: PathBuf,
    user_namespace: bool,
    /// The content of the bundle's config.json.
    config: Value,
}

impl BundleBuilder {
    pub(super) fn new(rootfs: Rootfs) -> Self {
        Self {
            rootfs,
            tree: None,
            parent: "/var/tmp".into(),
            user_namespace: false,
            config: config::of_container(),
        }
    }

    /// Makes the root file system of hard links to the files of `tree`, which saves a copy. The
    /// test must not let its container change these files, because `tree` would change, too.
    pub fn tree(mut self, tree: &Path) -> Self {
        self.tree = Some(tree.to_path_buf());
        self
    }

    /// Sets `process.args`, the command that the container runs.
    pub fn args<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.config["process"]["args"] = args.into_iter().map(Into::<String>::into).collect();
        self
    }

    pub fn env(self, key: &str, value: &str) -> Self {
        self.add("/process/env", json!(format!("{key}={value}")))
    }

    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.config["annotations"][key] = value.into();
        self
    }

    pub fn hook(self, stage: Stage, command: HookCommand) -> Self {
        self.add(&format!("/hooks/{}", stage.key()), command.entry())
    }

    /// Bind-mounts a file or directory of the host into the container.
    pub fn bind(self, source: &Path, target: &str) -> Self {
        self.mount("none", source, target, &["bind"])
    }

    /// Mounts a file system of type `kind` in the container.
    pub fn mount(self, kind: &str, source: &Path, target: &str, options: &[&str]) -> Self {
        let mount =
            json!({"destination": target, "type": kind, "source": source, "options": options});
        self.add("/mounts", mount)
    }

    /// Adds a character device as an engine does for its `--device` option: a device node that the
    /// runtime makes, and a rule of the device cgroup that allows it.
    pub fn char_device(
        mut self,
        path: impl Into<PathBuf>,
        (major, minor): (u64, u64),
        access: &str,
    ) -> Self {
        if self.config["linux"]["devices"].is_null() {
            self.config["linux"]["devices"] = json!([]);
        }
        // Most drivers make their device nodes accessible to root only.
        let node = json!({"path": path.into(), "type": "c", "major": major, "minor": minor,
            "fileMode": 0o600});
        let with_node = self.add("/linux/devices", node);
        with_node.device_rule((major, minor), access)
    }

    /// Allows a character device in the device cgroup. The rule comes after the one that denies all
    /// devices, because the last rule that matches applies.
    pub fn device_rule(self, (major, minor): (u64, u64), access: &str) -> Self {
        let rule = json!({"allow": true, "type": "c", "major": major, "minor": minor,
            "access": access});
        self.add("/linux/resources/devices", rule)
    }

    /// Allows all devices in the device cgroup, as `docker run --privileged` does.
    pub fn all_devices(self) -> Self {
        let all = json!({"allow": true, "access": "rwm"});
        self.add("/linux/resources/devices", all)
    }

    /// Allows all devices in the device cgroup except this character device.
    pub fn all_devices_except(self, (major, minor): (u64, u64)) -> Self {
        let except = json!({"allow": false, "type": "c", "major": major, "minor": minor,
            "access": "rwm"});
        self.all_devices().add("/linux/resources/devices", except)
    }

    /// Makes the root file system read-only, as `docker run --read-only` does.
    pub fn readonly(mut self) -> Self {
        self.config["root"]["readonly"] = true.into();
        self
    }

    /// Makes the runtime mask no paths of /proc and /sys, as Docker's option
    /// `systempaths=unconfined` does.
    pub fn without_masked_paths(mut self) -> Self {
        self.config["linux"]["maskedPaths"] = json!([]);
        self
    }

    /// Runs the container's command as this user and group.
    pub fn user(mut self, uid: u32, gid: u32) -> Self {
        self.config["process"]["user"] = json!({"uid": uid, "gid": gid});
        self
    }

    /// Runs the container in a user namespace, whose root owns the files of the root file system.
    pub fn user_namespace(mut self) -> Self {
        self.user_namespace = true;
        self.config["linux"]["uidMappings"] = config::id_mappings();
        self.config["linux"]["gidMappings"] = config::id_mappings();
        self.add("/linux/namespaces", json!({"type": "user"}))
    }

    /// Runs the container in the PID namespace of the host.
    pub fn host_pids(mut self) -> Self {
        let namespaces = self.config["linux"]["namespaces"].as_array_mut();
        if let Some(namespaces) = namespaces {
            namespaces.retain(|namespace| namespace["type"] != "pid");
        }
        self
    }

    /// Runs the container in the network namespace of the process `pid` instead of a new one.
    pub fn network_of(mut self, pid: impl std::fmt::Display) -> Self {
        let namespaces = self.config["linux"]["namespaces"].as_array_mut();
        let mut network = namespaces.into_iter().flatten();
        let network = network.find(|it| it["type"] == "network");
        network.expect("a network")["path"] = format!("/proc/{pid}/ns/net").into();
        self
    }

    /// Adds CAP_SYS_ADMIN to the capabilities of the container's command.
    pub fn sys_admin(self) -> Self {
        self.capability("CAP_SYS_ADMIN")
    }

    /// Adds `capability`, such as `CAP_NET_ADMIN`, to those of the container's command.
    pub fn capability(self, capability: &str) -> Self {
        let sets = ["bounding", "effective", "permitted"].into_iter();
        sets.fold(self, |builder, set| {
            let set = format!("/process/capabilities/{set}");
            builder.add(&set, capability.into())
        })
    }

    /// Creates the bundle below `directory` instead of /var/tmp, for tests of other file systems.
    pub fn parent(mut self, directory: &Path) -> Self {
        self.parent = directory.to_path_buf();
        self
    }

    /// Sets `linux.cgroupsPath`.
    pub fn cgroups_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.config["linux"]["cgroupsPath"] = json!(path.into());
        self
    }

    /// Sets `linux.rootfsPropagation`, such as `shared`.
    pub fn rootfs_propagation(mut self, propagation: &str) -> Self {
        self.config["linux"]["rootfsPropagation"] = propagation.into();
        self
    }

    /// Writes the bundle's files into a new directory, which is removed when the `Bundle` is
    /// dropped.
    pub fn build(self) -> Result<Bundle> {
        let bundle = Bundle::new(scratch::directory_in(&self.parent, "bundle")?);
        match &self.tree {
            Some(tree) => add_links(tree, &bundle.rootfs())?,
            None => self.rootfs.copy_to(&bundle.rootfs())?,
        }
        if self.user_namespace {
            give_to_mapped_root(&bundle.rootfs())?;
        }
        bundle.write_config(&self.config)?;
        Ok(bundle)
    }

    /// Adds `element` to the array of config.json at the JSON pointer `list`.
    fn add(mut self, list: &str, element: Value) -> Self {
        let list = self.config.pointer_mut(list).and_then(Value::as_array_mut);
        list.expect("a list of config.json").push(element);
        self
    }
}

/// Makes the container's root the owner of all files in `rootfs`, as engines do for a container in
/// a user namespace.
fn give_to_mapped_root(rootfs: &Path) -> Result<()> {
    let owner = config::MAPPED_FIRST;
    let bundle = rootfs
        .parent()
        .context("a root file system without a bundle")?;
    chown(bundle, Some(owner), Some(owner))?;
    let mut command = Command::new("chown");
    command
        .args(["--recursive", "--no-dereference"])
        .arg(format!("{owner}:{owner}"))
        .arg(rootfs);
    Captured::run(&mut command)?.success().map(|_| ())
}
