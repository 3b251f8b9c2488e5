//! Reads the specification of a container for `boathook doctor` from config.json. Without a bundle,
//! it reads the environment of the container's init process. Without a process, it uses the
//! variables of the command line.

use std::fs::File;
use std::path::{Path, PathBuf};

use hook::attachment;
use hook::oci::{Bundle, BundleError, read_capped};
use hook::trust::{Origin, OriginError};

use crate::command::containers::Container;

/// What is known about the specification of a container.
pub(super) struct ContainerSpec {
    pub(super) bundle: Bundle,
    /// True if config.json was read. If it was not, it is unknown whether the runtime calls the
    /// hook.
    pub(super) has_config: bool,
}

impl ContainerSpec {
    /// Reads the specification from the container's bundle. Without a bundle, reads the environment
    /// of the container's init process. Without a process, uses `env`, the variables of the command
    /// line.
    #[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
    pub(super) fn read(
        container: &Container,
        env: &[String],
        host_root: &Path,
    ) -> Result<Self, BundleError> {
        if let Some(directory) = &container.bundle {
            let mut bundle = Bundle::read(directory)?;
            attachment::add_recorded_requests(&mut bundle, directory, host_root);
            return Ok(Self::new(bundle, true));
        }
        let (root, env) = match container.pid {
            None => (PathBuf::from("/"), env.to_vec()),
            Some(pid) => {
                let process_dir = Path::new("/proc").join(pid.to_string());
                // The size is limited, because a process can make the kernel show any part of the
                // process's memory in `/proc/PID/environ` (prctl(2), PR_SET_MM_ENV_START).
                let file = File::open(process_dir.join("environ"));
                let environ = file.and_then(|file| read_capped(file, Bundle::MAX_CONFIG_BYTES));
                let environ = environ.ok().flatten().unwrap_or_default();
                let entries = environ.split(|byte| *byte == 0);
                let entries = entries.map(|entry| String::from_utf8_lossy(entry).into_owned());
                (process_dir.join("root"), entries.collect())
            }
        };
        Ok(Self::new(Bundle::from_variables(&root, &env)?, false))
    }

    fn new(bundle: Bundle, has_config: bool) -> Self {
        ContainerSpec { bundle, has_config }
    }

    pub(super) fn origin(&self) -> Result<Origin, OriginError> {
        Origin::from_bundle(&self.bundle)
    }

    pub(super) fn is_in_a_pod(&self) -> bool {
        matches!(self.origin(), Ok(Origin::Pod(_)))
    }
}
