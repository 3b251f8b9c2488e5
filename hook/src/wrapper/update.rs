//! `update`: an engine's list of device rules must not remove devices.
//!
//! crun replaces a container's device rules by the list in an update's
//! resources. Engines send the list of their own spec, which lacks what the
//! wrapper has added to config.json at `create`. So the rules of config.json
//! that the list lacks are added to it; they are not recorded elsewhere.

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
use crate::oci::{Bundle, Hooks, capped};

/// Arguments for the runtime, and the file that they refer to.
pub(super) struct Arguments {
    pub(super) words: Vec<OsString>,
    /// Read by the runtime through `/proc/self/fd`.
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

/// The parts of the runtime's output of `state` that are used.
#[derive(Deserialize)]
struct State {
    bundle: PathBuf,
}

/// The same arguments, with the container's device rules in the resources.
pub(super) fn with_devices(
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
    let edited = match bundle_of(update, arguments, runtime, !listed.is_empty()) {
        Some(bundle) => add_missing(&text, &listed, &bundle)?,
        None => None,
    };
    let by_stdin = update.resources == Path::new("-");
    let text = match edited {
        None if !by_stdin => return Ok(Arguments::unchanged(arguments)),
        edited => edited.unwrap_or(text),
    };
    let (resources, path) = in_memory(&text).map_err(fail)?;
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
        capped(io::stdin().lock(), Bundle::MAX)
    } else {
        File::open(path).and_then(|file| capped(file, Bundle::MAX))
    }?;
    let bytes = bytes.ok_or(io::ErrorKind::FileTooLarge)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The container's bundle, which the runtime knows; `None` if it does not know
/// the container; it then reports that itself.
fn bundle_of(
    update: &Update,
    arguments: &[OsString],
    runtime: &Path,
    needed: bool,
) -> Option<PathBuf> {
    if !needed {
        return None;
    }
    let state = Command::new(runtime)
        .args(&arguments[..update.globals])
        .arg("state")
        .arg(&update.id)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let state: State = json_text::parse(&state.stdout).ok()?;
    Some(state.bundle)
}

/// Adds the rules of the bundle's config.json that `listed`, the list of device
/// rules in `text`, lacks; `None` if it lacks none. A config.json without the
/// hook has no rules of ours.
fn add_missing(text: &str, listed: &[&str], bundle: &Path) -> Result<Option<String>, WrapperError> {
    let config = ConfigFile::read(&bundle.join("config.json"))?;
    if !Hooks::in_config(config.text()).read_requests(None) {
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

/// Whether a rule allows one device: only such rules are ever added.
fn names_a_device(rule: &LinuxDeviceCgroup) -> bool {
    let number = |number: Option<i64>| number.is_some_and(|number| number >= 0);
    rule.allow() && number(rule.major()) && number(rule.minor())
}

/// A file with this text that the runtime inherits, and its path there.
fn in_memory(text: &str) -> io::Result<(File, OsString)> {
    let mut file = File::from(memfd_create("boathook-resources", MFdFlags::empty())?);
    file.write_all(text.as_bytes())?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((file, path.into()))
}
