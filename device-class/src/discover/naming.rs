//! Finds out whether the id and the resource of a device depend on driver properties. Then they
//! change when the driver's program reports other values.

use std::collections::BTreeSet;

use crate::class::{AttributeOrigin, AttributeSource, DeviceClass, Source, TextSource};
use crate::driver_properties::DriverProperties;
use crate::name::AttributeName;
use crate::template::{Attributes, Template};

/// The origin of a device's id and resource name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameOrigin {
    /// The id and the resource come from files of the host, so driver properties do not change
    /// them.
    #[default]
    Files,
    /// The id or the resource comes from driver properties.
    DriverProperties,
    /// The id or the resource comes from the default value of an attribute, because no program has
    /// yet reported the driver property for this attribute. The name may change when a program
    /// reports it.
    Defaults,
}

/// Returns the origin of the id and the resource of a device with these attributes. `source` is the
/// `[[discover]]` table that found the device.
pub(super) fn find_name_origin(
    class: &DeviceClass,
    source: &Source,
    attributes: &Attributes,
    properties: &DriverProperties,
) -> NameOrigin {
    if class.spec.property_programs.is_empty() || !class.settings.uses_driver_properties() {
        return NameOrigin::Files;
    }
    let keys = list_name_property_keys(class, source);
    let mut filled_keys = keys.iter().filter_map(|key| key.fill(attributes).ok());
    if keys.is_empty() {
        NameOrigin::Files
    } else if filled_keys.any(|key| properties.first_value(&key).is_some()) {
        NameOrigin::DriverProperties
    } else {
        NameOrigin::Defaults
    }
}

/// Returns the keys of the driver properties that can change the id or the resource of a device.
/// `source` is the `[[discover]]` table that finds the device. The keys are templates.
fn list_name_property_keys<'c>(class: &'c DeviceClass, source: &'c Source) -> Vec<&'c Template> {
    let spec = &class.spec;
    let sharing = spec.sharing.iter();
    let sharing_templates =
        sharing.flat_map(|sharing| [&sharing.replica_count_template, &sharing.combination_key]);
    let templates = [&spec.device.id, &spec.resource].into_iter();
    let templates = templates
        .chain(&source.part_of)
        .chain(sharing_templates.flatten());
    let mut used_attributes: BTreeSet<&AttributeName> =
        templates.flat_map(Template::attributes).collect();
    let mut keys = Vec::new();
    // The search for used attributes begins with the last one, because an attribute may use only
    // attributes before it.
    let reversed_sources = spec.attributes.iter().chain(&source.attributes).rev();
    for attribute in reversed_sources {
        if !attribute.names().any(|name| used_attributes.contains(name)) {
            continue;
        }
        used_attributes.extend(attribute.templates().flat_map(Template::attributes));
        let AttributeSource { origin, .. } = attribute;
        match origin {
            AttributeOrigin::Text {
                text: TextSource::DriverProperty(key),
                ..
            } => keys.push(key),
            AttributeOrigin::Path { pattern, .. } => used_attributes.extend(pattern.captures()),
            _ => {}
        }
    }
    keys
}
