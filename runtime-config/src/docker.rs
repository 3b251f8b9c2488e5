//! Configures Docker by an entry below `runtimes` in daemon.json. dockerd reads no drop-ins
//! (dockerd(8), "Daemon configuration file").

mod api;
mod sockets;

use std::path::{Path, PathBuf};

use crate::daemon_options::{Daemon, DaemonOption};
use crate::default_runtime::DefaultRuntime;
use crate::error::Error;
use crate::facts::{HANDLER, PROGRAM_DIRECTORIES};
use crate::host::HostRoot;
use crate::json_text;
use crate::key_case;
use crate::options::Options;
use crate::record::{InstallationRecord, RecordedFile};
use crate::snapshot::Snapshot;

pub(crate) use api::{Runtimes, socket_of_daemon};

const DAEMON_JSON: &str = "/etc/docker/daemon.json";

/// The byte order mark, which some editors write at the beginning of a file and dockerd skips.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The runtime that dockerd has without any configuration, as JSON.
const BUILT_IN: &str = "\"runc\"";

/// The file name of Boathook's runtime. A runtime in daemon.json is Boathook's if its program has this
/// name.
const RUNTIME_PROGRAM: &str = "boathook-runtime";

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

/// The program of Docker's snap.
const SNAP: &str = "/snap/docker/current/bin/dockerd";

pub(crate) fn read(host: &HostRoot, snapshot: &mut Snapshot) -> Result<(), Error> {
    let file = DAEMON.find_config_file(host);
    let option = DAEMON.find_option_beside(host, DEFAULT_OPTION, &file);
    snapshot.set_default_runtime_option(option);
    snapshot.set_docker_config(PathBuf::from(&file));
    snapshot.read(host, Path::new(&file)).map(drop)
}

/// Returns the daemon.json that dockerd reads: that of its option `--config-file`, or the usual
/// one.
pub fn find_docker_config(host: &HostRoot) -> PathBuf {
    DAEMON.find_config_file(host).into()
}

/// Returns the program of Docker's snap, if the host has no other Docker. The snap's confinement
/// lets it execute no program of the host.
pub fn find_docker_snap(host: &HostRoot) -> Option<PathBuf> {
    let mut others = PROGRAM_DIRECTORIES
        .iter()
        .map(|dir| Path::new(dir).join(DAEMON.program));
    let snap = Path::new(SNAP);
    (host.exists(snap) && !others.any(|other| host.exists(&other))).then(|| snap.to_owned())
}

/// Returns the path of the snapshot's daemon.json.
fn config_path(base: &Snapshot) -> &Path {
    base.docker_config().unwrap_or(Path::new(DAEMON_JSON))
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
             {} has a default runtime too: take the option out and restart docker, or leave \
             --set-default out",
            config_path(base).display()
        )));
    }
    let path = config_path(base);
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
    let path = config_path(base);
    let (mark, text) = config_text(base);
    json_text::check_object(path, text)?;
    for name in options.names() {
        if json_text::find(text, &["runtimes", name]).is_some() {
            let line = json_text::line_at(text, &["runtimes", name]);
            return Err(Error::name_taken(path, line, name));
        }
    }
    let runtime = json_text::quote(&options.runtime.to_string_lossy());
    let arguments = inherited_arguments(text, options);
    let entry = format!("{{ \"path\": {runtime}{arguments} }}");
    let mut text = text.to_owned();
    for name in options.names() {
        text = with_runtime(path, &text, name, &entry)?;
    }
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

/// Returns the byte order mark of daemon.json, or an empty text, and the JSON text after it. A blank
/// file counts as an empty object, as for dockerd.
fn config_text(base: &Snapshot) -> (&str, &str) {
    let (mark, text) = split_mark(base.text(config_path(base)).unwrap_or_default());
    (mark, if text.trim().is_empty() { "{}\n" } else { text })
}

/// Splits a text into the byte order mark, or an empty text, and the rest.
pub(crate) fn split_mark(text: &str) -> (&str, &str) {
    let rest = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    text.split_at(text.len() - rest.len())
}

/// Returns whether two texts have the same JSON content. The formatting may differ.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    let value = |text| serde_json::from_str::<serde_json::Value>(split_mark(text).1).ok();
    value(one).is_some_and(|one| Some(one) == value(other))
}

fn with_runtime(path: &Path, text: &str, name: &str, entry: &str) -> Result<String, Error> {
    let whole = json_text::find(text, &[]).unwrap_or_default();
    let Some(runtimes) = json_text::find(text, &["runtimes"]) else {
        let object = format!("{{\n        {}: {entry}\n    }}", json_text::quote(name));
        return Ok(json_text::set(text, whole, "runtimes", &object));
    };
    if !text[runtimes.clone()].starts_with('{') {
        let line = json_text::line_at(text, &["runtimes"]);
        let problem = "\"runtimes\" is not an object; make it one, or take it out";
        return Err(Error::new_at_line(path, line, problem));
    }
    Ok(json_text::set(text, runtimes, name, entry))
}

/// Returns the path and the text of the daemon.json that makes a running dockerd drop Boathook's
/// runtime at a reload. dockerd ignores absent keys at a reload, so the text has both `runtimes` and
/// `default-runtime`. After the reload the file from `base`, without Boathook's parts, replaces it.
pub(crate) fn release_file(base: &Snapshot) -> Result<(PathBuf, String), Error> {
    let path = config_path(base);
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
    let text = record.files.first().and_then(|file| file.written.first());
    let wanted: serde_json::Value = text
        .and_then(|text| serde_json::from_str(split_mark(text).1).ok())
        .unwrap_or_default();
    let default = wanted["default-runtime"].as_str() == Some(HANDLER);
    let mut own = own_runtimes(&wanted).peekable();
    own.peek().is_some()
        && own.all(|(name, path)| {
            let of_daemon = runtimes.path(name);
            runtimes.is_listed(name) && of_daemon.is_none_or(|of_daemon| of_daemon == path)
        })
        && runtimes.is_default() == default
}

/// Returns the names of the runtimes in a daemon.json whose program is `boathook-runtime`, each
/// with the program's path.
pub(crate) fn own_runtimes(daemon: &serde_json::Value) -> impl Iterator<Item = (&str, &str)> {
    let runtimes = daemon["runtimes"].as_object().into_iter().flatten();
    runtimes.filter_map(|(name, entry)| {
        let path = entry["path"].as_str()?;
        Path::new(path)
            .ends_with(RUNTIME_PROGRAM)
            .then_some((name.as_str(), path))
    })
}

/// Removes Boathook's entries from a daemon.json that somebody has changed since the
/// installation, or that no record describes. The default runtime becomes that of the recorded
/// text from before the installation.
///
/// JSON has no comments for marks. Therefore an object that becomes empty stays. Without a record
/// the former default runtime is not known, and every entry that has no more than the path of
/// `boathook-runtime` counts as Boathook's.
pub(crate) fn strip(text: &str, recorded: Option<&RecordedFile>) -> String {
    let (mark, text) = split_mark(text);
    let before = recorded.and_then(|file| file.before.as_deref());
    let (_, before) = split_mark(before.unwrap_or_default());
    mark.to_owned() + &strip_object(text, before, recorded)
}

fn strip_object(text: &str, before: &str, recorded: Option<&RecordedFile>) -> String {
    if json_text::check_object(Path::new(DAEMON_JSON), text).is_err() {
        return text.to_owned();
    }
    let names = installed_names(text, before, recorded);
    if names.is_empty() {
        return text.to_owned();
    }
    let mut text = text.to_owned();
    for name in names {
        if let Some(runtimes) = json_text::find(&text, &["runtimes"]) {
            text = json_text::remove(&text, runtimes, &name);
        }
    }
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

/// Returns the names of the runtimes in `text` that an installation wrote.
fn installed_names(text: &str, before: &str, recorded: Option<&RecordedFile>) -> Vec<String> {
    let parse =
        |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap_or_default() };
    let now = parse(text);
    let is_installed = |name: &str| match recorded {
        _ if name == HANDLER => true,
        Some(file) => {
            let mut written = file.written.iter();
            let writes = |text: &String| !parse(split_mark(text).1)["runtimes"][name].is_null();
            parse(before)["runtimes"][name].is_null() && written.any(writes)
        }
        None => {
            let entry = now["runtimes"][name].as_object();
            entry.is_some_and(|entry| entry.len() == 1)
        }
    };
    let own = own_runtimes(&now).map(|(name, _)| name);
    own.filter(|name| is_installed(name))
        .map(str::to_owned)
        .collect()
}
