//! Making the plan.

use super::draft::Draft;
use super::{Authority, Granted, InjectionPlan, PlanError};
use crate::DeviceClass;
use crate::discover::Found;
use crate::request::Request;

/// One request, with what the host has for it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The class.
    pub class: &'a DeviceClass,
    /// The request.
    pub request: &'a Request,
    /// What the host has of the class.
    pub found: &'a Found,
    /// On whose word devices are given.
    pub authority: &'a Authority,
}

/// Makes the plan for all requests of a container. What the spec grants
/// already is left out.
///
/// # Errors
/// A request can't be met in full: no container starts with less than it was
/// promised.
pub fn plan(asked: &[Asked<'_>], granted: &Granted) -> Result<InjectionPlan, PlanError> {
    let mut draft = Draft::default();
    for asked in asked {
        draft.add(asked)?;
    }
    draft.finish(granted)
}
