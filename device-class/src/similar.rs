//! Suggests the known name that a user probably meant ("did you mean").

use std::cmp::Reverse;

/// Returns the known name that is most similar to a mistyped name, or `None` if no known name is
/// similar enough.
pub fn nearest<'a>(mistyped: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().filter_map(|name| {
        let distance = distance(mistyped, name);
        let end = Reverse(same_at_end(mistyped, name));
        (distance <= name.len().max(3) / 2).then_some((distance, end, name))
    });
    near.min().map(|(_, _, name)| name)
}

/// Returns the length of the common ending of two names, in bytes.
fn same_at_end(one: &str, other: &str) -> usize {
    let pairs = one.bytes().rev().zip(other.bytes().rev());
    pairs.take_while(|(one, other)| one == other).count()
}

/// Whether a name that a user chose could be a mistyped form of a known one. The test is
/// stricter than [`nearest`], which gets only names that are certainly wrong.
pub fn is_typo(chosen: &str, known: &str) -> bool {
    let allowed = match known.len() {
        0..=5 => 1,
        6..=11 => 2,
        _ => 3,
    };
    let bound = chosen.len().abs_diff(known.len()) <= allowed;
    chosen != known && bound && distance(chosen, known) <= allowed
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
            assert_eq!(nearest(mistyped, known), wanted, "{mistyped}");
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
            ("ACME_DRIVER_VERSION", "ACME_VISIBLE_DEVICES", false),
            ("PATH", "NPU", false),
        ] {
            assert_eq!(is_typo(chosen, known), wanted, "{chosen} {known}");
        }
    }
}
