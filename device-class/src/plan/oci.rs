//! The OCI runtime spec's types, as the plan uses them.

use std::path::{Path, PathBuf};

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType,
    Mount, MountBuilder,
};

use crate::class::Access;
use crate::discover::OwnNode;
use crate::host::{DeviceKind, DeviceNumber};

fn oci_kind(kind: DeviceKind) -> LinuxDeviceType {
    match kind {
        DeviceKind::Character => LinuxDeviceType::C,
        DeviceKind::Block => LinuxDeviceType::B,
    }
}

/// An exact rule.
pub(super) fn rule(
    number: DeviceNumber,
    access: Access,
) -> Result<LinuxDeviceCgroup, OciSpecError> {
    LinuxDeviceCgroupBuilder::default()
        .allow(true)
        .typ(oci_kind(number.kind))
        .major(number.major)
        .minor(number.minor)
        .access(access.to_string())
        .build()
}

/// A node; with bits and a group only when it is the container's own.
pub(super) fn node(
    path: PathBuf,
    number: DeviceNumber,
    own: Option<OwnNode>,
) -> Result<LinuxDevice, OciSpecError> {
    let mut node = LinuxDeviceBuilder::default()
        .path(path)
        .typ(oci_kind(number.kind))
        .major(number.major)
        .minor(number.minor);
    if let Some(own) = own {
        node = node.file_mode(own.mode).uid(0u32).gid(own.gid);
    }
    node.build()
}

/// A mount of the host's file or directory that the container can't write to,
/// take another user's rights from, or open devices through.
pub(super) fn bind(source: &Path, destination: &Path) -> Result<Mount, OciSpecError> {
    MountBuilder::default()
        .source(source)
        .destination(destination)
        .typ("bind")
        .options(["rbind", "ro", "nosuid", "nodev"].map(str::to_owned))
        .build()
}
