//! Adds notes and warnings about a request to a plan, and checks the requirements of the image.

use std::collections::BTreeSet;

use device_class::discover::{Device, FoundEdits, Inventory};
use device_class::inserted;
use device_class::name::{CapabilityName, ClassName, excerpt};
use device_class::{DeviceClass, similar};

use super::builder::PlanBuilder;
use super::{PlanError, PlanInput};
use crate::request::{RefusedRequest, Request, RequestError, Selection};
use crate::requirement;

impl PlanBuilder {
    /// Adds a note about the devices or capabilities that config.toml removes from a class.
    pub(super) fn note_left_out<'b>(
        &mut self,
        class: &ClassName,
        how: &str,
        names: impl Iterator<Item = &'b str>,
    ) {
        let names: Vec<&str> = names.collect();
        if !names.is_empty() {
            let names = names.join(", ");
            self.notes
                .push(format!("{class}: {how} by config.toml: {names}"));
        }
    }

    /// Checks the image's requirements against the values of each granted device, or of the
    /// host if no device is granted.
    pub(super) fn check_requirements(
        &mut self,
        input: &PlanInput<'_>,
        devices: &[&Device],
    ) -> Result<(), PlanError> {
        let Some(spec) = &input.class.spec.request.requirements else {
            return Ok(());
        };
        // Devices with equal values are in the set only once.
        let mut all: BTreeSet<requirement::Values> = BTreeSet::new();
        let host = [&input.found.inventory.host_attributes];
        let attributes = devices.iter().map(|device| &device.attributes);
        let attributes = host
            .into_iter()
            .filter(|_| devices.is_empty())
            .chain(attributes);
        for known in attributes {
            let values = spec.values.iter().filter_map(|(name, value)| {
                let value = value.fill(known).ok();
                // An empty value means that the host does not show the attribute.
                let is_known = value.as_ref().is_none_or(|value| !value.is_empty());
                is_known.then(|| (name.clone(), value))
            });
            all.insert(inserted(values));
        }
        let way_out = spec.describe_opt_out(&input.class.name);
        for (env, text) in &input.request.requirements {
            let mut notes = BTreeSet::new();
            let mut warnings = BTreeSet::new();
            for values in &all {
                let error = match requirement::check(text, values) {
                    Ok(unknown) => {
                        notes.extend(unknown);
                        continue;
                    }
                    Err(error) => error,
                };
                let within = spec.warn_within_major.as_ref();
                let within =
                    within.filter(|name| requirement::is_met_within_major(text, values, name));
                let Some(name) = within else {
                    return Err(PlanError::from(RefusedRequest {
                        requested_by: input.request.source.to_string(),
                        error: RequestError::Requirement {
                            env: env.clone(),
                            text: text.clone(),
                            way_out: way_out.clone(),
                            error: Box::new(error),
                        },
                    }));
                };
                warnings.insert(format!(
                    "{}={} is not met: {error}; the major version of {} is the same, so most \
                     programs work; to omit this check, set {way_out}",
                    excerpt(env),
                    excerpt(text),
                    name.as_str()
                ));
            }
            self.warnings.extend(warnings);
            if !notes.is_empty() {
                let unknown: Vec<String> = notes.into_iter().collect();
                self.notes.push(format!(
                    "{}: cannot be evaluated, assuming it is met: {}",
                    excerpt(env),
                    unknown.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Adds a warning for each unhealthy device that is given as requested, or that is left
    /// out of a request for all devices.
    pub(super) fn warn_of_health(
        &mut self,
        request: &Request,
        inventory: &Inventory,
        given: &[&Device],
    ) {
        let ill = inventory
            .devices
            .iter()
            .filter(|device| !device.health.is_healthy());
        for device in ill {
            let is_given = given.iter().any(|other| other.id == device.id);
            if is_given {
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

    /// Adds a message for each requested capability that the class does not have. The message is a
    /// note, because images list all capabilities that they could use. It is a warning if the name is
    /// probably a mistyped capability of the class, or if no other capability was requested.
    pub(super) fn note_capabilities(&mut self, class: &DeviceClass, request: &Request) {
        let known = class.spec.capabilities();
        let known = || known.iter().map(CapabilityName::as_str);
        for name in &request.unknown_capabilities {
            let near = known().find(|known| similar::is_typo(name, known));
            let none_is_left = request.capabilities.is_empty() && known().next().is_some();
            let hint = match near {
                Some(near) => format!("; did you mean {near}?"),
                None => String::new(),
            };
            let text = format!("{} has no capability {name}{hint}", request.class);
            if near.is_some() || none_is_left {
                self.warnings.push(text);
            } else {
                self.notes.push(text);
            }
        }
    }
}

/// Returns the reason why a request for `all` or `none` gets nothing of the class on this host. Many
/// images make such a request by default, and must start on hosts without the hardware, too. Returns
/// `None` if the host has a device of the class, or files for a request for `none`.
pub(super) fn find_absence_reason(
    request: &Request,
    inventory: &Inventory,
    edits: &FoundEdits,
) -> Option<String> {
    let class = &request.class;
    if !inventory.devices.is_empty() {
        return None;
    }
    // Control nodes are given only together with devices, so only the files count.
    let files = FoundEdits {
        nodes: Vec::new(),
        ..edits.clone()
    };
    let reason = match (&request.selection, &inventory.no_driver) {
        (_, Some(no_driver)) => no_driver,
        (Selection::FilesOnly, None) => files.unusable_reasons().next()?,
        (_, None) if !inventory.hidden.is_empty() => "config.toml hides all devices of it",
        (_, None) => "this host has no device of it",
    };
    Some(format!("not injecting anything of {class}: {reason}"))
}
