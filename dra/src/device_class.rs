//! Builds the manifests of Kubernetes DeviceClass objects, by which ResourceClaims and extended
//! resources refer to devices.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use device_class::DeviceClass;
use device_class::config::Config;
use device_class::load;
use device_class::name::ClassName;

use crate::names::{DRIVER, to_dns_label};
use crate::slice::PART_ATTRIBUTE;

/// Builds the DeviceClass manifests of the classes `class_names` from the class files below
/// `host_root`, as YAML for `kubectl apply`. Fails if a class has no class file or its
/// configuration is invalid.
pub fn build_manifests(
    class_names: &[ClassName],
    config_path: Option<&Path>,
    host_root: &Path,
) -> Result<String, anyhow::Error> {
    let loaded_config =
        Config::load_in_container(config_path, Some(host_root)).context("configuration")?;
    let config = loaded_config.with_root_prefix(host_root);
    let mut manifests = String::new();
    for name in class_names {
        let sources = load::read_each_source(&config.classes)?;
        let mut readable_sources = sources.into_iter().filter_map(Result::ok);
        let found_source = readable_sources.find(|source| source.name == *name);
        let source =
            found_source.with_context(|| format!("no class file {name}.toml on this host"))?;
        manifests.push_str(&build_class_manifests(&config.class(&source)?));
    }
    Ok(manifests)
}

/// Builds the DeviceClass manifests of a class: one for whole devices, and one for each profile of
/// parts into which they can be divided.
fn build_class_manifests(class: &DeviceClass) -> String {
    let name = to_dns_label(class.name.as_str());
    let profiles = class
        .spec
        .parts
        .iter()
        .map(|parts| parts.profile.to_string());
    let mut manifests = if class.spec.parts.is_empty() {
        format_manifest(class, &name, "")
    } else {
        // The selector excludes parts, because a claim for a whole device must not get a part.
        format_manifest(
            class,
            &name,
            &format!(" &&\n          !has({DRIVER_ATTRIBUTES}.{PART_ATTRIBUTE})"),
        )
    };
    // A resource name with a placeholder stands for several resources, each of which would need its
    // own DeviceClass.
    let resource = class.spec.resource.to_string();
    if !resource.contains('{') {
        // The result is ignored, because writing to a string cannot fail.
        let _ = writeln!(
            manifests,
            "  # Pods that ask for {resource} get it by a claim (Kubernetes 1.36).\n  \
               extendedResourceName: {resource}"
        );
    } else {
        let _ = writeln!(
            manifests,
            "  # extendedResourceName: one of {resource}, with a selector on `resource`"
        );
    }
    for profile in profiles {
        if profile.contains('{') {
            // The values of a placeholder are known only on the nodes. Therefore a comment
            // describes the DeviceClass of a profile with a placeholder.
            let _ = writeln!(
                manifests,
                "# A DeviceClass for a profile of its parts: as above, with\n\
                 #   has({DRIVER_ATTRIBUTES}.{PART_ATTRIBUTE}) && {DRIVER_ATTRIBUTES}.{PART_ATTRIBUTE} == 'PROFILE'"
            );
            continue;
        }
        let profile_name = to_dns_label(&format!("{name}-{profile}"));
        let profile_condition = format!(
            " &&\n          has({DRIVER_ATTRIBUTES}.{PART_ATTRIBUTE}) &&\n          {DRIVER_ATTRIBUTES}.{PART_ATTRIBUTE} == '{profile}'"
        );
        manifests.push_str(&format_manifest(class, &profile_name, &profile_condition));
    }
    manifests
}

/// The CEL expression for those attributes of a device that this driver defines.
const DRIVER_ATTRIBUTES: &str = "device.attributes['boathook.dev']";

/// Builds one manifest, and appends `extra_conditions` to its selector. The selector first tests
/// whether an attribute exists, because an expression with a missing attribute is an error.
fn format_manifest(class: &DeviceClass, name: &str, extra_conditions: &str) -> String {
    let class_name = &class.name;
    format!(
        "---\n\
         apiVersion: resource.k8s.io/v1\n\
         kind: DeviceClass\n\
         metadata:\n  \
           name: {name}\n\
         spec:\n  \
           selectors:\n    \
             - cel:\n        \
                 expression: >-\n          \
                   device.driver == '{DRIVER}' &&\n          \
                   has({DRIVER_ATTRIBUTES}.class) &&\n          \
                   {DRIVER_ATTRIBUTES}.class == '{class_name}'{extra_conditions}\n"
    )
}
