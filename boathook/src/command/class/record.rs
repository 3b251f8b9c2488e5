//! Implements `boathook class record`, which writes the host's files that classes read into one
//! file. Tests use this file as a recorded host.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::discover;
use device_class::host::HostRecorder;
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use hook::exit::ExitCode;
use hook::planner;
use serde_json::json;

use crate::command::{CommandError, print_json, select_sources};

/// Writes the content of all host files that the selected classes read to `directory/host.txt`. The
/// selected classes are the class files `class_file_paths` and the installed classes `class_names`.
/// If both lists are empty, all installed classes are selected.
#[expect(
    clippy::disallowed_methods,
    reason = "a new file, which no link leads to"
)]
pub(super) fn run(
    directory: &Path,
    class_file_paths: &[PathBuf],
    class_names: &[ClassName],
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let host = planner::open_host(config)?;
    let recording = HostRecorder::new(&host);
    let mut classes_with_devices = Vec::new();
    let mut sources: Vec<_> = class_file_paths
        .iter()
        .map(|file| ClassSource::read(file, &config.classes))
        .collect();
    if class_file_paths.is_empty() || !class_names.is_empty() {
        sources.extend(select_sources(
            class_names,
            load::read_each_source(&config.classes)?,
        )?);
    }
    for source in sources {
        let class = config.class(&source?)?;
        match discover::look_up_class(&class, (&class.spec.capabilities()).into(), &recording) {
            Ok(found_class) if found_class.inventory.devices.is_empty() => {
                if !class_file_paths.is_empty() || !class_names.is_empty() {
                    hook::log::warning(&format!(
                        "class {} finds no device on this host, so that the recording has none of it; \
                         `boathook class check` says what a class looks for",
                        class.name
                    ));
                }
            }
            Ok(_) => classes_with_devices.push(class.name.to_string()),
            // This is only a warning, because the class fails on the recorded host in the same way:
            // the files that it needs are missing there too.
            Err(error) => hook::log::warning(&hook::log::format_error_chain(&error)),
        }
    }
    let recorded_host_path = directory.join("host.txt");
    let to_file_error = |error| CommandError::File {
        path: recorded_host_path.clone(),
        error,
    };
    fs::create_dir_all(directory).map_err(to_file_error)?;
    // Other users must not read host.txt, because a class may read any file of the host, including
    // secret ones.
    let created_file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&recorded_host_path);
    let mut file = created_file.map_err(|error| {
        to_file_error(match error.kind() {
            ErrorKind::AlreadyExists => io::Error::other("it exists; name another directory"),
            _ => error,
        })
    })?;
    write!(file, "{recording}").map_err(to_file_error)?;
    if as_json {
        print_json(&json!({ "file": recorded_host_path, "classes": classes_with_devices }))?;
        return Ok(ExitCode::Success);
    }
    let summary = if classes_with_devices.is_empty() {
        "no devices".to_owned()
    } else {
        format!("devices of {}", classes_with_devices.join(", "))
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{}: {summary}", recorded_host_path.display())?;
    writeln!(
        out,
        "review it before you send it: it contains serial numbers and other identifiers"
    )?;
    Ok(ExitCode::Success)
}
