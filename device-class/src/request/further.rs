//! What a container asks for besides devices: capabilities, requirements,
//! pairs.

use std::collections::{BTreeSet, HashMap};

use super::{Pair, RequestError};
use crate::class::{DeviceClass, PairSpec, RequirementSpec};
use crate::name::{CapabilityName, DeviceId, excerpt};

/// The numbers of pairs are below this.
const MAX_PAIRS: u32 = 64;

/// The requirements that are set, by their names, unless they are switched off.
pub(super) fn requirements(
    spec: Option<&RequirementSpec>,
    env: &HashMap<String, String>,
) -> Vec<(String, String)> {
    let Some(spec) = spec else {
        return Vec::new();
    };
    let switch = spec.disable_env.as_ref();
    let off = switch
        .and_then(|name| env.get(name.as_str()))
        .is_some_and(|value| !matches!(value.trim(), "" | "0" | "false"));
    if off {
        return Vec::new();
    }
    let set = env.iter().filter(|(name, _)| spec.is_one(name));
    let mut set: Vec<_> = set
        .map(|(name, text)| (name.clone(), text.clone()))
        .collect();
    set.sort_unstable();
    set
}

/// The pairs that a container has, by their numbers.
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
        // Both may get into paths and command lines.
        for text in [select, value] {
            DeviceId::try_from(text.to_owned()).map_err(RequestError::Pair)?;
        }
        pairs.push(Pair {
            env: first,
            select: select.to_ascii_lowercase(),
            value: value.to_ascii_lowercase(),
        });
    }
    Ok(pairs)
}

/// The capabilities of a request, and those that the class does not know:
/// images ask for all that they could use, so these are no error.
pub(super) fn capabilities(
    class: &DeviceClass,
    asked: Option<&str>,
) -> (BTreeSet<CapabilityName>, Vec<String>) {
    let known = class.spec.capabilities();
    match asked.map(str::trim) {
        None | Some("") => (
            class
                .spec
                .request
                .default_capabilities
                .iter()
                .cloned()
                .collect(),
            Vec::new(),
        ),
        Some("all") => (known, Vec::new()),
        Some(list) => {
            let items = list
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty());
            let exceptions = class.spec.exceptions();
            let nameable: BTreeSet<_> = known.union(&exceptions).cloned().collect();
            let (fits, unknown): (Vec<&str>, Vec<&str>) =
                items.partition(|item| nameable.iter().any(|name| name.as_str() == *item));
            let chosen = nameable
                .into_iter()
                .filter(|name| fits.contains(&name.as_str()))
                .collect();
            (chosen, unknown.into_iter().map(excerpt).collect())
        }
    }
}
