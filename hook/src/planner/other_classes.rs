//! Describes other device classes with devices on this host, for a message that the requested class
//! has no usable device. The user may have meant one of them.

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover;
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use device_class::strict_toml::FileError;

use super::open_host;

/// The domain of Kubernetes resource names that belong to no vendor, as in
/// `devices.boathook.dev/NAME`. Two classes with this domain need not be related.
pub const DOMAIN_WITHOUT_VENDOR: &str = "devices.boathook.dev";

/// The domains of resource names that do not identify a vendor. Two resources of such a domain can
/// be unrelated, for example those for virtual machines and for tunnels.
const DOMAINS_OF_UNRELATED_RESOURCES: [&str; 3] = [
    DOMAIN_WITHOUT_VENDOR,
    "usb.boathook.dev",
    "devices.kubevirt.io",
];

/// Returns a text that names other classes of the same vendor with devices on this host. Returns
/// `None` if there are none. The domain of a class's resource name identifies the vendor. A class
/// that extends the requested one is left out, because it finds the same devices.
///
/// Call this only for a message about a missing device, because it parses all class files of the
/// vendor.
pub fn describe_other_classes(class: &DeviceClass, config: &Config) -> Option<String> {
    let vendor = find_vendor(class)?;
    let host = open_host(config).ok()?;
    let sources = load::read_each_source(&config.classes).ok()?;
    let classes = sources
        .into_iter()
        .filter_map(|source| load_class(source, config, &class.name));
    let related_classes = classes.filter(|other| {
        other.name != class.name && find_vendor(other).as_deref() == Some(vendor.as_str())
    });
    let class_descriptions = related_classes.filter_map(|other| {
        let count = discover::find_devices(&other, &host).devices.len();
        let env = &other.spec.request.env;
        (count > 0).then(|| format!("class {} has {count} (variable {env})", other.name))
    });
    let class_descriptions: Vec<String> = class_descriptions.collect();
    (!class_descriptions.is_empty()).then(|| {
        format!(
            "of the devices on this host, {}: request those, or let a class file extend that class \
             (docs/class-tutorial.md)",
            class_descriptions.join(", ")
        )
    })
}

/// Returns a text that names other classes for the same hardware: their devices on this host have
/// the same resource name as those of `class`. Returns `None` if there are none. Such a class needs
/// other files of the driver. So the user probably meant it if the files of `class` cannot be used.
/// A class that extends `class` is left out, because it has the same files.
pub fn describe_classes_with_resource(class: &DeviceClass, config: &Config) -> Option<String> {
    let host = open_host(config).ok()?;
    let list_resources = |class: &DeviceClass| {
        let devices = discover::find_devices(class, &host).devices.into_iter();
        devices.map(|device| device.resource).collect::<Vec<_>>()
    };
    let resources = list_resources(class);
    let sources = load::read_each_source(&config.classes).ok()?;
    let classes = sources
        .into_iter()
        .filter_map(|source| load_class(source, config, &class.name));
    let other_classes = classes.filter(|other| {
        let mut other_resources = list_resources(other).into_iter();
        other.name != class.name && other_resources.any(|resource| resources.contains(&resource))
    });
    let class_descriptions = other_classes.map(|other| {
        let env = &other.spec.request.env;
        format!("class {} (variable {env})", other.name)
    });
    let class_descriptions: Vec<String> = class_descriptions.collect();
    (!class_descriptions.is_empty()).then(|| {
        format!(
            "on this host the same resource is also of {}: request that, or let a class file \
             extend that class (docs/class-tutorial.md)",
            class_descriptions.join(", ")
        )
    })
}

/// Parses a class with the settings of config.toml. Returns `None` if it extends the class
/// `requested_class`, or if its file has an error.
fn load_class(
    source: Result<ClassSource, FileError>,
    config: &Config,
    requested_class: &ClassName,
) -> Option<DeviceClass> {
    let source = source.ok()?;
    if source.extends(requested_class) {
        return None;
    }
    config.class(&source).ok()
}

fn find_vendor(class: &DeviceClass) -> Option<String> {
    let resource = class.spec.resource.to_string();
    let (vendor, _) = resource.split_once('/')?;
    (!DOMAINS_OF_UNRELATED_RESOURCES.contains(&vendor)).then(|| vendor.to_owned())
}
