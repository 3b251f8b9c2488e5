//! Opens and checks the sources of a plan in the host's mount namespace.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use device_class::device::DeviceNumber;
use device_class::discover::{MadeNode, OwnNode};
use injection_plan::plan::{Action, BindMount, InjectionPlan, InjectionStep, SourceKind, StepUser};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid};

use super::ApplyError;
use super::loader::LibrarySearch;
use super::mask::Mask;
use crate::container::{DeviceAccess, FileKind};
use crate::mount::{Depth, HostFile, KernelCalls, Source, SourceRoot};

/// A step of the plan with its opened source, ready for the container's mount namespace.
pub(crate) struct OpenedStep<'p> {
    pub(crate) action: OpenedAction<'p>,
    /// The ids of the devices that need the step, or their class, for messages.
    pub(crate) reason: &'p str,
    /// The devices that need the step, or their class.
    pub(crate) users: &'p [StepUser],
}

/// An action of the plan with its opened source.
pub(crate) enum OpenedAction<'p> {
    Mask(Mask<'p>),
    Directory {
        source: Source,
        path: &'p Path,
    },
    /// A device node at its path: that of the host, or one that is created in the container.
    Node {
        source: Source,
        path: &'p Path,
        number: DeviceNumber,
        own: Option<DeviceAccess>,
    },
    /// A device node that the host does not have.
    MakeNode {
        path: &'p Path,
        number: DeviceNumber,
        made: &'p MadeNode,
    },
    Link {
        path: &'p Path,
        target: &'p Path,
    },
    /// A file that is mounted over the one at its path, or to which a link leads.
    File {
        source: Source,
        path: &'p Path,
    },
    /// A library under its own name and additional names.
    Library {
        source: Source,
        path: &'p Path,
        links: &'p BTreeSet<String>,
        names: &'p BTreeSet<String>,
        image_links: &'p BTreeSet<String>,
    },
    Loader(LibrarySearch<'p>),
}

/// Opens the sources of all steps. Fails at the first one that is not as planned.
pub(super) fn open_sources<'p>(
    plan: &'p InjectionPlan,
    host: &SourceRoot,
    calls: KernelCalls,
) -> Result<Vec<OpenedStep<'p>>, ApplyError> {
    let mut opened_steps = Vec::with_capacity(plan.steps.len());
    for step in &plan.steps {
        let opened = open_step(&step.action, host, calls);
        if let Some(action) = opened.map_err(|error| error.with_subject(&step.user_labels))? {
            let InjectionStep {
                user_labels, users, ..
            } = step;
            opened_steps.push(OpenedStep {
                action,
                reason: user_labels,
                users,
            });
        }
    }
    Ok(opened_steps)
}

fn open_step<'p>(
    action: &'p Action,
    host: &SourceRoot,
    calls: KernelCalls,
) -> Result<Option<OpenedAction<'p>>, ApplyError> {
    let open = |mount: &BindMount| open_source(host, mount, None, calls);
    Ok(Some(match action {
        // The devices are prepared before, the cgroup gets its rules separately, and network
        // interfaces are moved at the end.
        Action::Prepare { .. } | Action::Allow { .. } | Action::NetInterfaces { .. } => {
            return Ok(None);
        }
        Action::Node { mount, number, own } => OpenedAction::Node {
            source: open_source(host, mount, Some(*number), calls)?,
            path: &mount.path,
            number: *number,
            own: own.map(device_access),
        },
        Action::MakeNode { path, number, made } => OpenedAction::MakeNode {
            path,
            number: *number,
            made,
        },
        Action::Link { path, target } => OpenedAction::Link { path, target },
        Action::Mask {
            path,
            make,
            files,
            shown,
            links,
        } => OpenedAction::Mask(Mask {
            path,
            is_created: *make,
            files,
            links,
            visible_files: shown
                .iter()
                .map(|mount| Ok((open(mount)?, mount.path.as_path())))
                .collect::<Result<_, ApplyError>>()?,
        }),
        Action::Directory(mount) => OpenedAction::Directory {
            source: open(mount)?,
            path: &mount.path,
        },
        Action::File(mount) => OpenedAction::File {
            source: open(mount)?,
            path: &mount.path,
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
            library_path,
            directory_32bit,
            libraries_32bit,
        } => OpenedAction::Loader(LibrarySearch {
            directories: Cow::Borrowed(directories),
            libraries: Cow::Borrowed(libraries),
            image_libraries,
            library_path,
            directory_32bit: directory_32bit.as_deref(),
            libraries_32bit,
        }),
    }))
}

/// Returns the mode and owner of a node that is created in the container.
pub(super) fn device_access(own: OwnNode) -> DeviceAccess {
    DeviceAccess {
        mode: Mode::from_bits_truncate(own.mode),
        uid: Uid::from_raw(0),
        gid: Gid::from_raw(own.gid),
    }
}

/// Opens a source file. Fails if it is not of the kind, or not the device, that was planned.
fn open_source(
    host: &SourceRoot,
    mount: &BindMount,
    number: Option<DeviceNumber>,
    calls: KernelCalls,
) -> Result<Source, ApplyError> {
    let file = match number {
        Some(number) => {
            let node = host.find(&mount.source)?;
            node.expect_device(number)?;
            node
        }
        None => {
            let file = host.file(&mount.source)?;
            check_kind(&file, mount.kinds)?;
            file
        }
    };
    let depth = if mount.recursive {
        Depth::Recursive
    } else {
        Depth::Single
    };
    Ok(Source::new(&file, mount.attributes, depth, calls)?)
}

fn check_kind(file: &HostFile, kinds: &[SourceKind]) -> Result<(), ApplyError> {
    let kinds = kinds.iter().map(|kind| match kind {
        SourceKind::File => FileKind::Regular,
        SourceKind::Socket => FileKind::Socket,
        SourceKind::Directory => FileKind::Directory,
        SourceKind::Device => FileKind::CharDevice,
    });
    let is_permitted = kinds.clone().any(|kind| file.kind() == kind);
    match kinds.take(1).find(|_| !is_permitted) {
        Some(first) => Ok(file.expect_kind(first)?),
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
            kinds,
            recursive: false,
            attributes: MountAttributes::default(),
        }
    }

    fn node(path: &Path, major: u32, minor: u32) -> Action {
        let kind = DeviceKind::Character;
        Action::Node {
            mount: mount(path, "/dev/npu0", &[SourceKind::Device]),
            number: DeviceNumber { kind, major, minor },
            own: None,
        }
    }

    fn library(path: &Path) -> Action {
        let place = "/usr/lib/boathook/lib/libnpu.so.1";
        Action::Library {
            mount: mount(path, place, &[SourceKind::File]),
            links: BTreeSet::new(),
            names: BTreeSet::new(),
            image_links: BTreeSet::new(),
        }
    }

    #[test]
    fn a_source_that_changed_since_the_plan_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let gone = root.path().join("npu0");
        let directory = root.path().join("libnpu.so.1");
        std::fs::create_dir(&directory).unwrap();
        let null = Path::new("/dev/null");
        for (action, reason) in [
            (node(&gone, 1, 3), "does not exist on the host"),
            (
                node(null, 1, 5),
                "is device c 1:3 on the host, expected c 1:5",
            ),
            (node(&directory, 1, 3), "is a directory"),
            (library(&gone), "does not exist on the host"),
            (library(&directory), "is a directory"),
            (library(null), "is a character device"),
        ] {
            let plan = InjectionPlan {
                steps: vec![InjectionStep {
                    action,
                    user_labels: "npu-0".into(),
                    users: Vec::new(),
                }],
                ..InjectionPlan::default()
            };
            let calls = KernelCalls::probe();
            let host = SourceRoot::open(Path::new("/"), calls.resolver()).unwrap();
            let error = match open_sources(&plan, &host, calls) {
                Ok(_) => panic!("opened in spite of: {reason}"),
                Err(error) => crate::log::chain(&error),
            };
            assert!(error.starts_with("npu-0: "), "{error}");
            assert!(error.contains(reason), "{error}");
        }
    }
}
