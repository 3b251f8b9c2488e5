//! Reads and writes the file with a class's driver properties, which are values that the driver's
//! own programs report. The plugin or `boathook facts` writes the file, and each scan for devices
//! reads it.
//!
//! Each line is a key, a tab and a value. The file is below /run, so it does not survive a reboot.
//! Properties of the current boot are used, however old they are, until a later run of the programs
//! succeeds. Device names depend on them, and must not change only because no program was run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use crate::class::DeviceClass;
use crate::host::HostView;
use crate::name::ClassName;

/// The directory on the host with one file of driver properties for each class. It is in /run,
/// which is emptied at each boot.
pub const PROPERTIES_DIR: &str = "/run/boathook/facts";

/// The maximum size in bytes of a file with driver properties. A larger file is not read.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The maximum length in bytes of a key or a value. Properties with a longer one are left out.
const MAX_TEXT_BYTES: usize = 256;

/// The age in seconds after which the administrator is reminded to run the driver's programs again.
/// The plugin runs these programs every few minutes. The limit is a day, so that no reminder
/// appears while the plugin is stopped for some hours, for example during an upgrade.
const REMINDER_AGE_SECONDS: u64 = 24 * 60 * 60;

/// The key whose value is the time when the file was written, in seconds since the boot.
const UPTIME_KEY: &str = "boathook uptime";
/// The key whose value is the version of Boathook that wrote the file. (The version of the driver's
/// program has the key `version`.)
const VERSION_KEY: &str = "boathook version";
/// The key whose value is the command line of a program that was run. A file may have several lines
/// with this key.
const PROGRAM_KEY: &str = "boathook program";

/// The properties that a driver's programs report about the driver and its devices. A key can have
/// several values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverProperties(BTreeMap<String, Vec<String>>);

/// Returns the path of the file with the driver properties of a class: `/run/boathook/facts/NAME`.
pub fn properties_file_path(class: &ClassName) -> PathBuf {
    Path::new(PROPERTIES_DIR).join(class.as_str())
}

impl DriverProperties {
    /// Collects the keys and values that a program printed. Leaves out a pair whose key or value is
    /// empty, longer than `MAX_TEXT_BYTES`, or has control characters. Also leaves out all pairs
    /// after the first 512 KiB.
    pub fn from_pairs(properties: impl IntoIterator<Item = (String, String)>) -> Self {
        let is_valid = |text: &str| {
            let is_unprintable = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
            !text.is_empty() && text.len() <= MAX_TEXT_BYTES && !text.contains(is_unprintable)
        };
        let mut values_by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut total_bytes = 0;
        for (key, value) in properties {
            total_bytes += key.len() + value.len() + 2;
            if is_valid(&key) && is_valid(&value) && total_bytes < MAX_FILE_BYTES / 2 {
                let values = values_by_key.entry(key).or_default();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
        DriverProperties(values_by_key)
    }

    /// Returns the driver properties of a class, and the command lines of the programs that
    /// reported them. Both are empty if the file was not written since the boot, or if users other
    /// than root can change the file.
    pub fn read_since_boot(class: &DeviceClass, host: &dyn HostView) -> (Self, Vec<String>) {
        let path = properties_file_path(&class.name);
        let text = host.read(&path, MAX_FILE_BYTES).unwrap_or_default();
        let mut properties = Self::parse(&String::from_utf8_lossy(&text));
        if properties.age_seconds(host).is_none() || host.check_root_only(&path).is_err() {
            return Default::default();
        }
        let programs = properties.0.remove(PROGRAM_KEY).unwrap_or_default();
        properties
            .0
            .retain(|key, _| ![UPTIME_KEY, VERSION_KEY].contains(&key.as_str()));
        (properties, programs)
    }

    /// Adds properties from an earlier run of the driver's programs. A property is added if
    /// `should_keep` accepts its key and `self` has no value for that key.
    pub fn add_earlier(&mut self, earlier_properties: Self, should_keep: impl Fn(&str) -> bool) {
        for (key, values) in earlier_properties.0 {
            if should_keep(&key) {
                self.0.entry(key).or_insert(values);
            }
        }
    }

    /// Returns a note for the administrator if the driver's program is due: it has not run since
    /// the boot, or its last run was more than a day ago. Returns `None` if the host does not have
    /// the program. `find_program` converts the program's path in the class file to the path on
    /// this host.
    pub(crate) fn describe_due_run(
        class: &DeviceClass,
        find_program: impl FnOnce(&Path) -> PathBuf,
        host: &dyn HostView,
    ) -> Option<String> {
        let exists = |path: &Path| matches!(host.entry(path), Ok(Some(_)));
        let mut programs = class.spec.property_programs.iter();
        let path_in_class = programs
            .find_map(|program| program.command.first())?
            .to_string();
        let program = find_program(Path::new(&path_in_class));
        if !class.settings.uses_driver_properties() || !exists(&program) {
            return None;
        }
        let program = program.display();
        let class_name = &class.name;
        let path = properties_file_path(class_name);
        if !exists(&path) {
            return Some(format!(
                "what {program} reports is not known yet: run `boathook facts {class_name}`"
            ));
        }
        let text = host.read(&path, MAX_FILE_BYTES).ok()?;
        let age_seconds = Self::parse(&String::from_utf8_lossy(&text)).age_seconds(host)?;
        (age_seconds > REMINDER_AGE_SECONDS).then(|| {
            format!(
                "what {program} reported is {} hours old: run `boathook facts {class_name}`",
                age_seconds / 3600
            )
        })
    }

    /// Reads the driver properties of a class. If they were not written since the boot, or if users
    /// other than root can change the file, they are ignored and a warning is added.
    pub(crate) fn read(
        class: &DeviceClass,
        host: &dyn HostView,
        warnings: &mut Vec<String>,
    ) -> Self {
        if class.spec.property_programs.is_empty() || !class.settings.uses_driver_properties() {
            return Self::default();
        }
        let path = properties_file_path(&class.name);
        let text = match host.read(&path, MAX_FILE_BYTES) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::default(),
            Err(error) => {
                warnings.push(format!("{} cannot be read: {error}", path.display()));
                return Self::default();
            }
        };
        let properties = Self::parse(&text);
        let fault = match host.check_root_only(&path) {
            Err(error) => Some(error.to_string()),
            Ok(()) if properties.age_seconds(host).is_none() => {
                let class_name = &class.name;
                Some(format!(
                    "it is of an earlier boot; run `boathook facts {class_name}`"
                ))
            }
            Ok(()) => None,
        };
        match fault {
            None => properties,
            Some(fault) => {
                warnings.push(format!("{} is not used: {fault}", path.display()));
                Self::default()
            }
        }
    }

    /// Returns the age of the properties in seconds. Returns `None` if the uptime in the file is
    /// greater than the host's uptime, because then the file was written before the last boot.
    fn age_seconds(&self, host: &dyn HostView) -> Option<u64> {
        host.uptime()?
            .checked_sub(self.first_value(UPTIME_KEY)?.parse().ok()?)
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        Self::from_pairs(lines.map(|(key, value)| (key.to_owned(), value.to_owned())))
    }

    pub fn first_value(&self, key: &str) -> Option<&str> {
        self.values(key).first().map(String::as_str)
    }

    pub fn values(&self, key: &str) -> &[String] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text of the file that stores these properties. `programs` are the command lines
    /// of the programs that reported the properties. The text contains the host's current uptime,
    /// from which readers compute the age of the properties.
    pub fn to_file_text(&self, host: &dyn HostView, programs: &[String]) -> String {
        let mut text = String::new();
        let program_lines = programs
            .iter()
            .map(|program| (PROGRAM_KEY, program.as_str()));
        let uptime = host.uptime().unwrap_or_default().to_string();
        let header = [
            (UPTIME_KEY, uptime.as_str()),
            (VERSION_KEY, env!("CARGO_PKG_VERSION")),
        ];
        let properties = self.0.iter();
        let properties = properties
            .flat_map(|(key, values)| values.iter().map(|value| (key.as_str(), value.as_str())));
        for (key, value) in header.into_iter().chain(program_lines).chain(properties) {
            let _ = writeln!(text, "{key}\t{value}");
        }
        text
    }
}
