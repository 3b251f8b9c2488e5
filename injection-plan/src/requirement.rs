//! What an image requires of a host: `api>=12.4 brand=x,driver>=470`.
//!
//! Alternatives stand with spaces between them, and what an alternative needs
//! with commas. A version is compared number by number, as far as the
//! requirement goes: `12.4` is `=12`.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use device_class::class::WordName;
use device_class::name::excerpt;

/// Why a requirement is not met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    #[error("`{}` is not a requirement such as driver>=470", excerpt(.0))]
    Malformed(String),
    #[error("this host has {host}{}", not_known(.unknown))]
    Unmet {
        /// What the host has, for people.
        host: String,
        /// The names in it that are not known of this host.
        unknown: BTreeSet<String>,
    },
}

fn not_known(unknown: &BTreeSet<String>) -> String {
    if unknown.is_empty() {
        return String::new();
    }
    let unknown: Vec<&str> = unknown.iter().map(String::as_str).collect();
    format!("; not known here: {}", excerpt(&unknown.join(", ")))
}

/// Tests a requirement against what the host has, in one pass over its text.
/// Alternatives that use names which are not known of the host count only where
/// no other could be evaluated: then they are taken to be met as far as they can
/// be told, and the names are given back for a note. An image that runs
/// elsewhere must not be stopped by what cannot be determined, and one that lists
/// what other hardware needs is not met by that.
pub(crate) fn check(
    text: &str,
    host: &BTreeMap<WordName, String>,
) -> Result<Vec<String>, RequirementError> {
    // The unknown names of the alternative that leaves the fewest.
    let mut best: Option<BTreeSet<String>> = None;
    let mut all_unknown = BTreeSet::new();
    let (mut is_met, mut is_evaluated) = (text.trim().is_empty(), false);
    for alternative in text.split_whitespace() {
        let mut unknown = BTreeSet::new();
        let mut holds_all = true;
        for term in alternative.split(',').filter(|term| !term.is_empty()) {
            holds_all &= holds(term, host, &mut unknown)?;
        }
        is_met |= holds_all && unknown.is_empty();
        is_evaluated |= unknown.is_empty();
        all_unknown.extend(unknown.iter().cloned());
        if holds_all && best.as_ref().is_none_or(|best| unknown.len() < best.len()) {
            best = Some(unknown);
        }
    }
    match best {
        _ if is_met => Ok(Vec::new()),
        Some(unknown) if !is_evaluated => Ok(unknown.into_iter().collect()),
        _ => {
            let host = host.iter();
            let host: Vec<_> = host
                .map(|(name, value)| format!("{} {value}", name.as_str()))
                .collect();
            Err(RequirementError::Unmet {
                host: host.join(", "),
                unknown: all_unknown,
            })
        }
    }
}

fn holds(
    term: &str,
    host: &BTreeMap<WordName, String>,
    unknown: &mut BTreeSet<String>,
) -> Result<bool, RequirementError> {
    let malformed = || RequirementError::Malformed(term.to_owned());
    let at = term.find(['=', '!', '<', '>']).ok_or_else(malformed)?;
    let (name, rest) = term.split_at(at);
    let operators = ["!=", "<=", ">=", "=", "<", ">"];
    let (operator, wanted) = operators
        .into_iter()
        .find_map(|operator| Some((operator, rest.strip_prefix(operator)?)))
        .ok_or_else(malformed)?;
    if name.is_empty() || wanted.is_empty() {
        return Err(malformed());
    }
    let Some((_, value)) = host.iter().find(|(known, _)| known.as_str() == name) else {
        unknown.insert(excerpt(name));
        return Ok(true);
    };
    let order = compare(value, wanted);
    Ok(match operator {
        "=" => order == Ordering::Equal,
        "!=" => order != Ordering::Equal,
        "<" => order == Ordering::Less,
        "<=" => order != Ordering::Greater,
        ">" => order == Ordering::Greater,
        _ => order != Ordering::Less,
    })
}

/// Compares the numbers of versions, as many as `wanted` has; other texts as
/// texts.
fn compare(value: &str, wanted: &str) -> Ordering {
    let numbers = |text: &str| -> Option<Vec<u64>> {
        text.split('.').map(|part| part.parse().ok()).collect()
    };
    match (numbers(value), numbers(wanted)) {
        (Some(value), Some(wanted)) => {
            let padded = value.into_iter().chain(std::iter::repeat(0));
            padded.take(wanted.len()).cmp(wanted.iter().copied())
        }
        _ => value.cmp(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shape of what the images of CUDA have in NVIDIA_REQUIRE_CUDA: the
    /// version, then the older branches of the driver for cards that run it with
    /// the libraries of forward compatibility.
    const OF_CUDA_12_4: &str = "cuda>=12.4 brand=tesla,driver>=470,driver<471 \
        brand=unknown,driver>=470,driver<471 brand=nvidia,driver>=470,driver<471 \
        brand=tesla,driver>=535,driver<536 brand=unknown,driver>=535,driver<536";
    const OF_CUDA_12_9: &str = "cuda>=12.9 brand=unknown,driver>=535,driver<536 \
        brand=tesla,driver>=550,driver<551 brand=unknown,driver>=550,driver<551 \
        brand=geforcertx,driver>=550,driver<551";

    #[test]
    fn an_older_driver_is_enough_for_the_brands_that_are_listed_with_it() {
        for (brand, driver, is_met) in [
            ("tesla", "550.54.15", true),
            ("geforcertx", "550.54.15", true),
            ("tesla", "535.261.03", false),
            ("quadro", "550.54.15", false),
            ("tesla", "560.35.03", false),
        ] {
            let host = [("cuda", "12.4"), ("driver", driver), ("brand", brand)];
            let host = host.map(|(n, v)| (WordName::try_from(n.to_owned()).unwrap(), v.to_owned()));
            let found = check(OF_CUDA_12_9, &host.into());
            assert_eq!(found.is_ok(), is_met, "{brand} on {driver}: {found:?}");
        }
    }

    #[test]
    fn a_requirement_is_met_or_reports_what_the_host_has() {
        let host = [("cuda", "12.4"), ("driver", "550.54.15")];
        let host = host.map(|(n, v)| (WordName::try_from(n.to_owned()).unwrap(), v.to_owned()));
        let host = host.into();
        let unmet = "this host has cuda 12.4, driver 550.54.15";
        let unmet_beside_brand = "this host has cuda 12.4, driver 550.54.15; not known here: brand";
        for (text, wanted) in [
            ("", Ok("")),
            ("cuda>=12.4", Ok("")),
            ("cuda>=12.0", Ok("")),
            ("cuda>12", Err(unmet)),
            ("cuda=12", Ok("")),
            ("cuda>=12.8", Err(unmet)),
            ("cuda>=9.0", Ok("")),
            ("cuda>=12.8 driver>=550,driver<551", Ok("")),
            ("cuda>=12.8 driver>=535,driver<536", Err(unmet)),
            (
                "cuda>=13 brand=tesla,driver>=470,driver<471",
                Err(unmet_beside_brand),
            ),
            ("cuda>=13 brand=tesla,driver>=550", Err(unmet_beside_brand)),
            ("brand=tesla,driver>=550", Ok("brand")),
            ("brand=tesla,driver>=560 arch>=7.5", Ok("arch")),
            ("brand=tesla,driver>=560", Err(unmet_beside_brand)),
            ("brand=a,arch>=7 brand=a", Ok("brand")),
            (OF_CUDA_12_4, Ok("")),
            (OF_CUDA_12_9, Err(unmet_beside_brand)),
            ("brand=tesla,driver>=550 cuda>=12", Ok("")),
            ("driver!=550.54.15", Err(unmet)),
            ("driver<=550.54.15", Ok("")),
            ("arch>=7.5", Ok("arch")),
            (
                "cuda",
                Err("`cuda` is not a requirement such as driver>=470"),
            ),
            (
                ">=12",
                Err("`>=12` is not a requirement such as driver>=470"),
            ),
            (
                "cuda>=",
                Err("`cuda>=` is not a requirement such as driver>=470"),
            ),
            (
                "cuda!12",
                Err("`cuda!12` is not a requirement such as driver>=470"),
            ),
        ] {
            let found = check(text, &host).map(|unknown| unknown.join(","));
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), wanted, "{text}");
        }
    }
}
