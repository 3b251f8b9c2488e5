//! Formats the note about the optional files of a class that the host does not have.

use std::borrow::Cow;

const ABSENCE_TEXT: &str = ": optional and not on this host: ";

/// The maximum number of paths in a shortened note. If there are more, the note has only their
/// number.
const MAX_LISTED_PATHS: usize = 3;

pub(super) fn describe_missing_files(owner: &str, paths: &[String]) -> String {
    format!("{owner}{ABSENCE_TEXT}{}", paths.join(", "))
}

/// If a note lists many missing optional files, replaces the list by their number. Every host
/// misses many of them, because a class file lists the files of all versions of a driver. Other
/// notes are returned unchanged.
pub fn shorten_note(note: &str) -> Cow<'_, str> {
    let Some((owner, paths)) = note.split_once(ABSENCE_TEXT) else {
        return note.into();
    };
    match paths.split(", ").count() {
        count if count > MAX_LISTED_PATHS => {
            format!("{owner}: {count} optional files are not on this host (-v names them)").into()
        }
        _ => note.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_optional_files_are_counted() {
        let paths = ["/a", "/b", "/c", "/d"].map(str::to_owned);
        let few = describe_missing_files("gpu", &paths[..3]);
        assert_eq!(few, "gpu: optional and not on this host: /a, /b, /c");
        assert_eq!(shorten_note(&few), few);
        let short = "gpu: 4 optional files are not on this host (-v names them)";
        assert_eq!(shorten_note(&describe_missing_files("gpu", &paths)), short);
        assert_eq!(shorten_note("gpu: another note"), "gpu: another note");
    }
}
