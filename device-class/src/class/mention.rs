//! Which class files need not be parsed for a container.

use memchr::{memchr_iter, memmem};

/// Whether a class file could have a request variable that `is_set`.
///
/// It finds the values of all keys that end in `env`, without parsing the file:
/// most containers ask for nothing, and each of them would pay for the parsing of
/// every class. What it does not understand counts as a variable that is set.
pub(crate) fn mentions(text: &str, is_set: impl Fn(&str) -> bool) -> bool {
    let bytes = text.as_bytes();
    // A key can be written with escapes (TOML 1.0, "Keys").
    let has_escapes =
        memchr_iter(b'\\', bytes).any(|at| matches!(bytes.get(at + 1), Some(b'u' | b'U' | b'x')));
    has_escapes
        || memmem::find_iter(bytes, "env").any(|at| match value(&text[at + "env".len()..]) {
            Value::None => false,
            Value::Plain(name) => is_set(name),
            Value::Other => true,
        })
}

/// What a key is followed by.
enum Value<'t> {
    /// It is not a key.
    None,
    /// A string of name characters.
    Plain(&'t str),
    /// Something else.
    Other,
}

fn value(after_key: &str) -> Value<'_> {
    let blank = [' ', '\t'];
    let after_key = after_key.strip_prefix(['"', '\'']).unwrap_or(after_key);
    let Some(value) = after_key.trim_start_matches(blank).strip_prefix('=') else {
        return Value::None;
    };
    let Some(value) = value.trim_start_matches(blank).strip_prefix(['"', '\'']) else {
        return Value::Other;
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let length = value.find(|c| !is_part(c)).unwrap_or(value.len());
    match (length, value[length..].starts_with(['"', '\''])) {
        (1.., true) => Value::Plain(&value[..length]),
        _ => Value::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("capabilities_env = \"X_DEVICES\"", true),
            ("# env = \"X_DEVICES\"", true),
            ("env = 7", true),
            ("env = \"Y_DEVICES\"", false),
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
