//! Converts a step to JSON, for the option `--json`.

use runtime_config::Change;
use serde_json::{Value, json};

use crate::step::{Step, is_boathook_file};

impl Step {
    /// Returns a JSON object with `action`, `path`, and further keys that depend on the action. For
    /// a change of an engine's file, the object has the key `diff`. If `is_verbose` is set, a
    /// change of Boathook's own file also has this key.
    pub fn to_json(&self, is_verbose: bool) -> Value {
        let path = self.path();
        match self {
            Self::MakeTree { file, .. } => {
                json!({ "action": "mkdir", "path": path, "files": [file.0] })
            }
            Self::Stage {
                payload,
                staging_dir,
            } => {
                let files: Vec<_> = payload
                    .files()
                    .map(|file| staging_dir.join(file.dir).join(&file.name))
                    .collect();
                json!({ "action": "copy", "path": path, "files": files })
            }
            Self::Publish { staging_dir, .. } => {
                json!({ "action": "rename", "path": path, "from": staging_dir })
            }
            Self::SetLink {
                new_target: Some(target),
                ..
            } => json!({ "action": "link", "path": path, "target": target }),
            Self::SetLink {
                new_target: None, ..
            } => json!({ "action": "unlink", "path": path }),
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
                if is_file && (is_verbose || !is_boathook_file(path)) {
                    step["diff"] = change.to_string().into();
                }
                step
            }
        }
    }
}
