//! A program that prepares a device for a container.

use std::time::Duration;

use serde::Deserialize;

use super::path_template::PathTemplate;
use crate::template::Template;

/// # `[prepare]`
///
/// A program of the host that brings a device into the state that a container
/// requests. It is skipped if the device is in that state; after it exits, the
/// state is read again to verify. Its environment is empty.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "prepare"))]
pub struct Prepare {
    /// The program's absolute path.
    pub program: PathTemplate,
    /// Its arguments, by template. One that is empty is omitted.
    #[serde(default)]
    pub arguments: Vec<Template>,
    /// The time after which it is killed, in seconds.
    pub timeout: Timeout,
    /// The file with the device's state: absolute, or relative to the path that
    /// the source matched.
    pub file: Template,
    /// The requested state, by template: what the file must contain.
    pub equals: Template,
    /// `container-start`: the hook runs it while the container is created, with
    /// the values of `[request.pairs]`. `pre-start`: the plugin runs it before
    /// each start of a container, when the kubelet calls PreStartContainer;
    /// templates can only use attributes of the device, the timeout is at most
    /// 30 seconds, and the class must not have `[sharing]`. Default
    /// `container-start`.
    #[serde(default)]
    pub when: When,
}

/// When a device is prepared, and by whom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum When {
    /// By the hook, while the container is made, for what the container requests
    /// in a pair of `[request.pairs]`.
    #[default]
    ContainerStart,
    /// By the plugin, before each start of a container, when the kubelet calls
    /// PreStartContainer. It passes ids and nothing else, so that what is wanted
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
            _ => Err(format!("{seconds} seconds is not between 1 and {MOST}")),
        }
    }
}
