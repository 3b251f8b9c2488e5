//! Writes errors to the log file that an engine names with `--log` and `--log-format`. Docker,
//! containerd and podman show the last error in this file to their users.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use serde_json::json;

use crate::log;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RuntimeLog {
    pub(super) path: PathBuf,
    /// True if each line of the file is a JSON object, false if each line is text. Both are formats
    /// of logrus, a logging library for Go.
    pub(super) is_json: bool,
}

impl RuntimeLog {
    /// Appends the error `message` to the file. If this fails, the failure is ignored, because the
    /// message is also written to stderr.
    #[expect(clippy::disallowed_methods, reason = "the engine names its own file")]
    pub(super) fn write(&self, message: &str) {
        let (level, time) = ("error", log::format_current_time());
        let line = if self.is_json {
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
