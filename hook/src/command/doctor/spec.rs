//! What `doctor` reads of config.json: what the hook reads, and besides it the
//! hooks and the user.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use super::containers::Container;
use crate::oci::{Bundle, BundleError, capped};

/// A container as its config.json has it.
pub(super) struct ContainerSpec {
    pub(super) bundle: Bundle,
    /// `None` without a config.json: what calls the hook cannot be known then.
    pub(super) hooks: Option<Vec<HookCall>>,
}

/// A hook at a stage at which devices can be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HookCall {
    pub(super) stage: &'static str,
    pub(super) path: PathBuf,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    hooks: Option<Hooks>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hooks {
    #[serde(default)]
    prestart: Option<Vec<Entry>>,
    #[serde(default)]
    create_runtime: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Entry {
    path: PathBuf,
}

impl ContainerSpec {
    /// Of a container's bundle; else of its first process, whose environment is
    /// that of the container; else of variables alone.
    pub(super) fn of(container: &Container, env: &[String]) -> Result<Self, BundleError> {
        if let Some(directory) = &container.bundle {
            return Self::read(directory);
        }
        let (root, env) = match container.pid {
            None => (PathBuf::from("/"), env.to_vec()),
            Some(pid) => {
                let process = Path::new("/proc").join(pid.to_string());
                let text = fs::read(process.join("environ")).unwrap_or_default();
                let entries = text.split(|byte| *byte == 0);
                let entries = entries.map(|entry| String::from_utf8_lossy(entry).into_owned());
                (process.join("root"), entries.collect())
            }
        };
        let config = json!({"root": {"path": root}, "process": {"env": env}});
        let text = config.to_string();
        Ok(ContainerSpec {
            bundle: Bundle::parse(&root, &root, text.as_bytes())?,
            hooks: None,
        })
    }

    fn read(directory: &Path) -> Result<Self, BundleError> {
        let path = directory.join("config.json");
        let unreadable = |error| BundleError::Read {
            path: path.clone(),
            error,
        };
        let file = super::containers::open(&path).map_err(unreadable)?;
        let bytes = capped(file, Bundle::MAX).map_err(unreadable)?;
        let bytes = bytes.ok_or_else(|| BundleError::TooLarge(path.clone()))?;
        let bundle = Bundle::parse(directory, &path, &bytes)?;
        let config: Config = serde_json::from_slice(&bytes).map_err(|error| {
            let path = path.clone();
            BundleError::Json { path, error }
        })?;
        let hooks = config.hooks.unwrap_or_default();
        let stages = [
            ("prestart", hooks.prestart),
            ("createRuntime", hooks.create_runtime),
        ];
        let calls = stages.into_iter().flat_map(|(stage, entries)| {
            let entries = entries.unwrap_or_default().into_iter();
            entries.map(move |Entry { path }| HookCall { stage, path })
        });
        Ok(ContainerSpec {
            bundle,
            hooks: Some(calls.collect()),
        })
    }
}
