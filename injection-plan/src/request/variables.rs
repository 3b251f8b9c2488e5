//! Reads the variables of a request that do not select devices: capabilities, requirements,
//! pairs and lists of files.

use device_class::inserted;
use std::collections::{BTreeMap, BTreeSet};

use device_class::class::{DeviceClass, PairSpec, RequirementSpec};
use device_class::name::{CapabilityName, DeviceId, ListName, excerpt};

use super::{Environment, MAX_REQUEST, Pair, RequestError};

/// The maximum number of pairs of variables. The names of a pair's variables end with a number below
/// this limit.
const MAX_PAIRS: u32 = 64;

/// The maximum number of file lists that a container may request.
pub(super) const MAX_LISTS: usize = 16;

/// The maximum number of unknown capabilities that a note lists.
const MAX_UNKNOWN: usize = 8;

/// Returns the variables of the container that are requirements, sorted by name. The result
/// is empty if a variable disables the requirements.
pub(super) fn parse_requirements(
    spec: Option<&RequirementSpec>,
    env: &Environment,
) -> Result<Vec<(String, String)>, RequestError> {
    let Some(spec) = spec else {
        return Ok(Vec::new());
    };
    let switch = spec.disable_env.as_ref();
    if switch
        .and_then(|name| env.get(name.as_str()))
        .is_some_and(is_true)
    {
        return Ok(Vec::new());
    }
    let set = env.select(|name| spec.is_requirement(name));
    let length = set.iter().map(|(_, text)| text.len()).sum();
    if length > MAX_REQUEST {
        return Err(RequestError::TooLong { length });
    }
    Ok(set)
}

/// Parses a boolean as Go's `strconv.ParseBool` does, which the vendors' programs use. A
/// text that is not a boolean is false.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

pub(super) fn parse_pairs<'a>(
    spec: Option<&PairSpec>,
    env: impl Fn(&str) -> Option<&'a str>,
) -> Result<Vec<Pair>, RequestError> {
    let mut pairs = Vec::new();
    for number in 0..spec.map_or(0, |_| MAX_PAIRS) {
        let Some(spec) = spec else { break };
        let first = format!("{}{number}", spec.select_env);
        let Some(select) = env(&first) else { continue };
        let second = format!("{}{number}", spec.value_env);
        let value = env(&second).ok_or_else(|| RequestError::Unpaired {
            env: first.clone(),
            partner: second.clone(),
        })?;
        // Both values may become parts of paths and command lines, so only the characters
        // of device ids are allowed.
        for text in [select, value] {
            DeviceId::try_from(text.trim().to_owned()).map_err(RequestError::Name)?;
        }
        pairs.push(Pair {
            env: first,
            select: spec.canonical(select),
            value: spec.canonical(value),
        });
    }
    Ok(pairs)
}

/// Returns the names of the file lists in the value of a variable, each once.
pub(super) fn parse_lists(text: &str) -> Result<Vec<ListName>, RequestError> {
    let length = text.len();
    if length > MAX_REQUEST {
        return Err(RequestError::TooLong { length });
    }
    let names = text.split(',').map(str::trim);
    let mut lists = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        let name = ListName::try_from(name.to_owned()).map_err(RequestError::Name)?;
        if !lists.contains(&name) {
            lists.push(name);
        }
    }
    match lists.len() {
        0..=MAX_LISTS => Ok(lists),
        count => Err(RequestError::TooManyLists { count }),
    }
}

/// Returns two sets of capabilities that a request may list: the capabilities that add
/// something, and the exceptions, which remove something. Capabilities that a variable of
/// their own switches are in neither set.
fn nameable_capabilities(
    class: &DeviceClass,
) -> (BTreeSet<CapabilityName>, BTreeSet<CapabilityName>) {
    let switched = class.spec.request.switchable_capabilities();
    let mut known = class.spec.capabilities();
    known.retain(|name| !switched.contains(name));
    let mut exceptions = class.spec.exceptions();
    exceptions.retain(|name| !switched.contains(name));
    (known, exceptions)
}

/// Returns the names of all capabilities that a request may list, for a message.
pub(super) fn describe_capabilities(class: &DeviceClass) -> String {
    let (known, exceptions) = nameable_capabilities(class);
    let names: Vec<&str> = known
        .union(&exceptions)
        .map(CapabilityName::as_str)
        .collect();
    names.join(", ")
}

/// Returns the capabilities of a request, and the listed names that the class does not
/// have. Images list all capabilities that they could use, so unknown names are an error
/// only if the class says so. The word `all` may be combined with exceptions.
///
/// # Errors
/// Returns an error if the list is too long, or if it names a capability that is forbidden,
/// or unknown to a class that refuses unknown capabilities.
pub(super) fn parse_capabilities(
    class: &DeviceClass,
    asked: Option<&str>,
) -> Result<(BTreeSet<CapabilityName>, Vec<String>), RequestError> {
    let list = asked.unwrap_or_default();
    if list.len() > MAX_REQUEST {
        return Err(RequestError::TooLong { length: list.len() });
    }
    let items = list
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    // The keys are the names in lower case; the values are the names as they were written.
    let mut unknown: BTreeMap<String, &str> =
        inserted(items.map(|item| (item.to_ascii_lowercase(), item)));
    if unknown.is_empty() {
        let defaults = class.spec.request.default_capabilities.iter();
        return Ok((inserted(defaults.cloned()), Vec::new()));
    }
    let forbidden = class.settings.forbid.iter();
    let mut forbidden =
        forbidden.filter(|name| unknown.contains_key(&name.as_str().to_ascii_lowercase()));
    if let Some(capability) = forbidden.next() {
        return Err(RequestError::Forbidden {
            class: class.name.clone(),
            capability: capability.clone(),
        });
    }
    let (known, exceptions) = nameable_capabilities(class);
    let is_all = unknown.remove("all").is_some();
    let mut chosen = BTreeSet::new();
    for name in known.union(&exceptions) {
        let is_named = unknown
            .remove(&name.as_str().to_ascii_lowercase())
            .is_some();
        if is_named || is_all && known.contains(name) {
            chosen.insert(name.clone());
        }
    }
    if let Some((_, name)) = unknown.first_key_value()
        && class.spec.request.refuses_unknown_capabilities
    {
        return Err(RequestError::UnknownCapability {
            name: excerpt(name),
            known: describe_capabilities(class),
        });
    }
    let further = unknown.len().saturating_sub(MAX_UNKNOWN);
    let mut notes: Vec<String> = unknown
        .values()
        .take(MAX_UNKNOWN)
        .map(|n| excerpt(n))
        .collect();
    if further > 0 {
        notes.push(format!("… ({further} more)"));
    }
    Ok((chosen, notes))
}
