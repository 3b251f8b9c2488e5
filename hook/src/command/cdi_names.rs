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
    let default_directories = || DIRECTORIES.map(|path| config.host_root.join(path)).into();
    let directories: Vec<PathBuf> =
        directory.map_or_else(default_directories, |directory| vec![directory.to_owned()]);
    let mut rows = vec![["DEVICE".to_owned(), "SPECIFICATION".to_owned()]];
    for file in directories
        .iter()
        .flat_map(|directory| find_specification_files(directory))
    {
        match read_device_names(&file) {
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
        let devices: Vec<Value> = rows[1..]
            .iter()
            .map(|[device, file]| json!({ "device": device, "specification": file }))
            .collect();
        print_json(&json!({ "devices": devices }))?;
    } else if rows.len() == 1 {
        let directories: Vec<_> = directories
            .iter()
            .map(|directory| directory.display().to_string())
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
pub(super) fn read_specifications(config: &Config) -> Vec<(PathBuf, Vec<String>)> {
    find_default_files(config)
        .filter_map(|file| {
            let names = read_device_names(&file)?;
            Some((file, names))
        })
        .collect()
}

/// Returns the files in the usual directories whose device names are unknown, because the files are
/// not JSON.
pub(super) fn find_unreadable_specifications(config: &Config) -> Vec<PathBuf> {
    find_default_files(config)
        .filter(|file| read_device_names(file).is_none())
        .collect()
}

fn find_default_files(config: &Config) -> impl Iterator<Item = PathBuf> {
    DIRECTORIES
        .iter()
        .flat_map(|directory| find_specification_files(&config.host_root.join(directory)))
}

/// Returns the paths of the specifications in a directory, sorted. The set is empty if the
/// directory does not exist.
fn find_specification_files(directory: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_specification = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("json" | "yaml" | "yml"))
    };
    inserted(entries.map(|entry| entry.path()).filter(is_specification))
}

/// Returns the names of the devices in a specification, each as `KIND=DEVICE`. Returns `None` if
/// the file is not a CDI specification in JSON.
fn read_device_names(file: &Path) -> Option<Vec<String>> {
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
        let names: Vec<_> = find_specification_files(directory.path())
            .iter()
            .map(|file| read_device_names(file))
            .collect();
        let expected = ["x.com/npu=0", "x.com/npu=all"].map(str::to_owned);
        assert_eq!(names, [None, Some(expected.into())]);
    }
}
