//! Fills in a bundle.

use std::collections::HashMap;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use oci_spec::runtime::{
    Hooks, HooksBuilder, Linux, LinuxBuilder, LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup,
    LinuxDeviceCgroupBuilder, LinuxDeviceType, LinuxResourcesBuilder, Mount, Process,
    ProcessBuilder, RootBuilder, Spec, SpecBuilder, UserBuilder, get_default_maskedpaths,
    get_default_readonly_paths,
};

use super::hook::{HookCommand, Stage};
use super::{Bundle, config};
use crate::captured::Captured;
use crate::driver_tree::add_links;
use crate::probe;
use crate::rootfs::Rootfs;
use crate::scratch;

/// What a bundle shall be. Runs the probe as root with default settings unless
/// configured otherwise.
#[derive(Clone, Debug)]
#[must_use]
pub struct BundleBuilder {
    rootfs: Rootfs,
    tree: Option<PathBuf>,
    parent: PathBuf,
    args: Vec<String>,
    env: Vec<String>,
    annotations: HashMap<String, String>,
    hooks: Vec<(Stage, HookCommand)>,
    mounts: Vec<Mount>,
    devices: Vec<LinuxDevice>,
    device_rules: Vec<LinuxDeviceCgroup>,
    readonly: bool,
    user: (u32, u32),
    user_namespace: bool,
    network: Option<PathBuf>,
    sys_admin: bool,
    cgroups_path: Option<PathBuf>,
    propagation: Option<String>,
}

impl BundleBuilder {
    pub(super) fn new(rootfs: Rootfs) -> Self {
        Self {
            rootfs,
            tree: None,
            parent: "/var/tmp".into(),
            args: vec![probe::PATH.to_string(), probe::PAUSE.to_string()],
            env: vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_string()],
            annotations: HashMap::new(),
            hooks: Vec::new(),
            mounts: Vec::new(),
            devices: Vec::new(),
            device_rules: Vec::new(),
            readonly: false,
            user: (0, 0),
            user_namespace: false,
            network: None,
            sys_admin: false,
            cgroups_path: None,
            propagation: None,
        }
    }

    /// Takes this tree as the root file system, by links: of the files that it has, the
    /// container changes none.
    pub fn tree(mut self, tree: &Path) -> Self {
        self.tree = Some(tree.to_path_buf());
        self
    }

    /// The command that the container runs.
    pub fn args<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push(format!("{key}={value}"));
        self
    }

    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_string(), value.to_string());
        self
    }

    pub fn hook(mut self, stage: Stage, command: HookCommand) -> Self {
        self.hooks.push((stage, command));
        self
    }

    /// Bind-mounts one of the host's files or directories.
    pub fn bind(self, source: &Path, target: &str) -> Self {
        self.mount("none", source, target, &["bind"])
    }

    /// Mounts a file system.
    pub fn mount(mut self, kind: &str, source: &Path, target: &str, options: &[&str]) -> Self {
        let mut mount = Mount::default();
        mount
            .set_destination(target.into())
            .set_typ(Some(kind.to_string()))
            .set_source(Some(source.to_path_buf()))
            .set_options(Some(options.iter().map(ToString::to_string).collect()));
        self.mounts.push(mount);
        self
    }

    /// Adds a character device as engines do for one of theirs: a node that the runtime
    /// makes, and its rule.
    pub fn char_device(
        mut self,
        path: impl Into<PathBuf>,
        number: (u64, u64),
        access: &str,
    ) -> Result<Self> {
        let node = LinuxDeviceBuilder::default()
            .path(path)
            .typ(LinuxDeviceType::C)
            .major(i64::try_from(number.0)?)
            .minor(i64::try_from(number.1)?)
            // For root alone, as most drivers make theirs.
            .file_mode(0o600_u32)
            .build()?;
        self.devices.push(node);
        self.device_rule(number, access)
    }

    /// Adds a rule for a character device after the one that denies everything.
    pub fn device_rule(mut self, (major, minor): (u64, u64), access: &str) -> Result<Self> {
        let rule = LinuxDeviceCgroupBuilder::default()
            .allow(true)
            .typ(LinuxDeviceType::C)
            .major(i64::try_from(major)?)
            .minor(i64::try_from(minor)?)
            .access(access)
            .build()?;
        self.device_rules.push(rule);
        Ok(self)
    }

    /// Makes the root file system read-only.
    pub fn readonly(mut self) -> Self {
        self.readonly = true;
        self
    }

    /// Runs the command as this user and group.
    pub fn user(mut self, uid: u32, gid: u32) -> Self {
        self.user = (uid, gid);
        self
    }

    /// Puts the container in a user namespace, and gives it its files.
    pub fn user_namespace(mut self) -> Self {
        self.user_namespace = true;
        self
    }

    /// Has it share the network namespace of a process, in place of one of its own.
    pub fn network_of(mut self, pid: impl std::fmt::Display) -> Self {
        self.network = Some(format!("/proc/{pid}/ns/net").into());
        self
    }

    /// Gives the command CAP_SYS_ADMIN, too.
    pub fn sys_admin(mut self) -> Self {
        self.sys_admin = true;
        self
    }

    /// Puts the bundle, and with it the root file system, into this directory.
    pub fn parent(mut self, directory: &Path) -> Self {
        self.parent = directory.to_path_buf();
        self
    }

    /// Sets `linux.cgroupsPath`.
    pub fn cgroups_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.cgroups_path = Some(path.into());
        self
    }

    /// Sets `linux.rootfsPropagation`, such as `shared`.
    pub fn rootfs_propagation(mut self, propagation: &str) -> Self {
        self.propagation = Some(propagation.to_string());
        self
    }

    /// Makes the files of the bundle.
    pub fn build(self) -> Result<Bundle> {
        let bundle = Bundle::new(scratch::directory_in(&self.parent, "bundle")?);
        match &self.tree {
            Some(tree) => add_links(tree, &bundle.rootfs())?,
            None => self.rootfs.copy_to(&bundle.rootfs())?,
        }
        if self.user_namespace {
            give_to_mapped_root(&bundle.rootfs())?;
        }
        bundle.write_config(&self.config()?)?;
        Ok(bundle)
    }

    fn config(self) -> Result<Spec> {
        let root = RootBuilder::default()
            .path("rootfs")
            .readonly(self.readonly)
            .build()?;
        let config = SpecBuilder::default()
            .version("1.0.2")
            .root(root)
            .hostname("boathook-test")
            .process(self.process()?)
            .linux(self.linux()?)
            .hooks(self.hooks()?)
            .mounts([config::mounts(), self.mounts].concat())
            .annotations(self.annotations);
        Ok(config.build()?)
    }

    fn process(&self) -> Result<Process> {
        let (uid, gid) = self.user;
        let process = ProcessBuilder::default()
            .terminal(false)
            .user(UserBuilder::default().uid(uid).gid(gid).build()?)
            .args(self.args.clone())
            .env(self.env.clone())
            .cwd("/")
            .capabilities(config::capabilities(self.sys_admin)?)
            .no_new_privileges(true);
        let mut process = process.build()?;
        process.set_rlimits(None);
        Ok(process)
    }

    fn linux(&self) -> Result<Linux> {
        let mut rules = vec![config::deny_all_devices()?];
        rules.extend(self.device_rules.iter().cloned());
        let mut linux = LinuxBuilder::default()
            .namespaces(config::namespaces(
                self.user_namespace,
                self.network.as_deref(),
            )?)
            .resources(LinuxResourcesBuilder::default().devices(rules).build()?)
            .masked_paths(get_default_maskedpaths())
            .readonly_paths(get_default_readonly_paths())
            .build()?;
        if !self.devices.is_empty() {
            linux.set_devices(Some(self.devices.clone()));
        }
        linux.set_cgroups_path(self.cgroups_path.clone());
        linux.set_rootfs_propagation(self.propagation.clone());
        if self.user_namespace {
            linux.set_uid_mappings(Some(vec![config::id_mapping()?]));
            linux.set_gid_mappings(Some(vec![config::id_mapping()?]));
        }
        Ok(linux)
    }

    fn hooks(&self) -> Result<Hooks> {
        let entries = |wanted: Stage| {
            let commands = self.hooks.iter().filter(move |(stage, _)| *stage == wanted);
            commands
                .map(|(_, command)| command.entry())
                .collect::<Result<Vec<_>>>()
        };
        let hooks = HooksBuilder::default()
            .prestart(entries(Stage::Prestart)?)
            .create_runtime(entries(Stage::CreateRuntime)?);
        Ok(hooks.build()?)
    }
}

/// As engines do for a container in a user namespace: its root owns its files.
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
