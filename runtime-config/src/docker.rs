//! Docker: an entry among the `runtimes` of daemon.json, which has no
//! drop-ins (dockerd(8), "Daemon configuration file").

mod api;
mod sockets;

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::facts::HANDLER;
use crate::host::HostRoot;
use crate::json_text;
use crate::options::Options;
use crate::record::Record;
use crate::snapshot::Snapshot;

pub(crate) use api::{Runtimes, socket_of_daemon};

const DAEMON_JSON: &str = "/etc/docker/daemon.json";

/// Which some editors put first, and dockerd skips.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The runtime that dockerd has without any configuration, as JSON.
const BUILT_IN: &str = "\"runc\"";

/// The file name that distinguishes our runtime from another of the same name.
const RUNTIME_NAME: &str = "/boathook-runtime\"";

pub(crate) fn read(host: &HostRoot, snapshot: &mut Snapshot) -> Result<(), Error> {
    snapshot.read(host, Path::new(DAEMON_JSON)).map(drop)
}

pub(crate) fn desired(base: &Snapshot, options: &Options) -> Result<Vec<(PathBuf, String)>, Error> {
    let path = Path::new(DAEMON_JSON);
    let (mark, text) = text(base);
    json_text::check_object(path, text)?;
    if json_text::find(text, &["runtimes", HANDLER]).is_some() {
        let line = json_text::line_at(text, &["runtimes", HANDLER]);
        return Err(Error::name_taken(path, line));
    }
    let runtime = json_text::quote(&options.runtime.to_string_lossy());
    let mut text = with_runtime(path, text, &format!("{{ \"path\": {runtime} }}"))?;
    if options.set_default {
        let whole = json_text::find(&text, &[]).unwrap_or_default();
        text = json_text::set(&text, whole, "default-runtime", &json_text::quote(HANDLER));
    }
    json_text::check_object(path, &text)?;
    Ok(vec![(path.into(), mark.to_owned() + &text)])
}

/// The byte order mark, if there is one, and what dockerd reads after it: a
/// blank file as an empty object.
fn text(base: &Snapshot) -> (&str, &str) {
    let (mark, text) = split_mark(base.text(Path::new(DAEMON_JSON)).unwrap_or_default());
    (mark, if text.trim().is_empty() { "{}\n" } else { text })
}

pub(crate) fn split_mark(text: &str) -> (&str, &str) {
    let rest = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    text.split_at(text.len() - rest.len())
}

/// Whether two texts have the same content, however they are formatted.
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
        return Err(Error::at(path, line, problem));
    }
    Ok(json_text::set(text, runtimes, HANDLER, entry))
}

/// The file that makes a running dockerd drop our runtime when it is reloaded,
/// where the file is to be `base` in the end. Keys that are absent it ignores,
/// so both are there.
pub(crate) fn released(base: &Snapshot) -> Result<(PathBuf, String), Error> {
    let path = Path::new(DAEMON_JSON);
    let (mark, text) = text(base);
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

/// Whether a daemon has our runtime as the record's file defines it.
pub(crate) fn is_loaded(runtimes: &Runtimes, record: &Record) -> bool {
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

/// Takes our entries out of a daemon.json that no record describes.
///
/// JSON holds no marks, so an object that became empty stays, and a default
/// runtime that ours replaced is not known any more.
pub(crate) fn strip(text: &str) -> String {
    let (mark, text) = split_mark(text);
    mark.to_owned() + &strip_object(text)
}

fn strip_object(text: &str) -> String {
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
    match (default, json_text::find(&text, &[])) {
        (Some(value), Some(whole)) if text[value.clone()] == json_text::quote(HANDLER) => {
            json_text::remove(&text, whole, "default-runtime")
        }
        _ => text,
    }
}
