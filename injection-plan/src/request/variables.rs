//! The other parts of a request: capabilities, requirements, pairs.

use device_class::inserted;
use std::collections::{BTreeMap, BTreeSet};

use device_class::class::{DeviceClass, PairSpec, RequirementSpec};
use device_class::name::{CapabilityName, DeviceId, ListName, excerpt};

use super::{Environment, MAX_REQUEST, Pair, RequestError};

/// The limit of the numbers of pairs.
const MAX_PAIRS: u32 = 64;

/// How many lists of files a container may name.
pub(super) const MAX_LISTS: usize = 16;

/// How many unknown capabilities a note lists.
const MAX_UNKNOWN: usize = 8;

/// The requirements that are set, by name, unless they are disabled.
pub(super) fn requirements(
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
    let set = env.select(|name| spec.is_one(name));
    let length = set.iter().map(|(_, text)| text.len()).sum();
    if length > MAX_REQUEST {
        return Err(RequestError::TooLong { length });
    }
    Ok(set)
}

/// A boolean, parsed like Go's `strconv.ParseBool`, which the vendors' programs
/// use. Anything else is false.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

pub(super) fn pairs<'a>(
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
        // Both may become parts of paths and command lines.
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

/// The lists of files that a variable names, each once.
pub(super) fn lists(text: &str) -> Result<Vec<ListName>, RequestError> {
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

/// The capabilities of a class that a list may name, and those that take something away.
fn nameable_capabilities(
    class: &DeviceClass,
) -> (BTreeSet<CapabilityName>, BTreeSet<CapabilityName>) {
    let switched = class.spec.request.switched();
    let mut known = class.spec.capabilities();
    known.retain(|name| !switched.contains(name));
    let mut exceptions = class.spec.exceptions();
    exceptions.retain(|name| !switched.contains(name));
    (known, exceptions)
}

/// The same for a message.
pub(super) fn describe_capabilities(class: &DeviceClass) -> String {
    let (known, exceptions) = nameable_capabilities(class);
    let names: Vec<&str> = known
        .union(&exceptions)
        .map(CapabilityName::as_str)
        .collect();
    names.join(", ")
}

/// The capabilities of a request, and those that the class does not know:
/// images list all that they could use, so these are not an error. `all` may be
/// combined with others.
///
/// # Errors
/// The list is too long, or names a forbidden capability.
pub(super) fn capabilities(
    class: &DeviceClass,
    asked: Option<&str>,
) -> Result<(BTreeSet<CapabilityName>, Vec<String>), RequestError> {
    let list = asked.unwrap_or_default();
    if list.len() > MAX_REQUEST {
        return Err(RequestError::TooLong { length: list.len() });
    }
    let items = list.split(',').map(str::trim);
    let items = items.filter(|item| !item.is_empty());
    // As they are written, by their lower case.
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
