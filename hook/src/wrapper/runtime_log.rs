//! The log that an engine gives its runtime (`--log` and `--log-format`): what
//! docker, containerd and podman show to their users is its last error.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use serde_json::json;

use crate::log;

/// Where the engine wants to be told, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RuntimeLog {
    pub(super) path: PathBuf,
    /// A JSON object to a line, as logrus writes it; else text for people.
    pub(super) json: bool,
}

impl RuntimeLog {
    /// Adds an error. Where that fails there is still stderr, which has it too.
    pub(super) fn write(&self, message: &str) {
        let (level, time) = ("error", log::now());
        let line = if self.json {
            json!({"level": level, "msg": message, "time": time}).to_string()
        } else {
            format!("time={time:?} level={level} msg={message:?}")
        };
        let _ = File::options()
            .append(true)
            .create(true)
            .open(&self.path)
            .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    }
}
