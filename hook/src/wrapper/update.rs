//! Keeps the device rules of a container in an `update`.
//!
//! crun replaces the device rules of a container by the list in the resources of an update.
//! Engines send the list of their own specification, which lacks the rules that the wrapper
//! added to config.json at `create`. Therefore the missing rules are read from config.json and
//! added to the list. They are not recorded elsewhere.

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

/// Arguments for the runtime, and the file to which they refer.
pub(super) struct Arguments {
    pub(super) words: Vec<OsString>,
    /// A file in memory, which the runtime reads through `/proc/self/fd`.
    _resources: Option<File>,
}

impl Arguments {
    fn unchanged(words: &[OsString]) -> Self {
        Arguments {
            words: words.to_vec(),
            _resources: None,
        }
    }
}

/// The members of the runtime's `state` output that are used.
#[derive(Deserialize)]
struct State {
    bundle: PathBuf,
}

/// Returns the arguments with the container's device rules added to the resources.
pub(super) fn add_devices(
    update: &Update,
    arguments: &[OsString],
    runtime: &Path,
) -> Result<Arguments, WrapperError> {
    let fail = |error| WrapperError::Resources {
        path: update.resources.clone(),
        error,
    };
    let text = read(&update.resources).map_err(fail)?;
    let listed = json_text::items(&text, &["devices"]);
    let edited = match find_bundle(update, arguments, runtime, !listed.is_empty()) {
        Some(bundle) => add_missing_rules(&text, &listed, &bundle)?,
        None => None,
    };
    let by_stdin = update.resources == Path::new("-");
    let text = match edited {
        None if !by_stdin => return Ok(Arguments::unchanged(arguments)),
        edited => edited.unwrap_or(text),
    };
    let (resources, path) = create_memory_file(&text).map_err(fail)?;
    let mut words = arguments.to_vec();
    if let Some(argument) = words.get_mut(update.argument) {
        let end = argument.len() - update.resources.as_os_str().len();
        let mut word = argument.as_bytes()[..end].to_vec();
        word.extend(path.as_bytes());
        *argument = OsString::from_vec(word);
    }
    Ok(Arguments {
        words,
        _resources: Some(resources),
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the caller names the file, as for the runtime"
)]
fn read(path: &Path) -> io::Result<String> {
    let bytes = if path == Path::new("-") {
        read_capped(io::stdin().lock(), Bundle::MAX)
    } else {
        File::open(path).and_then(|file| read_capped(file, Bundle::MAX))
    }?;
    let bytes = bytes.ok_or(io::ErrorKind::FileTooLarge)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Returns the bundle of the container, as reported by the runtime. Returns `None` if the
/// runtime does not know the container; the runtime reports that error itself.
fn find_bundle(
    update: &Update,
    arguments: &[OsString],
    runtime: &Path,
    needed: bool,
) -> Option<PathBuf> {
    if !needed {
        return None;
    }
    let state = Command::new(runtime)
        .args(&arguments[..update.global_arguments])
        .arg("state")
        .arg(&update.id)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let state: State = json_text::parse(&state.stdout).ok()?;
    Some(state.bundle)
}

/// Adds the rules of the bundle's config.json that are missing in `listed`, the list of device
/// rules in `text`. Returns `None` if no rule is missing. A config.json without the hook has
/// no rules of the wrapper.
fn add_missing_rules(
    text: &str,
    listed: &[&str],
    bundle: &Path,
) -> Result<Option<String>, WrapperError> {
    let config = ConfigFile::read(&bundle.join("config.json"))?;
    if !Hooks::from_config(config.text()).reads_requests(None) {
        return Ok(None);
    }
    let mut edited = None;
    let parse = |rule: &&str| serde_json::from_str::<LinuxDeviceCgroup>(rule).ok();
    let listed: Vec<_> = listed.iter().filter_map(parse).collect();
    for rule in json_text::items(config.text(), &["linux", "resources", "devices"]) {
        let missing =
            parse(&rule).is_some_and(|rule| names_a_device(&rule) && !listed.contains(&rule));
        if missing {
            let text = edited.as_deref().unwrap_or(text);
            let added = json_text::append(text, &["devices"], rule).map_err(|error| {
                WrapperError::Edit {
                    path: "the resources of the update".into(),
                    error,
                }
            })?;
            edited = Some(added);
        }
    }
    Ok(edited)
}

/// Returns whether a rule allows exactly one device. The wrapper adds only rules of this form.
fn names_a_device(rule: &LinuxDeviceCgroup) -> bool {
    let number = |number: Option<i64>| number.is_some_and(|number| number >= 0);
    rule.allow() && number(rule.major()) && number(rule.minor())
}

/// Creates a file in memory with this text, which the runtime inherits. Returns the file, and
/// the path by which the runtime can open it.
fn create_memory_file(text: &str) -> io::Result<(File, OsString)> {
    let mut file = File::from(memfd_create("boathook-resources", MFdFlags::empty())?);
    file.write_all(text.as_bytes())?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((file, path.into()))
}
