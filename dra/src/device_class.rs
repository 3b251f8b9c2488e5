//! The Kubernetes object DeviceClass of a class. Claims and extended resources refer to the
//! class's devices by it.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use device_class::DeviceClass;
use device_class::config::Config;
use device_class::load;
use device_class::name::ClassName;

use crate::names::{DRIVER, label};
use crate::slice::PART;

/// Returns the manifests of these classes, whose files are on the host with the root directory
/// `root`.
pub fn manifests(
    names: &[ClassName],
    config: Option<&Path>,
    root: &Path,
) -> Result<String, anyhow::Error> {
    let config = Config::load(config).context("configuration")?;
    let config = config.mounted_at(root);
    let mut text = String::new();
    for name in names {
        let sources = load::each_source(&config.classes)?;
        let mut sources = sources.into_iter().filter_map(Result::ok);
        let source = sources.find(|source| source.name == *name);
        let source = source.with_context(|| format!("no class file {name}.toml on this host"))?;
        text.push_str(&manifest(&config.class(&source)?));
    }
    Ok(text)
}

/// Returns the manifest of a class, and one for each profile of its parts.
fn manifest(class: &DeviceClass) -> String {
    let name = label(class.name.as_str());
    let profiles = class
        .spec
        .parts
        .iter()
        .map(|parts| parts.profile.to_string());
    let mut text = match class.spec.parts.is_empty() {
        true => device_class(class, &name, ""),
        // A claim for a device must not get a part.
        false => device_class(class, &name, &format!(" &&\n          !has({OWN}.{PART})")),
    };
    // A resource name with a template stands for several resources, each of which would need a
    // DeviceClass.
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
            // The profiles that a device has are known on its node only.
            let _ = writeln!(
                text,
                "# A DeviceClass for a profile of its parts: as above, with\n\
                 #   has({OWN}.{PART}) && {OWN}.{PART} == 'PROFILE'"
            );
            continue;
        }
        let name = label(&format!("{name}-{profile}"));
        let is_it =
            format!(" &&\n          has({OWN}.{PART}) &&\n          {OWN}.{PART} == '{profile}'");
        text.push_str(&device_class(class, &name, &is_it));
    }
    text
}

/// The attributes of this driver, as CEL expressions name them.
const OWN: &str = "device.attributes['boathook.dev']";

/// A selector must test whether there is an attribute: one that names an unknown attribute
/// fails for all devices of the cluster.
fn device_class(class: &DeviceClass, name: &str, further: &str) -> String {
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
                   has({OWN}.class) &&\n          \
                   {OWN}.class == '{class_name}'{further}\n"
    )
}
