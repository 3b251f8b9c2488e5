//! Docker: an entry among the `runtimes` of daemon.json, which has no
//! drop-ins (dockerd(8), "Daemon configuration file").

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::host::HostRoot;
use crate::json_text;
use crate::options::{HANDLER, Options};
use crate::snapshot::Snapshot;

const DAEMON_JSON: &str = "/etc/docker/daemon.json";

/// The file name that tells our runtime from another of the same name.
const RUNTIME_NAME: &str = "/boathook-runtime\"";

pub(crate) fn read(host: &HostRoot, snapshot: &mut Snapshot) -> Result<(), Error> {
    snapshot.read(host, Path::new(DAEMON_JSON)).map(drop)
}

pub(crate) fn desired(base: &Snapshot, options: &Options) -> Result<Vec<(PathBuf, String)>, Error> {
    let path = Path::new(DAEMON_JSON);
    let text = match base.text(path) {
        // dockerd takes a blank file for an empty object.
        Some(text) if !text.trim().is_empty() => text,
        _ => "{}\n",
    };
    json_text::check_object(path, text)?;
    if json_text::find(text, &["runtimes", HANDLER]).is_some() {
        let line = json_text::line_at(text, &["runtimes", HANDLER]);
        return Err(Error::NameTaken {
            path: path.into(),
            line,
        });
    }
    let runtime = json_text::quote(&options.runtime.to_string_lossy());
    let mut text = with_runtime(path, text, &format!("{{ \"path\": {runtime} }}"))?;
    if options.set_default {
        let whole = json_text::find(&text, &[]).unwrap_or_default();
        text = json_text::set(&text, whole, "default-runtime", &json_text::quote(HANDLER));
    }
    json_text::check_object(path, &text)?;
    Ok(vec![(path.into(), text)])
}

fn with_runtime(path: &Path, text: &str, entry: &str) -> Result<String, Error> {
    let whole = json_text::find(text, &[]).unwrap_or_default();
    let Some(runtimes) = json_text::find(text, &["runtimes"]) else {
        let object = format!("{{\n        \"{HANDLER}\": {entry}\n    }}");
        return Ok(json_text::set(text, whole, "runtimes", &object));
    };
    if !text[runtimes.clone()].starts_with('{') {
        return Err(Error::Unsupported {
            path: path.into(),
            line: json_text::line_at(text, &["runtimes"]),
            problem: "\"runtimes\" is not an object".into(),
            advice: "make it one, or take it out".into(),
        });
    }
    Ok(json_text::set(text, runtimes, HANDLER, entry))
}

/// Takes our entries out of a daemon.json that no record describes.
///
/// JSON holds no marks, so an object that became empty stays, and a default
/// runtime that ours replaced is not known any more.
pub(crate) fn strip(text: &str) -> String {
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
