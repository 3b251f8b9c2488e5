//! Chooses a name for a new class. The class's environment variable and resource are derived from
//! it. No installed class may have the same name, variable or resource.

use std::collections::BTreeSet;

use device_class::config::Config;
use device_class::load;
use device_class::name::fnv1a;
use device_class::strict_toml::FileError;

/// The maximum length in bytes of a new class's name. The name becomes part of the environment
/// variable and of the resource name, which also have length limits.
const MAX_NAME_BYTES: usize = 40;

/// The number of hexadecimal digits of the hash with which a shortened name ends.
const HASH_DIGIT_COUNT: usize = 8;

/// The domain of the resource name in a new class file. The file's author replaces it.
const RESOURCE_DOMAIN: &str = "example.com";

/// The names, environment variables and resources that installed classes use.
#[derive(Debug, Default)]
pub(in crate::command::class) struct InstalledNames(BTreeSet<String>);

impl InstalledNames {
    /// Reads the names that installed classes use. If a class file is invalid, only its class name
    /// is known.
    pub(in crate::command::class) fn read(config: &Config) -> Result<Self, FileError> {
        let mut used_names = BTreeSet::new();
        for source in load::read_each_source(&config.classes)?.iter().flatten() {
            used_names.insert(source.name.to_string());
            if let Ok(class) = config.class(source) {
                used_names.insert(class.spec.request.env.to_string());
                used_names.extend(class.spec.list_fixed_resources());
            }
        }
        Ok(InstalledNames(used_names))
    }

    /// Returns the first free name of `preferred_name`, `my-NAME`, `my-NAME-2` and so on. A name is
    /// free if no installed class has this name, or the variable or the resource that is derived
    /// from it.
    pub(super) fn choose_name(&self, preferred_name: &str) -> String {
        let preferred_name = shorten_name(preferred_name);
        let prefixed_name = format!("my-{preferred_name}");
        let numbered_names = (2..).map(|number| format!("{prefixed_name}-{number}"));
        let mut candidates = [preferred_name, prefixed_name.clone()]
            .into_iter()
            .chain(numbered_names);
        candidates
            .find(|name| !self.is_used(name))
            .unwrap_or(prefixed_name)
    }

    fn is_used(&self, class_name: &str) -> bool {
        let all_names = [
            class_name.to_owned(),
            to_variable(class_name),
            to_resource(class_name),
        ];
        all_names.iter().any(|name| self.0.contains(name))
    }
}

pub(super) fn to_variable(class_name: &str) -> String {
    let prefix = class_name.replace('-', "_").to_ascii_uppercase();
    format!("{prefix}_VISIBLE_DEVICES")
}

pub(super) fn to_resource(class_name: &str) -> String {
    format!("{RESOURCE_DOMAIN}/{class_name}")
}

/// Shortens a name that has more than [`MAX_NAME_BYTES`] bytes. A hash of the whole name replaces
/// the end of the name. Without the hash, two devices of the same model could get the same name,
/// because their names may differ only in the serial number at the end.
fn shorten_name(class_name: &str) -> String {
    if class_name.len() <= MAX_NAME_BYTES {
        return class_name.to_owned();
    }
    let hash = format!("{:016x}", fnv1a(class_name.as_bytes()));
    let mut prefix = class_name.to_owned();
    prefix.truncate(MAX_NAME_BYTES - HASH_DIGIT_COUNT - 1);
    format!(
        "{}-{}",
        prefix.trim_end_matches('-'),
        &hash[..HASH_DIGIT_COUNT]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_used_by_no_installed_class() {
        let installed = |used_names: &[&str]| {
            InstalledNames(used_names.iter().map(|name| (*name).to_owned()).collect())
        };
        for (used_names, expected) in [
            (&[][..], "serial"),
            (&["SERIAL_VISIBLE_DEVICES"], "my-serial"),
            (&["example.com/serial"], "my-serial"),
            (&["serial", "MY_SERIAL_VISIBLE_DEVICES"], "my-serial-2"),
        ] {
            assert_eq!(installed(used_names).choose_name("serial"), expected);
        }
        let [one, other] = ["1", "2"].map(|end| shorten_name(&format!("{}{end}", "x-".repeat(30))));
        assert!(one.len() <= MAX_NAME_BYTES && one != other, "{one} {other}");
    }
}
