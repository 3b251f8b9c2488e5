//! The classes of this host, and what is wrong with their files.

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::load::{self, ClassSource};
use device_class::strict_toml::FileError;

/// The classes that can be used, and what keeps others from being used.
#[derive(Debug, Default)]
pub struct Classes {
    /// Sorted by name.
    pub usable: Vec<DeviceClass>,
    /// The files as they were read.
    pub sources: Vec<ClassSource>,
    /// One for each file or directory that can't be used.
    pub errors: Vec<FileError>,
}

impl Classes {
    /// Reads every class file that the configuration names, and keeps the
    /// classes that this host offers. A bad file is one vendor's loss, not
    /// every vendor's.
    pub fn load(config: &Config) -> Self {
        let mut classes = Classes::default();
        let sources = match load::sources(&config.classes) {
            Ok(sources) => sources,
            Err(error) => {
                classes.errors.push(error);
                return classes;
            }
        };
        for source in &sources {
            match source.parse() {
                Ok(class) if config.offers(&class) => classes.usable.push(class),
                Ok(_) => {}
                Err(error) => classes.errors.push(error),
            }
        }
        classes.sources = sources;
        classes
    }
}
