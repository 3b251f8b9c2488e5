//! Plans how devices are brought into the state that a container requests (`[prepare]` in a class
//! file). A program of the host does this.

use std::path::PathBuf;

use device_class::class::{DeviceClass, EnvPairSpec, PathTemplateError, Prepare};
use device_class::discover::Device;
use device_class::template::Attributes;
use serde::Serialize;

use super::{Action, PlanError};
use crate::request::{Request, VariablePair};

/// One run of a host program that brings a device into the requested state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preparation {
    /// The absolute path of the program on the host.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The time in seconds after which the program is killed.
    #[serde(rename = "timeout")]
    pub timeout_seconds: u64,
    /// The path of the file in which the kernel shows the state of the device.
    #[serde(rename = "file")]
    pub state_path: PathBuf,
    /// The content that the file at `state_path` must have after the run. The case of the letters
    /// is ignored.
    #[serde(rename = "wanted")]
    pub requested_state: String,
}

impl Preparation {
    /// Returns the preparation of one device. `attributes` has the device's attributes and the
    /// requested state, which are inserted into the templates of the class file. An argument is
    /// left out if its template gives an empty text.
    fn from_spec(
        prepare: &Prepare,
        device: &Device,
        attributes: &Attributes,
    ) -> Result<Self, PathTemplateError> {
        let arguments = prepare
            .arguments
            .iter()
            .map(|argument| argument.fill(attributes))
            .filter(|argument| !argument.as_ref().is_ok_and(String::is_empty));
        Ok(Preparation {
            program: prepare.program.fill(attributes)?,
            arguments: arguments.collect::<Result<_, _>>()?,
            timeout_seconds: prepare.timeout.get().as_secs(),
            state_path: device
                .state
                .iter()
                .map(|state| state.path.clone())
                .collect(),
            requested_state: prepare.expected_state.fill(attributes)?,
        })
    }
}

/// Returns the preparations that must run before the container gets its devices. Each variable pair
/// of the request is assigned to one device. A device that is already in the requested state is
/// preferred, because it needs no preparation.
pub(super) fn plan_preparations<'a>(
    class: &DeviceClass,
    request: &Request,
    devices: &[&'a Device],
) -> Result<Vec<(&'a Device, Action)>, PlanError> {
    let (Some(prepare), Some(spec)) = (&class.spec.prepare, &class.spec.request.pairs) else {
        return Ok(Vec::new());
    };
    let mut unassigned_devices = devices.to_vec();
    let mut unassigned_pairs = Vec::new();
    for pair in &request.pairs {
        let is_suitable = |device: &Device| is_in_requested_state(device, pair, spec, prepare);
        match take_device(&mut unassigned_devices, is_suitable)? {
            Some(_) => {}
            None => unassigned_pairs.push(pair),
        }
    }
    let mut actions = Vec::new();
    for pair in unassigned_pairs {
        let is_suitable = |device: &Device| is_selected(device, pair, spec);
        let device = take_device(&mut unassigned_devices, is_suitable)?.ok_or_else(|| {
            PlanError::NoMatchingDevice {
                variable: pair.selector_name.clone(),
                selector: pair.selector.clone(),
                class: class.name.to_string(),
            }
        })?;
        let attributes = attributes_with_state(device, pair, spec);
        let preparation = Preparation::from_spec(prepare, device, &attributes)
            .map_err(|error| template_error(device, error))?;
        actions.push((device, Action::Prepare(preparation)));
    }
    Ok(actions)
}

/// Removes from `devices` the first device that `is_suitable` accepts, and returns this device.
fn take_device<'a>(
    devices: &mut Vec<&'a Device>,
    is_suitable: impl Fn(&Device) -> Result<bool, PlanError>,
) -> Result<Option<&'a Device>, PlanError> {
    for index in 0..devices.len() {
        if is_suitable(devices[index])? {
            return Ok(Some(devices.remove(index)));
        }
    }
    Ok(None)
}

fn is_selected(
    device: &Device,
    pair: &VariablePair,
    spec: &EnvPairSpec,
) -> Result<bool, PlanError> {
    let selector = spec
        .selector
        .fill(&device.attributes)
        .map_err(|error| template_error(device, error.into()))?;
    Ok(spec.normalize_value(&selector) == pair.selector)
}

/// Returns whether the variable pair selects the device, and the device was in the requested state
/// when the host was scanned.
fn is_in_requested_state(
    device: &Device,
    pair: &VariablePair,
    spec: &EnvPairSpec,
    prepare: &Prepare,
) -> Result<bool, PlanError> {
    let attributes = attributes_with_state(device, pair, spec);
    let requested_state = prepare
        .expected_state
        .fill(&attributes)
        .map_err(|error| template_error(device, error.into()))?;
    let content = device
        .state
        .as_ref()
        .and_then(|state| state.content.as_ref());
    Ok(is_selected(device, pair, spec)?
        && content.is_some_and(|content| content.eq_ignore_ascii_case(&requested_state)))
}

fn attributes_with_state(device: &Device, pair: &VariablePair, spec: &EnvPairSpec) -> Attributes {
    let mut attributes = device.attributes.clone();
    attributes.insert(spec.attribute.clone(), pair.state.clone());
    attributes
}

fn template_error(device: &Device, error: PathTemplateError) -> PlanError {
    let owner = device.id.to_string();
    PlanError::Template { owner, error }
}
