//! A quick look whether a class file could be of interest.

/// Whether a TOML text has `name` as a plain string.
pub(crate) fn mentions(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].bytes().next_back();
        let after = text[at + name.len()..].bytes().next();
        matches!(
            (before, after),
            (Some(b'"'), Some(b'"')) | (Some(b'\''), Some(b'\''))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_does_not_mention_a_variable_need_not_be_read() {
        let text = "request = { env = \"X_VISIBLE_DEVICES\", capabilities_env = 'X_CAPS' }";
        for (name, wanted) in [
            ("X_VISIBLE_DEVICES", true),
            ("X_CAPS", true),
            ("VISIBLE_DEVICES", false),
            ("env", false),
        ] {
            assert_eq!(mentions(text, name), wanted, "{name}");
        }
    }
}
