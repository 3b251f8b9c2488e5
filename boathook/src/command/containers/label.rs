//! Describes containers in messages for people: by the engine's name and the shortened id.

use std::fmt;
use std::path::Path;

use device_class::name::{SHORT_ID_CHARS, excerpt, shorten_container_id};

use super::{Container, read_pod_name};

impl Container {
    /// Describes the container by its name, if it has one, and its shortened id.
    pub(in crate::command) fn describe(&self, host_root: &Path) -> String {
        let name = self.name(host_root).or_else(|| read_pod_name(self));
        self.join_parts(&format_label(&self.id, name.as_deref()))
    }

    /// Appends the state and the bundle of the container to its label.
    fn join_parts(&self, label: &str) -> String {
        let mut state = match self.pid {
            Some(pid) => format!("pid {pid}"),
            None => "not running".to_owned(),
        };
        if let Some(ended) = &self.ended {
            state += &format!(": {ended}");
        }
        let bundle = self.bundle.as_ref();
        let bundle = bundle.map(|bundle| format!("bundle {}", bundle.display()));
        let label = Some(label.to_owned()).filter(|label| !label.is_empty());
        let parts: Vec<String> = [label, Some(state), bundle].into_iter().flatten().collect();
        parts.join(", ")
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.join_parts(&excerpt(&self.id)))
    }
}

/// Returns the text that names a container to people: its name and the shortened id, or only the id
/// if the container has no other name.
pub(in crate::command) fn format_label(id: &str, name: Option<&str>) -> String {
    match name.filter(|name| *name != id) {
        Some(name) => {
            let short_id: String = id.chars().take(SHORT_ID_CHARS).collect();
            format!("{} ({})", excerpt(name), excerpt(&short_id))
        }
        None => excerpt(&shorten_container_id(id)),
    }
}
