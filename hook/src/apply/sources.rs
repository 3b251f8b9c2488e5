//! What is made ready in the host's mount namespace.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::host::{DeviceKind, DeviceNumber};
use device_class::plan::{Action, InjectionPlan};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid};
use oci_spec::runtime::{LinuxDevice, LinuxDeviceType, Mount};

use super::ApplyError;
use super::loader::Searched;
use super::mask::Mask;
use crate::container::{DeviceAccess, FileKind};
use crate::mount::{Attributes, Depth, HostFile, HostRoot, KernelCalls, Source};

/// A step of the plan, ready for the container's mount namespace.
pub(super) struct Ready {
    pub(super) what: What,
    /// The device or class that it is for.
    pub(super) why: String,
}

/// What is to be put where.
pub(super) enum What {
    /// A directory of which no more is to be seen.
    Mask(Mask),
    /// A directory, at its path.
    Directory { source: Source, path: PathBuf },
    /// A node, at its path: the host's, or one of the container's own.
    Node {
        source: Source,
        path: PathBuf,
        number: DeviceNumber,
        own: Option<DeviceAccess>,
    },
    /// A file, over the one at its path or as a link.
    File { source: Source, path: PathBuf },
    /// A library, under its own name and others.
    Library {
        source: Source,
        path: PathBuf,
        links: BTreeSet<String>,
    },
    /// The loader's configuration.
    Loader(Searched),
}

/// Opens and checks every source of a plan.
pub(super) fn prepare(
    plan: &InjectionPlan,
    host: &HostRoot,
    calls: KernelCalls,
) -> Result<Vec<Ready>, ApplyError> {
    let mut ready = Vec::with_capacity(plan.steps.len());
    for step in &plan.steps {
        if let Some(what) =
            prepare_one(&step.action, host, calls).map_err(|error| error.why(&step.why))?
        {
            let why = step.why.clone();
            ready.push(Ready { what, why });
        }
    }
    Ok(ready)
}

fn prepare_one(
    action: &Action,
    host: &HostRoot,
    calls: KernelCalls,
) -> Result<Option<What>, ApplyError> {
    Ok(Some(match action {
        // Done before and after.
        Action::Prepare { .. } | Action::Allow { .. } => return Ok(None),
        Action::Node { source, device } => node(host, source, device, calls)?,
        Action::Mask { path, files, shown } => What::Mask(Mask {
            path: path.clone(),
            files: files.clone(),
            shown: shown
                .iter()
                .map(|mount| shown_in_mask(host, mount, calls))
                .collect::<Result<_, _>>()?,
        }),
        Action::Directory { mount } => {
            let file = open(host, mount)?;
            file.expect_kind(FileKind::Directory)?;
            What::Directory {
                source: Source::new(&file, Attributes::FILE, Depth::Recursive, calls)?,
                path: mount.destination().clone(),
            }
        }
        Action::File { mount } => {
            let file = open(host, mount)?;
            // The socket of a driver's daemon is as good as a file.
            if file.kind() != FileKind::Socket {
                file.expect_kind(FileKind::Regular)?;
            }
            What::File {
                source: Source::new(&file, Attributes::FILE, Depth::Single, calls)?,
                path: mount.destination().clone(),
            }
        }
        Action::Library { mount, links } => {
            let file = open(host, mount)?;
            file.expect_kind(FileKind::Regular)?;
            What::Library {
                source: Source::new(&file, Attributes::FILE, Depth::Single, calls)?,
                path: mount.destination().clone(),
                links: links.clone(),
            }
        }
        Action::Loader {
            directories,
            libraries,
            directory_32bit,
            libraries_32bit,
        } => What::Loader(Searched {
            directories: directories.clone(),
            libraries: libraries.clone(),
            directory_32bit: directory_32bit.clone(),
            libraries_32bit: libraries_32bit.clone(),
        }),
    }))
}

fn node(
    host: &HostRoot,
    source: &Path,
    device: &LinuxDevice,
    calls: KernelCalls,
) -> Result<What, ApplyError> {
    let number = |number: i64| {
        number.try_into().map_err(|_| ApplyError::Path {
            path: source.into(),
            what: "a device of that number",
        })
    };
    let file = host.file(source)?;
    let number = DeviceNumber {
        kind: match device.typ() {
            LinuxDeviceType::B => DeviceKind::Block,
            _ => DeviceKind::Character,
        },
        major: number(device.major())?,
        minor: number(device.minor())?,
    };
    file.expect_device(number)?;
    let own = device.file_mode().map(|mode| DeviceAccess {
        mode: Mode::from_bits_truncate(mode),
        uid: Uid::from_raw(device.uid().unwrap_or(0)),
        gid: Gid::from_raw(device.gid().unwrap_or(0)),
    });
    Ok(What::Node {
        source: Source::new(&file, Attributes::DEVICE, Depth::Single, calls)?,
        path: device.path().clone(),
        number,
        own,
    })
}

fn shown_in_mask(
    host: &HostRoot,
    mount: &Mount,
    calls: KernelCalls,
) -> Result<(Source, PathBuf), ApplyError> {
    let file = open(host, mount)?;
    if !file.is_dir() {
        file.expect_kind(FileKind::Regular)?;
    }
    let source = Source::new(&file, Attributes::FILE, Depth::Recursive, calls)?;
    Ok((source, mount.destination().clone()))
}

fn open(host: &HostRoot, mount: &Mount) -> Result<HostFile, ApplyError> {
    let source = mount.source().as_deref().ok_or_else(|| ApplyError::Path {
        path: mount.destination().clone(),
        what: "a mount without a source",
    })?;
    Ok(host.file(source)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    use device_class::plan::InjectionStep;
    use oci_spec::runtime::{LinuxDeviceBuilder, MountBuilder};

    fn node(path: &Path, major: i64, minor: i64) -> Action {
        let device = LinuxDeviceBuilder::default()
            .path("/dev/npu0")
            .typ(LinuxDeviceType::C)
            .major(major)
            .minor(minor)
            .build();
        Action::Node {
            source: path.into(),
            device: device.unwrap(),
        }
    }

    fn library(path: &Path) -> Action {
        let mount = MountBuilder::default()
            .source(path)
            .destination("/usr/lib/boathook/lib/libnpu.so.1")
            .build();
        Action::Library {
            mount: mount.unwrap(),
            links: BTreeSet::new(),
        }
    }

    #[test]
    fn what_changed_since_the_plan_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let gone = root.path().join("npu0");
        let directory = root.path().join("libnpu.so.1");
        std::fs::create_dir(&directory).unwrap();
        let null = Path::new("/dev/null");
        for (action, reason) in [
            (node(&gone, 1, 3), "does not exist on the host"),
            (
                node(null, 1, 5),
                "is the device c 1:3 on the host, and not c 1:5",
            ),
            (node(&directory, 1, 3), "is a directory"),
            (library(&gone), "does not exist on the host"),
            (library(&directory), "is a directory"),
            (library(null), "is a character device"),
        ] {
            let plan = InjectionPlan {
                steps: vec![InjectionStep {
                    action,
                    why: "npu-0".into(),
                }],
                ..InjectionPlan::default()
            };
            let calls = KernelCalls::probe();
            let host = HostRoot::open(Path::new("/"), calls.resolver()).unwrap();
            let error = match prepare(&plan, &host, calls) {
                Ok(_) => panic!("made ready in spite of: {reason}"),
                Err(error) => crate::log::chain(&error),
            };
            assert!(error.starts_with("npu-0: "), "{error}");
            assert!(error.contains(reason), "{error}");
        }
    }
}
