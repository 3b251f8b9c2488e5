//! Makes CDI specifications from injection plans (CDI specification 1.1, SPEC.md). Engines refuse a
//! specification if they do not know its CDI version, or if the version is too low for its fields.
//! A specification therefore states the lowest version that has all its fields.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::device::{Access, DeviceNumber};
use serde::Serialize;

use super::common_mounts::extract_common_mounts;
use super::devices::ALL_DEVICES_NAME;
use crate::plan::{Action, BindMount, InjectionPlan};

/// One CDI specification file, which describes the devices of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Specification {
    cdi_version: &'static str,
    /// The CDI kind, such as `vendor.com/class`.
    /// [`SpecificationOwner::kind`](super::SpecificationOwner::kind) derives it from the resource
    /// of the devices.
    pub kind: String,
    /// The devices. CDI does not allow an empty list.
    pub(super) devices: Vec<SpecifiedDevice>,
    /// The edits that an engine applies once to a container that has any of the devices.
    #[serde(skip_serializing_if = "ContainerEdits::is_empty")]
    container_edits: ContainerEdits,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpecifiedDevice {
    pub name: String,
    pub container_edits: ContainerEdits,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerEdits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    device_nodes: Vec<CdiNode>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) mounts: Vec<CdiMount>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<CdiHook>,
}

/// A device node in a specification. If the host has the node, `number` is `None`, and the engine
/// reads the device number when it starts a container. So the file stays correct if the kernel
/// gives the device another number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CdiNode {
    path: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_path: Option<PathBuf>,
    #[serde(flatten)]
    number: Option<DeviceNumber>,
    permissions: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_mode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CdiMount {
    pub(super) host_path: PathBuf,
    pub(super) container_path: PathBuf,
    pub(super) options: Vec<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CdiHook {
    hook_name: &'static str,
    path: PathBuf,
    args: Vec<String>,
    /// The time limit of the hook in seconds. The runtime kills a hook that takes longer.
    timeout: u32,
}

/// The OCI hook of a thin specification. The engine adds the device nodes to a container. The hook
/// does everything else when the container is created.
#[derive(Debug, Clone, Copy)]
pub struct CdiHookOptions<'a> {
    /// The absolute path of the hook program on the host, such as
    /// `/opt/boathook/current/bin/boathook-hook`.
    pub program_path: &'a Path,
    /// The time limit of the hook in seconds. The runtime kills a hook that takes longer.
    pub timeout_seconds: u32,
    /// The absolute path of the hook's configuration file on the host. `None` means the default
    /// path.
    pub config_path: Option<&'a Path>,
}

impl ContainerEdits {
    /// Returns the thin form of a plan: the plan's device nodes, and the hook with the argument
    /// `grant` (`CLASS=DEVICES`). `host_root` is the path at which the engine sees the host's root
    /// directory.
    pub fn from_plan_with_hook(
        plan: &InjectionPlan,
        host_root: &Path,
        hook: CdiHookOptions<'_>,
        grant: &str,
    ) -> Self {
        let name = hook.program_path.file_name().unwrap_or_default();
        let mut args = vec![name.to_string_lossy().into_owned()];
        args.push("create-runtime".to_owned());
        if let Some(path) = hook.config_path {
            args.extend(["--config".to_owned(), path.to_string_lossy().into_owned()]);
        }
        args.extend(["--cdi".to_owned(), grant.to_owned()]);
        ContainerEdits {
            env: format_variables(plan),
            device_nodes: select_cdi_nodes(plan, host_root, NodeSelection::SamePathOnHost),
            hooks: vec![CdiHook {
                hook_name: "createRuntime",
                path: hook.program_path.to_owned(),
                args,
                timeout: hook.timeout_seconds,
            }],
            ..ContainerEdits::default()
        }
    }

    /// Returns the plain form of a plan: everything that a specification can express without a
    /// hook. The second value describes for messages what is missing from the plain form.
    pub fn from_plan_without_hook(
        plan: &InjectionPlan,
        host_root: &Path,
    ) -> (Self, BTreeSet<String>) {
        let mut edits = ContainerEdits {
            env: format_variables(plan),
            device_nodes: select_cdi_nodes(plan, host_root, NodeSelection::All),
            ..ContainerEdits::default()
        };
        let mut missing_parts = BTreeSet::new();
        let to_cdi_mount =
            |mount: &BindMount, path| CdiMount::from_bind_mount(mount, host_root, path);
        for step in &plan.steps {
            match &step.action {
                Action::Allow { .. } | Action::Node { .. } | Action::MakeNode { .. } => {}
                Action::Prepare(preparation) => {
                    missing_parts.insert(format!("the program {}", preparation.program.display()));
                }
                Action::NetInterfaces { .. } => {
                    missing_parts.insert("network interfaces, which only the hook moves".into());
                }
                Action::Link { path, .. } => {
                    missing_parts.insert(format!("the link {}", path.display()));
                }
                Action::Mask { path, .. } => {
                    missing_parts.insert(format!("the mask of {}", path.display()));
                }
                Action::Directory(mount) | Action::File(mount) => {
                    edits.mounts.push(to_cdi_mount(mount, mount.path.clone()));
                }
                Action::Library { mount, links, .. } => {
                    edits.mounts.push(to_cdi_mount(mount, mount.path.clone()));
                    let directory = mount.path.parent().unwrap_or(Path::new("/"));
                    let links = links
                        .iter()
                        .map(|link| to_cdi_mount(mount, directory.join(link)));
                    edits.mounts.extend(links);
                }
                Action::Loader {
                    directories,
                    image_libraries,
                    directory_32bit,
                    ..
                } => {
                    missing_parts.extend(image_libraries.iter().map(|image| {
                        let directory = image.directory.display();
                        format!("the image's own libraries in {directory}")
                    }));
                    let directories = directories
                        .iter()
                        .chain(directory_32bit)
                        .map(|path| path.display().to_string())
                        .collect::<Vec<_>>()
                        .join(":");
                    edits.env.push(format!("LD_LIBRARY_PATH={directories}"));
                    missing_parts
                        .insert("the loader's cache (LD_LIBRARY_PATH is set instead)".into());
                }
            }
        }
        (edits, missing_parts)
    }

    /// Returns whether there are no edits at all, which CDI does not allow for a device.
    pub fn is_empty(&self) -> bool {
        *self == ContainerEdits::default()
    }
}

impl CdiMount {
    /// Returns whether one of the two mounts would hide the other one in the container: the paths
    /// are equal, or one path is below the other.
    pub(super) fn overlaps(&self, other: &CdiMount) -> bool {
        let [path, other_path] = [self, other].map(|mount| &mount.container_path);
        path.starts_with(other_path) || other_path.starts_with(path)
    }

    fn from_bind_mount(mount: &BindMount, host_root: &Path, container_path: PathBuf) -> Self {
        CdiMount {
            host_path: join_host_root(host_root, &mount.source),
            container_path,
            options: mount.options().collect(),
        }
    }
}

fn format_variables(plan: &InjectionPlan) -> Vec<String> {
    let variables = plan.env.iter();
    variables
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn join_host_root(host_root: &Path, path: &Path) -> PathBuf {
    host_root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Selects the device nodes of a plan that are written to a specification.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeSelection {
    /// Only nodes that the host has at the same path as the container. The hook creates all others.
    /// For a node that the host does not have, the file would need a device number, and this number
    /// may change later. A node with another path on the host would fail in a user namespace, where
    /// runc ignores `hostPath`.
    SamePathOnHost,
    /// All nodes of the plan. A plain specification needs all of them, because it has no hook that
    /// could create a missing node.
    All,
}

fn select_cdi_nodes(
    plan: &InjectionPlan,
    host_root: &Path,
    selection: NodeSelection,
) -> Vec<CdiNode> {
    let access = |number| {
        let mut steps = plan.steps.iter();
        let access = steps.find_map(|step| match &step.action {
            Action::Allow { rule, .. } if rule.number == number => Some(rule.access),
            _ => None,
        });
        access.unwrap_or(Access::ALL).to_string()
    };
    let nodes = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Node {
            mount,
            number,
            created_node_permissions,
        } => {
            let source = join_host_root(host_root, &mount.source);
            (selection == NodeSelection::All || mount.source == mount.path).then(|| CdiNode {
                host_path: (source != mount.path).then_some(source),
                path: mount.path.clone(),
                number: None,
                permissions: access(*number),
                file_mode: created_node_permissions
                    .map(|created_node_permissions| created_node_permissions.mode),
                gid: created_node_permissions
                    .map(|created_node_permissions| created_node_permissions.gid),
            })
        }
        Action::MakeNode {
            path,
            number,
            created_node,
        } if selection == NodeSelection::All => Some(CdiNode {
            host_path: None,
            path: path.clone(),
            number: Some(*number),
            permissions: access(*number),
            file_mode: Some(created_node.permissions.mode),
            gid: Some(created_node.permissions.gid),
        }),
        _ => None,
    });
    nodes.collect()
}

impl Specification {
    /// Returns the specification of `devices`, with the lowest CDI version that has all its fields.
    pub fn new(kind: String, mut devices: Vec<SpecifiedDevice>) -> Self {
        let has_dotted_class = kind
            .split_once('/')
            .is_some_and(|(_, name)| name.contains('.'));
        let mut nodes = devices
            .iter()
            .flat_map(|device| &device.container_edits.device_nodes);
        let has_host_path = nodes.any(|node| node.host_path.is_some());
        let mut names = devices.iter().map(|device| &device.name);
        let has_digit = names.any(|name| name.starts_with(|c: char| c.is_ascii_digit()));
        let cdi_version = if has_dotted_class {
            "0.6.0"
        } else if has_host_path || has_digit {
            "0.5.0"
        } else {
            "0.3.0"
        };
        let container_edits = ContainerEdits {
            mounts: extract_common_mounts(&mut devices),
            ..ContainerEdits::default()
        };
        Specification {
            cdi_version,
            kind,
            devices,
            container_edits,
        }
    }

    /// Returns the number of devices. The entries for the names of one device are adjacent and have
    /// equal edits, so they are counted once. The name `all` is not counted.
    pub fn count_devices(&self) -> usize {
        let mut edits: Vec<&ContainerEdits> = self
            .devices
            .iter()
            .filter(|device| device.name != ALL_DEVICES_NAME)
            .map(|device| &device.container_edits)
            .collect();
        edits.dedup();
        edits.len()
    }

    /// Returns the names of the CDI devices: the ids and indices of devices, and `all`.
    pub fn device_names(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().map(|device| device.name.as_str())
    }

    /// Returns the specification with only the devices whose names `is_selected` accepts. Returns
    /// `None` if there are no such devices, because CDI does not allow a specification without
    /// devices.
    pub fn filter_devices(mut self, is_selected: impl Fn(&str) -> bool) -> Option<Self> {
        self.devices.retain(|device| is_selected(&device.name));
        for device in &mut self.devices {
            let mounts = self.container_edits.mounts.iter().cloned();
            device.container_edits.mounts.splice(0..0, mounts);
        }
        (!self.devices.is_empty()).then(|| Specification::new(self.kind, self.devices))
    }

    pub fn file_name(&self) -> String {
        file_name(&self.kind)
    }
}

/// Returns the file name of the specification for a kind, such as `boathook-vendor.com-npu.json`.
pub fn file_name(kind: &str) -> String {
    format!("{SPEC_FILE_PREFIX}{}.json", kind.replace('/', "-"))
}

/// The prefix of the file names of generated specifications. An update of the directory removes
/// only files with this prefix.
pub const SPEC_FILE_PREFIX: &str = "boathook-";

#[cfg(test)]
mod tests;
