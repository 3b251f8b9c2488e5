//! Checks classes with `follow = true`, whose devices `boathook follow` tracks. For example, a
//! device must have the same id when it comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::class::{AttributeOrigin, ClassSpec, Source, TextSource};
use crate::name::AttributeName;
use crate::strict_toml::RuleViolation;
use crate::template::Template;

/// The sysfs files that contain a number which the kernel assigns anew when a device is plugged in
/// again: the device number (`dev`) and the number on the USB bus (`devnum`).
const NUMBER_FILES: [&str; 2] = ["dev", "devnum"];

/// Refuses `announce` in a class without `follow`. Only devices that `boathook follow` tracks are
/// announced to containers.
pub(super) fn check_announcement(spec: &ClassSpec) -> Result<(), RuleViolation> {
    if spec.announces_devices && !spec.is_followed {
        Err(RuleViolation::new(
            "announce",
            "`announce = true` needs `follow = true`: containers are told of devices that they \
             follow",
        ))
    } else {
        Ok(())
    }
}

/// Refuses `late` in a class without `follow`. Only `boathook follow` gives a container a device
/// that is plugged in after the container's start.
pub(super) fn check_late_devices(spec: &ClassSpec) -> Result<(), RuleViolation> {
    if spec.allows_late_devices && !spec.is_followed {
        return Err(RuleViolation::new(
            "late",
            "`late = true` needs `follow = true`: `boathook follow` gives a device that comes later",
        ));
    }
    Ok(())
}

/// Refuses an id that can change in a class with `follow`: the id must not contain a number from
/// the paths of the device's nodes that the kernel assigns anew when the device is plugged in
/// again.
pub(super) fn check_id(spec: &ClassSpec, source: &Source) -> Result<(), RuleViolation> {
    if !spec.is_followed {
        return Ok(());
    }
    let numbers = AssignedNumbers::from_source(source);
    let nodes = spec.device.nodes.iter().chain(&source.nodes);
    let node_numbers: BTreeSet<_> = nodes
        .flat_map(|node| numbers.list_numbers_in_template(node.path.template()))
        .collect();
    let template = &spec.device.id;
    let mut id_numbers = numbers.list_numbers_in_template(template);
    let id = template.to_string();
    match id_numbers.find(|name| node_numbers.contains(name)) {
        Some(name) => Err(RuleViolation::new(
            id.as_str(),
            format!(
                "with `follow = true` the id `{id}` may not have `{name}`, a number that changes \
                 when a device is unplugged and comes back; use what is read of the device, such \
                 as its serial number or its place on the bus"
            ),
        )),
        None => Ok(()),
    }
}

/// Maps each attribute to the attributes from which the kernel-assigned numbers in its value come.
/// The kernel assigns these numbers anew when a device is plugged in again.
struct AssignedNumbers<'s>(BTreeMap<&'s AttributeName, BTreeSet<&'s AttributeName>>);

impl<'s> AssignedNumbers<'s> {
    fn from_source(source: &'s Source) -> Self {
        let captures = source.path.iter().flat_map(|path| path.number_captures());
        let captures = captures.map(|name| (name, BTreeSet::from([name])));
        let mut numbers = AssignedNumbers(captures.collect());
        for attribute in &source.attributes {
            let AttributeOrigin::Text { name, text, .. } = &attribute.origin else {
                continue;
            };
            let numbers_in_value = match text {
                TextSource::Value(template) | TextSource::Formula(template) => {
                    numbers.list_numbers_in_template(template).collect()
                }
                TextSource::File { file, key: None } if is_number_file(file) => {
                    BTreeSet::from([name])
                }
                _ => BTreeSet::new(),
            };
            numbers.0.insert(name, numbers_in_value);
        }
        numbers
    }

    fn list_numbers_in_template<'n>(
        &'n self,
        template: &'n Template,
    ) -> impl Iterator<Item = &'s AttributeName> {
        let attributes = template.attributes();
        let numbers = attributes.filter_map(|name| self.0.get(name));
        numbers.flatten().copied()
    }
}

fn is_number_file(file: &Template) -> bool {
    let file = file.to_string();
    let name = Path::new(&file).file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| NUMBER_FILES.contains(&name))
}
