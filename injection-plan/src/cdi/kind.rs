//! The kind of a CDI specification that any program may have written, in JSON or YAML.

use serde::Deserialize;

/// The kind of a specification that another program has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignKind {
    Known(String),
    /// Only a parser of YAML can tell the kind of this text.
    Unclear(String),
}

impl ForeignKind {
    /// Whether engines may find devices of `kind` in the specification. A text whose kind is
    /// unclear has the kind's own letters, unless it writes some of them as escapes.
    pub fn may_be(&self, kind: &str) -> bool {
        match self {
            ForeignKind::Known(known) => known == kind,
            ForeignKind::Unclear(text) => {
                text.contains(kind) || LETTER_ESCAPES.iter().any(|escape| text.contains(escape))
            }
        }
    }
}

/// The escapes by which YAML writes letters, digits and slashes, and a line break in the midst of
/// a word (YAML 1.2.2, 5.7).
const LETTER_ESCAPES: [&str; 6] = ["\\x", "\\u", "\\U", "\\/", "\\\n", "\\\r"];

/// What is read of a specification in JSON, which may be large.
#[derive(Deserialize)]
struct Json {
    // Engines read JSON without regard to case.
    #[serde(alias = "Kind", alias = "KIND")]
    kind: String,
}

/// The value of the key `kind` of a specification in JSON.
pub(super) fn json_kind(text: &str) -> Option<String> {
    let Json { kind } = serde_json::from_str(text).ok()?;
    Some(kind)
}

/// The kind of a specification in YAML, without a parser of YAML, which would be a tenth of
/// `boathook`: known if the key begins a line and its value is plain text.
pub fn kind_without_parser(text: String) -> ForeignKind {
    let lines = text.lines().map(|line| line.trim_start_matches('\u{feff}'));
    let values = lines.filter_map(|line| line.strip_prefix("kind:"));
    let mut values = values.map(str::trim);
    let is_plain = |value: &str| {
        let mut characters = value.chars();
        characters.all(|one| one.is_ascii_alphanumeric() || "._-/".contains(one))
    };
    match (values.next(), values.next()) {
        (Some(value), None) if is_plain(value) && value.contains('/') => {
            ForeignKind::Known(value.to_owned())
        }
        _ => ForeignKind::Unclear(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_in_json_is_known() {
        let text = r#"{"cdiVersion": "0.5.0", "kind": "a.com/b", "devices": [{"kind": "c"}]}"#;
        assert_eq!(json_kind(text).as_deref(), Some("a.com/b"));
        for other in [
            "{}",
            "",
            "[]",
            "kind: a.com/b",
            r#"{"devices": [{"kind": "a.com/b"}]}"#,
        ] {
            assert_eq!(json_kind(other), None, "{other}");
        }
    }
}
