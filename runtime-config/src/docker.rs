//! Configures Docker by an entry below `runtimes` in daemon.json. dockerd reads no drop-ins
//! (dockerd(8), "Daemon configuration file").

mod api;
mod sockets;

use std::path::{Path, PathBuf};

use crate::daemon_options::{Daemon, DaemonOption};
use crate::default_runtime::DefaultRuntime;
use crate::error::Error;
use crate::facts::HANDLER;
use crate::host::HostRoot;
use crate::json_text;
use crate::key_case;
use crate::options::Options;
use crate::record::InstallationRecord;
use crate::snapshot::Snapshot;

pub(crate) use api::{Runtimes, socket_of_daemon};

const DAEMON_JSON: &str = "/etc/docker/daemon.json";

/// The byte order mark. Some editors write it at the beginning of a file, and dockerd skips it.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The runtime that dockerd has without any configuration, as JSON.
const BUILT_IN: &str = "\"runc\"";

/// The end of the runtime's path as JSON. It distinguishes Boathook's runtime from another
/// runtime of the same name.
const RUNTIME_NAME: &str = "/boathook-runtime\"";

/// The settings that decide what the default runtime is (dockerd(8)).
const RUNTIME_SETTINGS: [&str; 5] = [
    "default-runtime",
    "runtimes.*.path",
    "runtimes.*.runtimeArgs",
    "runtimes.*.runtimeType",
    "runtimes.*.options.BinaryName",
];

/// The names of the built-in runtime, which is containerd's shim of runc.
const BUILT_IN_NAMES: [&str; 4] = [
    "",
    "runc",
    "io.containerd.runc.v2",
    "io.containerd.runtime.v1.linux",
];

const DAEMON: Daemon = Daemon {
    program: "dockerd",
    unit: "docker.service",
    init_script: "/etc/init.d/docker",
    variable_files: &[
        "/etc/default/docker",
        "/etc/conf.d/docker",
        "/etc/sysconfig/docker",
    ],
    config: (&["--config-file"], DAEMON_JSON),
};

const DEFAULT_OPTION: &str = "--default-runtime";

pub(crate) fn read(host: &HostRoot, snapshot: &mut Snapshot) -> Result<(), Error> {
    snapshot.set_default_runtime_option(DAEMON.find_option(host, DEFAULT_OPTION));
    snapshot.read(host, Path::new(DAEMON_JSON)).map(drop)
}

/// Returns the runtime of containers for which no runtime is named.
///
/// # Errors
/// Fails if dockerd has a default runtime on its command line, because dockerd does not start if
/// daemon.json has one too. Also fails if dockerd may read a key of daemon.json differently from
/// this function.
pub(crate) fn default_runtime(base: &Snapshot) -> Result<DefaultRuntime, Error> {
    if let Some(DaemonOption { value, source }) = base.default_runtime_option() {
        return Err(Error::Other(format!(
            "docker: dockerd has {DEFAULT_OPTION}={value} in {source}, and does not start if \
             {DAEMON_JSON} has a default runtime too: take the option out and restart docker, or \
             leave --set-default out"
        )));
    }
    let path = Path::new(DAEMON_JSON);
    let (_, text) = config_text(base);
    json_text::check_object(path, text)?;
    key_case::check_json(path, text, &RUNTIME_SETTINGS)?;
    let json: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let name = json["default-runtime"].as_str().unwrap_or_default();
    let entry = &json["runtimes"][name];
    if entry.is_null() {
        return Ok(if BUILT_IN_NAMES.contains(&name) {
            DefaultRuntime::runc()
        } else {
            DefaultRuntime::new_other(name, "a runtime that daemon.json does not describe")
        });
    }
    let string = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let (program, shim) = (string(&entry["path"]), string(&entry["runtimeType"]));
    let shim_program = string(&entry["options"]["BinaryName"]);
    Ok(match (program.as_str(), shim.as_str()) {
        (_, shim) if !BUILT_IN_NAMES.contains(&shim) => DefaultRuntime::new_other(name, shim),
        ("", "") if name != "runc" => {
            DefaultRuntime::new_other(name, "an entry without path and runtimeType")
        }
        ("", _) if shim_program.is_empty() => DefaultRuntime::program(name, "runc"),
        ("", _) => DefaultRuntime::program(name, shim_program),
        (program, _) => DefaultRuntime::program(name, program),
    })
}

pub(crate) fn plan_files(
    base: &Snapshot,
    options: &Options,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let path = Path::new(DAEMON_JSON);
    let (mark, text) = config_text(base);
    json_text::check_object(path, text)?;
    if json_text::find(text, &["runtimes", HANDLER]).is_some() {
        let line = json_text::line_at(text, &["runtimes", HANDLER]);
        return Err(Error::name_taken(path, line));
    }
    let runtime = json_text::quote(&options.runtime.to_string_lossy());
    let arguments = inherited_arguments(text, options);
    let entry = format!("{{ \"path\": {runtime}{arguments} }}");
    let mut text = with_runtime(path, text, &entry)?;
    if options.set_default {
        let whole = json_text::find(&text, &[]).unwrap_or_default();
        text = json_text::set(&text, whole, "default-runtime", &json_text::quote(HANDLER));
    }
    json_text::check_object(path, &text)?;
    Ok(vec![(path.into(), mark.to_owned() + &text)])
}

/// Returns the arguments of the default runtime, which `boathook-runtime` gets if it replaces the
/// default runtime.
fn inherited_arguments(text: &str, options: &Options) -> String {
    let default = json_text::find(text, &["default-runtime"]);
    let name = default.and_then(|value| serde_json::from_str::<String>(&text[value]).ok());
    let arguments = name
        .filter(|_| options.set_default)
        .and_then(|name| json_text::find(text, &["runtimes", &name, "runtimeArgs"]))
        .map(|list| &text[list])
        .filter(|list| {
            !list
                .trim_matches(['[', ']', ' ', '\t', '\r', '\n'])
                .is_empty()
        });
    arguments.map_or_else(String::new, |list| format!(", \"runtimeArgs\": {list}"))
}

/// Returns the byte order mark, if there is one, and the text after it. A blank file is read as
/// an empty object, as dockerd does.
fn config_text(base: &Snapshot) -> (&str, &str) {
    let (mark, text) = split_mark(base.text(Path::new(DAEMON_JSON)).unwrap_or_default());
    (mark, if text.trim().is_empty() { "{}\n" } else { text })
}

pub(crate) fn split_mark(text: &str) -> (&str, &str) {
    let rest = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    text.split_at(text.len() - rest.len())
}

/// Returns whether two texts have the same JSON content. The formatting may differ.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    let value = |text| serde_json::from_str::<serde_json::Value>(split_mark(text).1).ok();
    value(one).is_some_and(|one| Some(one) == value(other))
}

fn with_runtime(path: &Path, text: &str, entry: &str) -> Result<String, Error> {
    let whole = json_text::find(text, &[]).unwrap_or_default();
    let Some(runtimes) = json_text::find(text, &["runtimes"]) else {
        let object = format!("{{\n        \"{HANDLER}\": {entry}\n    }}");
        return Ok(json_text::set(text, whole, "runtimes", &object));
    };
    if !text[runtimes.clone()].starts_with('{') {
        let line = json_text::line_at(text, &["runtimes"]);
        let problem = "\"runtimes\" is not an object; make it one, or take it out";
        return Err(Error::new_at_line(path, line, problem));
    }
    Ok(json_text::set(text, runtimes, HANDLER, entry))
}

/// Returns the daemon.json with which a running dockerd drops Boathook's runtime at a reload.
/// `base` is the file without Boathook, which is written afterwards. dockerd ignores absent keys
/// at a reload, so the text has both `runtimes` and `default-runtime`.
pub(crate) fn release_file(base: &Snapshot) -> Result<(PathBuf, String), Error> {
    let path = Path::new(DAEMON_JSON);
    let (mark, text) = config_text(base);
    json_text::check_object(path, text)?;
    let mut text = text.to_owned();
    for (key, value) in [("runtimes", "{}"), ("default-runtime", BUILT_IN)] {
        if json_text::find(&text, &[key]).is_none() {
            let whole = json_text::find(&text, &[]).unwrap_or_default();
            text = json_text::set(&text, whole, key, value);
        }
    }
    Ok((path.into(), mark.to_owned() + &text))
}

/// Returns whether a running daemon has loaded Boathook's runtime as it is in the record.
pub(crate) fn is_loaded(runtimes: &Runtimes, record: &InstallationRecord) -> bool {
    let newest = record.file(Path::new(DAEMON_JSON));
    let text = newest.and_then(|file| file.written.first());
    let wanted: serde_json::Value = text
        .and_then(|text| serde_json::from_str(split_mark(text).1).ok())
        .unwrap_or_default();
    let path = wanted["runtimes"][HANDLER]["path"].as_str();
    let default = wanted["default-runtime"].as_str() == Some(HANDLER);
    runtimes.is_listed()
        && runtimes
            .path()
            .is_none_or(|of_daemon| Some(of_daemon) == path)
        && runtimes.is_default() == default
}

/// Removes Boathook's entries from a daemon.json that somebody has changed since the
/// installation, or that no record describes. The default runtime becomes that of `before`, the
/// recorded text.
///
/// JSON has no comments for marks. Therefore an object that becomes empty stays, and without a
/// record the former default runtime is not known.
pub(crate) fn strip(text: &str, before: Option<&str>) -> String {
    let (mark, text) = split_mark(text);
    let (_, before) = split_mark(before.unwrap_or_default());
    mark.to_owned() + &strip_object(text, before)
}

fn strip_object(text: &str, before: &str) -> String {
    if json_text::check_object(Path::new(DAEMON_JSON), text).is_err() {
        return text.to_owned();
    }
    let ours = json_text::find(text, &["runtimes", HANDLER, "path"])
        .is_some_and(|path| text[path].ends_with(RUNTIME_NAME));
    let (true, Some(runtimes)) = (ours, json_text::find(text, &["runtimes"])) else {
        return text.to_owned();
    };
    let text = json_text::remove(text, runtimes, HANDLER);
    let default = json_text::find(&text, &["default-runtime"]);
    let replaced = json_text::find(before, &["default-runtime"]).map(|value| &before[value]);
    match (default, json_text::find(&text, &[])) {
        (Some(value), Some(whole)) if text[value.clone()] == json_text::quote(HANDLER) => {
            match replaced {
                Some(replaced) => json_text::set(&text, whole, "default-runtime", replaced),
                None => json_text::remove(&text, whole, "default-runtime"),
            }
        }
        _ => text,
    }
}
