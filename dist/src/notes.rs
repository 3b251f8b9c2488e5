//! Extracts the notes of a release from CHANGELOG.md.

use anyhow::{Result, ensure};

use crate::texts::replace_links;

/// Returns the section of a version from a changelog, without its heading. The notes are published
/// outside of the source tree. Therefore links to files of the tree are replaced by links to the
/// files of that version in the repository.
///
/// # Errors
/// Fails if the version has no section, or if the section is empty. If `requires_date` is true,
/// also fails if the heading has no date.
pub(crate) fn extract_notes(changelog: &str, version: &str, requires_date: bool) -> Result<String> {
    let heading = format!("## {version}");
    let mut lines = changelog.lines();
    let heading_line = lines.find(|line| {
        let heading_suffix = line.strip_prefix(&heading);
        heading_suffix.is_some_and(|heading_suffix| {
            heading_suffix.is_empty() || heading_suffix.starts_with(' ')
        })
    });
    ensure!(
        heading_line.is_some(),
        "CHANGELOG.md has no section \"{heading} (DATE)\"; write it"
    );
    let date = heading_line.unwrap_or_default()[heading.len()..].trim();
    ensure!(
        !requires_date || is_date(date.trim_start_matches('(').trim_end_matches(')')),
        "CHANGELOG.md has the heading \"{heading} {date}\"; write the date of the release, as in \
         (2026-11-21)"
    );
    let section: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    let section = section.join("\n");
    ensure!(
        !section.trim().is_empty(),
        "the section \"{heading}\" of CHANGELOG.md is empty; write it"
    );
    let section = replace_links(section.trim(), |target| {
        let is_external = target.contains("://") || target.starts_with('#');
        (!is_external).then(|| {
            let repository = env!("CARGO_PKG_REPOSITORY");
            format!("{repository}/blob/v{version}/{target}")
        })
    });
    Ok(section + "\n")
}

/// Returns whether a text has the form of a date, such as 2026-11-21. Does not check that such a
/// day exists.
fn is_date(text: &str) -> bool {
    let numbers: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = numbers.iter().map(|number| number.len()).collect();
    let is_number = |number: &&str| number.bytes().all(|byte| byte.is_ascii_digit());
    lengths == [4, 2, 2] && numbers.iter().all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "\
# Changelog

## [Unreleased]

- Later.

## 1.2.0 (2026-11-21)

- New ([page](docs/page.md#part)), and [elsewhere](https://example.com/).

### Part

- More.

## 1.1.0 (not released yet)

- Old.

## 1.0.0 (2026-01-01)
";

    #[test]
    fn notes_are_the_section_of_the_version() {
        let notes = extract_notes(CHANGELOG, "1.2.0", true).unwrap();
        let repository = env!("CARGO_PKG_REPOSITORY");
        let expected = format!(
            "- New ([page]({repository}/blob/v1.2.0/docs/page.md#part)), and \
             [elsewhere](https://example.com/).\n\n### Part\n\n- More.\n"
        );
        assert_eq!(notes, expected);
        assert_eq!(
            extract_notes(CHANGELOG, "1.1.0", false).unwrap(),
            "- Old.\n"
        );
    }

    #[test]
    fn a_missing_empty_or_undated_section_is_refused() {
        for (version, requires_date, refusal) in [
            ("1.3.0", false, "no section \"## 1.3.0 (DATE)\""),
            ("1.2", false, "no section"),
            ("1.1.0", true, "write the date"),
            ("1.0.0", true, "is empty"),
        ] {
            let error = extract_notes(CHANGELOG, version, requires_date).unwrap_err();
            assert!(error.to_string().contains(refusal), "{version}: {error}");
        }
    }
}
