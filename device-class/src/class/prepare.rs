//! What is done with a device before a container gets it.

use std::time::Duration;

use serde::Deserialize;

use super::path_template::PathTemplate;
use crate::template::Template;

/// `[prepare]`: a program of the host that makes a device what the container
/// wants, such as one that programs an FPGA. It runs only for a device that is
/// not so already, and is not believed: the file is read again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    /// The program, an absolute path, without attributes.
    pub program: PathTemplate,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Vec<Template>,
    /// How long it may take, in seconds.
    pub timeout: Timeout,
    /// The file that tells what the device is: absolute, or relative to what
    /// the source's path matched.
    pub file: Template,
    /// What has to be in it.
    pub equals: Template,
}

/// A time in seconds, from 1 to 3600.
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
        match u64::try_from(seconds) {
            Ok(seconds @ 1..=3600) => Ok(Timeout(Duration::from_secs(seconds))),
            _ => Err(format!("{seconds} seconds are not from 1 to 3600")),
        }
    }
}
