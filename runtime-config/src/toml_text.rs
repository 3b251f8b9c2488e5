//! Edits TOML texts without changing any other byte. An edit can be undone without a record of the
//! previous text.
//!
//! Whole tables are added as one block between two marker comments. A single key in a user's table
//! is added as a line with a marker comment at its end. If this line replaces another line, the old
//! line is kept below it as a comment. The path of a drop-in that was added to a list has no
//! marker, because its file name belongs to Boathook. [`strip_edits`] undoes all these edits:
//! `strip_edits(edit(text)) == text`. If the administrator changes the edited text, the changes
//! stay, with Boathook's lines on which they depend.

mod edit;
mod strip;

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml_edit::{Document, Item, TomlError};

use crate::error::Error;
use crate::snapshot::Snapshot;

pub(crate) use edit::{add_to_list, append_block, format_managed_file, insert_line, set_key};
pub(crate) use strip::{VERSIONED_KEYS, strip_edits};

/// The first line of a block that Boathook adds to an existing file.
const BLOCK_BEGIN: &str = "# boathook: begin (written by boathook-init, which also removes it)";
/// The first line of a block that is the whole content of a file that Boathook created.
const FILE_BLOCK_BEGIN: &str =
    "# boathook: begin of file (written by boathook-init, which also removes it)";
const BLOCK_END: &str = "# boathook: end";
/// The marker comment at the end of a line that Boathook added to a table.
const ADDED_LINE_SUFFIX: &str = " # boathook: added";
/// The prefix of a comment that keeps the line which Boathook's line replaces.
const REPLACED_LINE_PREFIX: &str = "# boathook: was: ";

/// The file name of every configuration file that only Boathook writes, without the extension.
pub(crate) const BOATHOOK_FILE_STEM: &str = "99-boathook";

/// Parses the text of the TOML file `path`. If there is a syntax error, the error has the line
/// number.
pub(crate) fn parse_document<'t>(path: &Path, text: &'t str) -> Result<Document<&'t str>, Error> {
    Document::parse(text).map_err(|error| {
        let (line, message) = describe_parse_error(text, &error);
        Error::new_syntax_error(path, line, &message)
    })
}

/// Returns the number of the line at which the parser failed, and the parser's message.
pub(crate) fn describe_parse_error(text: &str, error: &TomlError) -> (usize, String) {
    let line = find_line_number(text, error.span().map_or(0, |span| span.start));
    (line, error.message().replace('\n', ", "))
}

/// Returns the value or table to which `keys` lead, one key for each level of nested tables.
pub(crate) fn get_item<'d>(doc: &'d Document<&str>, keys: &[&str]) -> Option<&'d Item> {
    let mut keys = keys.iter();
    keys.try_fold(doc.as_item(), |item, key| item.get(key))
}

/// Returns an error if one of the files `config_paths` already has the runtime `name` in the table
/// `table_path`.
pub(crate) fn refuse_existing_runtime(
    snapshot: &Snapshot,
    config_paths: &[PathBuf],
    table_path: &[&str],
    name: &str,
) -> Result<(), Error> {
    for path in config_paths {
        let text = snapshot.get_text(path).unwrap_or_default();
        let doc = parse_document(path, text)?;
        let table = get_item(&doc, table_path).and_then(Item::as_table_like);
        if let Some((key, _)) = table.and_then(|table| table.get_key_value(name)) {
            let line = find_line_number(text, key.span().map_or(0, |span| span.start));
            return Err(Error::new_name_conflict(path, line, name));
        }
    }
    Ok(())
}

/// Returns the line number, counted from 1, of the line that contains the byte `offset`.
pub(crate) fn find_line_number(text: &str, offset: usize) -> usize {
    let end = offset.min(text.len());
    1 + text.as_bytes()[..end]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
}

/// Returns the byte range of the line that contains the byte `offset`. The range includes the
/// newline at the end of the line.
fn find_line_range(text: &str, offset: usize) -> Range<usize> {
    let start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[offset..]
        .find('\n')
        .map_or(text.len(), |newline| offset + newline + 1);
    start..end
}

pub(crate) fn quote(text: &str) -> String {
    toml_edit::Value::from(text).to_string().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file() -> PathBuf {
        "/etc/config.toml".into()
    }

    #[test]
    fn syntax_errors_name_the_line() {
        let error = parse_document(&file(), "a = 1\nb = \n")
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("/etc/config.toml:2: "), "{error}");
    }

    /// Texts with unusual line endings and forms of lists.
    const TEXTS: &[&str] = &[
        "",
        "\n",
        "# only a comment",
        "version = 2",
        "version = 2\r\nroot = \"/x\"\r\n",
        "version = 2\nimports = []\n",
        "version = 2\nimports = [\"/a/*.toml\"]",
        "imports = [\n  'a', # first\n  'b', # last\n]\nversion = 2\n",
        "version = 2\n\n[plugins.x.containerd] # here\n  default_runtime_name = \"runc\"  # why\n",
        "[plugins.x.containerd]\n\tdefault_runtime_name = 'runc'",
        "[plugins.x.containerd]\n",
    ];

    #[test]
    fn stripping_restores_every_edited_text() {
        for text in TEXTS {
            let mut edited = add_to_list(&file(), text, "imports", "/c/99-boathook.toml").unwrap();
            if !text.contains("version") && !text.contains("plugins") {
                edited = insert_line(&file(), &edited, "version = 2").unwrap();
            }
            let table = ["plugins", "x", "containerd"];
            let key = "default_runtime_name";
            let with_key = set_key(&file(), &edited, &table, key, "boathook").unwrap();
            edited = with_key.unwrap_or(edited);
            edited = append_block(&edited, "[ours]\na = 1\n");
            assert_ne!(&edited, text);
            assert_eq!(strip_edits(&edited).as_deref(), Some(*text), "{edited}");
        }
    }

    #[test]
    fn stripping_a_file_of_boathook_leaves_nothing() {
        assert_eq!(strip_edits(&format_managed_file("version = 2\n")), None);
        let kept = format!("{}# mine\n", format_managed_file("version = 2\n"));
        assert_eq!(strip_edits(&kept).as_deref(), Some("# mine\n"));
    }

    #[test]
    fn text_of_the_user_around_a_block_is_kept() {
        let edited = append_block("a = 1", "b = 2\n") + "c = 3\n";
        assert_eq!(strip_edits(&edited).as_deref(), Some("a = 1\nc = 3\n"));
        let widened = "imports = [\"/c/99-boathook.toml\", \"/mine\"] # boathook: added\n";
        assert_eq!(
            strip_edits(widened).as_deref(),
            Some("imports = [\"/mine\"]\n")
        );
    }

    /// Pairs of a text that the administrator has edited after an installation, and the text after
    /// the undo.
    #[track_caller]
    fn check_edited_texts(cases: &[(&str, &str)]) {
        for (edited, expected) in cases {
            assert_eq!(strip_edits(edited).as_deref(), Some(*expected), "{edited}");
            assert!(Document::parse(*edited).is_err() || Document::parse(*expected).is_ok());
        }
    }

    #[test]
    fn an_edited_list_of_imports_is_kept() {
        check_edited_texts(&[
            (
                "imports = [\"/c/99-boathook.toml\"] # boathook: added\nversion = 3\n",
                "version = 3\n",
            ),
            (
                "imports = [\"/c/*.toml\"] # boathook: added\nversion = 3\n",
                "imports = [\"/c/*.toml\"]\nversion = 3\n",
            ),
            (
                "imports = [\"/c/mine.toml\"] # boathook: added\n",
                "imports = [\"/c/mine.toml\"]\n",
            ),
            (
                "imports = [\"/c/99-boathook.toml\",] # boathook: added\n",
                "imports = []\n",
            ),
            (
                "\u{feff}imports = [\"/c/99-boathook.toml\",]\n",
                "\u{feff}imports = []\n",
            ),
            (
                "imports = [\n  \"/c/99-boathook.toml\", # last\n]\n",
                "imports = [\n   # last\n]\n",
            ),
            (
                "imports = [\n  \"/c/99-boathook.toml\" # a, b\n  ,\n]\n",
                "imports = [\n   # a, b\n  \n]\n",
            ),
            (
                "imports = [\n  \"/a\", \"/c/99-boathook.toml\",\n]\n",
                "imports = [\n  \"/a\",\n]\n",
            ),
        ]);
    }

    #[test]
    fn an_edited_default_runtime_replaces_the_old_one() {
        let old_line = "# boathook: was:   default_runtime_name = \"runc\"\n";
        for (line, expected) in [
            (
                "default_runtime_name = \"boathook\" # boathook: added",
                "  default_runtime_name = \"runc\"",
            ),
            (
                "  default_runtime_name = \"boathook\"",
                "  default_runtime_name = \"runc\"",
            ),
            (
                "  default_runtime_name = \"kata\" # boathook: added",
                "  default_runtime_name = \"kata\"",
            ),
            ("default_runtime_name='kata'", "default_runtime_name='kata'"),
        ] {
            let edited = format!("[x]\n{line}\n{old_line}a = 1\n");
            let expected = format!("[x]\n{expected}\na = 1\n");
            check_edited_texts(&[(&edited, &expected)]);
        }
        let without_line = format!("[x]\n{old_line}");
        let restored = "[x]\n  default_runtime_name = \"runc\"\n";
        check_edited_texts(&[(&without_line, restored)]);
    }

    #[test]
    fn lines_on_which_text_of_the_user_depends_are_kept() {
        let marked = "version = 2 # boathook: added\n";
        let table = "[plugins.\"io.containerd.grpc.v1.cri\"]\n";
        check_edited_texts(&[
            (&format!("{marked}root = \"/r\"\n"), "root = \"/r\"\n"),
            (
                &append_block(&format!("{marked}{table}"), "[ours]\n"),
                &format!("version = 2\n{table}"),
            ),
            (
                &format!("{marked}disabled_plugins = []\n"),
                "version = 2\ndisabled_plugins = []\n",
            ),
        ]);
        let preamble = "version = 3\nimports = [\"/c/*.toml\"]\n";
        let created = format_managed_file(&format!("{preamble}\n[ours]\na = 1\n"));
        check_edited_texts(&[
            (&format!("{created}# mine\n"), "# mine\n"),
            (&format!("{created}{table}"), &format!("{preamble}{table}")),
            (
                &format!("root = \"/r\"\n{created}"),
                &format!("root = \"/r\"\n{preamble}"),
            ),
        ]);
        let template = format_managed_file("{{ template \"base\" . }}\n\n[ours]\n");
        for text in ["[mine]\n", "# mine\n"] {
            let expected = format!("{{{{ template \"base\" . }}}}\n{text}");
            check_edited_texts(&[(&format!("{template}{text}"), &expected)]);
        }
        assert_eq!(strip_edits(&format!("{template}\n")), None);
    }

    #[test]
    fn a_block_without_an_end_is_not_removed() {
        let broken = format!("{BLOCK_BEGIN}\n[x]\n");
        assert_eq!(strip_edits(&broken).as_deref(), Some(broken.as_str()));
    }

    proptest! {
        #[test]
        fn stripping_a_block_restores_any_text(text in "[ -~\n\r]{0,80}") {
            prop_assume!(strip_edits(&text).as_deref() == Some(text.as_str()));
            let edited = append_block(&text, "[x]\n");
            prop_assert_eq!(strip_edits(&edited), Some(text));
        }
    }
}
