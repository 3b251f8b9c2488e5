//! Implements `boathook cdi list`, which prints the CDI device names that engines can resolve.

use device_class::collect_by_insertion;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use device_class::config::Config;
use hook::exit::ExitCode;
use hook::oci::read_json;
use host_files::rooted_path::read_regular_file;
use serde_json::{Value, json};

use super::output::Style;
use super::{CommandError, cdi_yaml, print_json};

/// The maximum size in bytes of a CDI specification in YAML. A larger file counts as no
/// specification.
const MAX_SPECIFICATION_BYTES: u64 = 16 << 20;

/// The default directories of CDI specifications, which engines read (CDI specification, section
/// "CDI JSON Specification"). The paths are relative to the host's root.
const CDI_SPEC_DIRS: [&str; 2] = ["etc/cdi", "var/run/cdi"];

/// Prints each CDI device name with the path of its specification. Logs a warning for each file
/// that cannot be parsed as a CDI specification.
pub(super) fn print_device_names(
    directory: Option<&Path>,
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let default_directories = || CDI_SPEC_DIRS.map(|path| config.host_root.join(path)).into();
    let directories: Vec<PathBuf> =
        directory.map_or_else(default_directories, |directory| vec![directory.to_owned()]);
    let mut rows = vec![["DEVICE".to_owned(), "SPECIFICATION".to_owned()]];
    for path in directories
        .iter()
        .flat_map(|directory| find_specification_paths(directory))
    {
        match read_device_names(&path) {
            Some(names) => {
                rows.extend(
                    names
                        .into_iter()
                        .map(|name| [name, path.display().to_string()]),
                );
            }
            None => hook::log::warning(&format!(
                "{} is not read: it is no CDI specification",
                path.display()
            )),
        }
    }
    if as_json {
        let devices: Vec<Value> = rows[1..]
            .iter()
            .map(|[device, path]| json!({ "device": device, "specification": path }))
            .collect();
        print_json(&json!({ "devices": devices }))?;
    } else if rows.len() == 1 {
        let directories: Vec<_> = directories
            .iter()
            .map(|directory| directory.display().to_string())
            .collect();
        hook::log::warning(&format!(
            "no device is named in {}; `boathook cdi generate` writes specifications",
            directories.join(" or ")
        ));
    } else {
        Style::for_stdout().write_table(&mut io::stdout().lock(), &rows)?;
    }
    Ok(ExitCode::Success)
}

/// Returns the path of each specification in [`CDI_SPEC_DIRS`], with the qualified names of its
/// devices, such as `example.com/npu=0`.
pub(super) fn read_specifications(config: &Config) -> Vec<(PathBuf, Vec<String>)> {
    find_default_specification_paths(config)
        .filter_map(|path| {
            let names = read_device_names(&path)?;
            Some((path, names))
        })
        .collect()
}

/// Returns the paths of the files in [`CDI_SPEC_DIRS`] that have the file extension of a CDI
/// specification but cannot be parsed. The device names in such a file are unknown.
pub(super) fn find_unparsable_specifications(config: &Config) -> Vec<PathBuf> {
    find_default_specification_paths(config)
        .filter(|path| read_device_names(path).is_none())
        .collect()
}

fn find_default_specification_paths(config: &Config) -> impl Iterator<Item = PathBuf> {
    CDI_SPEC_DIRS
        .iter()
        .flat_map(|directory| find_specification_paths(&config.host_root.join(directory)))
}

/// Returns the paths of the files in `directory` that end in `.json` or `.yaml`, as CDI
/// specifications do. Returns an empty set if the directory does not exist.
fn find_specification_paths(directory: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_specification = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("json" | "yaml"))
    };
    collect_by_insertion(entries.map(|entry| entry.path()).filter(is_specification))
}

/// Reads a CDI specification in JSON or YAML. Returns `None` if the file has another format.
pub(super) fn read_specification(path: &Path) -> Option<Value> {
    if path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        return read_json(path);
    }
    let bytes = read_regular_file(path, MAX_SPECIFICATION_BYTES).ok()?;
    cdi_yaml::parse(&String::from_utf8(bytes).ok()?)
}

/// Returns the qualified names of the devices in the file `path`, such as `example.com/npu=0`.
/// Returns `None` if the file is not a CDI specification.
fn read_device_names(path: &Path) -> Option<Vec<String>> {
    let specification = read_specification(path)?;
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
        write("c.yaml", "kind: x.com/gpu\ndevices:\n- name: 0\n");
        write("d.yml", "kind: x.com/gpu\ndevices:\n- name: 1\n");
        write("notes.txt", "");
        let names: Vec<_> = find_specification_paths(directory.path())
            .iter()
            .map(|path| read_device_names(path))
            .collect();
        let expected = ["x.com/npu=0", "x.com/npu=all"].map(str::to_owned);
        let in_yaml = Some(vec!["x.com/gpu=0".to_owned()]);
        assert_eq!(names, [None, Some(expected.into()), in_yaml]);
    }
}
