//! Plans the installation of `/etc/boathook/config.toml`.
//!
//! Without a given configuration, a default file is written once. A given configuration, such as
//! a cluster's ConfigMap, is written at each installation, so that the hook on the host and the
//! plugin in its container read the same settings. A file that somebody else wrote or edited is
//! not changed.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use device_class::config::Config;
use runtime_config::{Change, HostRoot};

use crate::layout::{CONFIG, DEFAULT_CONFIG, GIVEN_CONFIG};
use crate::manifest::Manifest;
use crate::payload::Payload;
use crate::step::Step;

const MODE: u32 = 0o644;

#[derive(Debug, Default)]
pub(crate) struct Configuration {
    pub(crate) steps: Vec<Step>,
    /// The text that this installation writes. `None` means that nothing is written.
    pub(crate) written: Option<String>,
    /// The text of an earlier installation that the new text replaces.
    pub(crate) replaced: Option<String>,
    /// The reason why the given configuration is not written. `None` if there is no such reason.
    pub(crate) kept: Option<String>,
}

impl Configuration {
    /// Plans the configuration file. `real_runtime` is the program that `boathook-runtime` must
    /// call; `None` means that `boathook-runtime` finds the program by itself.
    ///
    /// # Errors
    /// Somebody else wrote the configuration file, and it does not name `real_runtime`.
    pub(crate) fn plan(
        host: &HostRoot,
        payload: &Payload,
        real_runtime: Option<&Path>,
    ) -> Result<Self> {
        let old = Manifest::load(host)?.unwrap_or_default();
        let now = host.read(Path::new(CONFIG))?;
        let mut plan = Self::default();
        let wanted = payload.config.as_deref();
        let is_ours = now.as_ref().is_none_or(|now| old.has_written(now));
        let mut text = text_in_use(now.as_deref(), wanted, &old).to_owned();
        if let Some(runtime) = real_runtime
            && named_runtime(&text)?.as_deref() != Some(runtime)
        {
            let line = runtime_line(runtime);
            text += &format!("\n[runtime]\n{line}  # the default runtime that boathook replaces\n");
            let named = named_runtime(&text).ok().flatten();
            let is_given = is_ours && wanted.is_some();
            ensure!(
                is_ours && !is_given && named.as_deref() == Some(runtime),
                "boathook-runtime must call {} in place of the default runtime: write `{line}` in \
                 [runtime] of {}, and try again",
                runtime.display(),
                if is_given {
                    "the given configuration"
                } else {
                    CONFIG
                }
            );
        }
        if is_ours && now.as_ref() != Some(&text) {
            plan.write(now, &text);
        } else if let (Some(now), Some(wanted)) = (now, wanted)
            && now != wanted
        {
            plan.kept = Some(format!(
                "{CONFIG} was not written by boathook-init and is kept: the hook does not \
                 use the configuration that was given; remove the file to use it"
            ));
        }
        // A copy of the given configuration is kept, so that `boathook check` can compare it
        // with the configuration in use.
        let given = Path::new(GIVEN_CONFIG);
        let before = host.read(given)?;
        if !payload.keeps_config {
            let change = Change::rewrite(given, before.as_deref(), wanted, MODE);
            plan.steps.extend(change.map(Step::Change));
        }
        Ok(plan)
    }

    fn write(&mut self, before: Option<String>, text: &str) {
        let change = Change::rewrite(Path::new(CONFIG), before.as_deref(), Some(text), MODE);
        self.steps.extend(change.map(Step::Change));
        self.written = Some(text.to_owned());
        self.replaced = before;
    }
}

/// Returns the program that `boathook-runtime` calls after an installation, or `None` if the
/// installed configuration names no program.
///
/// # Errors
/// The configuration cannot be read, or has a mistake.
pub fn real_runtime(host: &HostRoot, payload: &Payload) -> Result<Option<PathBuf>> {
    let old = Manifest::load(host)?.unwrap_or_default();
    let now = host.read(Path::new(CONFIG))?;
    named_runtime(text_in_use(now.as_deref(), payload.config.as_deref(), &old))
}

/// Returns the text that the configuration file has after an installation.
fn text_in_use<'t>(now: Option<&'t str>, given: Option<&'t str>, old: &Manifest) -> &'t str {
    match (now, given) {
        (None, given) => given.unwrap_or(DEFAULT_CONFIG),
        (Some(now), Some(given)) if old.has_written(now) => given,
        (Some(now), _) => now,
    }
}

fn named_runtime(text: &str) -> Result<Option<PathBuf>> {
    Ok(Config::parse(Path::new(CONFIG), text)?.runtime.path)
}

fn runtime_line(runtime: &Path) -> String {
    let path = runtime.to_string_lossy();
    format!("path = \"{}\"", path.escape_default())
}
