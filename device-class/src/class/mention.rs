//! A quick look whether a class file could be of interest.

/// The texts between two quotes in a TOML text that could be a variable's name,
/// and some that stand elsewhere. It takes the same time however many variables a
/// container has: in a large namespace there are hundreds.
pub(crate) fn plain_names(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |piece: &&str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !piece.is_empty() && piece.bytes().all(is_part)
    };
    // A search for one character is quick.
    text.split('"').chain(text.split('\'')).filter(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_does_not_mention_a_variable_need_not_be_read() {
        let text = "request = { env = \"X_VISIBLE_DEVICES\", capabilities_env = 'X_CAPS' }\n\
                    # It's \"Y\"\n[device]\nid = 'x-{i}'\n";
        let names: Vec<&str> = plain_names(text).collect();
        for (name, wanted) in [
            ("X_VISIBLE_DEVICES", true),
            ("X_CAPS", true),
            ("Y", true),
            ("VISIBLE_DEVICES", false),
            ("env", false),
        ] {
            assert_eq!(names.contains(&name), wanted, "{name}");
        }
    }
}
