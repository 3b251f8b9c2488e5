//! Finds the known name that is most similar to a mistyped name. Messages show it after "did you
//! mean".

use std::cmp::Reverse;

/// Returns the known name that is most similar to `mistyped_name`, or one that `mistyped_name`
/// abbreviates. Returns `None` if there is no such name: each differs in more than half of its
/// characters.
pub fn find_most_similar<'a>(
    mistyped_name: &str,
    known_names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let candidates = known_names.into_iter().filter_map(|name| {
        let is_abbreviation = is_abbreviation(mistyped_name, name);
        let distance = edit_distance(mistyped_name, name);
        let suffix_length = Reverse(common_suffix_length(mistyped_name, name));
        let is_similar = is_abbreviation || distance <= name.len().max(3) / 2;
        is_similar.then_some((!is_abbreviation, distance, suffix_length, name))
    });
    candidates.min().map(|(_, _, _, name)| name)
}

/// Returns whether each word of `name` is the beginning of the corresponding word of `known_name`,
/// such as `library_dirs` for `library_directories`. Words are separated by `_`, and an `s` at the
/// end of a word is ignored.
fn is_abbreviation(name: &str, known_name: &str) -> bool {
    const MIN_WORD_BYTES: usize = 3;
    let is_beginning = |(word, known_word): (&str, &str)| {
        let singular = word.strip_suffix('s').unwrap_or(word);
        singular.len() >= MIN_WORD_BYTES && known_word.starts_with(singular)
    };
    let [words, known_words] = [name, known_name].map(|name| name.split('_'));
    words.clone().count() == known_words.clone().count() && words.zip(known_words).all(is_beginning)
}

/// Returns the length in bytes of the common ending of two names. If two known names have the same
/// edit distance, the one with the longer common ending is suggested.
fn common_suffix_length(left: &str, right: &str) -> usize {
    let pairs = left.bytes().rev().zip(right.bytes().rev());
    pairs.take_while(|(left, right)| left == right).count()
}

/// Returns whether `input_name` is probably a mistyped form of `known_name`. The comparison is
/// stricter than that of [`find_most_similar`], because here `input_name` may also be the correct
/// name of something else.
///
/// Common words at the end of both names are not compared, because variables of many vendors end
/// with `_VISIBLE_DEVICES`.
pub fn is_typo(input_name: &str, known_name: &str) -> bool {
    if input_name == known_name {
        return false;
    }
    let (input_name, known_name) = strip_common_words(input_name, known_name);
    // Short names, such as those of vendors, often differ in only one letter. So for up to three
    // letters any difference means another name.
    let max_distance = match input_name.len().min(known_name.len()) {
        0..=3 => 0,
        4..=5 => 1,
        6..=11 => 2,
        _ => 3,
    };
    let has_similar_length = input_name.len().abs_diff(known_name.len()) <= max_distance;
    has_similar_length && edit_distance(input_name, known_name) <= max_distance
}

/// The minimum length in bytes of a text that is accepted as a part of a known name.
const MIN_PART_BYTES: usize = 6;

/// Returns the known name that a user probably meant by `input_name`. `input_name` may be a part of
/// the known name. The comparison is as strict as that of [`is_typo`]: no device has the name
/// `input_name` now, but such a device may be added later.
pub fn find_intended_name<'a>(
    input_name: &str,
    known_names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let lowercase_name = input_name.to_ascii_lowercase();
    let is_intended = |name: &&str| {
        let has_part = input_name.len() >= MIN_PART_BYTES
            && name.to_ascii_lowercase().contains(&lowercase_name);
        has_part || is_typo(input_name, name)
    };
    let candidates = known_names.into_iter().filter(is_intended);
    candidates.min_by_key(|name| edit_distance(input_name, name))
}

/// Removes the words that two names have in common at the end. Words are separated by `_`.
fn strip_common_words<'a>(mut left: &'a str, mut right: &'a str) -> (&'a str, &'a str) {
    while let (Some((left_start, left_end)), Some((right_start, right_end))) =
        (left.rsplit_once('_'), right.rsplit_once('_'))
    {
        if !left_end.eq_ignore_ascii_case(right_end) {
            break;
        }
        (left, right) = (left_start, right_start);
    }
    (left, right)
}

/// Returns the Damerau-Levenshtein distance of two names, ignoring case: the number of added,
/// deleted, replaced and swapped characters.
fn edit_distance(left: &str, right: &str) -> usize {
    strsim::damerau_levenshtein(&left.to_ascii_lowercase(), &right.to_ascii_lowercase())
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
            assert_eq!(find_intended_name(chosen, known), wanted, "{chosen}");
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
