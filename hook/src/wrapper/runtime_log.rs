//! Writes errors to the log file that an engine passes with `--log` and `--log-format`. Docker,
//! containerd and podman show the last error in it to their users.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use serde_json::json;

use crate::log;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RuntimeLog {
    pub(super) path: PathBuf,
    /// True if each line is a JSON object, and false if lines are text. Both are formats of
    /// logrus, Go's logging library.
    pub(super) is_json: bool,
}

impl RuntimeLog {
    /// Appends the error `message`. A failure to write is ignored, because the message is written
    /// to stderr too.
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
