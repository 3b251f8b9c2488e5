//! The parts of config.json that are the same in every bundle.
//!
//! They are those of a container that an engine starts without options, less
//! what a test machine may lack: there are no resource limits and no change of
//! the OOM score, which both may need CAP_SYS_RESOURCE.

use std::path::Path;

use anyhow::Result;
use oci_spec::runtime::{
    Capability, LinuxCapabilities, LinuxCapabilitiesBuilder, LinuxDeviceCgroup,
    LinuxDeviceCgroupBuilder, LinuxIdMapping, LinuxIdMappingBuilder, LinuxNamespace,
    LinuxNamespaceBuilder, LinuxNamespaceType, Mount, get_default_mounts, get_default_namespaces,
};

/// The first host uid and gid of a container in a user namespace.
pub(super) const MAPPED_FIRST: u32 = 100_000;
/// How many are mapped.
pub(super) const MAPPED_COUNT: u32 = 65_536;

/// Capabilities of a container's root, as engines give them by default.
const CAPABILITIES: [Capability; 14] = [
    Capability::AuditWrite,
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Mknod,
    Capability::NetBindService,
    Capability::NetRaw,
    Capability::Setfcap,
    Capability::Setgid,
    Capability::Setpcap,
    Capability::Setuid,
    Capability::SysChroot,
];

/// The default mounts, without the cgroup file system: nothing here uses it
/// from inside.
pub(super) fn mounts() -> Vec<Mount> {
    let mut mounts = get_default_mounts();
    mounts.retain(|mount| !mount.destination().starts_with("/sys/fs/cgroup"));
    mounts
}

/// The network namespace is a new one, or the host's or another that is `joined`.
pub(super) fn namespaces(
    user_namespace: bool,
    joined: Option<&Path>,
) -> Result<Vec<LinuxNamespace>> {
    let mut namespaces = get_default_namespaces();
    if let Some(joined) = joined {
        namespaces.retain(|it| it.typ() != LinuxNamespaceType::Network);
        let network = LinuxNamespaceBuilder::default().typ(LinuxNamespaceType::Network);
        namespaces.push(network.path(joined).build()?);
    }
    if user_namespace {
        namespaces.push(
            LinuxNamespaceBuilder::default()
                .typ(LinuxNamespaceType::User)
                .build()?,
        );
    }
    Ok(namespaces)
}

pub(super) fn id_mapping() -> Result<LinuxIdMapping> {
    let mapping = LinuxIdMappingBuilder::default()
        .container_id(0_u32)
        .host_id(MAPPED_FIRST)
        .size(MAPPED_COUNT);
    Ok(mapping.build()?)
}

/// The rule with which every engine begins: no device but those that the
/// runtime adds itself, such as /dev/null.
pub(super) fn deny_all_devices() -> Result<LinuxDeviceCgroup> {
    Ok(LinuxDeviceCgroupBuilder::default()
        .allow(false)
        .access("rwm")
        .build()?)
}

pub(super) fn capabilities(sys_admin: bool) -> Result<LinuxCapabilities> {
    let all = || {
        let more = sys_admin.then_some(Capability::SysAdmin);
        CAPABILITIES
            .into_iter()
            .chain(more)
            .collect::<std::collections::HashSet<_>>()
    };
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(all())
        .effective(all())
        .permitted(all());
    Ok(capabilities
        .inheritable(std::collections::HashSet::new())
        .ambient(std::collections::HashSet::new())
        .build()?)
}
