//! Which class files need not be parsed for a container.

use memchr::arch::all::memchr::One;

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
