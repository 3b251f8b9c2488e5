//! Formats the note about optional files of a class that the host lacks.

use std::borrow::Cow;

const ABSENT: &str = ": optional and not on this host: ";

/// The maximum number of paths in a shortened note.
const MAX_SHOWN: usize = 3;

pub(super) fn describe(user: &str, paths: &[String]) -> String {
    format!("{user}{ABSENT}{}", paths.join(", "))
}

/// Returns a note in which a number stands for most of the missing optional files. A class file lists
/// the files of all versions of a driver, so a host always lacks many of them, which is not a fault.
/// Other notes are returned unchanged.
pub fn shorten(note: &str) -> Cow<'_, str> {
    let Some((user, paths)) = note.split_once(ABSENT) else {
        return note.into();
    };
    match paths.split(", ").count() {
        count if count > MAX_SHOWN => {
            format!("{user}: {count} optional files are not on this host (-v names them)").into()
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
        let few = describe("gpu", &paths[..3]);
        assert_eq!(few, "gpu: optional and not on this host: /a, /b, /c");
        assert_eq!(shorten(&few), few);
        let short = "gpu: 4 optional files are not on this host (-v names them)";
        assert_eq!(shorten(&describe("gpu", &paths)), short);
        assert_eq!(shorten("gpu: another note"), "gpu: another note");
    }
}
