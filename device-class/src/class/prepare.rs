//! A program that brings a device into the state that a container requests (`[prepare]`).

use std::time::Duration;

use serde::Deserialize;

use super::path_template::PathTemplate;
use crate::template::Template;

/// # `[prepare]`
///
/// A program of the host that brings a device into a state that a container requests with the
/// variables of `[request.pairs]`. The hook runs the program while the container is created, with
/// an empty environment. It skips the program if the device is already in this state. After the
/// program has exited, the hook reads the state again to verify it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "prepare"))]
pub struct Prepare {
    /// A template for the absolute path of the program.
    pub program: PathTemplate,
    /// Templates for the arguments of the program. An empty argument is left out.
    #[serde(default)]
    pub arguments: Vec<Template>,
    /// The time in seconds after which the program is killed.
    pub timeout: Timeout,
    /// The file from which the device's state is read: absolute, or relative to the path that the
    /// entry of `[[discover]]` matched.
    #[serde(rename = "file")]
    pub state_file: Template,
    /// A template for the requested state. The device is in this state if the file contains this
    /// text.
    #[serde(rename = "equals")]
    pub expected_state: Template,
}

/// The time limit for all programs together that prepare the devices of one container. The kubelet
/// gives up the start of a container after 120 s (`runtimeRequestTimeout`). The limit is lower, so
/// that the hook can report the reason before that.
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
