//! Adds the device rules of a container to the resources of an `update` command.
//!
//! crun replaces the device rules of a container by the list in the new resources. Engines send
//! the list of their own specification, which lacks the rules that `boathook-runtime` added to
//! config.json at `create`. Therefore the missing rules are read from config.json and added to the
//! list.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::memfd::{MFdFlags, memfd_create};
use oci_spec::runtime::LinuxDeviceCgroup;
use serde::Deserialize;

use super::WrapperError;
use super::command_line::Update;
use super::config_file::ConfigFile;
use crate::oci::{Bundle, Hooks, read_capped};

/// The arguments of the real runtime's command line, and the file with resources that they name.
pub(super) struct UpdateArguments {
    pub(super) arguments: Vec<OsString>,
    /// A file in memory with the new resources, which the real runtime opens through
    /// `/proc/self/fd`. It must stay open until the runtime is executed.
    _resources: Option<File>,
}

impl UpdateArguments {
    fn unchanged(arguments: &[OsString]) -> Self {
        UpdateArguments {
            arguments: arguments.to_vec(),
            _resources: None,
        }
    }
}

/// The member of the real runtime's `state` output that is needed.
#[derive(Deserialize)]
struct RuntimeState {
    bundle: PathBuf,
}

/// Returns the arguments of the `update` command, with a file of resources that also contains the
/// container's device rules.
pub(super) fn add_devices(
    update: &Update,
    arguments: &[OsString],
    runtime: &Path,
) -> Result<UpdateArguments, WrapperError> {
    let to_error = |error| WrapperError::Resources {
        path: update.resources_path.clone(),
        error,
    };
    let text = read_resources(&update.resources_path).map_err(to_error)?;
    let listed_rules = json_text::list_items(&text, &["devices"]);
    let edited_text = match find_bundle(update, arguments, runtime, !listed_rules.is_empty()) {
        Some(bundle) => add_missing_rules(&text, &listed_rules, &bundle)?,
        None => None,
    };
    let is_stdin = update.resources_path == Path::new("-");
    let text = match edited_text {
        None if !is_stdin => return Ok(UpdateArguments::unchanged(arguments)),
        edited_text => edited_text.unwrap_or(text),
    };
    let (resources, path) = create_memory_file(&text).map_err(to_error)?;
    let mut arguments = arguments.to_vec();
    if let Some(argument) = arguments.get_mut(update.resources_index) {
        let end = argument.len() - update.resources_path.as_os_str().len();
        let mut word = argument.as_bytes()[..end].to_vec();
        word.extend(path.as_bytes());
        *argument = OsString::from_vec(word);
    }
    Ok(UpdateArguments {
        arguments,
        _resources: Some(resources),
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

/// Asks the real runtime for the bundle of the container. Returns `None` if the bundle is not
/// needed, or if the runtime does not know the container and therefore refuses the update itself.
fn find_bundle(
    update: &Update,
    arguments: &[OsString],
    runtime: &Path,
    is_needed: bool,
) -> Option<PathBuf> {
    if !is_needed {
        return None;
    }
    let state = Command::new(runtime)
        .args(&arguments[..update.global_argument_count])
        .arg("state")
        .arg(&update.id)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let state: RuntimeState = json_text::parse(&state.stdout).ok()?;
    Some(state.bundle)
}

/// Returns `text`, the resources of an update, with the device rules of the bundle's config.json
/// that are not among `listed_rules`, the device rules of `text`. Returns `None` if no rule is
/// missing, or if config.json has no hook of Boathook and therefore no rules of `boathook-runtime`.
fn add_missing_rules(
    text: &str,
    listed_rules: &[&str],
    bundle: &Path,
) -> Result<Option<String>, WrapperError> {
    let config = ConfigFile::read(&bundle.join("config.json"))?;
    if !Hooks::from_config(config.text()).reads_requests(None) {
        return Ok(None);
    }
    let mut edited_text = None;
    let parse = |rule: &&str| serde_json::from_str::<LinuxDeviceCgroup>(rule).ok();
    let listed_rules: Vec<_> = listed_rules.iter().filter_map(parse).collect();
    for rule in json_text::list_items(config.text(), &["linux", "resources", "devices"]) {
        let is_missing = parse(&rule)
            .is_some_and(|rule| allows_one_device(&rule) && !listed_rules.contains(&rule));
        if is_missing {
            let current_text = edited_text.as_deref().unwrap_or(text);
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

/// Returns whether a rule allows exactly one device. `boathook-runtime` adds only such rules to
/// config.json.
fn allows_one_device(rule: &LinuxDeviceCgroup) -> bool {
    let is_number = |number: Option<i64>| number.is_some_and(|number| number >= 0);
    rule.allow() && is_number(rule.major()) && is_number(rule.minor())
}

/// Creates a file in memory with the content `text`, which the real runtime inherits as a
/// descriptor. Returns the file and the path by which the runtime can open it.
fn create_memory_file(text: &str) -> io::Result<(File, OsString)> {
    let mut file = File::from(memfd_create("boathook-resources", MFdFlags::empty())?);
    file.write_all(text.as_bytes())?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((file, path.into()))
}
