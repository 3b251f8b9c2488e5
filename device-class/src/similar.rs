//! Finds the known name that is most similar to a mistyped one, for messages with "did you mean".

use std::cmp::Reverse;

/// Returns the known name that is most similar to a mistyped name, or `None` if no known name is
/// similar enough.
pub fn find_most_similar<'a>(
    mistyped: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let near = known.into_iter().filter_map(|name| {
        let distance = distance(mistyped, name);
        let end = Reverse(common_suffix_length(mistyped, name));
        (distance <= name.len().max(3) / 2).then_some((distance, end, name))
    });
    near.min().map(|(_, _, name)| name)
}

/// Returns the length of the common ending of two names, in bytes.
fn common_suffix_length(one: &str, other: &str) -> usize {
    let pairs = one.bytes().rev().zip(other.bytes().rev());
    pairs.take_while(|(one, other)| one == other).count()
}

/// Returns whether a name that somebody chose could be a mistyped form of a known one. The
/// comparison is stricter than that of [`find_most_similar`], whose names are wrong in any case.
///
/// Common words at the end are not counted: the variables of many vendors end in
/// `_VISIBLE_DEVICES`.
pub fn is_typo(chosen: &str, known: &str) -> bool {
    if chosen == known {
        return false;
    }
    let (chosen, known) = strip_common_words(chosen, known);
    // Names of three letters, such as those of vendors, differ by one letter without being mistyped.
    let allowed = match chosen.len().min(known.len()) {
        0..=3 => 0,
        4..=5 => 1,
        6..=11 => 2,
        _ => 3,
    };
    let bound = chosen.len().abs_diff(known.len()) <= allowed;
    bound && distance(chosen, known) <= allowed
}

/// The minimum length in bytes of a part of a name by which the whole name is found.
const MIN_PART: usize = 6;

/// Returns the known name that somebody probably meant by a name that no device has. The comparison
/// is as strict as [`is_typo`], because the device with the chosen name may only be absent. A part of
/// a known name is accepted, too.
pub fn find_intended<'a>(
    chosen: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let part = chosen.to_ascii_lowercase();
    let is_intended = |name: &&str| {
        let has_part = chosen.len() >= MIN_PART && name.to_ascii_lowercase().contains(&part);
        has_part || is_typo(chosen, name)
    };
    let intended = known.into_iter().filter(is_intended);
    intended.min_by_key(|name| distance(chosen, name))
}

/// Removes the common words at the end of two names. Words are separated by `_`.
fn strip_common_words<'a>(mut one: &'a str, mut other: &'a str) -> (&'a str, &'a str) {
    while let (Some((one_start, one_end)), Some((other_start, other_end))) =
        (one.rsplit_once('_'), other.rsplit_once('_'))
    {
        if !one_end.eq_ignore_ascii_case(other_end) {
            break;
        }
        (one, other) = (one_start, other_start);
    }
    (one, other)
}

/// Returns the edit distance of two names (Damerau-Levenshtein), ignoring case.
fn distance(one: &str, other: &str) -> usize {
    strsim::damerau_levenshtein(&one.to_ascii_lowercase(), &other.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_of_the_known_names_is_found() {
        let known = ["nodes", "numa", "health", "index", "class", "classes"];
        for (mistyped, wanted) in [
            ("noodles", Some("nodes")),
            ("Index", Some("index")),
            ("clases", Some("classes")),
            ("helath", Some("health")),
            ("replicas", None),
        ] {
            assert_eq!(find_most_similar(mistyped, known), wanted, "{mistyped}");
        }
    }

    #[test]
    fn the_intended_name_differs_in_few_letters_or_has_the_chosen_one() {
        let known = ["serial-1-2:1.0", "f074cc5adcc9ed11", "a10k8wvb", "0001"];
        for (chosen, wanted) in [
            ("f074cc5adcc9ed12", Some("f074cc5adcc9ed11")),
            ("F074CC5ADCC9ED1", Some("f074cc5adcc9ed11")),
            ("cc5adcc9", Some("f074cc5adcc9ed11")),
            ("a10k8vwb", Some("a10k8wvb")),
            ("cc5ad", None),
            ("9f3ad8e21b44c001", None),
            ("", None),
            ("0003", Some("0001")),
        ] {
            assert_eq!(find_intended(chosen, known), wanted, "{chosen}");
        }
    }

    #[test]
    fn a_variable_of_another_class_is_no_typo() {
        for (chosen, known, wanted) in [
            ("ACME_VISIBLE_DEVICE", "ACME_VISIBLE_DEVICES", true),
            ("acme_visible_devices", "ACME_VISIBLE_DEVICES", true),
            ("AMCE_VISIBLE_DEVICES", "ACME_VISIBLE_DEVICES", true),
            ("ACME-VISIBLE-DEVICES", "ACME_VISIBLE_DEVICES", true),
            ("ACME_VISIBLE_DEVICES", "ACME_VISIBLE_DEVICES", false),
            ("WIDGET_VISIBLE_DEVICES", "ACME_VISIBLE_DEVICES", false),
            ("CUDA_VISIBLE_DEVICES", "AMA_VISIBLE_DEVICES", false),
            ("HIP_VISIBLE_DEVICES", "IX_VISIBLE_DEVICES", false),
            ("ROCR_VISIBLE_DEVICES", "TT_VISIBLE_DEVICES", false),
            ("TPU_VISIBLE_DEVICES", "TPM_VISIBLE_DEVICES", false),
            ("XPU_VISIBLE_DEVICES", "CXPU_VISIBLE_DEVICES", false),
            ("GCU_VISIBLE_DEVICES", "HCU_VISIBLE_DEVICES", false),
            ("tt_visible_devices", "TT_VISIBLE_DEVICES", true),
            ("NVIDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", true),
            ("ACME_DRIVER_VERSION", "ACME_VISIBLE_DEVICES", false),
            ("PATH", "NPU", false),
        ] {
            assert_eq!(is_typo(chosen, known), wanted, "{chosen} {known}");
        }
    }
}
