//! Defines the name of the registry to which images and the chart are published, such as
//! `registry.example/boathook`.

use std::fmt;
use std::str::FromStr;

/// The host of a registry, with an optional port and path, such as `registry.example/boathook`. The
/// name of an image is appended after a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegistryName(String);

impl FromStr for RegistryName {
    type Err = String;

    /// Parses the name of a registry by the rules for names of images. Refuses a first component
    /// that has neither a dot nor a port and is not `localhost`, because it would mean a path at
    /// Docker Hub.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err("is empty".into());
        }
        if text.contains("://") {
            return Err("has a scheme; write HOST/PATH without it".into());
        }
        if text.contains(char::is_whitespace) {
            return Err("has a blank".into());
        }
        let host = text.split('/').next().unwrap_or_default();
        let (name, port) = host.split_once(':').unwrap_or((host, "0"));
        let is_host_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        if name.is_empty() || !name.chars().all(is_host_char) || port.parse::<u16>().is_err() {
            return Err(format!("has no valid host: \"{host}\""));
        }
        if host == name && !name.contains('.') && name != "localhost" {
            return Err(format!(
                "begins with \"{name}\", which is no host; write HOST/PATH, such as \
                 registry.example/{text}"
            ));
        }
        let components = text.split('/').skip(1);
        for component in components {
            if !is_path_component(component) {
                return Err(format!(
                    "has the part \"{component}\"; parts of a path are lower-case letters and digits, \
                     with single separators between them, and no tag"
                ));
            }
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for RegistryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns whether a text can be a component of the path in the name of an image (OCI distribution
/// spec 1.1, "Pulling manifests"). It has only lower-case letters, digits, and separators between
/// them. A separator is a dot, one or two underscores, or any number of hyphens.
fn is_path_component(text: &str) -> bool {
    let is_letter_or_digit = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut separators = text
        .split(is_letter_or_digit)
        .filter(|part| !part.is_empty());
    text.starts_with(is_letter_or_digit)
        && text.ends_with(is_letter_or_digit)
        && separators.all(|separator| {
            matches!(separator, "." | "_" | "__") || separator.chars().all(|c| c == '-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_without_a_host_or_with_a_scheme_or_tag_is_refused() {
        for (text, refusal) in [
            ("registry.example", None),
            ("registry.example/boathook", None),
            ("registry.example:5000/team/boathook-0", None),
            ("localhost/boathook", None),
            ("127.0.0.1:5000", None),
            ("", Some("is empty")),
            ("https://registry.example", Some("has a scheme")),
            ("registry.example/boat hook", Some("has a blank")),
            (" registry.example", Some("has a blank")),
            ("boathook", Some("is no host; write HOST/PATH")),
            ("team/boathook", Some("is no host; write HOST/PATH")),
            ("registry.example:port/boathook", Some("no valid host")),
            ("registry.example:70000", Some("no valid host")),
            ("/boathook", Some("no valid host")),
            ("registry.example/", Some("has the part \"\"")),
            ("registry.example//a", Some("has the part \"\"")),
            (
                "registry.example/Boathook",
                Some("has the part \"Boathook\""),
            ),
            ("registry.example/boathook:0.1.0", Some("has the part")),
            ("registry.example/boathook@sha256:0", Some("has the part")),
            ("registry.example/a..b", Some("has the part")),
            ("registry.example/a._b", Some("has the part")),
            ("registry.example/a___b", Some("has the part")),
            ("registry.example/-a", Some("has the part")),
            ("registry.example/a__b/c--d.e_f", None),
        ] {
            match (text.parse::<RegistryName>(), refusal) {
                (Ok(name), None) => assert_eq!(name.to_string(), text),
                (Err(error), Some(refusal)) => assert!(error.contains(refusal), "{text}: {error}"),
                (parsed, _) => panic!("{text}: {parsed:?}"),
            }
        }
    }
}
