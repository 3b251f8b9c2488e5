//! Parses the name of a cluster release, such as `kube-system/boathook`.

use std::fmt;
use std::str::FromStr;

/// The maximum length of a name in bytes: 63 for a namespace of Kubernetes, 1 for the slash, and
/// 253 for the name of an object.
pub(crate) const MAX_NAME_BYTES: usize = 63 + 1 + 253;

/// The name of a cluster release, which is the same for all its pods: `NAMESPACE/NAME` of its
/// DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseName(String);

/// The error for a text that is not the name of a cluster release.
#[derive(Debug, thiserror::Error)]
#[error("a release is named by NAMESPACE/NAME, in lower-case letters, digits, - and .")]
pub struct InvalidReleaseName;

impl ReleaseName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ReleaseName {
    type Err = InvalidReleaseName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_allowed =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let is_part = |part: &str| !part.is_empty() && part.chars().all(is_allowed);
        let parts = text.split_once('/');
        let is_name = parts.is_some_and(|(namespace, name)| is_part(namespace) && is_part(name));
        if is_name && text.len() <= MAX_NAME_BYTES {
            Ok(ReleaseName(text.to_owned()))
        } else {
            Err(InvalidReleaseName)
        }
    }
}

impl fmt::Display for ReleaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
