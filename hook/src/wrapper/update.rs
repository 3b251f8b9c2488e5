//! Adds the device rules of a container to the new resources in an `update` command, because
//! otherwise the container would lose its devices.
//!
//! crun replaces the device rules of a container by the list in the new resources. The list is the
//! engine's own, and lacks the rules that `boathook-runtime` added to config.json at `create`. So
//! the missing rules are read from config.json and added to the list.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use host_files::json_text;
use nix::sys::memfd::{MFdFlags, memfd_create};
use oci_spec::runtime::LinuxDeviceCgroup;
use serde::Deserialize;

use super::WrapperError;
use super::command_line::UpdateCommand;
use super::config_file::ConfigFile;
use crate::attachment::{AttachmentRecord, record_files};
use crate::oci::devices::to_oci_rule;
use crate::oci::{Bundle, Hooks, read_capped};

/// The arguments of the `update` command for the real runtime, and the file of resources to which
/// they refer.
pub(super) struct UpdateArguments {
    pub(super) arguments: Vec<OsString>,
    /// A file in memory that contains the new resources. The real runtime opens it through
    /// `/proc/self/fd`, so it must stay open until the real runtime is executed.
    _resources_file: Option<File>,
}

impl UpdateArguments {
    fn without_changes(arguments: &[OsString]) -> Self {
        UpdateArguments {
            arguments: arguments.to_vec(),
            _resources_file: None,
        }
    }
}

/// The output of the real runtime's `state` command. This module needs only the bundle.
#[derive(Deserialize)]
struct RuntimeStateOutput {
    bundle: PathBuf,
}

/// Returns the arguments for the real runtime. If the new resources lack device rules of the
/// container, the arguments name a new file to which these rules were added. Otherwise the update
/// would revoke the rules. A new file is also needed for resources on stdin, which this function
/// has read.
pub(super) fn add_device_rules(
    update: &UpdateCommand,
    arguments: &[OsString],
    runtime_path: &Path,
    host_root: &Path,
) -> Result<UpdateArguments, WrapperError> {
    let to_error = |error| WrapperError::Resources {
        path: update.resources_path.clone(),
        error,
    };
    let resources_json = read_resources(&update.resources_path).map_err(to_error)?;
    let listed_rules = json_text::list_items(&resources_json, &["devices"]);
    let edited_json = match find_bundle(update, arguments, runtime_path, !listed_rules.is_empty()) {
        Some(bundle) => {
            let record = record_files::find_record(host_root, &update.id.to_string_lossy());
            let record = record.ok().flatten();
            // crun records `/` as the bundle of a container whose devices it mounted in another
            // mount namespace.
            let bundle = match &record {
                Some(record) if !has_config_file(&bundle) => record.bundle_dir.clone(),
                _ => bundle,
            };
            let revoked_rules = list_revoked_rules(record);
            add_missing_rules(&resources_json, &listed_rules, &revoked_rules, &bundle)?
        }
        None => None,
    };
    let is_stdin = update.resources_path == Path::new("-");
    let resources_json = match edited_json {
        None if !is_stdin => return Ok(UpdateArguments::without_changes(arguments)),
        edited_json => edited_json.unwrap_or(resources_json),
    };
    let (memory_file, memory_file_path) = create_memory_file(&resources_json).map_err(to_error)?;
    let mut arguments = arguments.to_vec();
    if let Some(argument) = arguments.get_mut(update.resources_argument_index) {
        let prefix_len = argument.len() - update.resources_path.as_os_str().len();
        let mut edited_argument = argument.as_bytes()[..prefix_len].to_vec();
        edited_argument.extend(memory_file_path.as_bytes());
        *argument = OsString::from_vec(edited_argument);
    }
    Ok(UpdateArguments {
        arguments,
        _resources_file: Some(memory_file),
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the caller names the file, as for the runtime"
)]
fn read_resources(path: &Path) -> io::Result<String> {
    let bytes = if path == Path::new("-") {
        read_capped(io::stdin().lock(), Bundle::MAX_CONFIG_BYTES)
    } else {
        File::open(path).and_then(|file| read_capped(file, Bundle::MAX_CONFIG_BYTES))
    }?;
    let bytes = bytes.ok_or(io::ErrorKind::FileTooLarge)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Asks the real runtime for the container's bundle, by its `state` command. Returns `None` if
/// `is_needed` is false, or if the runtime does not know the container. In the latter case, it
/// rejects the update itself.
fn find_bundle(
    update: &UpdateCommand,
    arguments: &[OsString],
    runtime_path: &Path,
    is_needed: bool,
) -> Option<PathBuf> {
    if !is_needed {
        return None;
    }
    let output = Command::new(runtime_path)
        .args(&arguments[..update.global_argument_count])
        .arg("state")
        .arg(&update.id)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let output: RuntimeStateOutput = json_text::parse(&output.stdout).ok()?;
    Some(output.bundle)
}

/// Returns the rules of config.json that were revoked while the container was running, because
/// their devices were removed. Another device may have the number of such a rule now.
fn list_revoked_rules(record: Option<AttachmentRecord>) -> Vec<LinuxDeviceCgroup> {
    let revoked_rules = record.map(|record| record.revoked_spec_rules);
    let revoked_rules = revoked_rules.into_iter().flatten();
    revoked_rules.map(|rule| to_oci_rule(&rule.rule)).collect()
}

fn has_config_file(bundle_dir: &Path) -> bool {
    bundle_dir.join("config.json").exists()
}

/// Adds the device rules in the bundle's config.json to `resources_json`, the resources of an
/// update. `listed_rules` are the rules that `resources_json` already contains. The rules for the
/// devices of `revoked_rules` are not added. Returns `None` if no rule is missing. Also returns
/// `None` if config.json has no Boathook hook, so that no rule in it is from `boathook-runtime`.
fn add_missing_rules(
    resources_json: &str,
    listed_rules: &[&str],
    revoked_rules: &[LinuxDeviceCgroup],
    bundle_dir: &Path,
) -> Result<Option<String>, WrapperError> {
    let config_file = ConfigFile::read(&bundle_dir.join("config.json"))?;
    if !Hooks::from_config(config_file.content()).reads_requests(None) {
        return Ok(None);
    }
    let mut edited_text = None;
    let parse = |rule: &&str| serde_json::from_str::<LinuxDeviceCgroup>(rule).ok();
    let listed_rules: Vec<_> = listed_rules.iter().filter_map(parse).collect();
    for rule in json_text::list_items(config_file.content(), &["linux", "resources", "devices"]) {
        let is_missing = parse(&rule).is_some_and(|rule| {
            let mut revoked_rules = revoked_rules.iter();
            allows_single_device(&rule)
                && !listed_rules.contains(&rule)
                && !revoked_rules.any(|revoked_rule| is_same_device(revoked_rule, &rule))
        });
        if is_missing {
            let current_text = edited_text.as_deref().unwrap_or(resources_json);
            let new_text =
                json_text::append_item(current_text, &["devices"], rule).map_err(|error| {
                    WrapperError::Edit {
                        path: "the resources of the update".into(),
                        error,
                    }
                })?;
            edited_text = Some(new_text);
        }
    }
    Ok(edited_text)
}

/// Returns whether the rule allows exactly one device number. All other rules in config.json are
/// the engine's, because `boathook-runtime` adds only such rules.
fn allows_single_device(rule: &LinuxDeviceCgroup) -> bool {
    let is_specific_number = |number: Option<i64>| number.is_some_and(|number| number >= 0);
    rule.allow() && is_specific_number(rule.major()) && is_specific_number(rule.minor())
}

fn is_same_device(rule: &LinuxDeviceCgroup, other: &LinuxDeviceCgroup) -> bool {
    (rule.typ(), rule.major(), rule.minor()) == (other.typ(), other.major(), other.minor())
}

/// Creates a file in memory that contains `content`. Returns the file, and a path below
/// `/proc/self/fd` at which the real runtime can open it, because it inherits the descriptor.
fn create_memory_file(content: &str) -> io::Result<(File, OsString)> {
    let mut file = File::from(memfd_create("boathook-resources", MFdFlags::empty())?);
    file.write_all(content.as_bytes())?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((file, path.into()))
}
