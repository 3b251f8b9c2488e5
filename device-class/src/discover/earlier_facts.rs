//! Keeps driver facts that an earlier run of a program reported and the last run did not, for
//! example because one of several devices did not answer.

use std::collections::BTreeSet;

use super::{Device, scan_with_facts};
use crate::class::{AttributeSource, DeviceClass, LinkPeers, Origin, Text};
use crate::facts::DriverFacts;
use crate::host::HostView;
use crate::template::Template;

/// Adds to `new_facts` those facts of `earlier_facts` that are still valid: the facts of a device
/// that the host still has, if no new fact contradicts them. `has_failure` says whether a program
/// failed. If none failed, only the facts of devices without any new fact are kept.
///
/// `is_replaced` returns whether a program that succeeded reports all facts with this key that are
/// not about single devices.
///
/// The facts of one device belong together: if one of them has changed, no earlier fact of
/// the device is kept, because the number that a program gave to the device may now be the
/// number of another device.
pub fn keep_earlier_facts(
    new_facts: &mut DriverFacts,
    earlier_facts: DriverFacts,
    class: &DeviceClass,
    host: &dyn HostView,
    has_failure: bool,
    is_replaced: impl Fn(&str) -> bool,
) {
    let (attribute_keys, link_keys) = list_device_keys(class);
    let inventory = scan_with_facts(class, host, Some(&earlier_facts));
    let devices = inventory.devices.iter().chain(&inventory.divided_devices);
    let devices: Vec<&Device> = devices.chain(&inventory.parts_only_devices).collect();
    let mut kept_keys = BTreeSet::new();
    for device in &devices {
        let fill = |key: &&Template| key.fill(&device.attributes).ok();
        let keys: BTreeSet<String> = attribute_keys.iter().filter_map(fill).collect();
        let is_new = |key: &String| new_facts.first_value(key).is_some();
        let has_changed = |key: &String| {
            let earlier_value = earlier_facts.first_value(key);
            is_new(key) && earlier_value.is_some() && earlier_value != new_facts.first_value(key)
        };
        let keeps_facts = if has_failure {
            !keys.iter().any(has_changed)
        } else {
            !keys.iter().any(is_new)
        };
        if keeps_facts {
            kept_keys.extend(keys);
            kept_keys.extend(link_keys.iter().filter_map(fill));
        }
    }
    // Facts with other keys are about the driver, or about the parts that a device can have. They
    // are kept only if a program failed and no successful program reports them.
    let device_keys = attribute_keys.iter().chain(&link_keys);
    let is_device_key = |key: &str| device_keys.clone().any(|template| template.may_become(key));
    let is_kept = |key: &str| {
        kept_keys.contains(key) || has_failure && !is_device_key(key) && !is_replaced(key)
    };
    if !devices.is_empty() {
        new_facts.keep_earlier(earlier_facts, is_kept);
    }
}

/// Returns the keys, by template, of the facts that describe one device, in two lists: the keys of
/// its attributes, and the keys of its connections, which also depend on the device at the other
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
    let links = links.filter_map(|links| match &links.peers {
        LinkPeers::Fact(key) => Some(key),
        LinkPeers::Files { .. } => None,
    });
    (facts.collect(), links.collect())
}
