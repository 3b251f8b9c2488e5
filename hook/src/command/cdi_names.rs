//! `boathook cdi list`: the names that engines accept.

use device_class::inserted;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use device_class::config::Config;
use serde_json::{Value, json};

use super::output::Style;
use super::{CommandError, print_json};
use crate::exit::ExitCode;
use crate::oci::read_json;

/// The directories in which engines read CDI specifications by default (CDI specification,
/// section "CDI JSON Specification"), relative to the host's root.
const DIRECTORIES: [&str; 2] = ["etc/cdi", "var/run/cdi"];

/// Prints each CDI device name with the file that describes it. A file that is not a CDI
/// specification in JSON is reported.
pub(super) fn list(
    directory: Option<&Path>,
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let usual = || DIRECTORIES.map(|directory| config.host_root.join(directory));
    let directories = directory.map_or_else(|| usual().into(), |given| vec![given.to_owned()]);
    let mut rows = vec![["DEVICE".to_owned(), "SPECIFICATION".to_owned()]];
    for file in directories.iter().flat_map(|directory| files(directory)) {
        match names(&file) {
            Some(names) => {
                rows.extend(
                    names
                        .into_iter()
                        .map(|name| [name, file.display().to_string()]),
                );
            }
            None => crate::log::warning(&format!(
                "{} is not read: it is no CDI specification in JSON",
                file.display()
            )),
        }
    }
    if json {
        let devices = rows[1..].iter();
        let devices: Vec<Value> = devices
            .map(|[device, file]| json!({ "device": device, "specification": file }))
            .collect();
        print_json(&json!({ "devices": devices }))?;
    } else if rows.len() == 1 {
        let directories: Vec<_> = directories
            .iter()
            .map(|it| it.display().to_string())
            .collect();
        crate::log::warning(&format!(
            "no device is named in {}; `boathook cdi generate` writes specifications",
            directories.join(" or ")
        ));
    } else {
        Style::of_stdout().table(&mut io::stdout().lock(), &rows)?;
    }
    Ok(ExitCode::Success)
}

/// Returns the specifications in the usual directories that can be read, with the names of their
/// devices.
pub(super) fn specifications(config: &Config) -> Vec<(PathBuf, Vec<String>)> {
    let directories = DIRECTORIES.iter();
    let files = directories.flat_map(|directory| files(&config.host_root.join(directory)));
    let named = files.filter_map(|file| {
        let names = names(&file)?;
        Some((file, names))
    });
    named.collect()
}

/// Returns the files in the usual directories whose names are unknown, because they are not JSON.
pub(super) fn unread_specifications(config: &Config) -> Vec<PathBuf> {
    let directories = DIRECTORIES.iter();
    let files = directories.flat_map(|directory| files(&config.host_root.join(directory)));
    files.filter(|file| names(file).is_none()).collect()
}

/// Returns the paths of the specifications in a directory, sorted. The set is empty if the
/// directory does not exist.
fn files(directory: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| {
        let end = path.extension().and_then(|end| end.to_str());
        matches!(end, Some("json" | "yaml" | "yml"))
    };
    inserted(entries.map(|entry| entry.path()).filter(is_one))
}

fn names(file: &Path) -> Option<Vec<String>> {
    let specification: Value = read_json(file)?;
    let kind = specification["kind"].as_str()?;
    let devices = specification["devices"].as_array()?.iter();
    let names = devices.filter_map(|device| device["name"].as_str());
    Some(names.map(|name| format!("{kind}={name}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_names_its_devices_with_their_kind() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write(
            "b.json",
            r#"{"kind": "x.com/npu", "devices": [{"name": "0"}, {"name": "all"}]}"#,
        );
        write("a.yaml", "kind: x.com/gpu\n");
        write("notes.txt", "");
        let found: Vec<_> = files(directory.path())
            .iter()
            .map(|file| names(file))
            .collect();
        let named = ["x.com/npu=0", "x.com/npu=all"].map(str::to_owned);
        assert_eq!(found, [None, Some(named.into())]);
    }
}
