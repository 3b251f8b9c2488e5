//! Reads the class files of this host, and collects the errors in them.

use std::collections::BTreeMap;

use device_class::DeviceClass;
use device_class::class::Server;
use device_class::config::Config;
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use device_class::strict_toml::FileError;

use crate::mounted;

/// The errors of classes that read a path that is not mounted, by class.
pub type UnmountedClasses = BTreeMap<ClassName, String>;

#[derive(Debug, Default)]
pub struct Classes {
    /// The classes that can be used, sorted by name.
    pub usable: Vec<DeviceClass>,
    /// The contents of all class files that could be read.
    pub sources: Vec<ClassSource>,
    /// The errors of the class files that cannot be used, one for each file.
    pub errors: Vec<FileError>,
    /// The usable classes that read a path that is not mounted, each with the error that it is
    /// if the host has a device of the class.
    pub unmounted: UnmountedClasses,
}

impl Classes {
    /// Reads every class file that the configuration names, and keeps the enabled classes
    /// that `server` is to offer. A bad file does not affect the other classes.
    ///
    /// # Errors
    /// Returns an error if a directory cannot be read. A file in it might replace a class
    /// file of the same name in another directory, so the other directories are not used.
    pub fn load(config: &Config, server: Server) -> Result<Self, FileError> {
        let mut classes = Classes::default();
        for source in load::each_source(&config.classes)? {
            match source.and_then(|source| classes.add(source, config, server)) {
                Ok(()) => {}
                Err(error) => classes.errors.push(error),
            }
        }
        Ok(classes)
    }

    fn add(
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
