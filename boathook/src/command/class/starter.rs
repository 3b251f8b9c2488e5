//! Implements `boathook class new`, which prints a class file for a device as a start for its
//! author. Comments in the class file explain each setting.

mod bus_nodes;
mod directory;
mod hardware;
mod names;
#[cfg(test)]
mod tests;
mod toml_text;

use std::path::{Path, PathBuf};

use device_class::HostView;
use device_class::host::Entry;
use device_class::name::excerpt;

pub(in crate::command) use hardware::find_class_new_argument;
pub(super) use hardware::{find_offered_devices, find_usb_ids_of_node};
pub(super) use names::InstalledNames;

use toml_text::{escape_regex, escape_toml, format_nodes_line, quote_toml};

/// The device for which a class file is generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A device node. Similar devices have nodes whose names differ only in a number, as
    /// /dev/video0 and /dev/video1 do.
    Node {
        /// The path before the device's number, such as `/dev/video` of /dev/video0.
        stem: String,
        /// The device's number in the path, such as `0`. It is empty if the file name contains no
        /// number.
        number: String,
        /// The path after the device's number, such as `_ctl` of /dev/npu0_ctl.
        suffix: String,
    },
    /// A symbolic link in /dev to a device node, such as udev's links in /dev/serial/by-id.
    Link {
        path: String,
        /// The directory of the node, such as /dev or /dev/input.
        node_dir: String,
    },
    /// A directory in /dev, such as /dev/snd. All device nodes in it belong to one device.
    Directory {
        path: String,
        /// The names of the device nodes in the directory.
        nodes: Vec<String>,
    },
    /// All devices with these ids on the bus `pci` or `usb`. Each id has four hexadecimal digits.
    BusIds {
        bus: &'static str,
        vendor: String,
        product: String,
    },
}

/// The error for a device argument of `boathook class new` that cannot be parsed, or that leads to
/// no device of this host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("`{}` is neither a path in /dev nor an id such as pci:10ee:5000 or usb:054c:06c1", excerpt(.0))]
    MalformedTarget(String),
    #[error(
        "no USB device of this host has the node {}, whose number changes when it is plugged in \
         again; name the device by its ids, as in usb:054c:06c1 (`lsusb` shows them)",
        excerpt(.0)
    )]
    NoUsbDevice(String),
    #[error(
        "the directory {path} has no device nodes itself; `boathook list {path}` shows the devices \
         in its directories",
        path = excerpt(.0)
    )]
    NoNodes(String),
}

impl Target {
    /// Parses a path in /dev, `pci:VENDOR:DEVICE` or `usb:VENDOR:PRODUCT`.
    pub(super) fn parse(text: &str) -> Result<Self, TargetError> {
        let create_error = || TargetError::MalformedTarget(text.to_owned());
        let is_hex_id = |id: &str| id.len() == 4 && id.bytes().all(|b| b.is_ascii_hexdigit());
        for bus in ["pci", "usb"] {
            let after_bus = text.strip_prefix(bus);
            let Some(ids) = after_bus.and_then(|suffix| suffix.strip_prefix(':')) else {
                continue;
            };
            let (vendor, product) = ids
                .split_once(':')
                .filter(|(vendor, product)| is_hex_id(vendor) && is_hex_id(product))
                .ok_or_else(create_error)?;
            return Ok(Target::BusIds {
                bus,
                vendor: vendor.to_ascii_lowercase(),
                product: product.to_ascii_lowercase(),
            });
        }
        // The names of udev's links contain bus addresses (`pci-0000:00:14.0`), model names with
        // any letters, and `\x20` in place of a blank. The characters that are refused have a
        // meaning in patterns of class files.
        let is_allowed_char = |c: char| !c.is_control() && !"\"'{}[]*?$`".contains(c);
        let path = Path::new(text);
        let is_device_path = text.starts_with("/dev/") && path.file_name().is_some();
        if !is_device_path
            || !text.chars().all(is_allowed_char)
            || text.contains("..")
            || text.contains("//")
            || !text[5..].contains(|c: char| c.is_ascii_alphanumeric())
        {
            return Err(create_error());
        }
        // A link that udev creates, for example in /dev/serial/by-id, belongs to one device. A
        // number in the link's name is not the device's number.
        let is_udev_link = text.contains("/by-");
        let split_path = split_at_numbers(text).last().filter(|_| !is_udev_link);
        let (stem, number, suffix) = split_path.unwrap_or((text, "", ""));
        if stem == "/dev/" {
            return Err(create_error());
        }
        Ok(Target::new_node(stem, number, suffix))
    }

    fn new_node(stem: &str, number: &str, suffix: &str) -> Self {
        Target::Node {
            stem: stem.to_owned(),
            number: number.to_owned(),
            suffix: suffix.to_owned(),
        }
    }

    /// Returns a target that a class file can describe. The node of a USB device, or a link to it,
    /// becomes the device's ids, because the number in the node's path changes when the device is
    /// plugged in again. Any other link becomes [`Target::Link`], and a directory
    /// [`Target::Directory`].
    ///
    /// # Errors
    ///
    /// The call fails if the host has no such USB device, or if the directory has no device node.
    pub(super) fn resolve(self, host: &dyn HostView) -> Result<Self, TargetError> {
        let Target::Node {
            stem,
            number,
            suffix,
        } = &self
        else {
            return Ok(self);
        };
        let path = format!("{stem}{number}{suffix}");
        let node_path = host.canonicalize(Path::new(&path));
        let node_path = node_path.unwrap_or_else(|_| PathBuf::from(&path));
        let node_text = node_path.to_string_lossy();
        if hardware::parse_usb_node_path(&node_text).is_some() {
            let ids = hardware::find_usb_ids(&node_text, host);
            let (vendor, product) = ids.ok_or(TargetError::NoUsbDevice(path))?;
            return Ok(Target::BusIds {
                bus: "usb",
                vendor,
                product,
            });
        }
        let leads_to_node = node_path.starts_with("/dev")
            && matches!(host.entry(&node_path), Ok(Some(Entry::Device(_))));
        if leads_to_node && node_path != Path::new(&path) {
            let node_dir = node_path.parent().unwrap_or(Path::new("/dev"));
            return Ok(Target::Link {
                path,
                node_dir: node_dir.to_string_lossy().into_owned(),
            });
        }
        if !is_directory(&path, host) {
            return Ok(self);
        }
        let path = path.trim_end_matches('/').to_owned();
        let nodes = directory::list_node_names(&path, host);
        if nodes.is_empty() {
            return Err(TargetError::NoNodes(path));
        }
        Ok(Target::Directory { path, nodes })
    }

    /// Returns the text of the class file. `sibling_paths` are further device nodes that the user
    /// named.
    ///
    /// A node of `sibling_paths` belongs to the device if its path differs from the target's path
    /// only in the number and the text after it. It also belongs to the device if it is a node of
    /// hardware with the target's ids. Every container of the class gets the other nodes. The class
    /// file contains only names that no installed class uses.
    pub(super) fn format_class_file(
        &self,
        sibling_paths: &[String],
        installed_names: &InstalledNames,
        host: &dyn HostView,
    ) -> Result<String, TargetError> {
        for path in sibling_paths {
            if !matches!(Target::parse(path)?, Target::Node { .. }) {
                return Err(TargetError::MalformedTarget(path.clone()));
            }
        }
        let target = self.choose_number(sibling_paths);
        let mut device_nodes = target.list_node_items();
        let old_nodes_line = format_nodes_line(&device_nodes);
        let mut class_nodes = Vec::new();
        for path in sibling_paths {
            if is_directory(path, host) {
                let directory = path.trim_end_matches('/');
                let names = directory::list_node_names(directory, host);
                if names.is_empty() {
                    return Err(TargetError::NoNodes(path.clone()));
                }
                class_nodes.extend(directory::list_node_items(directory, &names));
                continue;
            }
            let pattern = target.to_sibling_pattern(path);
            let item = pattern.map(|pattern| quote_toml(&pattern));
            match item.or_else(|| bus_nodes::format_node(&target, path, host)) {
                Some(item) if device_nodes.contains(&item) => {}
                Some(item) => device_nodes.push(item),
                None => class_nodes.push(quote_toml(path)),
            }
        }
        let class_name = installed_names.choose_name(&target.derive_class_name());
        let text = target.fill_template(&class_name);
        let mut text = text.replacen(&old_nodes_line, &format_nodes_line(&device_nodes), 1);
        if !class_nodes.is_empty() {
            text += "\n# For every container with a device.\n[[edits]]\n";
            text += &format_nodes_line(&class_nodes);
        }
        Ok(text)
    }

    /// Returns the paths of `sibling_paths` that differ from the target in the device's number,
    /// such as /dev/video1 for the target /dev/video0. The class file describes them as nodes of
    /// other devices.
    pub(super) fn find_nodes_of_other_devices<'n>(
        &self,
        sibling_paths: &'n [String],
    ) -> Vec<&'n str> {
        let target = self.choose_number(sibling_paths);
        let Target::Node { stem, number, .. } = &target else {
            return Vec::new();
        };
        let other_paths = sibling_paths.iter().filter(|path| {
            let after_stem = path.strip_prefix(stem.as_str()).unwrap_or_default();
            let after_number = after_stem.strip_prefix(number.as_str());
            let has_same_number =
                after_number.is_some_and(|text| !text.starts_with(|c: char| c.is_ascii_digit()));
            target.to_sibling_pattern(path).is_some() && !has_same_number
        });
        other_paths.map(String::as_str).collect()
    }

    /// Selects the number in the target's file name that is the device's number. A file name may
    /// contain several numbers, and `sibling_paths` show which of them numbers the devices.
    fn choose_number(&self, sibling_paths: &[String]) -> Self {
        match self {
            Target::Node {
                stem,
                number,
                suffix,
            } if !sibling_paths.is_empty() => {
                Self::parse_node_path(&format!("{stem}{number}{suffix}"), sibling_paths)
            }
            _ => self.clone(),
        }
    }

    /// Parses the path of a device node. If the file name contains several numbers, selects the
    /// number at whose position most paths in `sibling_paths` also have a number.
    fn parse_node_path(path: &str, sibling_paths: &[String]) -> Self {
        let candidates = split_at_numbers(path)
            .map(|(stem, number, suffix)| Self::new_node(stem, number, suffix));
        let count_matching_siblings = |target: &Self| {
            sibling_paths
                .iter()
                .filter(|path| target.to_sibling_pattern(path).is_some())
                .count()
        };
        let best_candidate = candidates.max_by_key(count_matching_siblings);
        best_candidate.unwrap_or_else(|| Self::new_node(path, "", ""))
    }

    /// Returns `sibling_path` with `{index}` in place of the device's number, such as
    /// `/dev/video{index}`, as a pattern for a class file. Returns `None` if the text before the
    /// number differs from the target's, or if one of the two paths has no number.
    fn to_sibling_pattern(&self, sibling_path: &str) -> Option<String> {
        let Target::Node { stem, number, .. } = self else {
            return None;
        };
        let after_stem = sibling_path.strip_prefix(stem.as_str())?;
        let suffix = after_stem.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_numbered = !number.is_empty() && suffix.len() < after_stem.len();
        is_numbered.then(|| format!("{stem}{{index}}{suffix}"))
    }

    /// Returns the nodes in the template of the target, as items of the TOML key `nodes`. `{index}`
    /// replaces the device's number, as in `"/dev/video{index}"`.
    fn list_node_items(&self) -> Vec<String> {
        match self {
            Target::Node { stem, number, .. } if number.is_empty() => vec![quote_toml(stem)],
            Target::Node { stem, suffix, .. } => {
                vec![quote_toml(&format!("{stem}{{index}}{suffix}"))]
            }
            Target::BusIds { bus: "usb", .. } => {
                vec![quote_toml("/dev/bus/usb/{bus:03}/{number:03}")]
            }
            Target::BusIds { .. } | Target::Directory { .. } | Target::Link { .. } => Vec::new(),
        }
    }

    /// Derives a class name from the path without the device's number, such as `video` from
    /// /dev/video0, or from the bus and the ids, such as `usb-054c-06c1`.
    pub(super) fn derive_class_name(&self) -> String {
        match self {
            Target::BusIds {
                bus,
                vendor,
                product,
            } => format!("{bus}-{vendor}-{product}"),
            Target::Node { stem: path, .. }
            | Target::Directory { path, .. }
            | Target::Link { path, .. } => {
                let relative_path = path.strip_prefix("/dev/").unwrap_or(path);
                let parts = relative_path.split(|c: char| !c.is_ascii_alphanumeric());
                let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
                parts.join("-").to_ascii_lowercase()
            }
        }
    }

    /// Returns the text of the class file: the template for this kind of target, in which `@NAME@`
    /// and other placeholders are replaced.
    fn fill_template(&self, class_name: &str) -> String {
        let class_file_text = match self {
            Target::Node { number, .. } if number.is_empty() => include_str!("starter/node.toml"),
            Target::Node { .. } => include_str!("starter/nodes.toml"),
            Target::Link { .. } => include_str!("starter/link.toml"),
            Target::Directory { .. } => include_str!("starter/directory.toml"),
            Target::BusIds { bus: "pci", .. } => include_str!("starter/pci.toml"),
            Target::BusIds { .. } => include_str!("starter/usb.toml"),
        };
        let class_file_text = class_file_text
            .replace("@NAME@", class_name)
            .replace("@VARIABLE@", &names::to_variable(class_name))
            .replace("@RESOURCE@", &names::to_resource(class_name));
        match self {
            Target::Node { stem, suffix, .. } => class_file_text
                .replace("@STEM@", &escape_toml(stem))
                .replace("@REST@", &escape_toml(suffix)),
            Target::Link { path, node_dir } => class_file_text
                .replace("@STEM@", &escape_toml(path))
                .replace("@NODE_DIR@", &escape_toml(node_dir))
                .replace("@NODE_REGEX@", &escape_toml(&escape_regex(node_dir))),
            Target::Directory { path, nodes } => class_file_text
                .replace("@STEM@", &escape_toml(path))
                .replace("@NODES@", &directory::format_node_lines(path, nodes)),
            Target::BusIds {
                vendor, product, ..
            } => class_file_text
                .replace("@VENDOR@", vendor)
                .replace("@PRODUCT@", product),
        }
    }
}

fn is_directory(path: &str, host: &dyn HostView) -> bool {
    matches!(host.entry(Path::new(path)), Ok(Some(Entry::Directory)))
}

/// Splits `path` at each number in the file name that may be the device's number, such as
/// `/dev/npu1_2` at `1` and at `2`. Each item contains the text before the number, the number, and
/// the text after it. A number that is followed by a letter is skipped.
fn split_at_numbers(path: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let is_digit = |index: usize| path.as_bytes().get(index).is_some_and(u8::is_ascii_digit);
    let name_start = path.rfind('/').map_or(0, |index| index + 1);
    let number_starts =
        (name_start..path.len()).filter(move |index| is_digit(*index) && !is_digit(index - 1));
    let split_paths = number_starts.map(move |number_start| {
        let after_number = path[number_start..].trim_start_matches(|c: char| c.is_ascii_digit());
        let number_end = path.len() - after_number.len();
        (
            &path[..number_start],
            &path[number_start..number_end],
            &path[number_end..],
        )
    });
    split_paths.filter(|(_, _, suffix)| !suffix.starts_with(|c: char| c.is_ascii_alphanumeric()))
}
