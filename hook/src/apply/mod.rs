//! Carries out an injection plan. If a step fails, the container does not start. The plan contains
//! almost all decisions. This module decides only the few questions that depend on the container
//! itself; `ARCHITECTURE.md` lists them.
//!
//! First, the sources (the files of the host that are injected) are opened and checked in the
//! host's mount namespace. Then the device rules are added to the cgroup. Finally the process
//! enters the container's mount namespace and mounts the sources there. It cannot leave that
//! namespace again.

mod comparison;
mod image_directory;
mod image_libraries;
mod image_names;
mod injected_dir;
mod link_mask;
mod loader;
mod mask;
mod net_interfaces;
mod prepare;
mod rules;
mod sources;
mod stale_nodes;
mod targets;
mod tmpfs;

use std::path::PathBuf;

use device_class::config::Config;
use device_class::ld_cache::LdCacheError;
use host_files::rooted_path;
use injection_plan::plan::InjectionPlan;

use crate::cgroup::CgroupError;
use crate::container::{self, ContainerNamespace};
use crate::loader::LibraryDirError;
use crate::mount::{self, SourceRoot, SyscallSupport};
use crate::oci::{Bundle, State};
use crate::sys::deadline::{Deadline, Stage};
use net_interfaces::{NetInterfaceError, NetInterfaceMoves};
use prepare::PrepareError;

pub use comparison::{FileOpener, differs_from_host_file, find_missing_file, is_outdated};
pub(crate) use image_directory::IMAGE_LIBRARY_DIRS;
pub use image_directory::find_image_directory;
pub use image_names::{MAX_LINK_DEPTH, is_same_library};
pub use injected_dir::InjectedDir;
pub use link_mask::{MaskContents, has_link_mask, read_mask, replace_link_mask};
pub use mask::has_outdated_links;
pub use rules::list_planned_rules;
pub use sources::{OpenedAction, OpenedStep};
pub(crate) use stale_nodes::{StaleNode, is_granted_by_cdi};
pub use targets::{apply_steps, remove_outdated_masks};

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Mount(#[from] mount::Error),
    #[error("{owner_labels}")]
    Step {
        /// The ids of the devices that need the failed step, such as `npu-0`, or the name of the
        /// class that needs it. The error message begins with this text.
        owner_labels: String,
        #[source]
        error: Box<ApplyError>,
    },
    #[error("in the container")]
    Container(#[from] container::Error),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    LibraryDir(#[from] LibraryDirError),
    #[error("cannot write the container's ld.so.cache")]
    LdCache(#[from] LdCacheError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    NetInterface(#[from] NetInterfaceError),
    #[error("cannot set a deadline")]
    Deadline(#[source] nix::errno::Errno),
    #[error(
        "{} has to be created on the host: its driver {driver} is loaded, but the host has no \
         such node, and one that is created in a container with a user namespace cannot be \
         opened{}", path.display(), advice.as_ref().map(|a| format!("; {a}")).unwrap_or_default()
    )]
    NodeNotOnHost {
        path: PathBuf,
        driver: String,
        /// A text from the class file that tells an administrator how to create the node on the
        /// host.
        advice: Option<String>,
    },
    #[error(
        "the container could remove the mask of {}: it has CAP_SYS_ADMIN in a user namespace; take \
         the capability from it, or set allow_removable_masks = true in [trust] of config.toml",
        path.display()
    )]
    RemovableMask { path: PathBuf },
    #[error("{} is not a usable path for {what}", path.display())]
    Path { path: PathBuf, what: &'static str },
}

impl From<rooted_path::Error> for ApplyError {
    fn from(error: rooted_path::Error) -> Self {
        Self::Container(error.into())
    }
}

impl ApplyError {
    /// Adds `owner_labels` at the beginning of the error message. They name the devices, or the
    /// class, that need the injection step that failed.
    fn with_owner_labels(self, owner_labels: &str) -> Self {
        ApplyError::Step {
            owner_labels: owner_labels.to_owned(),
            error: Box::new(self),
        }
    }

    /// Reports whether the error means that no file can be created or mounted at the planned path
    /// in the container, for example because a directory is there.
    fn is_path_unusable(&self) -> bool {
        matches!(self, ApplyError::Container(error) if error.is_path_unusable())
    }

    /// Reports whether the kernel denied this process a system call on a file of the container.
    fn is_denied(&self) -> bool {
        matches!(self, ApplyError::Container(error) if error.is_denied())
    }
}

/// Runs the programs that class files list in `[prepare]`. Then opens the host file of every step,
/// and checks its kind or its device number. This process must be in the host's mount namespace.
pub fn prepare_and_open_sources<'p>(
    plan: &'p InjectionPlan,
    config: &Config,
    syscall_support: SyscallSupport,
    mount_label: Option<&str>,
) -> Result<Vec<OpenedStep<'p>>, ApplyError> {
    let host = SourceRoot::open(&config.host_root, syscall_support.resolver())?;
    prepare::prepare_devices(plan, &config.host_root)?;
    sources::open_sources(plan, &host, syscall_support, mount_label)
}

/// Fails if the plan has a mask (a mount that hides files) and the container could unmount it. A
/// container can do so if it has CAP_SYS_ADMIN in a user namespace of its own.
/// `allow_removable_masks` in config.toml turns this check off.
pub fn check_masks(
    plan: &InjectionPlan,
    namespace: &ContainerNamespace,
    bundle: &Bundle,
    config: &Config,
) -> Result<(), ApplyError> {
    if bundle.has_sys_admin
        && namespace.has_own_user_namespace()
        && !config.trust.allow_removable_masks
    {
        mask::refuse_masks(plan)?;
    }
    Ok(())
}

/// Carries out an injection plan for a container that is being created. Returns warnings for the
/// log, each with one line. An error makes the start of the container fail.
pub(crate) fn apply_plan(
    plan: &InjectionPlan,
    state: &State,
    bundle: &Bundle,
    config: &Config,
    deadline: &mut Deadline,
) -> Result<Vec<String>, ApplyError> {
    let syscall_support = SyscallSupport::probe();
    let host = SourceRoot::open(&config.host_root, syscall_support.resolver())?;
    // The deadline is paused while the programs of `[prepare]` run, because these programs have
    // time limits of their own.
    let prepare_result = deadline.pause(|| prepare::prepare_devices(plan, &config.host_root));
    prepare_result.map_err(ApplyError::Deadline)??;
    Stage::OpeningSources.begin();
    let mount_label = bundle.mount_label.as_deref();
    let steps = sources::open_sources(plan, &host, syscall_support, mount_label)?;
    let namespace =
        ContainerNamespace::from_pid(state.pid, &bundle.rootfs, syscall_support.resolver())?;
    check_masks(plan, &namespace, bundle, config)?;
    Stage::SettingRules.begin();
    let interface_moves = NetInterfaceMoves::prepare(plan, &namespace, &config.host_root)?;
    let mut warnings = rules::allow_devices(plan, &namespace, bundle)?;
    Stage::MountingFiles.begin();
    let root = namespace.enter(&bundle.tmpfs_paths, syscall_support.resolver())?;
    apply_steps(steps, &root, syscall_support, mount_label, &mut warnings)?;
    if let Some(interface_moves) = interface_moves {
        warnings.extend(interface_moves.move_interfaces()?);
    }
    Ok(warnings)
}
