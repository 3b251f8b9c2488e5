//! Parses the variables of a request that do not select devices: capabilities, requirements,
//! variable pairs, and file lists.

use device_class::collect_by_insertion;
use std::collections::{BTreeMap, BTreeSet};

use device_class::class::{DeviceClass, EnvPairSpec, RequirementSpec};
use device_class::name::{CapabilityName, DeviceId, ListName, excerpt};

use super::{Environment, MAX_REQUEST_BYTES, RequestError, VariablePair};

/// The maximum number of variable pairs in a request. The variables of a pair end with a number
/// from 0 up to, but not including, this limit.
const MAX_PAIRS: u32 = 64;

/// The maximum number of file lists that a container may request. A request for more is refused.
pub(super) const MAX_FILE_LISTS: usize = 16;

/// The maximum number of unknown capabilities that a note lists. For all others, the note has only
/// their number.
const MAX_LISTED_CAPABILITIES: usize = 8;

/// Returns the variables in which the image states its requirements on the host, sorted by name.
/// The result is empty if another variable of the image disables the requirements.
pub(super) fn parse_requirements(
    spec: Option<&RequirementSpec>,
    env: &Environment,
) -> Result<Vec<(String, String)>, RequestError> {
    let Some(spec) = spec else {
        return Ok(Vec::new());
    };
    let disable_variable = spec.disable_env.as_ref();
    if disable_variable
        .and_then(|name| env.get(name.as_str()))
        .is_some_and(is_true)
    {
        return Ok(Vec::new());
    }
    let requirements = env.select_variables(|name| spec.is_requirement(name));
    let length = requirements.iter().map(|(_, text)| text.len()).sum();
    if length > MAX_REQUEST_BYTES {
        return Err(RequestError::TooLong { length });
    }
    Ok(requirements)
}

/// Returns whether Go's `strconv.ParseBool` accepts a text as true. The vendors' programs use this
/// function.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

pub(super) fn parse_variable_pairs<'a>(
    spec: Option<&EnvPairSpec>,
    get_env: impl Fn(&str) -> Option<&'a str>,
) -> Result<Vec<VariablePair>, RequestError> {
    let mut pairs = Vec::new();
    for number in 0..spec.map_or(0, |_| MAX_PAIRS) {
        let Some(spec) = spec else { break };
        let selector_name = format!("{}{number}", spec.selector_env);
        let Some(selector) = get_env(&selector_name) else {
            continue;
        };
        let state_name = format!("{}{number}", spec.value_env);
        let state = get_env(&state_name).ok_or_else(|| RequestError::UnpairedVariable {
            name: selector_name.clone(),
            missing_name: state_name.clone(),
        })?;
        // Both values can become parts of paths and command lines. So they may have only the
        // characters that device ids may have.
        for text in [selector, state] {
            DeviceId::try_from(text.trim().to_owned()).map_err(RequestError::Name)?;
        }
        pairs.push(VariablePair {
            selector: spec.normalize_value(selector),
            state: spec.normalize_value(state),
            selector_name,
        });
    }
    Ok(pairs)
}

/// Parses the value of the variable that requests file lists. Returns the name of each list once.
pub(super) fn parse_list_names(text: &str) -> Result<Vec<ListName>, RequestError> {
    let length = text.len();
    if length > MAX_REQUEST_BYTES {
        return Err(RequestError::TooLong { length });
    }
    let names = text.split(',').map(str::trim);
    let mut list_names = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        let name = ListName::try_from(name.to_owned()).map_err(RequestError::Name)?;
        if !list_names.contains(&name) {
            list_names.push(name);
        }
    }
    match list_names.len() {
        0..=MAX_FILE_LISTS => Ok(list_names),
        count => Err(RequestError::TooManyLists { count }),
    }
}

/// Returns two sets of capabilities that a request may list: those that add files or nodes, and the
/// exceptions, which remove some of these. A capability is in neither set if a variable of its own
/// requests it.
fn list_requestable_capabilities(
    class: &DeviceClass,
) -> (BTreeSet<CapabilityName>, BTreeSet<CapabilityName>) {
    let switchable_capabilities = class.spec.request.switchable_capabilities();
    let mut capabilities = class.spec.capabilities();
    capabilities.retain(|name| !switchable_capabilities.contains(name));
    let mut exceptions = class.spec.list_excluding_capabilities();
    exceptions.retain(|name| !switchable_capabilities.contains(name));
    (capabilities, exceptions)
}

/// Returns the names of all capabilities that a request may list, as text for a message.
pub(super) fn describe_capabilities(class: &DeviceClass) -> String {
    let (capabilities, exceptions) = list_requestable_capabilities(class);
    let names: Vec<&str> = capabilities
        .union(&exceptions)
        .map(CapabilityName::as_str)
        .collect();
    names.join(", ")
}

/// Parses a list of capabilities. Returns the capabilities that the class has, and the unknown
/// names. Images list all capabilities that they could use, so an unknown name is an error only if
/// the class file says so. The word `all` can be combined with exceptions.
///
/// # Errors
/// Returns an error if the list is too long, if it names a forbidden capability, or if it names an
/// unknown one and the class refuses unknown capabilities.
pub(super) fn parse_capabilities(
    class: &DeviceClass,
    capability_list: Option<&str>,
) -> Result<(BTreeSet<CapabilityName>, Vec<String>), RequestError> {
    let list = capability_list.unwrap_or_default();
    if list.len() > MAX_REQUEST_BYTES {
        return Err(RequestError::TooLong { length: list.len() });
    }
    let items = list
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    // The keys are the names in lower case. The values are the names as the container wrote them.
    let mut remaining_names: BTreeMap<String, &str> =
        collect_by_insertion(items.map(|item| (item.to_ascii_lowercase(), item)));
    if remaining_names.is_empty() {
        let default_capabilities = class.spec.request.default_capabilities.iter();
        return Ok((
            collect_by_insertion(default_capabilities.cloned()),
            Vec::new(),
        ));
    }
    let forbidden_names = class.settings.forbidden_capabilities.iter();
    let mut forbidden_requests = forbidden_names
        .filter(|name| remaining_names.contains_key(&name.as_str().to_ascii_lowercase()));
    if let Some(capability) = forbidden_requests.next() {
        return Err(RequestError::ForbiddenCapability {
            class: class.name.clone(),
            capability: capability.clone(),
        });
    }
    let (additive_capabilities, exceptions) = list_requestable_capabilities(class);
    let lists_all = remaining_names.remove("all").is_some();
    let mut capabilities = BTreeSet::new();
    for name in additive_capabilities.union(&exceptions) {
        let is_listed = remaining_names
            .remove(&name.as_str().to_ascii_lowercase())
            .is_some();
        if is_listed || lists_all && additive_capabilities.contains(name) {
            capabilities.insert(name.clone());
        }
    }
    if let Some((_, name)) = remaining_names.first_key_value()
        && class.spec.request.refuses_unknown_capabilities
    {
        return Err(RequestError::UnknownCapability {
            name: excerpt(name),
            known_capabilities: describe_capabilities(class),
        });
    }
    let omitted_count = remaining_names
        .len()
        .saturating_sub(MAX_LISTED_CAPABILITIES);
    let mut unknown_names: Vec<String> = remaining_names
        .values()
        .take(MAX_LISTED_CAPABILITIES)
        .map(|name| excerpt(name))
        .collect();
    if omitted_count > 0 {
        unknown_names.push(format!("… ({omitted_count} more)"));
    }
    Ok((capabilities, unknown_names))
}
