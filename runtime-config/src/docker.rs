//! Configures Docker with an entry in the object `runtimes` of daemon.json. dockerd reads no
//! drop-ins (dockerd(8), "Daemon configuration file").

mod api;
mod live_restore;
mod sockets;

use std::path::{Path, PathBuf};

use crate::daemon_options::{Daemon, DaemonOption};
use crate::default_runtime::DefaultRuntime;
use crate::engine_properties::{PROGRAM_DIRECTORIES, RUNTIME_HANDLER_NAME};
use crate::error::Error;
use crate::host::HostRoot;
use crate::json_text;
use crate::key_case;
use crate::options::InstallOptions;
use crate::record::{InstallationRecord, RecordedFile};
use crate::snapshot::Snapshot;

pub(crate) use api::{Runtimes, find_daemon_socket};
pub use live_restore::LiveRestore;

const DAEMON_JSON_PATH: &str = "/etc/docker/daemon.json";

/// The byte order mark. Some editors write it at the beginning of a file, and dockerd skips it.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The default runtime of a dockerd without any configuration, as a JSON string.
const BUILT_IN_RUNTIME_JSON: &str = "\"runc\"";

/// The file name of Boathook's runtime program. A runtime in daemon.json belongs to Boathook if its
/// program has this name.
const RUNTIME_PROGRAM_NAME: &str = "boathook-runtime";

/// The settings on which the default runtime depends (dockerd(8)). A file with one of these keys in
/// another case is refused.
const DEFAULT_RUNTIME_SETTINGS: [&str; 5] = [
    "default-runtime",
    "runtimes.*.path",
    "runtimes.*.runtimeArgs",
    "runtimes.*.runtimeType",
    "runtimes.*.options.BinaryName",
];

/// The names that dockerd accepts for its built-in runtime, which is containerd's shim of runc.
const BUILT_IN_RUNTIME_NAMES: [&str; 4] = [
    "",
    "runc",
    "io.containerd.runc.v2",
    "io.containerd.runtime.v1.linux",
];

const DAEMON: Daemon = Daemon {
    program_name: "dockerd",
    unit_name: "docker.service",
    init_script_path: "/etc/init.d/docker",
    variable_file_paths: &[
        "/etc/default/docker",
        "/etc/conf.d/docker",
        "/etc/sysconfig/docker",
    ],
    config_option_names: &["--config-file"],
    config_path: DAEMON_JSON_PATH,
};

const DEFAULT_RUNTIME_OPTION: &str = "--default-runtime";

/// The path of dockerd in Docker's snap package.
const SNAP_PROGRAM_PATH: &str = "/snap/docker/current/bin/dockerd";

/// Reads daemon.json into the snapshot. Also stores the path of daemon.json and the value of
/// dockerd's option `--default-runtime` there.
pub(crate) fn read_daemon_config(host: &HostRoot, snapshot: &mut Snapshot) -> Result<(), Error> {
    let config_path = DAEMON.find_config_path(host);
    let option = DAEMON.find_option_with_config(host, DEFAULT_RUNTIME_OPTION, &config_path);
    snapshot.set_default_runtime_option(option);
    snapshot.set_docker_config_path(PathBuf::from(&config_path));
    snapshot.read(host, Path::new(&config_path)).map(drop)
}

/// Returns the path of the daemon.json that dockerd reads. The option `--config-file` of dockerd
/// may set another path than the default one.
pub fn find_docker_config_path(host: &HostRoot) -> PathBuf {
    DAEMON.find_config_path(host).into()
}

/// Returns the path of dockerd in Docker's snap package, if the host has no other Docker. A snap is
/// confined and cannot execute programs of the host, so this Docker cannot call Boathook.
pub fn find_docker_snap(host: &HostRoot) -> Option<PathBuf> {
    let mut other_program_paths = PROGRAM_DIRECTORIES
        .iter()
        .map(|dir| Path::new(dir).join(DAEMON.program_name));
    let snap_path = Path::new(SNAP_PROGRAM_PATH);
    (host.exists(snap_path) && !other_program_paths.any(|path| host.exists(&path)))
        .then(|| snap_path.to_owned())
}

/// Returns the path of the daemon.json that was read into the snapshot.
fn get_config_path(snapshot: &Snapshot) -> &Path {
    snapshot
        .docker_config_path()
        .unwrap_or(Path::new(DAEMON_JSON_PATH))
}

/// Fails if dockerd's command line sets a default runtime. With `--set-default`, daemon.json sets
/// one as well, and dockerd does not start if both do. Also fails if dockerd may read a key of
/// daemon.json differently from this function.
///
/// # Errors
/// Fails if dockerd's command line sets a default runtime, because dockerd does not start if
/// daemon.json sets one as well. Also fails if dockerd may read a key of daemon.json differently
/// from this function.
pub(crate) fn find_default_runtime(snapshot: &Snapshot) -> Result<DefaultRuntime, Error> {
    if let Some(DaemonOption { value, source }) = snapshot.default_runtime_option() {
        return Err(Error::Other(format!(
            "docker: dockerd has {DEFAULT_RUNTIME_OPTION}={value} in {source}, and does not start if \
             {} has a default runtime too: take the option out and restart docker, or leave \
             --set-default out",
            get_config_path(snapshot).display()
        )));
    }
    let path = get_config_path(snapshot);
    let (_, text) = get_config_text(snapshot);
    json_text::require_json_object(path, text)?;
    key_case::refuse_ambiguous_json_keys(path, text, &DEFAULT_RUNTIME_SETTINGS)?;
    let daemon_json: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let name = daemon_json["default-runtime"].as_str().unwrap_or_default();
    let entry = &daemon_json["runtimes"][name];
    if entry.is_null() {
        return Ok(if BUILT_IN_RUNTIME_NAMES.contains(&name) {
            DefaultRuntime::new_runc()
        } else {
            DefaultRuntime::new_unsupported(name, "a runtime that daemon.json does not describe")
        });
    }
    let to_string = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let (program, shim) = (to_string(&entry["path"]), to_string(&entry["runtimeType"]));
    let shim_program = to_string(&entry["options"]["BinaryName"]);
    Ok(match (program.as_str(), shim.as_str()) {
        (_, shim) if !BUILT_IN_RUNTIME_NAMES.contains(&shim) => {
            DefaultRuntime::new_unsupported(name, shim)
        }
        ("", "") if name != "runc" => {
            DefaultRuntime::new_unsupported(name, "an entry without path and runtimeType")
        }
        ("", _) if shim_program.is_empty() => DefaultRuntime::new_program(name, "runc"),
        ("", _) => DefaultRuntime::new_program(name, shim_program),
        (program, _) => DefaultRuntime::new_program(name, program),
    })
}

/// Returns the path of daemon.json, and the new text that an installation writes.
pub(crate) fn plan_files(
    snapshot: &Snapshot,
    options: &InstallOptions,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let path = get_config_path(snapshot);
    let (byte_order_mark, text) = get_config_text(snapshot);
    json_text::require_json_object(path, text)?;
    for name in options.names() {
        if json_text::find_value(text, &["runtimes", name]).is_some() {
            let line = json_text::find_line_of_value(text, &["runtimes", name]);
            return Err(Error::new_name_conflict(path, line, name));
        }
    }
    let runtime = json_text::quote(&options.runtime_path.to_string_lossy());
    let arguments = format_inherited_arguments(text, options);
    let entry = format!("{{ \"path\": {runtime}{arguments} }}");
    let mut new_text = text.to_owned();
    for name in options.names() {
        new_text = add_runtime_entry(path, &new_text, name, &entry)?;
    }
    if options.set_default {
        let top_object_range = json_text::find_value(&new_text, &[]).unwrap_or_default();
        let value = json_text::quote(RUNTIME_HANDLER_NAME);
        new_text = json_text::set_member(&new_text, top_object_range, "default-runtime", &value);
    }
    json_text::require_json_object(path, &new_text)?;
    Ok(vec![(path.into(), byte_order_mark.to_owned() + &new_text)])
}

/// Returns the member `runtimeArgs` for the entry of `boathook-runtime`, as JSON text. With
/// `--set-default`, `boathook-runtime` needs the arguments of the default runtime that it replaces.
/// The text is empty if there are no such arguments.
fn format_inherited_arguments(text: &str, options: &InstallOptions) -> String {
    let default_runtime = json_text::find_value(text, &["default-runtime"]);
    let name = default_runtime.and_then(|value| serde_json::from_str::<String>(&text[value]).ok());
    let arguments = name
        .filter(|_| options.set_default)
        .and_then(|name| json_text::find_value(text, &["runtimes", &name, "runtimeArgs"]))
        .map(|list| &text[list])
        .filter(|list| {
            !list
                .trim_matches(['[', ']', ' ', '\t', '\r', '\n'])
                .is_empty()
        });
    arguments.map_or_else(String::new, |list| format!(", \"runtimeArgs\": {list}"))
}

/// Splits the text of daemon.json into its byte order mark, which may be empty, and the JSON text.
/// A blank file counts as an empty object, as it does for dockerd.
fn get_config_text(snapshot: &Snapshot) -> (&str, &str) {
    let (byte_order_mark, text) = split_byte_order_mark(
        snapshot
            .get_text(get_config_path(snapshot))
            .unwrap_or_default(),
    );
    (
        byte_order_mark,
        if text.trim().is_empty() { "{}\n" } else { text },
    )
}

/// Splits a text into its byte order mark and the rest. The first text is empty if there is no
/// mark.
pub(crate) fn split_byte_order_mark(text: &str) -> (&str, &str) {
    let text_after_mark = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    text.split_at(text.len() - text_after_mark.len())
}

/// Returns whether two texts have the same JSON content, possibly with different formatting.
pub(crate) fn has_same_json(text: &str, other_text: &str) -> bool {
    let parse_json =
        |text| serde_json::from_str::<serde_json::Value>(split_byte_order_mark(text).1).ok();
    parse_json(text).is_some_and(|value| Some(value) == parse_json(other_text))
}

/// Adds an entry for the runtime `name` to the daemon.json `text`. `entry` is a JSON object with
/// the path of the program.
fn add_runtime_entry(path: &Path, text: &str, name: &str, entry: &str) -> Result<String, Error> {
    let top_object_range = json_text::find_value(text, &[]).unwrap_or_default();
    let Some(runtimes) = json_text::find_value(text, &["runtimes"]) else {
        let runtimes_json = format!("{{\n        {}: {entry}\n    }}", json_text::quote(name));
        return Ok(json_text::set_member(
            text,
            top_object_range,
            "runtimes",
            &runtimes_json,
        ));
    };
    if !text[runtimes.clone()].starts_with('{') {
        let line = json_text::find_line_of_value(text, &["runtimes"]);
        let problem = "\"runtimes\" is not an object; make it one, or take it out";
        return Err(Error::new_at_line(path, line, problem));
    }
    Ok(json_text::set_member(text, runtimes, name, entry))
}

/// Returns the path and the text of a temporary daemon.json, which makes a running dockerd drop
/// Boathook's runtime at a reload. At a reload dockerd ignores absent keys, so the text has both
/// `runtimes` and `default-runtime`. After the reload, the administrator's daemon.json replaces
/// this text.
pub(crate) fn plan_runtime_unload_file(snapshot: &Snapshot) -> Result<(PathBuf, String), Error> {
    let path = get_config_path(snapshot);
    let (byte_order_mark, text) = get_config_text(snapshot);
    json_text::require_json_object(path, text)?;
    let mut new_text = text.to_owned();
    for (key, value) in [
        ("runtimes", "{}"),
        ("default-runtime", BUILT_IN_RUNTIME_JSON),
    ] {
        if json_text::find_value(&new_text, &[key]).is_none() {
            let top_object_range = json_text::find_value(&new_text, &[]).unwrap_or_default();
            new_text = json_text::set_member(&new_text, top_object_range, key, value);
        }
    }
    Ok((path.into(), byte_order_mark.to_owned() + &new_text))
}

/// Returns whether a running dockerd has loaded the recorded daemon.json: it has Boathook's
/// runtimes with the same programs, and the same answer to whether Boathook's runtime is the
/// default. It also must not have a runtime of an earlier installation, which calls Boathook and is
/// neither in the recorded daemon.json nor in the present one, `daemon_json_text`. `runtimes` is
/// the report of the running dockerd.
pub(crate) fn are_runtimes_loaded(
    runtimes: &Runtimes,
    record: &InstallationRecord,
    daemon_json_text: Option<&str>,
) -> bool {
    let recorded_text = record
        .files
        .first()
        .and_then(|file| file.written_texts.first());
    let parse_json = |text: &str| -> Option<serde_json::Value> {
        serde_json::from_str(split_byte_order_mark(text).1).ok()
    };
    let recorded_json = recorded_text.and_then(|text| parse_json(text));
    let recorded_json = recorded_json.unwrap_or_default();
    let present_json = daemon_json_text.and_then(parse_json).unwrap_or_default();
    let has_entry = |name: &str| {
        [&recorded_json, &present_json]
            .iter()
            .any(|daemon_json| !daemon_json["runtimes"][name].is_null())
    };
    let is_default = recorded_json["default-runtime"].as_str() == Some(RUNTIME_HANDLER_NAME);
    let mut boathook_runtimes = find_boathook_runtimes(&recorded_json).peekable();
    boathook_runtimes.peek().is_some()
        && boathook_runtimes.all(|(name, path)| {
            let daemon_path = runtimes.get_program_path(name);
            runtimes.has_runtime(name) && daemon_path.is_none_or(|daemon_path| daemon_path == path)
        })
        && runtimes.list_boathook_runtimes().all(has_entry)
        && runtimes.is_boathook_default() == is_default
}

/// Returns the runtimes in a daemon.json whose program is `boathook-runtime`: the name of each
/// runtime, and the path of its program.
pub(crate) fn find_boathook_runtimes(
    daemon_json: &serde_json::Value,
) -> impl Iterator<Item = (&str, &str)> {
    let runtimes = daemon_json["runtimes"].as_object().into_iter().flatten();
    runtimes.filter_map(|(name, entry)| {
        let path = entry["path"].as_str()?;
        is_boathook_program(path).then_some((name.as_str(), path))
    })
}

/// Returns whether the path of a program has the file name of Boathook's runtime program.
fn is_boathook_program(path: &str) -> bool {
    Path::new(path).ends_with(RUNTIME_PROGRAM_NAME)
}

/// Removes Boathook's entries from a daemon.json that no record describes, or that somebody has
/// changed since the installation. The default runtime becomes that of the recorded text from
/// before the installation.
///
/// JSON has no comments that could mark Boathook's objects. So an object that becomes empty is
/// kept. Without a record, the previous default runtime is not known, and every entry that has only
/// the path of `boathook-runtime` counts as Boathook's and is removed.
pub(crate) fn remove_boathook_entries(text: &str, recorded_file: Option<&RecordedFile>) -> String {
    let (byte_order_mark, text) = split_byte_order_mark(text);
    let old_text = recorded_file.and_then(|file| file.old_text.as_deref());
    let (_, old_text) = split_byte_order_mark(old_text.unwrap_or_default());
    byte_order_mark.to_owned() + &remove_from_object(text, old_text, recorded_file)
}

fn remove_from_object(text: &str, old_text: &str, recorded_file: Option<&RecordedFile>) -> String {
    if json_text::require_json_object(Path::new(DAEMON_JSON_PATH), text).is_err() {
        return text.to_owned();
    }
    let names = find_installed_runtime_names(text, old_text, recorded_file);
    if names.is_empty() {
        return text.to_owned();
    }
    let mut text = text.to_owned();
    for name in names {
        if let Some(runtimes) = json_text::find_value(&text, &["runtimes"]) {
            text = json_text::remove_member(&text, runtimes, &name);
        }
    }
    let default_runtime = json_text::find_value(&text, &["default-runtime"]);
    let old_default =
        json_text::find_value(old_text, &["default-runtime"]).map(|value| &old_text[value]);
    match (default_runtime, json_text::find_value(&text, &[])) {
        (Some(value), Some(top_object_range))
            if text[value.clone()] == json_text::quote(RUNTIME_HANDLER_NAME) =>
        {
            match old_default {
                Some(value) => {
                    json_text::set_member(&text, top_object_range, "default-runtime", value)
                }
                None => json_text::remove_member(&text, top_object_range, "default-runtime"),
            }
        }
        _ => text,
    }
}

/// Returns the names of those runtimes in the daemon.json `text` that an installation wrote.
/// `old_text` is the text from before the installation.
fn find_installed_runtime_names(
    text: &str,
    old_text: &str,
    recorded_file: Option<&RecordedFile>,
) -> Vec<String> {
    let parse_json =
        |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap_or_default() };
    let daemon_json = parse_json(text);
    let is_installed = |name: &str| match recorded_file {
        _ if name == RUNTIME_HANDLER_NAME => true,
        Some(file) => {
            let has_runtime =
                |text: &str| !parse_json(split_byte_order_mark(text).1)["runtimes"][name].is_null();
            !has_runtime(old_text) && file.written_texts.iter().any(|text| has_runtime(text))
        }
        None => {
            let entry = daemon_json["runtimes"][name].as_object();
            entry.is_some_and(|entry| entry.len() == 1)
        }
    };
    find_boathook_runtimes(&daemon_json)
        .map(|(name, _)| name)
        .filter(|name| is_installed(name))
        .map(str::to_owned)
        .collect()
}
