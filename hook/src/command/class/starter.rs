//! Implements `boathook class new`, which prints a class file for a device as a start for its
//! author. Comments in the class file explain each setting.

mod directory;
mod hardware;
mod names;

use std::path::Path;

use device_class::HostView;
use device_class::host::Entry;
use device_class::name::excerpt;

pub(super) use hardware::find_offered_devices;
pub(super) use names::InstalledNames;

/// The device for which a class file is generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A device node. The nodes of similar devices differ only in the number in their names, as
    /// `/dev/video0` and `/dev/video1` do.
    Node {
        /// The text of the path before the device's number.
        stem: String,
        /// The device's number in the path. It is empty if the file name contains no number.
        number: String,
        /// The text of the path after the device's number.
        suffix: String,
    },
    /// A directory in /dev. All device nodes in it belong to one device.
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

/// The error for a device argument of `boathook class new` that cannot be parsed or resolved.
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
    #[error("the directory {} has no device nodes", excerpt(.0))]
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
        // Links that udev creates contain bus addresses (`pci-0000:00:14.0`) and all characters
        // that udev does not encode.
        let is_allowed_char = |c: char| c.is_ascii_alphanumeric() || "/._-:+#@=".contains(c);
        let path = Path::new(text);
        let is_device_path = text.starts_with("/dev/") && path.file_name().is_some();
        if !is_device_path
            || !text.chars().all(is_allowed_char)
            || text.contains("..")
            || text.contains("//")
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

    /// Returns the target that a class file can describe. The node of a USB device is replaced by
    /// the device's ids, because the number in the path changes when the device is plugged in
    /// again. A directory is replaced by its device nodes. Any other target is not changed.
    ///
    /// # Errors
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
        if hardware::parse_usb_node_path(&path).is_some() {
            let ids = hardware::find_usb_ids(&path, host);
            let (vendor, product) = ids.ok_or(TargetError::NoUsbDevice(path))?;
            return Ok(Target::BusIds {
                bus: "usb",
                vendor,
                product,
            });
        }
        if !matches!(host.entry(Path::new(&path)), Ok(Some(Entry::Directory))) {
            return Ok(self);
        }
        let path = path.trim_end_matches('/').to_owned();
        let mut nodes = host.list(Path::new(&path)).unwrap_or_default();
        nodes.retain(|name| {
            let has_plain_path = Target::parse(&format!("{path}/{name}")).is_ok();
            let entry = host.entry(&Path::new(&path).join(name));
            has_plain_path && matches!(entry, Ok(Some(Entry::Device(_))))
        });
        if nodes.is_empty() {
            return Err(TargetError::NoNodes(path));
        }
        Ok(Target::Directory { path, nodes })
    }

    /// Returns the text of the class file. A path in `sibling_paths` with the same text before the
    /// number as the target becomes a device node of each device. Every container of the class gets
    /// the other paths. The names in the class file are not used by any installed class.
    pub(super) fn format_class_file(
        &self,
        sibling_paths: &[String],
        installed_names: &InstalledNames,
    ) -> Result<String, TargetError> {
        for path in sibling_paths {
            if !matches!(Target::parse(path)?, Target::Node { .. }) {
                return Err(TargetError::MalformedTarget(path.clone()));
            }
        }
        let target = match self {
            Target::Node {
                stem,
                number,
                suffix,
            } if !sibling_paths.is_empty() => {
                Self::parse_node_path(&format!("{stem}{number}{suffix}"), sibling_paths)
            }
            _ => self.clone(),
        };
        let mut device_nodes = vec![target.to_node_pattern()];
        let mut class_nodes = Vec::new();
        for path in sibling_paths {
            match target.to_sibling_pattern(path) {
                Some(pattern) if device_nodes.contains(&pattern) => {}
                Some(pattern) => device_nodes.push(pattern),
                None => class_nodes.push(path.clone()),
            }
        }
        let to_nodes_line = |nodes: &[String]| format!("nodes = [\"{}\"]\n", nodes.join("\", \""));
        let old_nodes_line = to_nodes_line(&device_nodes[..1]);
        let class_name = installed_names.choose_name(&target.derive_class_name());
        let text = target.fill_template(&class_name);
        let mut text = text.replacen(&old_nodes_line, &to_nodes_line(&device_nodes), 1);
        if !class_nodes.is_empty() {
            text += "\n# For every container with a device.\n[[edits]]\n";
            text += &to_nodes_line(&class_nodes);
        }
        Ok(text)
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

    /// Returns `sibling_path` with `{index}` instead of the device's number, as a pattern for a
    /// class file. Returns `None` if the text before the number differs from the target's, or if
    /// one of the two paths has no number.
    fn to_sibling_pattern(&self, sibling_path: &str) -> Option<String> {
        let Target::Node { stem, number, .. } = self else {
            return None;
        };
        let after_stem = sibling_path.strip_prefix(stem.as_str())?;
        let suffix = after_stem.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_numbered = !number.is_empty() && suffix.len() < after_stem.len();
        is_numbered.then(|| format!("{stem}{{index}}{suffix}"))
    }

    /// Returns the path of the target's device node with `{index}` instead of the device's number.
    fn to_node_pattern(&self) -> String {
        match self {
            Target::Node { stem, number, .. } if number.is_empty() => stem.clone(),
            Target::Node { stem, suffix, .. } => format!("{stem}{{index}}{suffix}"),
            Target::BusIds { .. } | Target::Directory { .. } => String::new(),
        }
    }

    /// Derives a class name from the path without the device's number, or from the bus and the
    /// vendor and product ids.
    pub(super) fn derive_class_name(&self) -> String {
        match self {
            Target::BusIds {
                bus,
                vendor,
                product,
            } => format!("{bus}-{vendor}-{product}"),
            Target::Node { stem: path, .. } | Target::Directory { path, .. } => {
                let relative_path = path.strip_prefix("/dev/").unwrap_or(path);
                let parts = relative_path.split(|c: char| !c.is_ascii_alphanumeric());
                let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
                parts.join("-").to_ascii_lowercase()
            }
        }
    }

    /// Returns the text of the class file for a class with the name `class_name`.
    fn fill_template(&self, class_name: &str) -> String {
        let class_file_text = match self {
            Target::Node { number, .. } if number.is_empty() => include_str!("starter/node.toml"),
            Target::Node { .. } => include_str!("starter/nodes.toml"),
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
                .replace("@STEM@", stem)
                .replace("@REST@", suffix),
            Target::Directory { path, nodes } => class_file_text
                .replace("@STEM@", path)
                .replace("@NODES@", &directory::format_nodes_key(path, nodes)),
            Target::BusIds {
                vendor, product, ..
            } => class_file_text
                .replace("@VENDOR@", vendor)
                .replace("@PRODUCT@", product),
        }
    }
}

/// Splits `path` at each number in the file name that may be the device's number. Each item
/// contains the text before the number, the number, and the text after it. A number that is
/// followed by a letter is skipped.
fn split_at_numbers(path: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let is_digit = |index: usize| path.as_bytes().get(index).is_some_and(u8::is_ascii_digit);
    let name_start = path.rfind('/').map_or(0, |index| index + 1);
    let number_starts =
        (name_start..path.len()).filter(move |index| is_digit(*index) && !is_digit(index - 1));
    let split_paths = number_starts.map(move |number_start| {
        let digits = path[number_start..].trim_start_matches(|c: char| c.is_ascii_digit());
        let number_end = path.len() - digits.len();
        (
            &path[..number_start],
            &path[number_start..number_end],
            &path[number_end..],
        )
    });
    split_paths.filter(|(_, _, suffix)| !suffix.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use device_class::class::DeviceClass;
    use device_class::discover;
    use device_class::host::RecordedHost;
    use device_class::name::ClassName;

    fn parse(text: &str) -> (String, DeviceClass) {
        let name = ClassName::try_from("new".to_owned()).unwrap();
        let class = DeviceClass::parse(name, Path::new("new.toml"), text);
        (
            text.to_owned(),
            class.unwrap_or_else(|error| panic!("{error}\n{text}")),
        )
    }

    #[test]
    fn a_first_class_file_finds_the_device() {
        let host = "char /dev/mychip0 240:0\nchar /dev/mychip10 240:10\n\
            char /dev/net/tun 10:200\nchar /dev/card3_ctl 1:4\nchar /dev/v4l2loop 1:5\n\
            char /dev/iio:device0 245:0\nchar /dev/iio:device1 245:1\n\
            char /dev/serial/by-path/pci-0000:00:14.0-usb-0:2:1.0-port0 188:0\n\
            char /dev/a+b#c@d=e 1:7\n\
            char /dev/serial/by-id/usb-ITead_Sonoff_Zigbee_3.0_USB_Dongle_Plus-if00-port0 1:6\nchar /dev/vend/chip3 1:3\n\
            file /sys/bus/pci/devices/0000:01:00.0/vendor\n| 0x10ee\n\
            file /sys/bus/pci/devices/0000:01:00.0/device\n| 0x5000\n\
            file /sys/bus/usb/devices/1-2/idVendor\n| 054c\n\
            file /sys/bus/usb/devices/1-2/idProduct\n| 06c1\n\
            file /sys/bus/usb/devices/1-2/busnum\n| 1\n\
            file /sys/bus/usb/devices/1-2/devnum\n| 7\n\
            char /dev/bus/usb/001/007 189:6\n\
            char /dev/snd/controlC0 116:1\nchar /dev/snd/seq 116:2\ndir /dev/snd/by-path\n";
        let host = RecordedHost::parse(host).unwrap();
        for (text, name, ids) in [
            ("/dev/mychip0", "mychip", "mychip-0 mychip-10"),
            ("/dev/net/tun", "net-tun", "net-tun"),
            ("/dev/card3_ctl", "card", "card-3"),
            ("/dev/v4l2loop", "v4l2loop", "v4l2loop"),
            (
                "/dev/serial/by-id/usb-ITead_Sonoff_Zigbee_3.0_USB_Dongle_Plus-if00-port0",
                "serial-by-id-usb-itead-sonoff-z-e6008bf6",
                "serial-by-id-usb-itead-sonoff-z-e6008bf6",
            ),
            ("/dev/vend/chip3", "vend-chip", "vend-chip-3"),
            (
                "/dev/iio:device0",
                "iio-device",
                "iio-device-0 iio-device-1",
            ),
            (
                "/dev/serial/by-path/pci-0000:00:14.0-usb-0:2:1.0-port0",
                "serial-by-path-pci-0000-00-14-0-f94eecc6",
                "serial-by-path-pci-0000-00-14-0-f94eecc6",
            ),
            ("/dev/a+b#c@d=e", "a-b-c-d-e", "a-b-c-d-e"),
            ("pci:10EE:5000", "pci-10ee-5000", "0000:01:00.0"),
            ("usb:054c:06c1", "usb-054c-06c1", "usb-1-2"),
            ("/dev/bus/usb/001/007", "usb-054c-06c1", "usb-1-2"),
            ("/dev/snd", "snd", "snd"),
        ] {
            let target = Target::parse(text).unwrap().resolve(&host).unwrap();
            let file = target.format_class_file(&[], &InstalledNames::default());
            let (file, class) = parse(&file.unwrap());
            assert!(file.contains(&format!("as {name}.toml")), "{text}: {file}");
            let found = discover::find_devices(&class, &host).devices;
            assert!(found.iter().all(|device| device.health.is_healthy()));
            let found: Vec<_> = found.iter().map(|device| device.id.as_str()).collect();
            assert_eq!(found.join(" "), ids, "{text}");
        }
    }

    #[test]
    fn a_usb_device_is_named_by_its_port_and_its_serial_number() {
        const PORTS: &str = "\
            file /sys/bus/usb/devices/@/idVendor\n| 0bda\nfile /sys/bus/usb/devices/@/idProduct\n| 2838\n\
            file /sys/bus/usb/devices/@/busnum\n| 1\nfile /sys/bus/usb/devices/@/devnum\n| #\n\
            char /dev/bus/usb/001/00# 189:#\n";
        let port = |port: &str, number: &str| PORTS.replace('@', port).replace('#', number);
        // Two sticks as sold have one serial number, and a third has none.
        let text = format!(
            "{}{}{}file /sys/bus/usb/devices/1-1/serial\n| 00000001\n\
             file /sys/bus/usb/devices/1-2/serial\n| 00000001\n",
            port("1-1", "3"),
            port("1-2", "4"),
            port("1-3", "5")
        );
        let host = RecordedHost::parse(&text).unwrap();
        let target = Target::parse("usb:0bda:2838").unwrap();
        let file = target.format_class_file(&[], &InstalledNames::default());
        let file = file.unwrap();
        // The keys in comments are right too.
        let uncommented = file
            .replace("# follow", "follow")
            .replace("# unmask", "unmask")
            .replace("# [[edits]]\n# masks", "[[edits]]\nmasks");
        assert_eq!(uncommented.matches("\n[[edits]]\nmasks").count(), 1);
        for file in [file, uncommented] {
            let found = discover::find_devices(&parse(&file).1, &host);
            assert!(found.warnings.is_empty(), "{:?}", found.warnings);
            let devices = found.devices.iter();
            let ids: Vec<&str> = devices.map(|device| device.id.as_str()).collect();
            assert_eq!(ids, ["usb-1-1", "usb-1-2", "usb-1-3"]);
            let aliases = found.devices.iter().map(|device| device.aliases.join(" "));
            let aliases: Vec<String> = aliases.collect();
            assert_eq!(aliases, ["00000001", "00000001", ""]);
        }
    }

    #[test]
    fn a_path_of_no_device_is_refused() {
        let host = RecordedHost::parse("dir /dev/empty\ndir /dev/empty/by-path\n").unwrap();
        for (path, says) in [
            (
                "/dev/bus/usb/001/009",
                "no USB device of this host has the node",
            ),
            ("/dev/empty", "the directory /dev/empty has no device nodes"),
        ] {
            let error = Target::parse(path).unwrap().resolve(&host).unwrap_err();
            assert!(error.to_string().starts_with(says), "{error}");
        }
    }

    /// Each line has the given nodes, the expected nodes of each device, and the expected nodes
    /// of the class.
    const NODES: &str = "
acme0 acme0_dma1 acme_ctl | acme{index} acme{index}_dma1 | acme_ctl
acme0_ctl acme0_dma0 acme0_dma1 | acme{index}_ctl acme{index}_dma0 acme{index}_dma1
acme0_dma0 acme0_dma1 acme0_ctl acme | acme{index}_dma0 acme{index}_dma1 acme{index}_ctl | acme
# Those of other devices.
acme0_ctl acme0_dma0 acme1_ctl acme1_dma0 acme01_ctl | acme{index}_ctl acme{index}_dma0
";

    #[test]
    fn a_device_has_several_nodes() {
        for row in NODES.trim().lines().filter(|row| !row.starts_with('#')) {
            let [nodes, lists @ ..] = &row.split(" | ").collect::<Vec<_>>()[..] else {
                panic!("{row}");
            };
            let mut paths = nodes.split(' ').map(|name| format!("/dev/{name}"));
            let target = Target::parse(&paths.next().unwrap()).unwrap();
            let sibling_paths = paths.collect::<Vec<_>>();
            let text = target.format_class_file(&sibling_paths, &InstalledNames::default());
            let (text, _) = parse(&text.unwrap());
            let written = text
                .lines()
                .filter_map(|line| line.strip_prefix("nodes = "));
            let written: Vec<String> = written
                .map(|list| list.replace(['[', ']', '"', ','], "").replace("/dev/", ""))
                .collect();
            assert_eq!(written, lists, "{nodes}: {text}");
        }
        let target = Target::parse("/dev/acme0").unwrap();
        let sibling_paths = ["pci:10ee:5000".to_owned()];
        let error = target.format_class_file(&sibling_paths, &InstalledNames::default());
        assert!(error.is_err());
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "mychip0",
            "/dev",
            "/dev/",
            "/dev/../etc/x",
            "/dev/a\"b",
            "10ee:5000",
            "pci:1:2",
            "usb:054c",
            "/dev/7",
        ] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}
