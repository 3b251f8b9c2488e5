//! What has to hold for a device to be healthy.

use serde::Deserialize;

use super::condition::Expectation;
use crate::pattern::PathPattern;
use crate::template::Template;

/// One entry of `health`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawHealthCheck")]
pub enum HealthCheck {
    /// Some path matches.
    Exists(PathPattern),
    /// The trimmed content of a file is as expected.
    File {
        /// Absolute, or relative to what the source's path matched.
        file: Template,
        /// What is expected of it.
        expected: Expectation,
    },
    /// The number in a file is under a limit.
    Below {
        /// Absolute, or relative to what the source's path matched.
        file: Template,
        /// The first number that is too much, in the file's own unit.
        limit: i64,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHealthCheck {
    exists: Option<PathPattern>,
    file: Option<Template>,
    equals: Option<String>,
    differs: Option<String>,
    below: Option<i64>,
}

impl TryFrom<RawHealthCheck> for HealthCheck {
    type Error = &'static str;

    fn try_from(raw: RawHealthCheck) -> Result<Self, &'static str> {
        let RawHealthCheck {
            exists,
            file,
            equals,
            differs,
            below,
        } = raw;
        match (exists, file, equals, differs, below) {
            (Some(pattern), None, None, None, None) => Ok(HealthCheck::Exists(pattern)),
            (None, Some(file), Some(wanted), None, None) => Ok(HealthCheck::File {
                file,
                expected: Expectation::OneOf(vec![wanted]),
            }),
            (None, Some(file), None, Some(refused), None) => Ok(HealthCheck::File {
                file,
                expected: Expectation::NoneOf(vec![refused]),
            }),
            (None, Some(file), None, None, Some(limit)) => Ok(HealthCheck::Below { file, limit }),
            _ => Err(
                "a health check is `exists`, or `file` with one of `equals`, `differs`, `below`",
            ),
        }
    }
}
