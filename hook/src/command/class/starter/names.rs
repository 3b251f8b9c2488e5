//! Chooses the name of a new class. The variable and the resource contain this name, and no
//! installed class may have one of the three.

use std::collections::BTreeSet;

use device_class::config::Config;
use device_class::load;
use device_class::name::fnv1a;
use device_class::strict_toml::FileError;

/// The maximum length of a class name, in bytes. The names of the resource and of the variable
/// contain the class name and have length limits of their own.
const MAX_NAME: usize = 40;

/// The length of the hash at the end of a shortened name, in hexadecimal digits.
const HASH: usize = 8;

/// The domain of the resource in a new class file.
const DOMAIN: &str = "example.com";

/// The names, variables and resources of the installed classes.
#[derive(Debug, Default)]
pub(in crate::command::class) struct InstalledNames(BTreeSet<String>);

impl InstalledNames {
    /// Reads the installed classes. Of a file that cannot be used only the name counts.
    pub(in crate::command::class) fn read(config: &Config) -> Result<Self, FileError> {
        let mut names = BTreeSet::new();
        for source in load::each_source(&config.classes)?.iter().flatten() {
            names.insert(source.name.to_string());
            if let Ok(class) = config.class(source) {
                names.insert(class.spec.request.env.to_string());
                names.extend(class.spec.fixed_resources());
            }
        }
        Ok(InstalledNames(names))
    }

    /// Returns `name`, or the first of `my-NAME`, `my-NAME-2` and so on that no installed class
    /// uses, also not in its variable or resource.
    pub(super) fn choose_name(&self, name: &str) -> String {
        let name = shorten(name);
        let own = format!("my-{name}");
        let numbered = (2..).map(|number| format!("{own}-{number}"));
        let mut names = [name, own.clone()].into_iter().chain(numbered);
        names.find(|name| !self.is_used(name)).unwrap_or(own)
    }

    fn is_used(&self, name: &str) -> bool {
        let all = [name.to_owned(), variable(name), resource(name)];
        all.iter().any(|one| self.0.contains(one))
    }
}

pub(super) fn variable(name: &str) -> String {
    let name = name.replace('-', "_").to_ascii_uppercase();
    format!("{name}_VISIBLE_DEVICES")
}

pub(super) fn resource(name: &str) -> String {
    format!("{DOMAIN}/{name}")
}

/// Shortens a long name. Its end is replaced by a hash of the whole: the names of two equal devices
/// differ at the end, where udev writes the serial number.
fn shorten(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let hash = format!("{:016x}", fnv1a(name.as_bytes()));
    let mut start = name.to_owned();
    start.truncate(MAX_NAME - HASH - 1);
    format!("{}-{}", start.trim_end_matches('-'), &hash[..HASH])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_used_by_no_installed_class() {
        let installed =
            |names: &[&str]| InstalledNames(names.iter().map(|name| (*name).to_owned()).collect());
        for (names, expected) in [
            (&[][..], "serial"),
            (&["SERIAL_VISIBLE_DEVICES"], "my-serial"),
            (&["example.com/serial"], "my-serial"),
            (&["serial", "MY_SERIAL_VISIBLE_DEVICES"], "my-serial-2"),
        ] {
            assert_eq!(installed(names).choose_name("serial"), expected);
        }
        let [one, other] = ["1", "2"].map(|end| shorten(&format!("{}{end}", "x-".repeat(30))));
        assert!(one.len() <= MAX_NAME && one != other, "{one} {other}");
    }
}
