//! What is done with a device before a container gets it.

use std::time::Duration;

use serde::Deserialize;

use super::path_template::PathTemplate;
use crate::template::Template;

/// # `[prepare]`
///
/// A program of the host that makes a device what a container wants. It is not
/// run for a device that is so already, and not believed: the file is read
/// again. Its environment is empty.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "prepare"))]
pub struct Prepare {
    /// The program, an absolute path.
    pub program: PathTemplate,
    /// Its arguments, by template.
    #[serde(default)]
    pub arguments: Vec<Template>,
    /// How long it may take, in seconds; then it is killed.
    pub timeout: Timeout,
    /// The file that tells what the device is: absolute, or relative to what
    /// the source's path matched.
    pub file: Template,
    /// What has to be in it, by template.
    pub equals: Template,
    /// `container-start`: the hook runs it while the container is made, for
    /// what the container says by `[request.pairs]`. `pre-start`: the plugin
    /// runs it before each start of a container, when the kubelet asks
    /// (PreStartContainer); then only attributes of the device can be used, the
    /// timeout is at most 30 seconds, and the class shares nothing. Without it
    /// `container-start`.
    #[serde(default)]
    pub when: When,
}

/// When a device is prepared, and by whom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum When {
    /// By the hook, while the container is made, for what the container says
    /// in a pair of `[request.pairs]`.
    #[default]
    ContainerStart,
    /// By the plugin, before each start of a container, when the kubelet calls
    /// PreStartContainer. It tells ids and nothing else, so that what is wanted
    /// can only be made of the device's own attributes.
    PreStart,
}

/// The longest that a program may take at [`When::PreStart`]: the kubelet
/// waits no longer for an answer (kubernetes/kubernetes,
/// `KubeletPreStartContainerRPCTimeoutInSecs`).
pub const MAX_PRE_START: Duration = Duration::from_secs(30);

/// The longest that all programs for one container may take together at
/// [`When::ContainerStart`]. The kubelet gives a container's start 120 s
/// (`runtimeRequestTimeout`), and the reason should be heard before.
pub const MAX_CONTAINER_START: Duration = Duration::from_secs(100);

/// A time in seconds, from 1 to those of [`MAX_CONTAINER_START`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub struct Timeout(Duration);

impl Timeout {
    /// The time.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl TryFrom<i64> for Timeout {
    type Error = String;

    fn try_from(seconds: i64) -> Result<Self, String> {
        const MOST: u64 = MAX_CONTAINER_START.as_secs();
        match u64::try_from(seconds) {
            Ok(seconds @ 1..=MOST) => Ok(Timeout(Duration::from_secs(seconds))),
            _ => Err(format!("{seconds} seconds are not from 1 to {MOST}")),
        }
    }
}
