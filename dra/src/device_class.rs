//! Builds the Kubernetes objects DeviceClass. ResourceClaims and extended resources refer to
//! devices by them.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use device_class::DeviceClass;
use device_class::config::Config;
use device_class::load;
use device_class::name::ClassName;

use crate::names::{DRIVER, dns_label};
use crate::slice::PART;

/// Builds the manifests of the named classes from the class files of the host with the root
/// directory `root`.
pub fn build_manifests(
    names: &[ClassName],
    config: Option<&Path>,
    root: &Path,
) -> Result<String, anyhow::Error> {
    let config = Config::load_given(config, Some(root)).context("configuration")?;
    let config = config.mounted_at(root);
    let mut text = String::new();
    for name in names {
        let sources = load::each_source(&config.classes)?;
        let mut sources = sources.into_iter().filter_map(Result::ok);
        let source = sources.find(|source| source.name == *name);
        let source = source.with_context(|| format!("no class file {name}.toml on this host"))?;
        text.push_str(&build_manifest(&config.class(&source)?));
    }
    Ok(text)
}

/// Builds the manifest of a class, and one for each profile of its parts.
fn build_manifest(class: &DeviceClass) -> String {
    let name = dns_label(class.name.as_str());
    let profiles = class
        .spec
        .parts
        .iter()
        .map(|parts| parts.profile.to_string());
    let mut text = if class.spec.parts.is_empty() {
        format_manifest(class, &name, "")
    } else {
        // A claim for a whole device must not get a part.
        format_manifest(
            class,
            &name,
            &format!(" &&\n          !has({DRIVER_ATTRIBUTES}.{PART})"),
        )
    };
    // A resource name with a placeholder stands for several resources, and each of them would need
    // its own DeviceClass.
    let resource = class.spec.resource.to_string();
    if !resource.contains('{') {
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "  # Pods that ask for {resource} get it by a claim (Kubernetes 1.36).\n  \
               extendedResourceName: {resource}"
        );
    } else {
        let _ = writeln!(
            text,
            "  # extendedResourceName: one of {resource}, with a selector on `resource`"
        );
    }
    for profile in profiles {
        if profile.contains('{') {
            // Only the node of a device knows its profiles.
            let _ = writeln!(
                text,
                "# A DeviceClass for a profile of its parts: as above, with\n\
                 #   has({DRIVER_ATTRIBUTES}.{PART}) && {DRIVER_ATTRIBUTES}.{PART} == 'PROFILE'"
            );
            continue;
        }
        let name = dns_label(&format!("{name}-{profile}"));
        let is_it = format!(
            " &&\n          has({DRIVER_ATTRIBUTES}.{PART}) &&\n          {DRIVER_ATTRIBUTES}.{PART} == '{profile}'"
        );
        text.push_str(&format_manifest(class, &name, &is_it));
    }
    text
}

/// This driver's attributes of a device, in a CEL expression.
const DRIVER_ATTRIBUTES: &str = "device.attributes['boathook.dev']";

/// Builds one manifest. The selector tests whether each attribute exists, because an expression
/// with an unknown attribute fails for all devices of the cluster.
fn format_manifest(class: &DeviceClass, name: &str, further: &str) -> String {
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
                   {DRIVER_ATTRIBUTES}.class == '{class_name}'{further}\n"
    )
}
