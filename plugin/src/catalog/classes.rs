//! The classes of this host, and what is wrong with their files.

use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::load;
use device_class::strict_toml::FileError;

/// The classes that can be used, and what keeps others from being used.
#[derive(Debug, Default)]
pub struct Classes {
    /// Sorted by name.
    pub usable: Vec<DeviceClass>,
    /// One for each file or directory that can't be used.
    pub errors: Vec<FileError>,
}

impl Classes {
    /// Reads every class file of the directories. A bad file is one vendor's
    /// loss, not every vendor's.
    pub fn load(directories: &[PathBuf]) -> Self {
        let mut classes = Classes::default();
        let sources = match load::sources(directories) {
            Ok(sources) => sources,
            Err(error) => {
                return Classes {
                    usable: Vec::new(),
                    errors: vec![error],
                };
            }
        };
        for source in sources {
            match source.parse() {
                Ok(class) => classes.usable.push(class),
                Err(error) => classes.errors.push(error),
            }
        }
        classes
    }
}
