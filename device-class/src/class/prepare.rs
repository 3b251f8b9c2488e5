//! A program that prepares a device for a container.

use std::time::Duration;

use serde::Deserialize;

use super::path_template::PathTemplate;
use crate::template::Template;

/// # `[prepare]`
///
/// A program of the host that brings a device into the state that a container requests by a pair of
/// `[request.pairs]`. The hook runs it while the container is created. The program is skipped if
/// the device is in that state. After it exits, the state is read again to verify it. The
/// environment of the program is empty.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "prepare"))]
pub struct Prepare {
    /// The program's absolute path.
    pub program: PathTemplate,
    /// The arguments of the program, by template. An empty argument is omitted.
    #[serde(default)]
    pub arguments: Vec<Template>,
    /// The time in seconds after which the program is killed.
    pub timeout: Timeout,
    /// The file with the device's state: absolute, or relative to the path that
    /// the source matched.
    #[serde(rename = "file")]
    pub state_file: Template,
    /// The requested state, by template. The file must contain this text.
    #[serde(rename = "equals")]
    pub expected_state: Template,
}

/// The time limit for all programs that prepare the devices of one container together. The kubelet
/// gives up the start of a container after 120 s (`runtimeRequestTimeout`); the limit is lower, so
/// that the hook reports the reason before.
pub const MAX_CONTAINER_START_TIME: Duration = Duration::from_secs(100);

/// The time limit of a program: from 1 second to [`MAX_CONTAINER_START_TIME`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub struct Timeout(Duration);

impl Timeout {
    pub fn get(self) -> Duration {
        self.0
    }

    pub(super) const fn from_seconds(seconds: u64) -> Self {
        Timeout(Duration::from_secs(seconds))
    }
}

impl TryFrom<i64> for Timeout {
    type Error = String;

    fn try_from(seconds: i64) -> Result<Self, String> {
        const MAX_SECONDS: u64 = MAX_CONTAINER_START_TIME.as_secs();
        match u64::try_from(seconds) {
            Ok(seconds @ 1..=MAX_SECONDS) => Ok(Timeout(Duration::from_secs(seconds))),
            _ => Err(format!(
                "{seconds} seconds is not between 1 and {MAX_SECONDS}"
            )),
        }
    }
}
