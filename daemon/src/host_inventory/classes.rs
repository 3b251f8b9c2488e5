//! Loads the class files of this host, and collects the errors in these files.

use std::collections::BTreeMap;

use device_class::DeviceClass;
use device_class::class::Server;
use device_class::config::Config;
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use device_class::strict_toml::FileError;

use crate::host_inventory::mounted;

/// The classes that need a host path, although it is not mounted in this process's container. The
/// value is the error message.
pub type UnmountedClasses = BTreeMap<ClassName, String>;

/// The classes that one program offers on this host, loaded from their class files.
#[derive(Debug, Default)]
pub struct Classes {
    /// The enabled classes whose files have no error, sorted by name.
    pub usable_classes: Vec<DeviceClass>,
    /// The class files that could be read. They include the files whose classes cannot be used.
    pub sources: Vec<ClassSource>,
    /// One error for each class file that cannot be used.
    pub errors: Vec<FileError>,
    /// The usable classes that need a host path, although it is not mounted in this container. This
    /// is an error only if the host has a device of the class, so the scan decides whether to
    /// report it.
    pub unmounted_classes: UnmountedClasses,
}

impl Classes {
    /// Loads every class file of the configured directories. Keeps the enabled classes that
    /// `server` offers. An error in one file does not affect the other classes.
    ///
    /// # Errors
    /// If a directory cannot be read, returns an error and no classes: a file in that directory
    /// might replace a file of the same name in another directory.
    pub fn load(config: &Config, server: Server) -> Result<Self, FileError> {
        let mut classes = Classes::default();
        for source in load::read_each_source(&config.classes)? {
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
        if class.is_err() && config.ignores_errors_of(&source) {
            return Ok(());
        }
        let class_path = source.path.clone();
        self.sources.push(source);
        let class = class?;
        if !class.spec.is_enabled || class.settings.server != server {
            return Ok(());
        }
        let root = &config.host_root;
        if let Some(unmounted_path) = mounted::find_unmounted_path(&class, root) {
            let (root, path) = (root.display(), unmounted_path.path);
            let message = format!(
                "reads {path}, which is not mounted below {root}: mount it in the DaemonSet \
                 at {root}{path}, or read the value from /dev or /sys"
            );
            let error = FileError::whole(&class_path, message);
            if unmounted_path.is_searched {
                return Err(error);
            }
            self.unmounted_classes
                .insert(class.name.clone(), error.to_string());
        }
        self.usable_classes.push(class);
        Ok(())
    }
}
