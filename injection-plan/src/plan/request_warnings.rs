//! Checks a request, and adds notes and warnings about it to the injection plan. For example, it
//! checks whether the host meets the image's requirements.

use std::collections::BTreeSet;

use device_class::collect_by_insertion;
use device_class::discover::{Device, FoundEdits, Inventory};
use device_class::name::{CapabilityName, ClassName, excerpt};
use device_class::{DeviceClass, similar};

use super::builder::PlanBuilder;
use super::{PlanError, PlanInput};
use crate::request::{RefusedRequest, Request, RequestError, Selection};
use crate::requirement;

impl PlanBuilder {
    /// Adds a note about the devices that config.toml hides, or the capabilities that it forbids.
    /// `participle` is the word "hidden" or "forbidden" for the note.
    pub(super) fn add_restricted_names_note<'b>(
        &mut self,
        class: &ClassName,
        participle: &str,
        names: impl Iterator<Item = &'b str>,
    ) {
        let names: Vec<&str> = names.collect();
        if !names.is_empty() {
            let names = names.join(", ");
            self.notes
                .push(format!("{class}: {participle} by config.toml: {names}"));
        }
    }

    /// Checks the image's requirements against the attributes of each granted device. If no device
    /// is granted, checks them against the attributes of the host.
    pub(super) fn check_requirements(
        &mut self,
        input: &PlanInput<'_>,
        devices: &[&Device],
    ) -> Result<(), PlanError> {
        let Some(spec) = &input.class.spec.request.requirements else {
            return Ok(());
        };
        // A set is used, so that devices with equal values are checked only once.
        let mut value_sets: BTreeSet<requirement::HostValues> = BTreeSet::new();
        let host_attributes = [&input.found_class.inventory.host_attributes];
        let device_attributes = devices.iter().map(|device| &device.attributes);
        let attribute_sets = host_attributes
            .into_iter()
            .filter(|_| devices.is_empty())
            .chain(device_attributes);
        for attributes in attribute_sets {
            let values = spec.values.iter().filter_map(|(name, value)| {
                let value = value.fill(attributes).ok();
                // If the host does not have the attribute, the value is empty. It is left out, so
                // that the check treats its name as unknown.
                let has_value = value.as_ref().is_none_or(|value| !value.is_empty());
                has_value.then(|| (name.clone(), value))
            });
            value_sets.insert(collect_by_insertion(values));
        }
        let disable_settings = spec.describe_opt_out(&input.class.name);
        for (env, text) in &input.request.requirements {
            let mut unknown_names = BTreeSet::new();
            let mut warnings = BTreeSet::new();
            for values in &value_sets {
                let error = match requirement::check(text, values) {
                    Ok(unknown_name_list) => {
                        unknown_names.extend(unknown_name_list);
                        continue;
                    }
                    Err(error) => error,
                };
                let configured_name = spec.warn_within_major.as_ref();
                let version_name = configured_name
                    .filter(|name| requirement::can_be_met_with_major(text, values, name));
                let Some(name) = version_name else {
                    return Err(PlanError::from(RefusedRequest::new(
                        &input.request.source,
                        RequestError::Requirement {
                            env: env.clone(),
                            text: text.clone(),
                            disable_settings: disable_settings.clone(),
                            error: Box::new(error),
                        },
                    )));
                };
                warnings.insert(format!(
                    "{}={} is not met: {error}; the major version of {} is the same, so most \
                     programs work; to omit this check, set {disable_settings}",
                    excerpt(env),
                    excerpt(text),
                    name.as_str()
                ));
            }
            self.warnings.extend(warnings);
            if !unknown_names.is_empty() {
                let unknown_name_list: Vec<String> = unknown_names.into_iter().collect();
                self.notes.push(format!(
                    "{}: cannot be evaluated, assuming it is met: {}",
                    excerpt(env),
                    unknown_name_list.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Adds a warning for each unhealthy device that the container gets. If the container requests
    /// all devices, also adds a warning for each unhealthy device that it does not get.
    pub(super) fn warn_about_unhealthy_devices(
        &mut self,
        request: &Request,
        inventory: &Inventory,
        granted_devices: &[&Device],
    ) {
        let unhealthy_devices = inventory
            .devices
            .iter()
            .filter(|device| !device.health.is_healthy());
        for device in unhealthy_devices {
            let mut granted = granted_devices.iter();
            if granted.any(|other| other.id == device.id) {
                self.warnings.push(format!(
                    "injecting {} as requested although it is {}",
                    device.id, device.health
                ));
            } else if request.selection == Selection::All {
                self.warnings.push(format!(
                    "{}: {} is left out: it is {}",
                    request.source, device.id, device.health
                ));
            }
        }
    }

    /// Adds a warning for each requested name that several pieces of hardware have, because the
    /// user probably means one of them. A pod gets only the devices that the kubelet allocated. So
    /// there is no warning if it gets only one device with this name.
    pub(super) fn warn_about_shared_names(
        &mut self,
        input: &PlanInput<'_>,
        granted_devices: &[&Device],
    ) {
        let PlanInput { class, request, .. } = input;
        let inventory = &input.found_class.inventory;
        let shared_names = request.selection.find_shared_names(class, inventory);
        for name in shared_names {
            if name.matches_several_devices(granted_devices) {
                self.warnings
                    .push(format!("{}: {}", request.source, name.describe()));
            }
        }
    }

    /// Adds a warning for each variable of the vendor's libraries whose index is too large for the
    /// container. The libraries count the devices of the container from 0, but users often write
    /// the index that a device has on the host. The libraries would then find no device.
    pub(super) fn warn_about_host_indexes(&mut self, request: &Request, device_count: usize) {
        if device_count == 0 {
            return;
        }
        for (name, value) in &request.container_index_variables {
            let numbers = value
                .split(',')
                .map(|number| number.trim().parse::<usize>());
            if numbers.flatten().any(|number| number >= device_count) {
                let range = match device_count {
                    1 => "0".to_owned(),
                    _ => format!("0 to {}", device_count - 1),
                };
                self.warnings.push(format!(
                    "{}={}: programs count the devices of the container, which have the numbers \
                     {range} whatever their numbers on the host are; leave {0} out, or write \
                     numbers of the container",
                    excerpt(name),
                    excerpt(value)
                ));
            }
        }
    }

    /// Adds a note for each requested capability that the class does not have. Such a request is
    /// common, because images list all capabilities that they could use. The message is a warning
    /// if the name is probably mistyped, or if the class has none of the requested capabilities.
    pub(super) fn add_unknown_capability_notes(&mut self, class: &DeviceClass, request: &Request) {
        let capabilities = class.spec.capabilities();
        let capability_names = || capabilities.iter().map(CapabilityName::as_str);
        for name in &request.unknown_capabilities {
            let intended_name =
                capability_names().find(|capability| similar::is_typo(name, capability));
            let has_no_requested_capability =
                request.capabilities.is_empty() && capability_names().next().is_some();
            let hint = match intended_name {
                Some(intended_name) => format!("; did you mean {intended_name}?"),
                None => String::new(),
            };
            let text = format!("{} has no capability {name}{hint}", request.class);
            if intended_name.is_some() || has_no_requested_capability {
                self.warnings.push(text);
            } else {
                self.notes.push(text);
            }
        }
    }
}

/// Returns the reason why a request gets nothing of the class on this host, or `None` if it gets
/// something. For `all` and `none` this is no error: many images make such a request by default,
/// and must also start on hosts without the hardware.
pub(super) fn find_absence_reason(
    request: &Request,
    inventory: &Inventory,
    edits: &FoundEdits,
) -> Option<String> {
    let class = &request.class;
    if !inventory.devices.is_empty() {
        return None;
    }
    // The nodes of the class itself, such as a driver's control node, do not count, because a
    // container gets them only together with devices.
    let files = FoundEdits {
        nodes: Vec::new(),
        ..edits.clone()
    };
    let reason = match (&request.selection, &inventory.missing_driver_message) {
        (_, Some(missing_driver_message)) => missing_driver_message,
        (Selection::FilesOnly, None) => files.unusable_reasons().next()?,
        (_, None) if !inventory.hidden_ids.is_empty() => "config.toml hides all devices of it",
        (_, None) => "this host has no device of it",
    };
    Some(format!("not injecting anything of {class}: {reason}"))
}
