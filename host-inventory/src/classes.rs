//! Loads the class files of this host, and collects the errors in them.

use std::collections::BTreeMap;

use device_class::DeviceClass;
use device_class::class::Server;
use device_class::config::Config;
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use device_class::strict_toml::FileError;

use crate::mounted;

/// The error of each class that reads a host path which is not mounted in this container.
pub type UnmountedClasses = BTreeMap<ClassName, String>;

/// The class files of a host, loaded for one program.
#[derive(Debug, Default)]
pub struct Classes {
    /// The enabled classes without an error, sorted by name.
    pub usable: Vec<DeviceClass>,
    /// The contents of all class files that could be read.
    pub sources: Vec<ClassSource>,
    /// One error for each class file that cannot be used.
    pub errors: Vec<FileError>,
    /// Usable classes that read an unmounted path. Such a class is an error only on a host that
    /// has a device of it, so the scan decides whether to report the text.
    pub unmounted: UnmountedClasses,
}

impl Classes {
    /// Loads every class file of the configured directories, and keeps the enabled classes that
    /// `server` offers. An error in one file does not affect the other classes.
    ///
    /// # Errors
    /// Returns an error if a directory cannot be read, and then loads no class at all: a file in
    /// that directory could replace a file of the same name in another one.
    pub fn load(config: &Config, server: Server) -> Result<Self, FileError> {
        let mut classes = Classes::default();
        for source in load::each_source(&config.classes)? {
            match source.and_then(|source| classes.add_class(source, config, server)) {
                Ok(()) => {}
                Err(error) => classes.errors.push(error),
            }
        }
        Ok(classes)
    }

    fn add_class(
        &mut self,
        source: ClassSource,
        config: &Config,
        server: Server,
    ) -> Result<(), FileError> {
        let class = config.class(&source);
        let path = source.path.clone();
        self.sources.push(source);
        let class = class?;
        if !class.spec.enabled || class.settings.serve != server {
            return Ok(());
        }
        let root = &config.host_root;
        if let Some(unmounted) = mounted::find_unmounted(&class, root) {
            let (root, read) = (root.display(), unmounted.path);
            let message = format!(
                "reads {read}, which is not mounted below {root}: mount it in the DaemonSet \
                 at {root}{read}, or read the value from /dev or /sys"
            );
            let error = FileError::whole(&path, message);
            if unmounted.is_searched {
                return Err(error);
            }
            self.unmounted.insert(class.name.clone(), error.to_string());
        }
        self.usable.push(class);
        Ok(())
    }
}
