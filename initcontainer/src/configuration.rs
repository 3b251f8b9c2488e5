//! Plans the installation of `config.toml`.
//!
//! Without the option `--config`, a default file is written once. A requested configuration, such
//! as a cluster's ConfigMap, is written by each installation, so that the hook on the host and the
//! plugin in its container read the same settings. If the administrator wrote or edited the file,
//! it is not changed.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use device_class::config::Config;
use runtime_config::Change;

use crate::host::Host;
use crate::layout::format_default_config;
use crate::manifest::Manifest;
use crate::payload::{CLASSES_DIR, Payload};
use crate::step::Step;

const CONFIG_MODE: u32 = 0o644;

/// The planned change of `config.toml`, and notes for the operator about it.
#[derive(Debug, Default)]
pub(crate) struct ConfigurationPlan {
    pub(crate) steps: Vec<Step>,
    /// The text that this installation writes. `None` means that it does not write the file.
    pub(crate) written_text: Option<String>,
    /// The text of an earlier installation that the new text replaces.
    pub(crate) replaced_text: Option<String>,
    /// A note that the requested configuration is not used, because the administrator wrote the
    /// existing file and its text is different.
    pub(crate) kept_file_note: Option<String>,
    /// A note that the installed class files are not used, because the administrator wrote the
    /// configuration file and it does not name their directory.
    pub(crate) unused_classes_note: Option<String>,
    /// A note that is set if a table `[class.NAME]` of the configuration makes its class unusable,
    /// for example because a new version of the class has another attribute.
    pub(crate) unusable_class_note: Option<String>,
}

impl ConfigurationPlan {
    /// Plans the configuration file. `real_runtime` is the OCI runtime that `boathook-runtime` must
    /// call. `None` means that `boathook-runtime` finds one by itself.
    ///
    /// # Errors
    /// Returns an error if a configuration must name `real_runtime` and does not, and the installer
    /// may not add the line. That is a file of the administrator, or the requested configuration.
    /// Also returns an error if a file cannot be read, or if the configuration does not parse.
    pub(crate) fn plan(
        host: &Host,
        payload: &Payload,
        real_runtime: Option<&Path>,
    ) -> Result<Self> {
        let old_manifest = Manifest::load(host)?.unwrap_or_default();
        let config_path = host.directories().config_path();
        let current_text = host.read(&config_path)?;
        let mut plan = Self::default();
        let requested_text = payload.config_text.as_deref();
        let is_boathook_file = current_text
            .as_ref()
            .is_none_or(|text| old_manifest.has_written_config(text));
        let initial_text = format_default_config(host.directories());
        let mut text = choose_config_text(
            current_text.as_deref(),
            requested_text,
            &old_manifest,
            &initial_text,
        )
        .to_owned();
        if let Some(runtime) = real_runtime
            && parse_runtime_path(&config_path, &text)?.as_deref() != Some(runtime)
        {
            let line = format_runtime_line(runtime);
            text += &format!("\n[runtime]\n{line}  # the default runtime that boathook replaces\n");
            let parsed_path = parse_runtime_path(&config_path, &text).ok().flatten();
            let is_requested = is_boathook_file && requested_text.is_some();
            ensure!(
                is_boathook_file && !is_requested && parsed_path.as_deref() == Some(runtime),
                "boathook-runtime must call {} in place of the default runtime: write `{line}` in \
                 [runtime] of {}, and try again",
                runtime.display(),
                if is_requested {
                    "the given configuration".into()
                } else {
                    config_path.display().to_string()
                }
            );
        }
        if is_boathook_file && current_text.as_ref() != Some(&text) {
            plan.add_file_change(&config_path, current_text, &text);
        } else if let (Some(current_text), Some(requested_text)) = (current_text, requested_text)
            && current_text != requested_text
        {
            plan.kept_file_note = Some(format!(
                "{} was not written by boathook-init and is kept: the hook does not \
                 use the configuration that was given; remove the file to use it",
                config_path.display()
            ));
        }
        if !is_boathook_file {
            plan.unused_classes_note = describe_unused_classes(host, &config_path, &text)?;
        }
        if let Ok(config) = Config::parse(&config_path, &text) {
            let error = payload.find_unusable_table(host, &config, &config_path)?;
            plan.unusable_class_note = error.map(|error| format!("class left out: {error}"));
        }
        // `boathook check` compares this copy of the requested configuration with the configuration
        // in use.
        let copy_path = host.directories().installed_config_path();
        let old_copy_text = host.read(&copy_path)?;
        if !payload.keeps_installed_config {
            let change = Change::from_texts(
                &copy_path,
                old_copy_text.as_deref(),
                requested_text,
                CONFIG_MODE,
            );
            plan.steps.extend(change.map(Step::Change));
        }
        Ok(plan)
    }

    fn add_file_change(&mut self, config_path: &Path, old_text: Option<String>, text: &str) {
        let change = Change::from_texts(config_path, old_text.as_deref(), Some(text), CONFIG_MODE);
        self.steps.extend(change.map(Step::Change));
        self.written_text = Some(text.to_owned());
        self.replaced_text = old_text;
    }
}

/// Returns the OCI runtime that `boathook-runtime` calls after an installation, or `None` if the
/// configuration names none.
///
/// # Errors
/// Returns an error if the configuration cannot be read or has an error.
pub fn find_real_runtime(host: &Host, payload: &Payload) -> Result<Option<PathBuf>> {
    let old_manifest = Manifest::load(host)?.unwrap_or_default();
    let config_path = host.directories().config_path();
    let current_text = host.read(&config_path)?;
    let initial_text = format_default_config(host.directories());
    let text = choose_config_text(
        current_text.as_deref(),
        payload.config_text.as_deref(),
        &old_manifest,
        &initial_text,
    );
    parse_runtime_path(&config_path, text)
}

/// Chooses the text that the configuration file has after an installation. `requested_text`
/// replaces `current_text` only if an earlier installation wrote `current_text`. `initial_text` is
/// used if the host has no configuration file and no text is requested.
fn choose_config_text<'t>(
    current_text: Option<&'t str>,
    requested_text: Option<&'t str>,
    old_manifest: &Manifest,
    initial_text: &'t str,
) -> &'t str {
    match (current_text, requested_text) {
        (None, requested) => requested.unwrap_or(initial_text),
        (Some(current), Some(requested)) if old_manifest.has_written_config(current) => requested,
        (Some(current), _) => current,
    }
}

/// Returns a note if the key `classes` of the configuration `text` does not list the directory of
/// the installed class files. No program reads the class files then.
fn describe_unused_classes(host: &Host, config_path: &Path, text: &str) -> Result<Option<String>> {
    let classes_dir = host.current_link_path().join(CLASSES_DIR);
    let config = Config::parse_with_directories(host.directories(), config_path, text)?;
    Ok((!config.classes.contains(&classes_dir)).then(|| {
        format!(
            "{} was not written by boathook-init and its `classes` do not name {}: the installed \
             class files are not used; add this directory, or remove the key",
            config_path.display(),
            classes_dir.display()
        )
    }))
}

fn parse_runtime_path(config_path: &Path, text: &str) -> Result<Option<PathBuf>> {
    Ok(Config::parse(config_path, text)?.runtime.path)
}

fn format_runtime_line(runtime: &Path) -> String {
    let path = runtime.to_string_lossy();
    format!("path = \"{}\"", path.escape_default())
}
