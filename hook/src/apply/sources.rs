//! Opens and checks the sources of an injection plan. A source is a file or directory of the host
//! that will be mounted in the container. This process must be in the host's mount namespace.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use device_class::device::DeviceNumber;
use device_class::discover::{CreatedNode, NodePermissions};
use injection_plan::plan::{
    Action, BindMount, InjectionPlan, InjectionStep, SourceKind, StepOwner,
};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid};

use super::ApplyError;
use super::loader::LibrarySearch;
use super::mask::Mask;
use crate::container::{DeviceAccess, FileKind};
use crate::mount::{HostFile, MountDepth, MountSource, SourceRoot, SyscallSupport};

/// A step of the injection plan, with an open handle on its file of the host. With this handle, the
/// step can be carried out in the container's mount namespace, where the path leads to another
/// file.
pub struct OpenedStep<'p> {
    pub action: OpenedAction<'p>,
    /// The ids of the devices that need the step, such as `npu-0`, or the name of the class that
    /// needs it. Messages about the step begin with this text.
    pub(crate) owner_labels: &'p str,
    /// The devices that need the step, or the class that needs it.
    pub owners: &'p [StepOwner],
}

/// An action of the injection plan, with an open handle on its file of the host. Device rules,
/// preparations and network interfaces have no variant here, because nothing is mounted for them.
pub enum OpenedAction<'p> {
    Mask(Mask<'p>),
    Directory {
        source: MountSource,
        path: &'p Path,
        is_optional: bool,
    },
    /// A device node that exists on the host. The container gets either a bind mount of the host's
    /// node, or a new node.
    Node {
        source: MountSource,
        path: &'p Path,
        number: DeviceNumber,
        /// The mode and the owner of the host's node.
        host_node_access: DeviceAccess,
        /// The mode and the owner of the new node in the container. `None` means that the host's
        /// node is mounted.
        created_node_access: Option<DeviceAccess>,
    },
    /// A device node that does not exist on the host. A new node is created in the container.
    MakeNode {
        path: &'p Path,
        number: DeviceNumber,
        created_node: &'p CreatedNode,
    },
    Link {
        path: &'p Path,
        target: &'p Path,
    },
    /// A file that is mounted over the image's file at `path`. If the image has no file there, the
    /// container gets a symbolic link to the mounted file.
    File {
        source: MountSource,
        path: &'p Path,
        is_optional: bool,
    },
    /// A library that is mounted at `path`. `links` are the names of symbolic links in the same
    /// directory. `names` are all file names by which programs open the library. For the names in
    /// `image_links`, a link is also created in the image's library directory.
    Library {
        source: MountSource,
        path: &'p Path,
        links: &'p BTreeSet<String>,
        names: &'p BTreeSet<String>,
        image_links: &'p BTreeSet<String>,
    },
    Loader(LibrarySearch<'p>),
}

/// Opens the files of the host for all steps of the plan. Fails if a file does not exist, has
/// another kind than planned, or is another device than planned.
///
/// `mount_label` is the SELinux label of the container's file systems. If there is one, new device
/// nodes with this label are created in the container. Mounts of the host's nodes would keep the
/// labels of the host, and SELinux denies containers most of these labels. Runtimes create new
/// nodes for `--device` as well.
pub(super) fn open_sources<'p>(
    plan: &'p InjectionPlan,
    host: &SourceRoot,
    syscall_support: SyscallSupport,
    mount_label: Option<&str>,
) -> Result<Vec<OpenedStep<'p>>, ApplyError> {
    let mut opened_steps = Vec::with_capacity(plan.steps.len());
    for step in &plan.steps {
        let opened_action = open_step(&step.action, host, syscall_support, mount_label);
        if let Some(action) =
            opened_action.map_err(|error| error.with_owner_labels(&step.owner_labels))?
        {
            let InjectionStep {
                owner_labels,
                owners,
                ..
            } = step;
            opened_steps.push(OpenedStep {
                action,
                owner_labels,
                owners,
            });
        }
    }
    Ok(opened_steps)
}

fn open_step<'p>(
    action: &'p Action,
    host: &SourceRoot,
    syscall_support: SyscallSupport,
    mount_label: Option<&str>,
) -> Result<Option<OpenedAction<'p>>, ApplyError> {
    let open = |mount: &BindMount| open_file(host, mount, syscall_support);
    Ok(Some(match action {
        // These actions mount no file of the host. Devices were prepared before, rules are added to
        // the cgroup, and network interfaces are moved at the end.
        Action::Prepare { .. } | Action::Allow { .. } | Action::NetInterfaces { .. } => {
            return Ok(None);
        }
        Action::Node {
            mount,
            number,
            created_node_permissions,
        } => {
            let node = host.open_file(&mount.source)?;
            node.expect_device_number(*number)?;
            let host_node_access = node.device_access();
            OpenedAction::Node {
                source: to_source(&node, mount, syscall_support)?,
                path: &mount.path,
                number: *number,
                host_node_access,
                created_node_access: created_node_permissions
                    .map(to_device_access)
                    .or_else(|| mount_label.map(|_| host_node_access)),
            }
        }
        Action::MakeNode {
            path,
            number,
            created_node,
        } => OpenedAction::MakeNode {
            path,
            number: *number,
            created_node,
        },
        Action::Link { path, target } => OpenedAction::Link { path, target },
        Action::Mask {
            path,
            should_create,
            files,
            visible_mounts,
            links,
        } => OpenedAction::Mask(Mask {
            path,
            should_create_dir: *should_create,
            files,
            links,
            visible_files: visible_mounts
                .iter()
                .map(|mount| Ok((open(mount)?, mount.path.as_path())))
                .collect::<Result<_, ApplyError>>()?,
        }),
        Action::Directory(mount) => OpenedAction::Directory {
            source: open(mount)?,
            path: &mount.path,
            is_optional: mount.is_optional,
        },
        Action::File(mount) => OpenedAction::File {
            source: open(mount)?,
            path: &mount.path,
            is_optional: mount.is_optional,
        },
        Action::Library {
            mount,
            links,
            names,
            image_links,
        } => OpenedAction::Library {
            source: open(mount)?,
            path: &mount.path,
            links,
            names,
            image_links,
        },
        Action::Loader {
            directories,
            libraries,
            image_libraries,
            library_path_dirs,
            directory_32bit,
            libraries_32bit,
        } => OpenedAction::Loader(LibrarySearch {
            directories: Cow::Borrowed(directories),
            libraries: Cow::Borrowed(libraries),
            image_libraries,
            library_path_dirs,
            directory_32bit: directory_32bit.as_deref(),
            libraries_32bit,
        }),
    }))
}

/// Returns the mode and the owner of a new device node in the container. The owner is the user
/// root. The class file sets the mode and the group.
pub(super) fn to_device_access(permissions: NodePermissions) -> DeviceAccess {
    DeviceAccess {
        mode: Mode::from_bits_truncate(permissions.mode),
        uid: Uid::from_raw(0),
        gid: Gid::from_raw(permissions.gid),
    }
}

/// Opens a file of the host. Fails if it has none of the planned kinds, or if a component of its
/// path is a symbolic link.
fn open_file(
    host: &SourceRoot,
    mount: &BindMount,
    syscall_support: SyscallSupport,
) -> Result<MountSource, ApplyError> {
    let file = host.open_file_without_links(&mount.source)?;
    check_kind(&file, mount.source_kinds)?;
    to_source(&file, mount, syscall_support)
}

fn to_source(
    file: &HostFile,
    mount: &BindMount,
    syscall_support: SyscallSupport,
) -> Result<MountSource, ApplyError> {
    let depth = if mount.recursive {
        MountDepth::Recursive
    } else {
        MountDepth::Single
    };
    Ok(MountSource::new(
        file,
        mount.attributes,
        depth,
        syscall_support,
    )?)
}

fn check_kind(file: &HostFile, permitted_kinds: &[SourceKind]) -> Result<(), ApplyError> {
    let file_kinds = permitted_kinds.iter().map(|kind| match kind {
        SourceKind::File => FileKind::Regular,
        SourceKind::Socket => FileKind::Socket,
        SourceKind::Directory => FileKind::Directory,
        SourceKind::Device => FileKind::CharDevice,
    });
    let is_permitted = file_kinds.clone().any(|kind| file.kind() == kind);
    match file_kinds.take(1).find(|_| !is_permitted) {
        Some(first_kind) => Ok(file.expect_kind(first_kind)?),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    use device_class::device::DeviceKind;
    use injection_plan::plan::MountAttributes;

    fn mount(source: &Path, path: &str, kinds: &'static [SourceKind]) -> BindMount {
        BindMount {
            source: source.into(),
            path: path.into(),
            source_kinds: kinds,
            recursive: false,
            attributes: MountAttributes::default(),
            is_optional: false,
            is_image_module: false,
        }
    }

    fn node(path: &Path, major: u32, minor: u32) -> Action {
        let kind = DeviceKind::Character;
        Action::Node {
            mount: mount(path, "/dev/npu0", &[SourceKind::Device]),
            number: DeviceNumber { kind, major, minor },
            created_node_permissions: None,
        }
    }

    fn library(path: &Path) -> Action {
        let library_path = "/usr/lib/boathook/lib/libnpu.so.1";
        Action::Library {
            mount: mount(path, library_path, &[SourceKind::File]),
            links: BTreeSet::new(),
            names: BTreeSet::new(),
            image_links: BTreeSet::new(),
        }
    }

    #[test]
    fn a_source_that_changed_since_the_plan_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let missing_path = root.path().join("npu0");
        let directory = root.path().join("libnpu.so.1");
        std::fs::create_dir(&directory).unwrap();
        let null_device = Path::new("/dev/null");
        for (action, reason) in [
            (node(&missing_path, 1, 3), "does not exist on the host"),
            (
                node(null_device, 1, 5),
                "is device c 1:3 on the host, expected c 1:5",
            ),
            (node(&directory, 1, 3), "is a directory"),
            (library(&missing_path), "does not exist on the host"),
            (library(&directory), "is a directory"),
            (library(null_device), "is a character device"),
        ] {
            let plan = InjectionPlan {
                steps: vec![InjectionStep {
                    action,
                    owner_labels: "npu-0".into(),
                    owners: Vec::new(),
                }],
                ..InjectionPlan::default()
            };
            let syscall_support = SyscallSupport::probe();
            let host = SourceRoot::open(Path::new("/"), syscall_support.resolver()).unwrap();
            let error = match open_sources(&plan, &host, syscall_support, None) {
                Ok(_) => panic!("opened in spite of: {reason}"),
                Err(error) => crate::log::format_error_chain(&error),
            };
            assert!(error.starts_with("npu-0: "), "{error}");
            assert!(error.contains(reason), "{error}");
        }
    }

    /// With SELinux a container opens nodes of its own label, and most of the host's it does not.
    #[test]
    fn a_container_with_a_label_gets_a_node_of_its_own() {
        let null_device = Path::new("/dev/null");
        let host_access = DeviceAccess {
            mode: Mode::from_bits_truncate(0o666),
            uid: Uid::from_raw(0),
            gid: Gid::from_raw(0),
        };
        let label = "system_u:object_r:container_file_t:s0:c1,c2";
        for (mount_label, planned_mode, created_mode) in [
            (None, None, None),
            (None, Some(0o640), Some(0o640)),
            (Some(label), None, Some(0o666)),
            (Some(label), Some(0o640), Some(0o640)),
        ] {
            let mut action = node(null_device, 1, 3);
            if let Action::Node {
                created_node_permissions,
                ..
            } = &mut action
            {
                *created_node_permissions =
                    planned_mode.map(|mode| NodePermissions { mode, gid: 0 });
            }
            let syscall_support = SyscallSupport::probe();
            let host = SourceRoot::open(Path::new("/"), syscall_support.resolver()).unwrap();
            let opened = open_step(&action, &host, syscall_support, mount_label).unwrap();
            let Some(OpenedAction::Node {
                host_node_access,
                created_node_access,
                ..
            }) = opened
            else {
                panic!("no node");
            };
            assert_eq!(host_node_access, host_access);
            let created_mode = created_mode.map(Mode::from_bits_truncate);
            assert_eq!(created_node_access.map(|access| access.mode), created_mode);
        }
    }
}
