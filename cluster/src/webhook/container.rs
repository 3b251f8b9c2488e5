//! Replaces the friendly names in a container's resources by the names of the device plugin's
//! resources. Adds environment variables with the ids of the regions, and of the functions with
//! which they are programmed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail, ensure};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use device_class::name::excerpt;

use super::api::{FUNCTION_VARIABLE_PREFIX, REGION_VARIABLE_PREFIX, RESOURCE_PREFIX};
use super::mappings::{Mapping, Namespace};
use super::names::{self, Mode};
use super::pod::{Container, Quantities};
use crate::json::JsonString;
use crate::quantity;

/// The maximum number of units that a container may request of all resources with friendly names.
/// It limits the number of environment variables, because each unit may need two variables.
const MAX_MAPPED_UNITS: u64 = 64;

/// A container of a pod, with the JSON pointer to the container in the pod.
pub(super) struct PodContainer<'a> {
    pub(super) container: &'a Container<'a>,
    pub(super) json_pointer: PointerBuf,
}

/// The resources with the prefix [`RESOURCE_PREFIX`] that a container requests.
struct FpgaRequest {
    /// The requested resources that have a friendly name. The key is that name, and the value is
    /// its mapping with the requested number of units.
    mapped_resources: BTreeMap<String, (Mapping, u64)>,
    /// The modes of all requested resources, with or without a friendly name. A container with
    /// several modes is refused.
    modes: BTreeSet<Mode>,
}

impl PodContainer<'_> {
    /// Returns the JSON patch operations that replace the container's friendly names by the device
    /// plugin's resources. The list is empty if the container uses no friendly name.
    ///
    /// # Errors
    /// Returns the reason why the container is refused. If the vendor's webhook refuses such a
    /// container as well, the text of the error is the vendor's text.
    pub(super) fn plan_operations(
        &self,
        namespace: &Namespace,
    ) -> anyhow::Result<Vec<PatchOperation>> {
        let fpga_request = self.parse_request(namespace)?;
        if fpga_request.mapped_resources.is_empty() {
            // The webhook may have changed this pod before, because the API server may call it
            // again after other webhooks (`reinvocationPolicy`). Such a pod has no friendly names
            // any longer.
            return Ok(Vec::new());
        }
        ensure!(
            fpga_request.modes.len() == 1,
            "container cannot be scheduled as it requires resources operated in different modes"
        );
        let units = fpga_request
            .mapped_resources
            .values()
            .map(|(_, units)| *units)
            .fold(0_u64, u64::saturating_add);
        ensure!(
            units <= MAX_MAPPED_UNITS,
            "{units} units of FPGA resources are requested, but at most {MAX_MAPPED_UNITS} can be mapped"
        );
        let mut operations = Vec::new();
        for section in ["limits", "requests"] {
            operations.extend(self.replace_resources(section, &fpga_request)?);
        }
        operations.extend(self.add_variables(&fpga_request)?);
        Ok(operations)
    }

    fn parse_request(&self, namespace: &Namespace) -> anyhow::Result<FpgaRequest> {
        let sections = ["limits", "requests"].map(|section| self.container.quantities(section));
        let [limits, requests] = sections;
        let keys: BTreeSet<_> = sections
            .into_iter()
            .flatten()
            .flat_map(|quantities| quantities.0.keys())
            .collect();
        let mut fpga_request = FpgaRequest {
            mapped_resources: BTreeMap::new(),
            modes: BTreeSet::new(),
        };
        for key in keys {
            let name = &key.0[RESOURCE_PREFIX.len()..];
            if let Some(mode) = names::parse_mode(name) {
                fpga_request.modes.insert(mode);
                continue;
            }
            let mapping = namespace.find_mapping(name)?;
            let parse_quantity = |quantities: Option<&Quantities<'_>>| {
                let value = quantities.and_then(|quantities| quantities.0.get(key));
                value.map(|value| parse_units(name, value)).transpose()
            };
            let (limit, request) = (parse_quantity(limits)?, parse_quantity(requests)?);
            // A quantity that is missing in `requests` is valid, because the API server sets it to
            // the limit later.
            let Some(units) = limit.filter(|limit| request.is_none_or(|request| request == *limit))
            else {
                bail!(
                    "'limits' and 'requests' for \"{RESOURCE_PREFIX}{}\" must be equal as extended resources \
                     cannot be overcommitted",
                    excerpt(name)
                );
            };
            fpga_request.modes.insert(mapping.mode);
            fpga_request
                .mapped_resources
                .insert(key.0.to_string(), (mapping, units));
        }
        Ok(fpga_request)
    }

    /// Returns the operations that replace the friendly names in one section of the container's
    /// resources. `section` is `limits` or `requests`. If several names map to the same resource,
    /// their units are added.
    fn replace_resources(
        &self,
        section: &str,
        fpga_request: &FpgaRequest,
    ) -> anyhow::Result<Vec<PatchOperation>> {
        let Some(quantities) = self.container.quantities(section) else {
            return Ok(Vec::new());
        };
        let build_pointer = |key: &str| {
            let mut pointer = self.json_pointer.clone();
            for token in ["resources", section, key] {
                pointer.push_back(token);
            }
            pointer
        };
        let mut operations = Vec::new();
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (key, (mapping, units)) in &fpga_request.mapped_resources {
            if quantities.0.contains_key(&to_json_string(key)) {
                operations.push(PatchOperation::Remove(RemoveOperation {
                    path: build_pointer(key),
                }));
                let sum = sums.entry(&mapping.resource).or_default();
                *sum = sum.saturating_add(*units);
            }
        }
        for (resource, sum) in sums {
            let existing_value = quantities.0.get(&to_json_string(resource));
            let name = resource.trim_start_matches(RESOURCE_PREFIX);
            let existing_units = existing_value.map_or(Ok(0), |value| parse_units(name, value))?;
            operations.push(PatchOperation::Add(AddOperation {
                path: build_pointer(resource),
                value: existing_units.saturating_add(sum).to_string().into(),
            }));
        }
        Ok(operations)
    }

    /// Returns the operations that add the environment variables with the ids of regions and
    /// functions: two variables for each unit. They are added after the container's own variables.
    fn add_variables(&self, fpga_request: &FpgaRequest) -> anyhow::Result<Vec<PatchOperation>> {
        let programs: Vec<_> = fpga_request
            .mapped_resources
            .values()
            .filter_map(|(mapping, units)| {
                let program = mapping.program.as_ref()?;
                Some((0..*units).map(move |_| program))
            })
            .flatten()
            .collect();
        if programs.is_empty() {
            return Ok(Vec::new());
        }
        let env = self.container.env.as_ref();
        if let Some(name) = env.and_then(|env| env.reserved_name.as_ref()) {
            bail!(
                "variable {} is set, but {REGION_VARIABLE_PREFIX}* and {FUNCTION_VARIABLE_PREFIX}* are set by the \
                 webhook for the requested resources: remove it",
                excerpt(&name.0)
            );
        }
        let build_addition = |tokens: &[&str], value: Value| {
            let mut path = self.json_pointer.clone();
            for token in tokens {
                path.push_back(*token);
            }
            PatchOperation::Add(AddOperation { path, value })
        };
        let mut operations = Vec::new();
        if env.is_none() {
            operations.push(build_addition(&["env"], json!([])));
        }
        for (index, program) in programs.into_iter().enumerate() {
            for (prefix, id) in [
                (REGION_VARIABLE_PREFIX, &program.interface_id),
                (FUNCTION_VARIABLE_PREFIX, &program.function_id),
            ] {
                let variable = json!({"name": format!("{prefix}{}", index + 1), "value": id});
                operations.push(build_addition(&["env", "-"], variable));
            }
        }
        Ok(operations)
    }
}

fn to_json_string(name: &str) -> JsonString<'_> {
    JsonString(name.into())
}

/// Parses the quantity of the resource `name`. The quantity may be a JSON string or a JSON number.
fn parse_units(name: &str, value: &RawValue) -> anyhow::Result<u64> {
    let parsed_string = serde_json::from_str::<JsonString<'_>>(value.get());
    let quantity =
        parsed_string.map_or_else(|_| value.get().to_owned(), |text| text.0.into_owned());
    quantity::parse_units(&quantity).with_context(|| {
        let name = excerpt(name);
        format!("resource quantity isn't of integral type for \"{RESOURCE_PREFIX}{name}\"")
    })
}
