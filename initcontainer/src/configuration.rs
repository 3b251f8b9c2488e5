//! Plans the installation of `config.toml`.
//!
//! If no configuration is given, a default file is written once. A given configuration, such as a
//! cluster's ConfigMap, is written by each installation, so that the hook on the host and the
//! plugin in its container read the same settings. A file that somebody else wrote or edited is
//! not changed.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use device_class::config::Config;
use runtime_config::Change;

use crate::host::Host;
use crate::layout::default_config;
use crate::manifest::Manifest;
use crate::payload::{CLASSES, Payload};
use crate::step::Step;

const MODE: u32 = 0o644;

/// The planned change of the configuration file.
#[derive(Debug, Default)]
pub(crate) struct Configuration {
    pub(crate) steps: Vec<Step>,
    /// The text that this installation writes. `None` means that it writes none.
    pub(crate) written: Option<String>,
    /// The text of an earlier installation that the new text replaces.
    pub(crate) replaced: Option<String>,
    /// The reason why the given configuration is not written, if it is not.
    pub(crate) kept: Option<String>,
    /// A note that the configuration, which somebody else wrote, leaves out the installed class
    /// files.
    pub(crate) unused_classes: Option<String>,
}

impl Configuration {
    /// Plans the configuration file. `real_runtime` is the runtime that the wrapper must call;
    /// `None` means that the wrapper finds one by itself.
    ///
    /// # Errors
    /// Returns an error if somebody else wrote the configuration file and it does not name
    /// `real_runtime`.
    pub(crate) fn plan(
        host: &Host,
        payload: &Payload,
        real_runtime: Option<&Path>,
    ) -> Result<Self> {
        let old = Manifest::load(host)?.unwrap_or_default();
        let file = host.directories().config();
        let now = host.read(&file)?;
        let mut plan = Self::default();
        let wanted = payload.config.as_deref();
        let is_ours = now.as_ref().is_none_or(|now| old.has_written(now));
        let initial = default_config(host.directories());
        let mut text = text_in_use(now.as_deref(), wanted, &old, &initial).to_owned();
        if let Some(runtime) = real_runtime
            && named_runtime(&file, &text)?.as_deref() != Some(runtime)
        {
            let line = runtime_line(runtime);
            text += &format!("\n[runtime]\n{line}  # the default runtime that boathook replaces\n");
            let named = named_runtime(&file, &text).ok().flatten();
            let is_given = is_ours && wanted.is_some();
            ensure!(
                is_ours && !is_given && named.as_deref() == Some(runtime),
                "boathook-runtime must call {} in place of the default runtime: write `{line}` in \
                 [runtime] of {}, and try again",
                runtime.display(),
                if is_given {
                    "the given configuration".into()
                } else {
                    file.display().to_string()
                }
            );
        }
        if is_ours && now.as_ref() != Some(&text) {
            plan.write(&file, now, &text);
        } else if let (Some(now), Some(wanted)) = (now, wanted)
            && now != wanted
        {
            plan.kept = Some(format!(
                "{} was not written by boathook-init and is kept: the hook does not \
                 use the configuration that was given; remove the file to use it",
                file.display()
            ));
        }
        if !is_ours {
            plan.unused_classes = describe_unused_classes(host, &file, &text)?;
        }
        // `boathook check` compares this copy of the given configuration with the one in use.
        let given = host.directories().given_config();
        let before = host.read(&given)?;
        if !payload.keeps_config {
            let change = Change::rewrite(&given, before.as_deref(), wanted, MODE);
            plan.steps.extend(change.map(Step::Change));
        }
        Ok(plan)
    }

    fn write(&mut self, file: &Path, before: Option<String>, text: &str) {
        let change = Change::rewrite(file, before.as_deref(), Some(text), MODE);
        self.steps.extend(change.map(Step::Change));
        self.written = Some(text.to_owned());
        self.replaced = before;
    }
}

/// Returns the runtime that the wrapper calls after an installation, or `None` if the
/// configuration names none.
///
/// # Errors
/// Returns an error if the configuration cannot be read or has an error.
pub fn real_runtime(host: &Host, payload: &Payload) -> Result<Option<PathBuf>> {
    let old = Manifest::load(host)?.unwrap_or_default();
    let file = host.directories().config();
    let now = host.read(&file)?;
    let initial = default_config(host.directories());
    let text = text_in_use(now.as_deref(), payload.config.as_deref(), &old, &initial);
    named_runtime(&file, text)
}

/// Returns the text of the configuration file after an installation. `initial` is the text for a
/// host without such a file.
fn text_in_use<'t>(
    now: Option<&'t str>,
    given: Option<&'t str>,
    old: &Manifest,
    initial: &'t str,
) -> &'t str {
    match (now, given) {
        (None, given) => given.unwrap_or(initial),
        (Some(now), Some(given)) if old.has_written(now) => given,
        (Some(now), _) => now,
    }
}

/// Returns a note if a configuration does not name the directory of the installed class files.
fn describe_unused_classes(host: &Host, file: &Path, text: &str) -> Result<Option<String>> {
    let installed = host.current().join(CLASSES);
    let config = Config::parse_for(host.directories(), file, text)?;
    Ok((!config.classes.contains(&installed)).then(|| {
        format!(
            "{} was not written by boathook-init and its `classes` do not name {}: the installed \
             class files are not used; add this directory, or remove the key",
            file.display(),
            installed.display()
        )
    }))
}

fn named_runtime(file: &Path, text: &str) -> Result<Option<PathBuf>> {
    Ok(Config::parse(file, text)?.runtime.path)
}

fn runtime_line(runtime: &Path) -> String {
    let path = runtime.to_string_lossy();
    format!("path = \"{}\"", path.escape_default())
}
