//! Replaces the friendly names in one container's resources by the device plugin's resources, and
//! adds the variables that name regions and functions.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail, ensure};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use device_class::name::excerpt;

use super::api::{FUNCTION_VARIABLE, PREFIX, REGION_VARIABLE};
use super::mappings::{Mapping, Namespace};
use super::names::{self, Mode};
use super::pod::{Amounts, Container};
use crate::json::Text;
use crate::quantity;

/// The maximum number of units of mapped resources that a container may request. The limit
/// bounds the number of variables, of which each unit may need two.
const MAX_UNITS: u64 = 64;

/// A container of a pod, and the JSON pointer to the container in the pod.
pub(super) struct PodContainer<'a> {
    pub(super) container: &'a Container<'a>,
    pub(super) path: PointerBuf,
}

/// The resources with the prefix that a container requests.
struct FpgaRequest {
    /// The mapping and the requested number of units of each friendly name.
    mapped: BTreeMap<String, (Mapping, u64)>,
    /// The modes of all resources, including those that are requested without a friendly name.
    modes: BTreeSet<Mode>,
}

impl PodContainer<'_> {
    /// Returns the operations that replace the container's friendly names by the device plugin's
    /// resources. The list is empty if the container uses no friendly name.
    ///
    /// # Errors
    /// Returns the reason why the container is refused. Messages that the vendor's webhook has,
    /// too, have the same text.
    pub(super) fn plan_operations(
        &self,
        namespace: &Namespace,
    ) -> anyhow::Result<Vec<PatchOperation>> {
        let fpga_request = self.parse_request(namespace)?;
        if fpga_request.mapped.is_empty() {
            // The API server may send a pod that this webhook has already changed, after other
            // webhooks (`reinvocationPolicy`). Such a pod has no friendly names any more.
            return Ok(Vec::new());
        }
        ensure!(
            fpga_request.modes.len() == 1,
            "container cannot be scheduled as it requires resources operated in different modes"
        );
        let units = fpga_request
            .mapped
            .values()
            .map(|(_, units)| *units)
            .fold(0_u64, u64::saturating_add);
        ensure!(
            units <= MAX_UNITS,
            "{units} units of FPGA resources are requested, but at most {MAX_UNITS} can be mapped"
        );
        let mut operations = Vec::new();
        for section in ["limits", "requests"] {
            operations.extend(self.replace_resources(section, &fpga_request)?);
        }
        operations.extend(self.add_variables(&fpga_request)?);
        Ok(operations)
    }

    fn parse_request(&self, namespace: &Namespace) -> anyhow::Result<FpgaRequest> {
        let sections = ["limits", "requests"].map(|section| self.container.amounts(section));
        let [limits, requests] = sections;
        let keys: BTreeSet<_> = sections
            .into_iter()
            .flatten()
            .flat_map(|amounts| amounts.0.keys())
            .collect();
        let mut fpga_request = FpgaRequest {
            mapped: BTreeMap::new(),
            modes: BTreeSet::new(),
        };
        for key in keys {
            let name = &key.0[PREFIX.len()..];
            if let Some(mode) = names::parse_mode(name) {
                fpga_request.modes.insert(mode);
                continue;
            }
            let mapping = namespace.look_up(name)?;
            let parse_amount = |amounts: Option<&Amounts<'_>>| {
                let value = amounts.and_then(|amounts| amounts.0.get(key));
                value.map(|value| parse_units(name, value)).transpose()
            };
            let (limit, request) = (parse_amount(limits)?, parse_amount(requests)?);
            // A missing request is valid, because the API server later sets it to the limit.
            let Some(units) = limit.filter(|limit| request.is_none_or(|other| other == *limit))
            else {
                bail!(
                    "'limits' and 'requests' for \"{PREFIX}{}\" must be equal as extended resources \
                     cannot be overcommitted",
                    excerpt(name)
                );
            };
            fpga_request.modes.insert(mapping.mode);
            fpga_request
                .mapped
                .insert(key.0.to_string(), (mapping, units));
        }
        Ok(fpga_request)
    }

    /// Returns the operations that replace the friendly names in one `section` of the container's
    /// resources, `limits` or `requests`. The units of names with the same resource are added up.
    fn replace_resources(
        &self,
        section: &str,
        fpga_request: &FpgaRequest,
    ) -> anyhow::Result<Vec<PatchOperation>> {
        let Some(amounts) = self.container.amounts(section) else {
            return Ok(Vec::new());
        };
        let path = |key: &str| {
            let mut path = self.path.clone();
            for token in ["resources", section, key] {
                path.push_back(token);
            }
            path
        };
        let mut operations = Vec::new();
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (key, (mapping, units)) in &fpga_request.mapped {
            if amounts.0.contains_key(&text(key)) {
                operations.push(PatchOperation::Remove(RemoveOperation { path: path(key) }));
                let sum = sums.entry(&mapping.resource).or_default();
                *sum = sum.saturating_add(*units);
            }
        }
        for (resource, sum) in sums {
            let existing = amounts.0.get(&text(resource));
            let name = resource.trim_start_matches(PREFIX);
            let existing_units = existing.map_or(Ok(0), |value| parse_units(name, value))?;
            operations.push(PatchOperation::Add(AddOperation {
                path: path(resource),
                value: existing_units.saturating_add(sum).to_string().into(),
            }));
        }
        Ok(operations)
    }

    /// Returns the operations that add the variables with the ids of regions and functions, one
    /// pair of variables for each unit. The container's own variables keep their order and come
    /// first.
    fn add_variables(&self, fpga_request: &FpgaRequest) -> anyhow::Result<Vec<PatchOperation>> {
        let programs: Vec<_> = fpga_request
            .mapped
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
        if let Some(name) = env.and_then(|env| env.reserved.as_ref()) {
            bail!(
                "variable {} is set, but {REGION_VARIABLE}* and {FUNCTION_VARIABLE}* are set by the \
                 webhook for the requested resources: remove it",
                excerpt(&name.0)
            );
        }
        let add = |tokens: &[&str], value: Value| {
            let mut path = self.path.clone();
            for token in tokens {
                path.push_back(*token);
            }
            PatchOperation::Add(AddOperation { path, value })
        };
        let mut operations = Vec::new();
        if env.is_none() {
            operations.push(add(&["env"], json!([])));
        }
        for (index, program) in programs.into_iter().enumerate() {
            for (prefix, id) in [
                (REGION_VARIABLE, &program.interface),
                (FUNCTION_VARIABLE, &program.function),
            ] {
                let variable = json!({"name": format!("{prefix}{}", index + 1), "value": id});
                operations.push(add(&["env", "-"], variable));
            }
        }
        Ok(operations)
    }
}

fn text(name: &str) -> Text<'_> {
    Text(name.into())
}

/// Parses the quantity of the resource `name`. The quantity may be a JSON string or a number.
fn parse_units(name: &str, value: &RawValue) -> anyhow::Result<u64> {
    let string = serde_json::from_str::<Text<'_>>(value.get());
    let quantity = string.map_or_else(|_| value.get().to_owned(), |text| text.0.into_owned());
    quantity::parse_units(&quantity).with_context(|| {
        let name = excerpt(name);
        format!("resource quantity isn't of integral type for \"{PREFIX}{name}\"")
    })
}
