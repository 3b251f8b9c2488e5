//! A first class file for a device, with the reasons in comments.

use std::fmt;
use std::path::Path;

use device_class::name::excerpt;

/// The device that a class file is wanted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A node, with others of its sort beside it that differ in the number at
    /// the end of the name.
    Node {
        /// Its path without that number.
        stem: String,
        /// The number, if there is one.
        number: String,
    },
    /// All devices on PCI with these ids, as four hexadecimal digits.
    Pci { vendor: String, device: String },
    /// All devices on USB with these ids, as four hexadecimal digits.
    Usb { vendor: String, product: String },
}

/// Why there is no class file for a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is neither a path in /dev nor an id such as pci:10ee:5000 or usb:054c:06c1", excerpt(.0))]
pub(crate) struct TargetError(String);

impl Target {
    /// Reads a path in /dev, `pci:VVVV:DDDD` or `usb:VVVV:PPPP`.
    pub(super) fn parse(text: &str) -> Result<Self, TargetError> {
        let error = || TargetError(text.to_owned());
        let ids = |ids: &str| {
            let (vendor, device) = ids.split_once(':')?;
            let fits = |id: &str| id.len() == 4 && id.bytes().all(|b| b.is_ascii_hexdigit());
            let ids = (vendor.to_ascii_lowercase(), device.to_ascii_lowercase());
            (fits(vendor) && fits(device)).then_some(ids)
        };
        if let Some(pci) = text.strip_prefix("pci:") {
            let (vendor, device) = ids(pci).ok_or_else(error)?;
            return Ok(Target::Pci { vendor, device });
        }
        if let Some(usb) = text.strip_prefix("usb:") {
            let (vendor, product) = ids(usb).ok_or_else(error)?;
            return Ok(Target::Usb { vendor, product });
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let stem = text.trim_end_matches(|c: char| c.is_ascii_digit());
        let path = Path::new(text);
        let named = text.starts_with("/dev/") && path.file_name().is_some() && stem != "/dev/";
        if !named || !text.chars().all(plain) || text.contains("..") || text.contains("//") {
            return Err(error());
        }
        Ok(Target::Node {
            stem: stem.to_owned(),
            number: text[stem.len()..].to_owned(),
        })
    }

    /// The class file with further nodes: those that begin with the device's own name, number
    /// and all, are that device's, and the others are for all devices.
    pub(super) fn with_nodes(&self, further: &[String]) -> Result<String, TargetError> {
        let mut of_device = vec![self.own_node()];
        let mut of_class = Vec::new();
        for node in further {
            match (self, Target::parse(node)?) {
                (_, Target::Pci { .. } | Target::Usb { .. }) => {
                    return Err(TargetError(node.clone()));
                }
                (Target::Node { stem, number }, _) if !number.is_empty() => {
                    let own = format!("{stem}{number}");
                    match node.strip_prefix(&own) {
                        Some(rest) if !rest.starts_with(|c: char| c.is_ascii_digit()) => {
                            of_device.push(format!("{stem}{{index}}{rest}"));
                        }
                        _ => of_class.push(node.clone()),
                    }
                }
                _ => of_class.push(node.clone()),
            }
        }
        let list = |nodes: &[String]| format!("nodes = [\"{}\"]\n", nodes.join("\", \""));
        let own = list(&of_device[..1]);
        let mut text = self.to_string().replacen(&own, &list(&of_device), 1);
        if !of_class.is_empty() {
            text += "\n# For every container with a device.\n[[edits]]\n";
            text += &list(&of_class);
        }
        Ok(text)
    }

    /// The first node of each device in the class file.
    fn own_node(&self) -> String {
        match self {
            Target::Node { stem, number } if number.is_empty() => stem.clone(),
            Target::Node { stem, .. } => format!("{stem}{{index}}"),
            Target::Pci { .. } | Target::Usb { .. } => String::new(),
        }
    }

    /// A name for the class: what is special in the path, or the ids.
    pub(super) fn name(&self) -> String {
        match self {
            Target::Pci { vendor, device } => format!("pci-{vendor}-{device}"),
            Target::Usb { vendor, product } => format!("usb-{vendor}-{product}"),
            Target::Node { stem, .. } => {
                let name = stem.strip_prefix("/dev/").unwrap_or(stem);
                let parts = name.split(|c: char| !c.is_ascii_alphanumeric());
                let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
                parts.join("-").to_ascii_lowercase()
            }
        }
    }
}

/// The class file.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        let variable = name.replace('-', "_").to_ascii_uppercase();
        let text = match self {
            Target::Node { number, .. } if number.is_empty() => include_str!("starter/node.toml"),
            Target::Node { .. } => include_str!("starter/nodes.toml"),
            Target::Pci { .. } => include_str!("starter/pci.toml"),
            Target::Usb { .. } => include_str!("starter/usb.toml"),
        };
        let text = text
            .replace("@NAME@", &name)
            .replace("@VARIABLE@", &variable);
        let text = match self {
            Target::Node { stem, .. } => text.replace("@STEM@", stem),
            Target::Pci { vendor, device } => ids(&text, vendor, device),
            Target::Usb { vendor, product } => ids(&text, vendor, product),
        };
        f.write_str(&text)
    }
}

fn ids(text: &str, vendor: &str, product: &str) -> String {
    text.replace("@VENDOR@", vendor)
        .replace("@PRODUCT@", product)
}

#[cfg(test)]
mod tests {
    use super::*;
    use device_class::class::DeviceClass;
    use device_class::discover;
    use device_class::host::RecordedHost;
    use device_class::name::ClassName;

    #[test]
    fn a_first_class_file_finds_the_device() {
        let host = "char /dev/mychip0 240:0\nchar /dev/mychip10 240:10\n\
            char /dev/net/tun 10:200\nchar /dev/vend/chip3 1:3\n\
            file /sys/bus/pci/devices/0000:01:00.0/vendor\n| 0x10ee\n\
            file /sys/bus/pci/devices/0000:01:00.0/device\n| 0x5000\n\
            file /sys/bus/usb/devices/1-2/idVendor\n| 054c\n\
            file /sys/bus/usb/devices/1-2/idProduct\n| 06c1\n\
            file /sys/bus/usb/devices/1-2/busnum\n| 1\n\
            file /sys/bus/usb/devices/1-2/devnum\n| 7\n\
            char /dev/bus/usb/001/007 189:6\n";
        let host = RecordedHost::parse(host).unwrap();
        for (text, name, ids) in [
            ("/dev/mychip0", "mychip", "mychip-0 mychip-10"),
            ("/dev/net/tun", "net-tun", "net-tun"),
            ("/dev/vend/chip3", "vend-chip", "vend-chip-3"),
            ("pci:10EE:5000", "pci-10ee-5000", "0000:01:00.0"),
            ("usb:054c:06c1", "usb-054c-06c1", "usb-1-2"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!(target.name(), name, "{text}");
            let class = ClassName::try_from(target.name()).unwrap();
            let path = Path::new("new.toml");
            let class = DeviceClass::parse(class, path, &target.to_string()).unwrap();
            let found = discover::devices(&class, &host).devices;
            assert!(found.iter().all(|device| device.health.is_healthy()));
            let found: Vec<_> = found.iter().map(|device| device.id.as_str()).collect();
            assert_eq!(found.join(" "), ids, "{text}");
        }
    }

    #[test]
    fn a_device_has_several_nodes() {
        let target = Target::parse("/dev/acme0").unwrap();
        let further = ["/dev/acme0_dma1", "/dev/acme01", "/dev/acme_ctl"].map(str::to_owned);
        let text = target.with_nodes(&further).unwrap();
        assert!(text.contains("\nnodes = [\"/dev/acme{index}\", \"/dev/acme{index}_dma1\"]\n"));
        assert!(text.ends_with("[[edits]]\nnodes = [\"/dev/acme01\", \"/dev/acme_ctl\"]\n"));
        let class = ClassName::try_from("acme".to_owned()).unwrap();
        let class = DeviceClass::parse(class, Path::new("acme.toml"), &text).unwrap();
        let host = "char /dev/acme0 240:0\nchar /dev/acme0_dma1 240:1\n";
        let found = discover::devices(&class, &RecordedHost::parse(host).unwrap()).devices;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].nodes.len(), 2);
        assert!(target.with_nodes(&["pci:10ee:5000".to_owned()]).is_err());
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
