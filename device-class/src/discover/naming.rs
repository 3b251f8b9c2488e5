//! Finds out whether the id and the resource of a device depend on driver facts.

use std::collections::BTreeSet;

use crate::class::{AttributeSource, DeviceClass, Origin, Source, Text};
use crate::facts::DriverFacts;
use crate::name::AttributeName;
use crate::template::{Attributes, Template};

/// The origin of a device's id and resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Naming {
    /// The id and the resource come from files of the host. Driver facts do not change them.
    #[default]
    Files,
    /// The id or the resource comes from driver facts.
    Facts,
    /// The id or the resource comes from defaults in place of driver facts, because no program has
    /// reported a fact about the device. They change when a program reports one.
    Defaults,
}

/// Returns the origin of the id and the resource of a device with these attributes. `source` is the
/// table that found the device.
pub(super) fn find_naming(
    class: &DeviceClass,
    source: &Source,
    attributes: &Attributes,
    facts: &DriverFacts,
) -> Naming {
    if class.spec.facts.is_empty() || !class.settings.uses_facts() {
        return Naming::Files;
    }
    let keys = list_naming_facts(class, source);
    let mut filled_keys = keys.iter().filter_map(|key| key.fill(attributes).ok());
    if keys.is_empty() {
        Naming::Files
    } else if filled_keys.any(|key| facts.first_value(&key).is_some()) {
        Naming::Facts
    } else {
        Naming::Defaults
    }
}

/// Returns the keys, by template, of the facts on which the ids and resources of the devices of a
/// source depend.
fn list_naming_facts<'c>(class: &'c DeviceClass, source: &'c Source) -> Vec<&'c Template> {
    let spec = &class.spec;
    let sharing = spec.sharing.iter();
    let sharing_templates =
        sharing.flat_map(|sharing| [&sharing.replicas_from, &sharing.combine_by]);
    let templates = [&spec.device.id, &spec.resource].into_iter();
    let templates = templates
        .chain(&source.part_of)
        .chain(sharing_templates.flatten());
    let mut used_attributes: BTreeSet<&AttributeName> =
        templates.flat_map(Template::attributes).collect();
    let mut keys = Vec::new();
    // An attribute may use the attributes before it, so the search begins with the last one.
    let reversed_sources = spec.attributes.iter().chain(&source.attributes).rev();
    for attribute in reversed_sources {
        if !attribute.names().any(|name| used_attributes.contains(name)) {
            continue;
        }
        used_attributes.extend(attribute.templates().flat_map(Template::attributes));
        let AttributeSource { origin, .. } = attribute;
        match origin {
            Origin::Text {
                text: Text::Fact(key),
                ..
            } => keys.push(key),
            Origin::Path { pattern, .. } => used_attributes.extend(pattern.captures()),
            _ => {}
        }
    }
    keys
}
