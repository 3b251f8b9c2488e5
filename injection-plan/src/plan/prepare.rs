//! Plans the programs of the host that bring devices into the state that a container
//! requests (`[prepare]` in a class file).

use std::path::PathBuf;

use device_class::class::{DeviceClass, PairSpec, PathTemplateError, Prepare};
use device_class::discover::Device;
use device_class::template::Attributes;
use serde::Serialize;

use super::{Action, PlanError};
use crate::request::{Pair, Request};

/// One run of the preparing program for one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preparation {
    /// An absolute path on the host.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The time in seconds after which the program is killed.
    pub timeout: u64,
    /// The file that shows the device's state.
    pub file: PathBuf,
    /// The content that the file must have afterwards, without regard to case.
    pub wanted: String,
}

impl Preparation {
    /// Fills in the templates of the class file for one device. `known` has the device's
    /// attributes and the requested value. Arguments that are empty afterwards are left
    /// out.
    fn from_spec(
        prepare: &Prepare,
        device: &Device,
        known: &Attributes,
    ) -> Result<Self, PathTemplateError> {
        let arguments = prepare
            .arguments
            .iter()
            .map(|argument| argument.fill(known))
            .filter(|argument| !argument.as_ref().is_ok_and(String::is_empty));
        Ok(Preparation {
            program: prepare.program.fill(known)?,
            arguments: arguments.collect::<Result<_, _>>()?,
            timeout: prepare.timeout.get().as_secs(),
            file: device
                .state
                .iter()
                .map(|state| state.path.clone())
                .collect(),
            wanted: prepare.equals.fill(known)?,
        })
    }
}

/// Returns the preparations that are needed before the container gets its devices. Each pair of
/// variables in the request is assigned to one device. A device that is already in the requested
/// state is preferred, and needs no preparation.
pub(super) fn plan_preparations<'a>(
    class: &DeviceClass,
    request: &Request,
    devices: &[&'a Device],
) -> Result<Vec<(&'a Device, Action)>, PlanError> {
    let (Some(prepare), Some(spec)) = (&class.spec.prepare, &class.spec.request.pairs) else {
        return Ok(Vec::new());
    };
    let mut free = devices.to_vec();
    let mut waiting = Vec::new();
    for pair in &request.pairs {
        match take_first(&mut free, |device| is_ready(device, pair, spec, prepare))? {
            Some(_) => {}
            None => waiting.push(pair),
        }
    }
    let mut actions = Vec::new();
    for pair in waiting {
        let is_suitable = |device: &Device| is_meant(device, pair, spec);
        let device = take_first(&mut free, is_suitable)?.ok_or_else(|| PlanError::NoPartner {
            env: pair.env.clone(),
            select: pair.select.clone(),
            class: class.name.to_string(),
        })?;
        let known = with_value(device, pair, spec);
        let preparation = Preparation::from_spec(prepare, device, &known)
            .map_err(|error| template_error(device, error))?;
        actions.push((device, Action::Prepare(preparation)));
    }
    Ok(actions)
}

/// Removes the first device that `fits` accepts from `free`, and returns it.
fn take_first<'a>(
    free: &mut Vec<&'a Device>,
    is_suitable: impl Fn(&Device) -> Result<bool, PlanError>,
) -> Result<Option<&'a Device>, PlanError> {
    for index in 0..free.len() {
        if is_suitable(free[index])? {
            return Ok(Some(free.remove(index)));
        }
    }
    Ok(None)
}

fn is_meant(device: &Device, pair: &Pair, spec: &PairSpec) -> Result<bool, PlanError> {
    let select = spec
        .select
        .fill(&device.attributes)
        .map_err(|error| template_error(device, error.into()))?;
    Ok(spec.canonical(&select) == pair.select)
}

/// Returns whether the pair selects the device, and the device was in the requested state
/// when the host was scanned.
fn is_ready(
    device: &Device,
    pair: &Pair,
    spec: &PairSpec,
    prepare: &Prepare,
) -> Result<bool, PlanError> {
    let known = with_value(device, pair, spec);
    let wanted = prepare
        .equals
        .fill(&known)
        .map_err(|error| template_error(device, error.into()))?;
    let content = device
        .state
        .as_ref()
        .and_then(|state| state.content.as_ref());
    Ok(is_meant(device, pair, spec)?
        && content.is_some_and(|content| content.eq_ignore_ascii_case(&wanted)))
}

fn with_value(device: &Device, pair: &Pair, spec: &PairSpec) -> Attributes {
    let mut known = device.attributes.clone();
    known.insert(spec.attribute.clone(), pair.value.clone());
    known
}

fn template_error(device: &Device, error: PathTemplateError) -> PlanError {
    let user = device.id.to_string();
    PlanError::Template { user, error }
}
