//! Checks the JSON texts of configuration files, and turns syntax errors into errors of this crate.
//! [`host_files::json_text`] edits JSON texts.

use std::path::Path;

pub(crate) use host_files::json_text::{
    find_value, list_members, quote, remove_member, set_member,
};

use crate::error::Error;
use crate::toml_text::find_line_number;

/// Returns an error unless the text of the file `path` is a JSON object.
pub(crate) fn require_json_object(path: &Path, text: &str) -> Result<(), Error> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(value) if value.is_object() => Ok(()),
        Ok(_) => Err(Error::new_syntax_error(path, 1, "not a JSON object")),
        Err(error) => Err(Error::new_syntax_error(
            path,
            error.line().max(1),
            &error.to_string(),
        )),
    }
}

/// Returns the line number, counted from 1, at which a value begins. `keys` are the keys of the
/// nested objects that lead to the value. If there is no such value, the result is 1.
pub(crate) fn find_line_of_value(text: &str, keys: &[&str]) -> usize {
    find_line_number(text, find_value(text, keys).map_or(0, |value| value.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_is_accepted() {
        for (text, line) in [
            ("[]", 1),
            ("{\n\"a\": 1,\n}", 3),
            ("{} x", 1),
            ("{\"a\": NaN}", 1),
        ] {
            let error = require_json_object(Path::new("/f.json"), text)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(&format!("/f.json:{line}: ")), "{error}");
        }
    }
}
