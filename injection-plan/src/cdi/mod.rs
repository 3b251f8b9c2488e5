//! The Container Device Interface (CDI). This module generates specifications of the classes'
//! devices, and writes them to the directory from which engines read them. It also makes the keys
//! of the annotations that request devices (CDI specification, "annotations";
//! tags.cncf.io/container-device-interface, `producer/annotations`).

mod common_mounts;
mod devices;
pub mod directory;
mod generator;
mod kind;
mod spec;

use device_class::name::fnv1a;

pub use devices::{CLAIM_SEPARATOR, CdiDeviceError, CdiDevices, SpecificationForm};
pub use generator::{ClassError, GeneratedSpecifications, Generator, Omission};
pub use kind::SpecificationOwner;
use spec::file_name;
pub use spec::{CdiHookOptions, ContainerEdits, SPEC_FILE_PREFIX, Specification, SpecifiedDevice};

/// The prefix of annotation keys. An annotation with this prefix requests CDI devices from an
/// engine. A key has the form `cdi.k8s.io/PLUGIN_ALLOCATION`.
pub const ANNOTATION_PREFIX: &str = "cdi.k8s.io/";

/// The maximum number of characters after the slash in the key of an annotation (Kubernetes,
/// "Annotations").
const MAX_KEY_NAME_LENGTH: usize = 63;

/// Returns the key of the annotation with which `plugin` requests the CDI devices of one
/// allocation. The key has the prefix, the plugin's name, `_`, and the allocation's name. If the
/// key would be too long, a hash replaces the allocation's name.
pub fn make_annotation_key(plugin: &str, allocation: &str) -> String {
    let allocation = allocation.replace('/', "_");
    let name = format!("{plugin}_{allocation}");
    if name.len() <= MAX_KEY_NAME_LENGTH {
        return format!("{ANNOTATION_PREFIX}{name}");
    }
    let hash = fnv1a(allocation.as_bytes());
    format!("{ANNOTATION_PREFIX}{plugin}_{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_readable_or_hashed_and_always_fits() {
        let long = format!("vendor.com/{}", "x".repeat(63));
        for (allocation, wanted) in [
            ("vendor.com/npu", "cdi.k8s.io/boathook_vendor.com_npu"),
            (&long, "cdi.k8s.io/boathook_149cf0dde998755b"),
        ] {
            let key = make_annotation_key("boathook", allocation);
            assert!(key.len() <= ANNOTATION_PREFIX.len() + MAX_KEY_NAME_LENGTH);
            assert_eq!(key, wanted);
        }
    }
}
