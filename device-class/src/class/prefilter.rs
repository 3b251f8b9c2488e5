//! Searches the text of a class file without deserializing it. The search tells whether the file
//! must be parsed for a container, which class the file extends, and which variable requests its
//! devices.

use std::iter;

use toml::de::{DeTable, DeValue};

use super::text_search::{find_word, has_byte};
use crate::strict_toml::EXTENDS_KEY;

/// The key in `[request]` whose value is the request variable of a class.
const VARIABLE_KEY: &str = "env";

/// Returns whether a class file must be parsed for a container, because the container may have set
/// the request variable of the class. `is_set` returns whether the container has set a variable.
/// Most containers request no device, and parsing every class file would slow down their start.
///
/// `false` means that the container does not request the class. `true` means that only parsing can
/// decide. A file in which no variable is found is also parsed, so that a mistake in the file is
/// reported.
pub(crate) fn may_be_requested(text: &str, is_set: impl Fn(&str) -> bool) -> bool {
    let mut has_variable = false;
    let offsets = iter::successors(find_word(text, VARIABLE_KEY, 0), |offset| {
        find_word(text, VARIABLE_KEY, offset + VARIABLE_KEY.len())
    });
    for offset in offsets {
        let Some(variable) = find_env_value(text, offset) else {
            continue;
        };
        if is_set(variable) {
            return true;
        }
        has_variable = has_variable || !may_be_comment_or_string(text, offset);
    }
    !has_variable || has_escapes(text)
}

/// Returns the value of a key [`VARIABLE_KEY`] that is at this offset. Only blanks, `=`, quotes,
/// and the line break at the start of a multi-line string may be between the key and its value
/// (TOML 1.1, "Key/Value Pair" and "String"). In a valid file without escapes, one of the keys that
/// this function finds is the request variable's key.
fn find_env_value(text: &str, offset: usize) -> Option<&str> {
    let (text_before_key, text_from_key) = text.split_at(offset);
    if text_before_key.ends_with(|c| is_variable_char(c) || c == '-') {
        return None;
    }
    let text_after_key = &text_from_key[VARIABLE_KEY.len()..];
    let value = text_after_key.trim_start_matches(['"', '\'', '=', ' ', '\t', '\r', '\n']);
    let (name, _) = value.split_once(['"', '\''])?;
    name.chars().all(is_variable_char).then_some(name)
}

/// Returns whether the offset may be in a comment or in a multi-line string. There, the word `env`
/// is not a key. A comment can begin anywhere on a line.
fn may_be_comment_or_string(text: &str, offset: usize) -> bool {
    let text_before = &text[..offset];
    let line = text_before.rsplit('\n').next();
    let has_word = |word| find_word(text_before, word, 0).is_some();
    line.is_some_and(|line| line.contains('#')) || has_word("'''") || has_word("\"\"\"")
}

fn is_variable_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns whether a string or key in the text may have an escape that stands for a character of a
/// name, or may continue on the next line.
fn has_escapes(text: &str) -> bool {
    has_byte(text, b'\\', |offset| {
        let escape = text.as_bytes().get(offset + 1);
        matches!(
            escape,
            Some(b'u' | b'U' | b'x' | b' ' | b'\t' | b'\r' | b'\n')
        )
    })
}

/// Parses a class file and returns its request variable. Skips the parts of the text that have
/// syntax errors, so that a container that requests a class with a broken file can be refused.
pub(crate) fn find_request_variable(text: &str) -> Option<String> {
    let (table, _) = DeTable::parse_recoverable(text);
    let DeValue::Table(request) = table.get_ref().get("request")?.get_ref() else {
        return None;
    };
    let variable = request.get("env")?.get_ref().as_str()?;
    Some(variable.to_owned())
}

/// Returns the name of the class that a class file extends. It is the value of a key `extends` at
/// the beginning of a line, before all tables. The parser checks later that this value is right.
pub(crate) fn find_extended_class(text: &str) -> Option<&str> {
    let text_before_tables = &text[..find_word(text, "\n[", 0).unwrap_or(text.len())];
    // Most class files have no `extends`. Searching the word is faster than looking at each line.
    find_word(text_before_tables, EXTENDS_KEY, 0)?;
    let lines = text_before_tables
        .lines()
        .take_while(|line| !line.starts_with('['));
    let mut values =
        lines.filter_map(|line| line.strip_prefix(EXTENDS_KEY)?.trim().strip_prefix('='));
    let quoted_value = values.next()?.trim_start();
    let quote = quoted_value
        .starts_with(['"', '\''])
        .then(|| &quoted_value[..1])?;
    Some(quoted_value[1..].split_once(quote)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_class_extends_is_known_without_parsing_it() {
        for (text, expected) in [
            ("version = 1\nextends = \"gpu\"\n[request]\n", Some("gpu")),
            ("extends='gpu' # with less memory", Some("gpu")),
            ("extends = \"gp u\"", Some("gp u")),
            ("# extends = \"gpu\"", None),
            ("[device]\nextends = \"gpu\"", None),
            ("extends_all = \"gpu\"", None),
            ("extends = 7", None),
            ("extends = \"gpu", None),
            ("extends", None),
        ] {
            assert_eq!(find_extended_class(text), expected, "{text}");
        }
    }

    /// All ways to write a class file that a container requests by the variable `X_DEVICES`.
    const REQUESTED: [&str; 23] = [
        "[request]\nenv = \"X_DEVICES\"",
        "[request]\r\nenv\t=\t'X_DEVICES'\r\n",
        "[request]\nenv='X_DEVICES'",
        "request = { env = \"X_DEVICES\" }",
        "request = {\n # One line each.\n env = 'X_DEVICES',\n}",
        "request.env = \"X_DEVICES\"",
        "request . env = \"X_DEVICES\"",
        "\"request\".\"env\" = \"X_DEVICES\"",
        "'request' . 'env' = 'X_DEVICES'",
        "request.env = \"\"\"X_DEVICES\"\"\"",
        "request.env = \"\"\"\nX_DEVICES\"\"\"",
        "request.env = '''\r\nX_DEVICES'''",
        "request.env = \"\"\"\\\n   X_DEVICES\"\"\"",
        "request.env = \"\"\"X_DEV\\  \r\n\tICES\"\"\"",
        "request.env = \"X\\u005fDEVICES\"",
        "request.env = \"X\\U0000005FDEVICES\"",
        "request.env = \"X\\x5FDEVICES\"",
        "request.\"\\u0065nv\" = \"X_DEVICES\"",
        "\"requ\\x65st\" = { \"e\\x6ev\" = \"X_DEVICES\" }",
        "[request]\ncapabilities_env = 'env'\nenv = 'X_DEVICES'",
        "# env = 'A'\n[device.env]\nenv = 'B'\n[request]\nenv = 'X_DEVICES'\nlists_env = 'C'",
        "request = { x = \"\"\"\n#\"\"\", env = 'X_DEVICES' }",
        "x = 'env = '\nrequest.env = 'X_DEVICES'",
    ];

    #[test]
    fn a_class_that_is_requested_is_parsed() {
        for text in REQUESTED {
            let parsed: toml::Table = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(
                parsed["request"]["env"].as_str(),
                Some("X_DEVICES"),
                "{text}"
            );
            assert!(may_be_requested(text, |name| name == "X_DEVICES"), "{text}");
            assert_eq!(
                find_request_variable(text).as_deref(),
                Some("X_DEVICES"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_class_is_not_parsed_for_a_container_without_its_variable() {
        for text in [
            "request.env = 'Y_DEVICES'",
            "request.env = 'Y_DEVICES'\n[device]\nenv = { X_DEVICES = '1' }",
            "request.env = 'Y_DEVICES'\nrequest.capabilities_env = 'X_DEVICES'",
            "request.env = 'Y_DEVICES'\nmy-env = 'X_DEVICES'",
            "request.env = 'Y_DEVICES'\nid = 'X_DEVICES' # an env.\n",
            "request.env = 'Y_DEVICES'\nregex = '\\.env \\d'",
        ] {
            assert!(
                !may_be_requested(text, |name| name == "X_DEVICES"),
                "{text}"
            );
        }
    }

    /// Parsing reports the mistake in such a text.
    #[test]
    fn a_text_without_a_variable_is_parsed() {
        for text in [
            "",
            "extends = 'x'",
            "[request]\nenv",
            "[request]\nenv =",
            "[request]\nenv = 'Y_DEVI",
            "[request]\nenv = { A = 'b' }",
            "[request]\nenv = 7",
            "[request]\ncapabilities_env = 'Y_CAPABILITIES'",
            "# env = 'Y_DEVICES'\n[request]\nenv = 'Z_DEV",
            "[request]\nenv = X_DEVICES # such as env = 'Y_DEVICES'",
            "[request]\nenv = \"X_DEVICES\n[[edits]]\nfiles = ['/a'] # not env = 'Y'",
            "description = '''\nsets env = 'Y'\n'''\n[request]\nenv = ['X_DEVICES']",
        ] {
            assert!(may_be_requested(text, |_| false), "{text}");
        }
    }

    #[test]
    fn the_variable_of_a_text_with_mistakes_is_that_of_its_request() {
        for (text, variable) in [
            ("x = \n[request]\nenv = 'A'", Some("A")),
            ("x = 'open\n[request]\nenv = 'A'", Some("A")),
            ("[request]\nenv = 'A'\nenv2 = 'B'\n[device", Some("A")),
            ("[request]\nenv = 'A'\n[device]\nid = '", Some("A")),
            ("[request]\nenv = \"\\u0041\"\n= 1", Some("A")),
            ("request = { env = 'A', noodles = [}", Some("A")),
            ("# env = 'A'\n[request]\n]", None),
            ("[request]\nenv = 7", None),
            ("request = 'A'", None),
            ("env = 'A'", None),
            ("[device]\nenv = 'A'", None),
            ("\u{fffd}", None),
            ("", None),
        ] {
            assert_eq!(find_request_variable(text).as_deref(), variable, "{text}");
        }
    }
}
