//! Formats containers for messages. A container is shown by the name that the engine gave to it,
//! and by its shortened id.

use std::fmt;
use std::path::Path;

use device_class::name::{SHORT_ID_CHARS, excerpt, shorten_container_id};

use super::{Container, read_pod_name};

impl Container {
    /// Describes the container by its label, its state and its bundle, such as
    /// `web (4f1c2a0b9d3e), pid 412, bundle /run/...`.
    pub(in crate::command) fn describe(&self, host_root: &Path) -> String {
        let name = self.name(host_root).or_else(|| read_pod_name(self));
        self.append_state_and_bundle(&format_label(&self.id, name.as_deref()))
    }

    fn append_state_and_bundle(&self, label: &str) -> String {
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
        f.write_str(&self.append_state_and_bundle(&excerpt(&self.id)))
    }
}

/// Returns the name and the shortened id of a container, such as `web (4f1c2a0b9d3e)`. Without a
/// name, or if the name is the id, returns only the id.
pub(in crate::command) fn format_label(id: &str, name: Option<&str>) -> String {
    match name.filter(|name| *name != id) {
        Some(name) => {
            let short_id: String = id.chars().take(SHORT_ID_CHARS).collect();
            format!("{} ({})", excerpt(name), excerpt(&short_id))
        }
        None => excerpt(&shorten_container_id(id)),
    }
}
