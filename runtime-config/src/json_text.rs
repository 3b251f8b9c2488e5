//! Checks JSON texts, and reports mistakes as errors of this crate. The crate [`json_text`] edits the
//! texts.

use std::path::Path;

pub(crate) use json_text::{find, members, quote, remove, set};

use crate::error::Error;
use crate::toml_text::line_of;

pub(crate) fn check_object(path: &Path, text: &str) -> Result<(), Error> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(value) if value.is_object() => Ok(()),
        Ok(_) => Err(Error::syntax(path, 1, "not a JSON object")),
        Err(e) => Err(Error::syntax(path, e.line().max(1), &e.to_string())),
    }
}

/// Returns the number of the line at which the value under `keys` begins, counted from 1.
pub(crate) fn line_at(text: &str, keys: &[&str]) -> usize {
    line_of(text, find(text, keys).map_or(0, |value| value.start))
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
            let error = check_object(Path::new("/f.json"), text)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(&format!("/f.json:{line}: ")), "{error}");
        }
    }
}
