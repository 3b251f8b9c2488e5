//! Converts a step to JSON, for the option `--json`.

use runtime_config::Change;
use serde_json::{Value, json};

use crate::step::{Step, is_own};

impl Step {
    /// Builds a JSON object with `action`, `path`, and further keys that depend on the action. A
    /// change of an engine's file has the key `diff`; a change of Boathook's own files has it only
    /// if `verbose` is set.
    pub fn to_json(&self, verbose: bool) -> Value {
        let path = self.path();
        match self {
            Self::MakeTree { file, .. } => {
                json!({ "action": "mkdir", "path": path, "files": [file.0] })
            }
            Self::Stage { payload, to } => {
                let files: Vec<_> = payload
                    .files()
                    .map(|f| to.join(f.dir).join(&f.name))
                    .collect();
                json!({ "action": "copy", "path": path, "files": files })
            }
            Self::Publish { from, .. } => {
                json!({ "action": "rename", "path": path, "from": from })
            }
            Self::SetLink {
                after: Some(target),
                ..
            } => json!({ "action": "link", "path": path, "target": target }),
            Self::SetLink { after: None, .. } => json!({ "action": "unlink", "path": path }),
            Self::Discard { .. } => json!({ "action": "remove", "path": path }),
            Self::Change(change) => {
                let action = match change {
                    Change::MakeDir { .. } => "mkdir",
                    Change::RemoveDir { .. } => "rmdir",
                    Change::Write { .. } => "write",
                    Change::Remove { .. } => "remove",
                };
                let mut step = json!({ "action": action, "path": path });
                let is_file = matches!(change, Change::Write { .. } | Change::Remove { .. });
                if is_file && (verbose || !is_own(path)) {
                    step["diff"] = change.to_string().into();
                }
                step
            }
        }
    }
}
