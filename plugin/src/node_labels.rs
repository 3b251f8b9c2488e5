//! Writes labels of the node, which describe its devices, to a file for Node Feature Discovery.
//!
//! The plugin has no access to the API server. Node Feature Discovery reads every file in its
//! directory `features.d`, with one `NAME=VALUE` in each line, and adds these labels to the node.
//! It ignores files that begin with a dot, such as the temporary file of an atomic replacement.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use daemon::host_inventory::ClassScan;
use device_class::discover;
use device_class::name::DeviceId;
use host_files::rooted_path::{read_own_text, replace_file};

/// The mode of the label file. Every user may read the file, because Node Feature Discovery need
/// not run as root.
const LABEL_FILE_MODE: u32 = 0o644;
/// The maximum size of the label file, in bytes. Node Feature Discovery ignores a larger file.
const MAX_LABEL_FILE_BYTES: u64 = 65_536;
/// The maximum length of a label's name without its domain, in bytes.
const MAX_LABEL_NAME_BYTES: usize = 63;
/// The suffix of a label's name if the label contains the number of a resource's devices.
const COUNT_SUFFIX: &str = ".count";

/// The labels of a node: the value of each label by its name, such as `example.com/npu.count`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeLabels(BTreeMap<String, String>);

impl NodeLabels {
    /// Collects the labels of all devices, healthy or not. Also adds a label with the number of
    /// devices for each resource, in which a shared device counts once. If all devices of a
    /// resource are combined into one, the resource has only this label, because the other labels
    /// would describe its first member alone.
    pub(crate) fn from_devices(classes: &[ClassScan<'_>]) -> Self {
        let mut values_by_label: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut numbers_by_label: BTreeMap<String, BTreeMap<&DeviceId, u128>> = BTreeMap::new();
        let mut ids_by_resource: BTreeMap<String, BTreeSet<&DeviceId>> = BTreeMap::new();
        for ClassScan {
            class, inventory, ..
        } in classes
        {
            let sharing = class.spec.sharing.as_ref();
            let is_combined = sharing.is_some_and(|sharing| sharing.combines_resource);
            for device in &inventory.devices {
                let resource = &device.resource;
                let ids = ids_by_resource.entry(resource.to_string()).or_default();
                ids.insert(&device.id);
                if is_combined {
                    continue;
                }
                let attributes = discover::list_label_attributes(device);
                for (name, label) in &class.spec.labels {
                    let Some(value) = label.fill(&attributes) else {
                        continue;
                    };
                    let name = name.for_resource(resource);
                    if !label.is_sum {
                        values_by_label.entry(name).or_default().insert(value);
                    } else if let Ok(number) = value.parse() {
                        // The numbers are stored by device id, so that the sum counts a device once
                        // even if two classes offer it.
                        let numbers = numbers_by_label.entry(name).or_default();
                        numbers.insert(&device.id, number);
                    }
                }
            }
        }
        let count_labels = ids_by_resource
            .into_iter()
            .map(|(resource, ids)| (resource + COUNT_SUFFIX, ids.len().to_string()));
        // A label whose value differs between devices is omitted, because it would not tell which
        // value the device of a certain pod has.
        let common_labels = values_by_label
            .into_iter()
            .filter(|(_, values)| values.len() == 1)
            .filter_map(|(name, values)| Some((name, values.into_iter().next()?)));
        let sum_labels = numbers_by_label.into_iter().map(|(name, numbers)| {
            let sum = numbers.into_values().fold(0, u128::saturating_add);
            (name, sum.to_string())
        });
        let labels = count_labels.chain(common_labels).chain(sum_labels);
        NodeLabels(
            labels
                .filter(|(name, _)| has_valid_name_length(name))
                .collect(),
        )
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            let _ = writeln!(text, "{name}={value}");
        }
        text
    }
}

fn has_valid_name_length(name: &str) -> bool {
    let (_, local_name) = name.split_once('/').unwrap_or(("", name));
    local_name.len() <= MAX_LABEL_NAME_BYTES
}

/// The file with this node's labels, which Node Feature Discovery reads.
#[derive(Debug, Clone)]
pub(crate) struct LabelFile(PathBuf);

impl LabelFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        LabelFile(path)
    }

    /// Writes the labels to the file, unless it already contains exactly these labels. Makes the
    /// file's directory, which may not exist before Node Feature Discovery is installed. Removes
    /// the file if there are no labels. Returns an error message of one line if this fails.
    pub(crate) fn write(&self, labels: &NodeLabels) -> Option<String> {
        let path = &self.0;
        let text = labels.to_text();
        let result = match read_own_text(path, MAX_LABEL_FILE_BYTES) {
            Ok(old_text) if old_text == text => Ok(()),
            _ if text.is_empty() => remove_file_if_exists(path),
            _ => make_parent_dir(path)
                .and_then(|()| replace_file(path, LABEL_FILE_MODE, text.as_bytes())),
        };
        let error = result.err()?;
        Some(format!(
            "{}: cannot write the labels of the node: {error}",
            path.display()
        ))
    }
}

fn make_parent_dir(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)
}

fn remove_file_if_exists(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
