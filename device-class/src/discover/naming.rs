//! Tells whether the name of a device depends on what the driver's programs report.

use std::collections::BTreeSet;

use crate::class::{AttributeSource, DeviceClass, Origin, Source, Text};
use crate::facts::Facts;
use crate::name::AttributeName;
use crate::template::{Attributes, Template};

/// The origin of a device's id and resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Naming {
    /// The files of the host. A program of the driver does not change the name.
    #[default]
    Files,
    /// Driver facts, which a program has reported.
    Facts,
    /// Defaults in the place of driver facts, because no program has reported any for the
    /// device. The device gets another name when a program does.
    Defaults,
}

/// Returns the origin of the name of a device with these attributes, which a source found.
pub(super) fn find_naming(
    class: &DeviceClass,
    source: &Source,
    attributes: &Attributes,
    facts: &Facts,
) -> Naming {
    if class.spec.facts.is_empty() || !class.settings.uses_facts() {
        return Naming::Files;
    }
    let keys = list_naming_facts(class, source);
    let mut filled = keys.iter().filter_map(|key| key.fill(attributes).ok());
    if keys.is_empty() {
        Naming::Files
    } else if filled.any(|key| facts.first(&key).is_some()) {
        Naming::Facts
    } else {
        Naming::Defaults
    }
}

/// Returns the keys, by template, of the facts on which the names of a source's devices depend.
fn list_naming_facts<'c>(class: &'c DeviceClass, source: &'c Source) -> Vec<&'c Template> {
    let spec = &class.spec;
    let sharing = spec.sharing.iter();
    let shared = sharing.flat_map(|sharing| [&sharing.replicas_from, &sharing.combine_by]);
    let names = [&spec.device.id, &spec.resource].into_iter();
    let names = names.chain(&source.part_of).chain(shared.flatten());
    let mut needed: BTreeSet<&AttributeName> = names.flat_map(Template::attributes).collect();
    let mut keys = Vec::new();
    // An attribute may use those before it.
    let read = spec.attributes.iter().chain(&source.attributes).rev();
    for attribute in read {
        if !attribute.names().any(|name| needed.contains(name)) {
            continue;
        }
        needed.extend(attribute.templates().flat_map(Template::attributes));
        let AttributeSource { origin, .. } = attribute;
        match origin {
            Origin::Text {
                text: Text::Fact(key),
                ..
            } => keys.push(key),
            Origin::Path { path, .. } => needed.extend(path.captures()),
            _ => {}
        }
    }
    keys
}
