//! The classes of this host, and what is wrong with their files.

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::load::{self, ClassSource};
use device_class::strict_toml::FileError;

/// The classes that can be used, and what keeps others from being used.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    /// Sorted by name.
    pub(crate) usable: Vec<DeviceClass>,
    /// The files as they were read.
    pub(crate) sources: Vec<ClassSource>,
    /// One for each file that can't be used.
    pub(crate) errors: Vec<FileError>,
}

impl Classes {
    /// Reads every class file that the configuration names, and keeps the
    /// classes that this host offers. A bad file is one vendor's loss, not
    /// every vendor's.
    ///
    /// # Errors
    /// A directory can't be read, so that it is not known which files count.
    pub(crate) fn load(config: &Config) -> Result<Self, FileError> {
        let mut classes = Classes::default();
        for source in load::each_source(&config.classes)? {
            match source.and_then(|source| classes.add(source, config)) {
                Ok(()) => {}
                Err(error) => classes.errors.push(error),
            }
        }
        Ok(classes)
    }

    fn add(&mut self, source: ClassSource, config: &Config) -> Result<(), FileError> {
        let class = source.parse();
        self.sources.push(source);
        let class = class?;
        if config.offers(&class) {
            self.usable.push(class);
        }
        Ok(())
    }
}
