//! The log that an engine gives to its runtime (`--log` and `--log-format`). docker,
//! containerd and podman show the last error in it to their users.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use serde_json::json;

use crate::log;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RuntimeLog {
    pub(super) path: PathBuf,
    /// Whether each line is a JSON object, as logrus writes it. Otherwise lines are text.
    pub(super) json: bool,
}

impl RuntimeLog {
    /// Appends an error. A failure to write is ignored, because the error is also on stderr.
    #[expect(clippy::disallowed_methods, reason = "the engine names its own file")]
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
