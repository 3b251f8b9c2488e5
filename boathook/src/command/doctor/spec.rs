//! Reads the specification of a container for `boathook doctor` from config.json. Without a bundle,
//! it reads the environment of the container's init process. Without a process, it uses the
//! variables of the command line.

use std::fs::File;
use std::path::{Path, PathBuf};

use hook::attachment;
use hook::container::find_device_number;
use hook::oci::{Bundle, BundleError, read_capped};
use hook::trust::{ContainerOrigin, OriginError};
use injection_plan::plan::SpecNode;

use crate::command::containers::Container;
use crate::command::running_root::RunningContainerRoot;

/// The specification of a container, as far as `boathook doctor` can read it.
pub(super) struct ContainerSpec {
    pub(super) bundle: Bundle,
    /// True if config.json was read. If it was not, it is unknown whether the runtime calls the
    /// hook.
    pub(super) has_config: bool,
    /// The device nodes that config.json mounts, as rootless engines do for `--device`. They are
    /// known only for a container that runs.
    pub(super) mounted_nodes: Vec<MountedNode>,
    pub(super) is_running: bool,
}

/// A device node of the host that config.json mounts into the container.
pub(super) struct MountedNode {
    /// The node with its path and its device number in the container.
    pub(super) node: SpecNode,
    /// The path of the node on the host, from which config.json mounts it.
    pub(super) source: PathBuf,
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
            if let Some(pid) = container.pid {
                bundle.use_root_of_process(pid);
            }
            return Ok(ContainerSpec {
                mounted_nodes: find_mounted_nodes(container, &bundle),
                is_running: container.pid.is_some(),
                bundle,
                has_config: true,
            });
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
        Ok(ContainerSpec {
            bundle: Bundle::from_variables(&root, &env)?,
            has_config: false,
            mounted_nodes: Vec::new(),
            is_running: container.pid.is_some(),
        })
    }

    pub(super) fn origin(&self) -> Result<ContainerOrigin, OriginError> {
        ContainerOrigin::from_bundle(&self.bundle)
    }

    pub(super) fn is_in_a_pod(&self) -> bool {
        matches!(self.origin(), Ok(ContainerOrigin::Pod(_)))
    }
}

/// Finds the mounts in config.json that are device nodes, and reads their numbers in the running
/// container. Returns nothing for a container without a process.
fn find_mounted_nodes(container: &Container, bundle: &Bundle) -> Vec<MountedNode> {
    let Some(root) = container.pid.map(RunningContainerRoot::from_pid) else {
        return Vec::new();
    };
    let mounted_nodes = bundle.bind_mounted_nodes.iter().filter_map(|bound_node| {
        let handle = root.look_up(&bound_node.path).ok().flatten()?;
        let node = SpecNode {
            path: bound_node.path.clone(),
            number: find_device_number(&handle)?,
        };
        Some(MountedNode {
            node,
            source: bound_node.source.clone(),
        })
    });
    mounted_nodes.collect()
}
