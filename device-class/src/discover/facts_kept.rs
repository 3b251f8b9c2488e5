//! Driver facts of earlier runs that are still true although a program did not report them
//! again, for example because one device of several does not answer.

use std::collections::BTreeSet;

use super::{Device, look_with};
use crate::class::{AttributeSource, DeviceClass, Ends, Origin, Text};
use crate::facts::Facts;
use crate::host::HostView;
use crate::template::Template;

/// Adds to `new` the facts of `earlier` that are about a device which the host still has and
/// of which `new` says nothing else. `failed` is whether a program failed, so that the
/// absence of a fact in `new` means nothing. If no program failed, only the facts of devices
/// of which `new` says nothing at all are kept.
///
/// `is_replaced` is whether a program that succeeded reports all facts with such a key, apart
/// from those of single devices.
///
/// The facts of one device belong together: if one of them has changed, no earlier fact of
/// the device is kept, because the number that a program gave to the device may now be the
/// number of another device.
pub fn keep_earlier_facts(
    new: &mut Facts,
    earlier: Facts,
    class: &DeviceClass,
    host: &dyn HostView,
    failed: bool,
    is_replaced: impl Fn(&str) -> bool,
) {
    let (attributes, links) = list_device_keys(class);
    let inventory = look_with(class, host, Some(&earlier));
    let devices = inventory.devices.iter().chain(&inventory.divided);
    let devices: Vec<&Device> = devices.chain(&inventory.replaced).collect();
    let mut kept = BTreeSet::new();
    for device in &devices {
        let fill = |key: &&Template| key.fill(&device.attributes).ok();
        let keys: BTreeSet<String> = attributes.iter().filter_map(fill).collect();
        let is_new = |key: &String| new.first(key).is_some();
        let has_changed = |key: &String| {
            let before = earlier.first(key);
            is_new(key) && before.is_some() && before != new.first(key)
        };
        let is_kept = if failed {
            !keys.iter().any(has_changed)
        } else {
            !keys.iter().any(is_new)
        };
        if is_kept {
            kept.extend(keys);
            kept.extend(links.iter().filter_map(fill));
        }
    }
    // Other facts are about the driver, or about parts that a device can have.
    let all = attributes.iter().chain(&links);
    let is_of_device = |key: &str| all.clone().any(|template| template.may_become(key));
    let is_kept =
        |key: &str| kept.contains(key) || failed && !is_of_device(key) && !is_replaced(key);
    if !devices.is_empty() {
        new.keep_earlier(earlier, is_kept);
    }
}

/// Returns the keys, by template, of the facts that describe one device: those of its
/// attributes, and those of its connections, which also change with the device at the other
/// end.
fn list_device_keys(class: &DeviceClass) -> (Vec<&Template>, Vec<&Template>) {
    let spec = &class.spec;
    let attributes = spec.discover.iter().flat_map(|source| &source.attributes);
    let facts = attributes.filter_map(|AttributeSource { origin, .. }| match origin {
        Origin::Text {
            text: Text::Fact(key),
            ..
        } => Some(key),
        _ => None,
    });
    let links = spec.device.links.iter();
    let links = links.filter_map(|links| match &links.ends {
        Ends::Fact(key) => Some(key),
        Ends::Files { .. } => None,
    });
    (facts.collect(), links.collect())
}
