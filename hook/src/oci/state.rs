//! Reads the state of a container (OCI runtime specification 1.2, "State"). The runtime passes it
//! to hooks on stdin.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use device_class::name::excerpt;
use host_files::json_text;
use serde::Deserialize;

use super::read_capped;

/// The fields of a container's state that the hook needs. Other fields are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The version of the OCI runtime specification that the runtime implements, such as `1.2.0`.
    pub oci_version: String,
    pub id: String,
    pub status: String,
    /// The pid of the container's init process in the runtime's PID namespace.
    pub pid: i32,
    pub bundle: PathBuf,
    /// The path of the container's root file system. Only crun passes this field. The OCI runtime
    /// specification does not define it.
    pub root: Option<PathBuf>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("the container's state cannot be read from stdin")]
    Read(#[from] io::Error),
    #[error("stdin contains no container state; only a container runtime runs this command")]
    Empty,
    #[error(
        "the container's state on stdin is larger than {} bytes",
        State::MAX_STATE_BYTES
    )]
    TooLarge,
    #[error("stdin contains no container state")]
    Json(#[from] serde_json::Error),
    #[error("the runtime follows version `{}` of the OCI runtime spec; known are 0 and 1", excerpt(.0))]
    UnsupportedVersion(String),
    #[error(
        "it is `{}`; a hook for prestart or createRuntime is called while a container is created",
        excerpt(.0)
    )]
    UnexpectedStatus(String),
    #[error("its process {0} is gone; the runtime may have given up")]
    ProcessEnded(i32),
}

impl State {
    /// The maximum size of a state in bytes (1 MiB). A larger state is an error.
    pub const MAX_STATE_BYTES: usize = 1 << 20;

    pub fn read(source: impl Read) -> Result<Self, StateError> {
        let bytes = read_capped(source, Self::MAX_STATE_BYTES)?.ok_or(StateError::TooLarge)?;
        if bytes.trim_ascii().is_empty() {
            return Err(StateError::Empty);
        }
        Ok(json_text::parse(&bytes)?)
    }

    /// Checks that the hook supports this version of the OCI runtime specification, that the
    /// container is being created, and that its init process exists.
    pub fn check(&self) -> Result<(), StateError> {
        let major_version = self.oci_version.split('.').next().unwrap_or_default();
        if !matches!(major_version, "0" | "1") {
            return Err(StateError::UnsupportedVersion(self.oci_version.clone()));
        }
        // For both stages of the hook, the OCI runtime specification requires `creating`. But crun
        // passes `created` to createRuntime hooks.
        if !matches!(&*self.status, "creating" | "created") {
            return Err(StateError::UnexpectedStatus(self.status.clone()));
        }
        if self.pid <= 0 || !Path::new("/proc").join(self.pid.to_string()).exists() {
            return Err(StateError::ProcessEnded(self.pid));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(version: &str, status: &str, pid: u32) -> String {
        format!(
            r#"{{"ociVersion":"{version}","id":"c1","status":"{status}","pid":{pid},"bundle":"/b","more":[1]}}"#
        )
    }

    #[test]
    fn states_of_the_known_runtimes_are_read() {
        let me = std::process::id();
        for (version, status) in [
            ("1.0.2-dev", "creating"),
            ("1.3.0", "creating"),
            ("1.2.0", "creating"),
            ("1.0", "created"),
        ] {
            let state = State::read(text(version, status, me).as_bytes()).unwrap();
            assert_eq!((state.id.as_str(), state.root), ("c1", None));
        }
    }

    #[test]
    fn what_is_no_state_is_refused_with_its_reason() {
        let me = std::process::id();
        let whole = text("1.0.2", "creating", me);
        let large = format!("{}{}", " ".repeat(State::MAX_STATE_BYTES), whole);
        for (given, reason) in [
            (
                "",
                "stdin contains no container state; only a container runtime",
            ),
            (
                " \n",
                "stdin contains no container state; only a container runtime",
            ),
            (
                &whole[..whole.len() - 9],
                "stdin contains no container state: EOF while parsing",
            ),
            ("[1, 2]", "stdin contains no container state: invalid"),
            (
                "{}",
                "stdin contains no container state: missing field `ociVersion`",
            ),
            (
                &large,
                "the container's state on stdin is larger than 1048576 bytes",
            ),
            (
                &text("2.0.0", "creating", me),
                "the runtime follows version `2.0.0`",
            ),
            (&text("1.0.2", "stopped", me), "it is `stopped`"),
            (&text("1.0.2", "dreaming", me), "it is `dreaming`"),
            (&text("1.0.2", "creating", 0), "its process 0 is gone"),
            (
                &text("1.0.2", "creating", 0x3fff_ffff),
                "its process 1073741823 is gone",
            ),
        ] {
            let error = State::read(given.as_bytes())
                .and_then(|state| state.check())
                .unwrap_err();
            let error = crate::log::format_error_chain(&error);
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
