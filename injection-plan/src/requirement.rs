//! Checks whether the host meets the requirements of an image, for example `api>=12.4
//! brand=x,driver>=470`.
//!
//! A requirement is a list of alternatives, separated by spaces. An alternative is a list of terms,
//! separated by commas. An alternative is met if all its terms hold. The alternatives are evaluated
//! in order. If one is met, the requirement is met, and the rest is not evaluated.
//!
//! Versions are compared number by number, and a missing number counts as 0. Names and other values
//! are compared without regard to case.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use device_class::name::{RequirementName, excerpt};

/// The values with which an image's requirements are compared, by name. They describe the host and
/// one device. If the container gets no device, the values of a device are `None`, and every term
/// with such a value holds.
pub(crate) type HostValues = BTreeMap<RequirementName, Option<String>>;

/// The comparison operators, in the order in which the vendor's library tries them. The library
/// also accepts the first character of an operator alone, so `!` means `!=`.
const OPERATORS: [&str; 6] = ["=", "!=", "<", "<=", ">", ">="];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    #[error("`{}` is not a requirement such as driver>=470", excerpt(.0))]
    Malformed(String),
    #[error("this host has {host}{}", describe_unknown_names(.unknown_names))]
    Unmet {
        /// The known values of the host, as text for the message, such as `driver 470.1`.
        host: String,
        /// The names in the requirement for which this host has no value.
        unknown_names: BTreeSet<String>,
    },
}

fn describe_unknown_names(unknown_names: &BTreeSet<String>) -> String {
    if unknown_names.is_empty() {
        return String::new();
    }
    let unknown_names: Vec<&str> = unknown_names.iter().map(String::as_str).collect();
    format!("; not known here: {}", excerpt(&unknown_names.join(", ")))
}

/// Checks a requirement against the values of the host. Returns the names for which the host has no
/// value, so that a note can list them as unknown.
///
/// An alternative with an unknown name cannot be evaluated. If every alternative has an unknown
/// name, terms with unknown names are assumed to hold. So an image is not refused only because the
/// host cannot determine a value. If at least one alternative could be evaluated and none is met,
/// the requirement is not met, because the other alternatives are probably about other hardware.
pub(crate) fn check(text: &str, host: &HostValues) -> Result<Vec<String>, RequirementError> {
    check_versions(text, host, None)
}

/// Returns whether the host would meet a requirement if the version `name` had another minor number
/// and the same major number.
pub(crate) fn can_be_met_with_major(text: &str, host: &HostValues, name: &RequirementName) -> bool {
    check_versions(text, host, Some(name)).is_ok()
}

/// Checks a requirement like [`check`]. If `major_only_name` is set, only the major number of the
/// version with this name is compared.
fn check_versions(
    text: &str,
    host: &HostValues,
    major_only_name: Option<&RequirementName>,
) -> Result<Vec<String>, RequirementError> {
    // The unknown names of one alternative, whose other terms are all met. If there are several
    // such alternatives, it is the one with the fewest unknown names.
    let mut fewest_unknown_names: Option<BTreeSet<String>> = None;
    let mut all_unknown_names = BTreeSet::new();
    let mut has_evaluated_alternative = false;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    for alternative in text.split_whitespace() {
        let mut unknown_names = BTreeSet::new();
        let mut are_terms_met = true;
        for term in alternative.split(',').filter(|term| !term.is_empty()) {
            are_terms_met = is_term_met(term, host, major_only_name, &mut unknown_names)?;
            if !are_terms_met {
                break;
            }
        }
        if are_terms_met && unknown_names.is_empty() {
            return Ok(Vec::new());
        }
        has_evaluated_alternative |= unknown_names.is_empty();
        all_unknown_names.extend(unknown_names.iter().cloned());
        let has_fewer = fewest_unknown_names
            .as_ref()
            .is_none_or(|fewest| unknown_names.len() < fewest.len());
        if are_terms_met && has_fewer {
            fewest_unknown_names = Some(unknown_names);
        }
    }
    match fewest_unknown_names {
        Some(unknown_names) if !has_evaluated_alternative => {
            Ok(unknown_names.into_iter().collect())
        }
        _ => {
            let values = host
                .iter()
                .filter_map(|(name, value)| Some((name, value.as_ref()?)));
            let host: Vec<_> = values
                .map(|(name, value)| format!("{} {value}", name.as_str()))
                .collect();
            Err(RequirementError::Unmet {
                host: host.join(", "),
                unknown_names: all_unknown_names,
            })
        }
    }
}

fn is_term_met(
    term: &str,
    host: &HostValues,
    major_only_name: Option<&RequirementName>,
    unknown_names: &mut BTreeSet<String>,
) -> Result<bool, RequirementError> {
    let malformed_error = || RequirementError::Malformed(term.to_owned());
    let is_operator_character = |c: char| "=!<>".contains(c);
    let index = term
        .find(is_operator_character)
        .ok_or_else(malformed_error)?;
    let (name, operator_and_value) = term.split_at(index);
    let required_value = operator_and_value.trim_start_matches(is_operator_character);
    let operator_text = &operator_and_value[..operator_and_value.len() - required_value.len()];
    let operator = OPERATORS
        .iter()
        .find(|operator| operator.starts_with(operator_text))
        .ok_or_else(malformed_error)?;
    if name.is_empty() || required_value.is_empty() {
        return Err(malformed_error());
    }
    let mut values = host.iter();
    let (host_name, value) =
        match values.find(|(host_name, _)| host_name.as_str().eq_ignore_ascii_case(name)) {
            None => {
                unknown_names.insert(excerpt(name));
                return Ok(true);
            }
            Some((_, None)) => return Ok(true),
            Some((host_name, Some(value))) => (host_name, value),
        };
    let Some(version) = parse_version(value) else {
        let is_equal = value.eq_ignore_ascii_case(required_value);
        return match *operator {
            "=" => Ok(is_equal),
            "!=" => Ok(!is_equal),
            _ => Err(malformed_error()),
        };
    };
    let required_version = parse_version(required_value).ok_or_else(malformed_error)?;
    if major_only_name == Some(host_name) {
        let major = version[0];
        return Ok(can_satisfy_with_major(operator, major, &required_version));
    }
    let order = compare_versions(&version, &required_version);
    Ok(match *operator {
        "=" => order == Ordering::Equal,
        "!=" => order != Ordering::Equal,
        "<" => order == Ordering::Less,
        "<=" => order != Ordering::Greater,
        ">" => order == Ordering::Greater,
        _ => order != Ordering::Less,
    })
}

/// Returns whether `operator` and `required_version` accept at least one version with the major
/// number `major`. For `>=12.4`, the major number 12 is enough.
fn can_satisfy_with_major(operator: &str, major: u64, required_version: &[u64]) -> bool {
    match operator {
        "=" => major == required_version[0],
        "!=" => true,
        "<" => compare_versions(&[major], required_version) == Ordering::Less,
        "<=" => compare_versions(&[major], required_version) != Ordering::Greater,
        _ => major >= required_version[0],
    }
}

/// Returns the numbers in a version such as `12.4.1`. Returns `None` if the text is not a version.
fn parse_version(text: &str) -> Option<Vec<u64>> {
    let number_texts = text
        .split('.')
        .filter(|number_text| !number_text.is_empty());
    let numbers: Option<Vec<u64>> = number_texts
        .map(|number_text| number_text.parse().ok())
        .collect();
    numbers.filter(|numbers| !numbers.is_empty())
}

/// Compares two versions. The shorter version is padded with zeros, so 12 equals 12.0.
fn compare_versions(version: &[u64], other_version: &[u64]) -> Ordering {
    let length = version.len().max(other_version.len());
    let pad = |numbers: &[u64]| {
        let mut numbers = numbers.to_vec();
        numbers.resize(length, 0);
        numbers
    };
    pad(version).cmp(&pad(other_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text as CUDA images have it in NVIDIA_REQUIRE_CUDA. The first alternative is the
    /// CUDA version. The others are older driver branches, on which some cards run this
    /// version with the libraries of forward compatibility.
    const OF_CUDA_12_4: &str = "cuda>=12.4 brand=tesla,driver>=470,driver<471 \
        brand=unknown,driver>=470,driver<471 brand=nvidia,driver>=470,driver<471 \
        brand=tesla,driver>=535,driver<536 brand=unknown,driver>=535,driver<536";
    const OF_CUDA_12_9: &str = "cuda>=12.9 brand=unknown,driver>=535,driver<536 \
        brand=tesla,driver>=550,driver<551 brand=unknown,driver>=550,driver<551 \
        brand=geforcertx,driver>=550,driver<551";

    fn values<const N: usize>(values: [(&str, &str); N]) -> HostValues {
        let of = |(name, value): (&str, &str)| {
            let name = RequirementName::try_from(name.to_owned()).unwrap();
            (name, Some(value.to_owned()))
        };
        values.map(of).into()
    }

    /// libnvidia-container (`src/cli/dsl.c`) compares whole versions, accepts names and
    /// brands in any case and `!` alone, and does not read on after an alternative that is
    /// met.
    #[test]
    fn requirements_mean_what_they_mean_to_the_vendor() {
        let host = values([
            ("cuda", "12.4"),
            ("driver", "550.54.15"),
            ("brand", "Tesla"),
        ]);
        for (text, wanted) in [
            ("cuda=12", Some(false)),
            ("cuda>12", Some(true)),
            ("cuda=12.4.0", Some(true)),
            ("cuda<12.4.1", Some(true)),
            ("cuda<=12", Some(false)),
            ("CUDA>=12 Driver>=999", Some(true)),
            ("brand=TESLA", Some(true)),
            ("brand!tesla", Some(false)),
            ("brand>tesla", None),
            ("cuda==12.4", None),
            ("cuda=abc", None),
            ("cuda>=12 nonsense", Some(true)),
            ("cuda>=13 nonsense", None),
            ("cuda>=13,nonsense", Some(false)),
        ] {
            let found = match check(text, &host) {
                Ok(_) => Some(true),
                Err(RequirementError::Unmet { .. }) => Some(false),
                Err(RequirementError::Malformed(_)) => None,
            };
            assert_eq!(found, wanted, "{text}");
        }
        let none = [("brand", None)]
            .map(|(name, value)| (RequirementName::try_from(name.to_owned()).unwrap(), value));
        assert_eq!(check("brand=geforce", &none.into()), Ok(Vec::new()));
    }

    #[test]
    fn an_older_driver_is_enough_for_the_brands_that_are_listed_with_it() {
        for (brand, driver, is_term_met) in [
            ("tesla", "550.54.15", true),
            ("geforcertx", "550.54.15", true),
            ("tesla", "535.261.03", false),
            ("quadro", "550.54.15", false),
            ("tesla", "560.35.03", false),
        ] {
            let host = [("cuda", "12.4"), ("driver", driver), ("brand", brand)];
            let host = values(host);
            let found = check(OF_CUDA_12_9, &host);
            assert_eq!(found.is_ok(), is_term_met, "{brand} on {driver}: {found:?}");
        }
    }

    /// CUDA 12.8 of an image on a driver for CUDA 12.2 is of the same major version, CUDA 13
    /// is not.
    #[test]
    fn another_minor_version_is_told_from_another_major_version() {
        let host = values([
            ("cuda", "12.2"),
            ("driver", "535.247.01"),
            ("brand", "GeForce"),
        ]);
        let cuda = RequirementName::try_from("cuda".to_owned()).unwrap();
        for (text, wanted) in [
            ("cuda>=12.8", true),
            ("CUDA>12.8", true),
            (OF_CUDA_12_9, true),
            ("cuda=12.9", true),
            ("cuda!=12.2", true),
            ("cuda>=12.8,cuda<12.9", true),
            ("cuda<12.1", true),
            ("cuda<=12", true),
            ("cuda<12", false),
            ("cuda<=11.8", false),
            ("cuda=11.8", false),
            ("cuda>=13.0", false),
            ("cuda>=13 brand=tesla,driver>=535,driver<536", false),
            ("cuda>=12.8,driver>=570", false),
            ("driver>=570", false),
            ("cuda>=12.8.x", false),
        ] {
            assert_eq!(can_be_met_with_major(text, &host, &cuda), wanted, "{text}");
        }
    }

    #[test]
    fn a_requirement_is_met_or_reports_what_the_host_has() {
        let host = [("cuda", "12.4"), ("driver", "550.54.15")];
        let host = values(host);
        let unmet = "this host has cuda 12.4, driver 550.54.15";
        let unmet_beside_brand = "this host has cuda 12.4, driver 550.54.15; not known here: brand";
        for (text, wanted) in [
            ("", Ok("")),
            ("cuda>=12.4", Ok("")),
            ("cuda>=12.0", Ok("")),
            ("cuda>12", Ok("")),
            ("cuda=12", Err(unmet)),
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
        ] {
            let found = check(text, &host)
                .map(|unknown| unknown.join(","))
                .map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), wanted, "{text}");
        }
        for text in ["cuda", ">=12", "cuda>="] {
            let wanted = format!("`{text}` is not a requirement such as driver>=470");
            assert_eq!(check(text, &host).unwrap_err().to_string(), wanted);
        }
    }
}
