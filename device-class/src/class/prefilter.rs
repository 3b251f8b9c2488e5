//! Which class files need not be parsed for a container.

use std::cell::RefCell;
use std::collections::BTreeSet;

use memchr::arch::all::memchr::One;

use crate::strict_toml::EXTENDS;

/// Whether a class file could have a request variable that `is_set`.
///
/// It finds the values of all keys that end in `env`, without parsing the file:
/// most containers request nothing, and each of them would pay for the parsing of
/// every class. What it does not understand counts as a variable that is set. Capabilities
/// are none: they matter only to a container that requests devices, and many images set
/// them.
pub(crate) fn mentions(text: &str, is_set: impl Fn(&str) -> bool) -> bool {
    // The portable searcher: to find a better one for this processor would cost more
    // than it saves, because on a virtual machine each question to the processor ends
    // in the hypervisor.
    let bytes = text.as_bytes();
    // A key can be written with escapes (TOML 1.0, "Keys").
    let has_escapes = One::new(b'\\')
        .iter(bytes)
        .any(|at| matches!(bytes.get(at + 1), Some(b'u' | b'U' | b'x')));
    has_escapes
        || One::new(b'v').iter(bytes).any(|at| {
            bytes[..at].ends_with(b"en")
                && !bytes[..at].ends_with(b"capabilities_en")
                && match value(&text[at + 1..]) {
                    Value::None => false,
                    Value::Plain(name) => is_set(name),
                    Value::Other => true,
                }
        })
}

/// The variables that a class file could have; `None`: only parsing it shows them.
pub(crate) fn variables(text: &str) -> Option<BTreeSet<String>> {
    let names = RefCell::new(BTreeSet::new());
    let is_other = mentions(text, |name| {
        names.borrow_mut().insert(name.to_owned());
        false
    });
    (!is_other).then_some(names.into_inner())
}

/// Whether a class file sets the request variable, so that a class that it extends does
/// not. It is understood only in a table with a header, as one writes it.
pub(crate) fn sets_variable(text: &str) -> bool {
    let lines = text.lines().map(str::trim_start);
    let table = lines.skip_while(|line| !line.starts_with("[request]"));
    let mut keys = table.skip(1).take_while(|line| !line.starts_with('['));
    keys.any(|line| matches!(line.strip_prefix("env").map(value), Some(Value::Plain(_))))
}

/// What a class file extends: the value of a key at the beginning of a line, before all
/// tables. Whether that is what it says is verified when it is parsed.
pub(crate) fn extends(text: &str) -> Option<&str> {
    let lines = text.lines().take_while(|line| !line.starts_with('['));
    let mut values = lines.filter_map(|line| line.strip_prefix(EXTENDS)?.trim().strip_prefix('='));
    let quoted = values.next()?.trim_start();
    let quote = quoted.starts_with(['"', '\'']).then(|| &quoted[..1])?;
    Some(quoted[1..].split_once(quote)?.0)
}

/// What a key is followed by.
enum Value<'t> {
    /// It is not a key.
    None,
    /// A string of name characters.
    Plain(&'t str),
    Other,
}

fn value(after_key: &str) -> Value<'_> {
    let bytes = after_key.as_bytes();
    let is_quote = |at: usize| matches!(bytes.get(at), Some(b'"' | b'\''));
    let length_of = |from: usize, is_part: fn(&u8) -> bool| {
        bytes[from..]
            .iter()
            .take_while(|byte| is_part(byte))
            .count()
    };
    let is_blank: fn(&u8) -> bool = |byte| matches!(byte, b' ' | b'\t');
    let mut at = usize::from(is_quote(0));
    at += length_of(at, is_blank);
    if bytes.get(at) != Some(&b'=') {
        return Value::None;
    }
    at += 1;
    at += length_of(at, is_blank);
    if !is_quote(at) {
        return Value::Other;
    }
    at += 1;
    let length = length_of(at, |byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if length > 0 && is_quote(at + length) {
        Value::Plain(&after_key[at..at + length])
    } else {
        Value::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_class_extends_is_known_without_parsing_it() {
        for (text, wanted) in [
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
            assert_eq!(extends(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_class_is_known_to_have_a_variable_of_its_own() {
        for (text, sets) in [
            ("[request]\nenv = \"X_DEVICES\"\n", true),
            (
                "[request]\ncapabilities_env = 'X_CAPS'\n  env = 'X_DEVICES'",
                true,
            ),
            (
                "[request]\ndefault_capabilities = []\n[device]\nenv = 'X'",
                false,
            ),
            ("[request]\n# env = \"X_DEVICES\"\n", false),
            ("[request]\ncapabilities_env = \"X_CAPS\"", false),
            ("request.env = \"X_DEVICES\"", false),
            ("env = \"X_DEVICES\"", false),
        ] {
            assert_eq!(sets_variable(text), sets, "{text}");
        }
    }

    #[test]
    fn a_class_is_parsed_if_its_variable_could_be_set() {
        for (text, mentioned) in [
            ("request = { env = \"X_DEVICES\" }", true),
            ("env='X_DEVICES'", true),
            ("request.env\t= \"X_DEVICES\"", true),
            ("\"env\" = \"X_DEVICES\"", true),
            ("'env' = 'X_DEVICES'", true),
            ("request.env = \"\"\"X_DEVICES\"\"\"", true),
            ("request.\"\\u0065nv\" = \"X_DEVICES\"", true),
            ("env = \"X\\u005fDEVICES\"", true),
            ("select_env = \"X_DEVICES\"", true),
            ("# env = \"X_DEVICES\"", true),
            ("env = 7", true),
            ("env = \"Y_DEVICES\"", false),
            ("capabilities_env = \"X_DEVICES\"", false),
            ("env_prefix = \"X_DEVICES\"", false),
            ("id = \"X_DEVICES\"", false),
            ("# Its env: X_DEVICES", false),
            ("regex = \"\\\\.env \"", false),
            ("env", false),
            ("", false),
        ] {
            assert_eq!(
                mentions(text, |name| name == "X_DEVICES"),
                mentioned,
                "{text}"
            );
        }
    }
}
