//! Parses a container's request for devices, and finds the requested devices on the host. The
//! request is a variable, an annotation, an argument of the hook, or a user's command.

mod address;
mod advice;
mod awaited_device;
mod cdi_name;
mod environment;
mod error;
mod list;
mod names;
mod node_paths;
mod selection;
mod shared_name;
mod similar_device;
#[cfg(test)]
mod tests;
mod udev_name;
mod unsupported_form;
mod variables;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

pub use address::is_usb_port;
pub use awaited_device::{AwaitedDevice, MAX_AWAITED_DEVICES, format_awaited_name};
pub use environment::Environment;
pub use error::{RefusedRequest, RequestError};
pub use list::{DeviceList, DeviceListItem, item_name, quote, split_list};
pub use names::{RequestNames, RequestText};
pub use node_paths::RequestedNodePath;
pub use selection::{MAX_REQUEST_BYTES, Selection};
pub use similar_device::SimilarDevice;

use device_class::DeviceClass;
use device_class::discover::{EditSelection, Inventory, RequestedDevices};
use device_class::name::{CapabilityName, ClassName, DeviceId, EnvName, ListName, excerpt};

use variables::{
    describe_capabilities, parse_capabilities, parse_list_names, parse_requirements,
    parse_variable_pairs,
};

/// The prefix of the annotation with which the device plugin passes an allocation to the hook. The
/// class name follows the prefix, as in `devices.boathook.dev/dummy-npu`.
pub const ANNOTATION_PREFIX: &str = "devices.boathook.dev/";

/// One container's request for devices of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub class: ClassName,
    pub selection: Selection,
    /// The host paths by which the request names devices, such as `/dev/ttyUSB0`. The scan of the
    /// host finds the devices of these paths.
    pub paths: Vec<PathBuf>,
    /// The requested capabilities of the class.
    pub capabilities: BTreeSet<CapabilityName>,
    /// The requested capabilities that the class does not have, as text for a note.
    pub unknown_capabilities: Vec<String>,
    /// The value of the variable that lists capabilities. It is set only if the class has none of
    /// the listed capabilities.
    pub unknown_capability_list: Option<String>,
    /// The names of the file lists that the container requests from the class.
    pub lists: Vec<ListName>,
    /// The requirements that the image has on the host, such as a minimum driver version. Each has
    /// the name of its variable and the value.
    pub requirements: Vec<(String, String)>,
    /// The variable pairs, with which the container requests states of devices.
    pub pairs: Vec<VariablePair>,
    /// The variables of the container whose values are numbers of devices, counted within the
    /// container and not on the host. Each has its name and value.
    pub container_index_variables: Vec<(String, String)>,
    pub source: RequestSource,
}

/// A pair of variables for one device. The first variable selects the device. The second variable
/// is a state. A program of the class brings the device into this state before the container
/// starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariablePair {
    /// The name of the first variable, which selects the device.
    pub selector_name: String,
    /// The value of the first variable.
    pub selector: String,
    /// The value of the second variable.
    pub state: String,
}

/// The place where the request was found, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestSource {
    Env {
        name: String,
        value: String,
    },
    Annotation {
        key: String,
        value: String,
    },
    /// The devices in an argument of the hook. A CDI specification has added this hook to the
    /// container.
    Cdi {
        devices: DeviceList,
    },
    /// The devices that a user gives to a running container with `boathook attach`.
    Attach {
        devices: DeviceList,
    },
}

impl RequestSource {
    /// Returns whether a request from this source can wait for devices that arrive later. A CDI
    /// specification and `boathook attach` need their devices at once.
    pub(crate) fn can_await_devices(&self) -> bool {
        matches!(
            self,
            RequestSource::Env { .. } | RequestSource::Annotation { .. }
        )
    }
}

impl fmt::Display for RequestSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestSource::Env { name, value } => write!(f, "env {name}={}", excerpt(value)),
            RequestSource::Annotation { key, value } => {
                write!(f, "annotation {key}={}", excerpt(value))
            }
            RequestSource::Cdi { devices } => {
                write!(f, "CDI device {}", excerpt(devices.as_str()))
            }
            RequestSource::Attach { devices } => {
                write!(f, "attached {}", excerpt(devices.as_str()))
            }
        }
    }
}

impl RequestedDevices for Request {
    /// If the request is refused, returns no ids. The caller reports the error when it makes the
    /// plan.
    fn find_requested_ids(&self, class: &DeviceClass, inventory: &Inventory) -> BTreeSet<DeviceId> {
        let result = self.selection.choose_devices(class, inventory);
        let devices = result.unwrap_or_default().into_iter();
        devices.map(|device| device.id.clone()).collect()
    }
}

impl Request {
    /// Returns the parts of the request that a look-up on the host needs: the capabilities, the
    /// file lists, the host paths, and the requested devices.
    pub fn edit_selection(&self) -> EditSelection<'_> {
        EditSelection {
            capabilities: &self.capabilities,
            lists: &self.lists,
            paths: &self.paths,
            requested_devices: Some(self),
        }
    }

    /// Returns an error if the request lists capabilities but the class has none of them. Otherwise
    /// the container would get the devices without their libraries.
    pub(crate) fn check_capabilities(&self, class: &DeviceClass) -> Result<(), RequestError> {
        let known_capabilities = describe_capabilities(class);
        let variable = class.spec.request.capabilities_env.as_ref();
        match variable.zip(self.unknown_capability_list.as_ref()) {
            Some((variable, value)) if !known_capabilities.is_empty() => {
                Err(RequestError::NoCapability {
                    class: class.name.clone(),
                    request: format!("{variable}={}", excerpt(value)),
                    known_capabilities: if value.starts_with(['"', '\'']) {
                        format!("{known_capabilities}; write them without quotes")
                    } else {
                        known_capabilities
                    },
                })
            }
            _ => Ok(()),
        }
    }

    /// Finds the request of a container for devices of a class. The annotation takes precedence
    /// over the variable: the annotation has the kubelet's allocation, but any image can set the
    /// variable. Returns `None` if the container does not request the class.
    pub fn find<'a>(
        class: &DeviceClass,
        variables: &'a Environment,
        annotation: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Option<Self>, RefusedRequest> {
        let env = &class.spec.request.env;
        let key = format!("{ANNOTATION_PREFIX}{}", class.name);
        let source = match (annotation(&key), variables.get(env.as_str())) {
            (Some(value), _) => RequestSource::Annotation {
                key,
                value: value.to_owned(),
            },
            (None, Some(value)) => RequestSource::Env {
                name: env.to_string(),
                value: value.to_owned(),
            },
            (None, None) => return Ok(None),
        };
        Request::parse(class, variables, source)
    }

    /// Parses the request from `source`. The container's other variables determine the
    /// capabilities, requirements, variable pairs and file lists. Returns `None` if the source
    /// requests nothing (`void` or an empty list).
    pub fn parse(
        class: &DeviceClass,
        variables: &Environment,
        source: RequestSource,
    ) -> Result<Option<Self>, RefusedRequest> {
        let spec = &class.spec.request;
        let get_env = |name: &str| variables.get(name);
        let refuse = |error| RefusedRequest::new(&source, error);
        let parse_result = match &source {
            RequestSource::Env { value, .. } | RequestSource::Annotation { value, .. } => {
                Selection::parse(value, &class.spec)
            }
            RequestSource::Cdi { devices } | RequestSource::Attach { devices } => {
                Selection::from_list(devices, &class.spec)
            }
        };
        let mut selection = parse_result.map_err(refuse)?;
        if selection == Selection::Nothing {
            return Ok(None);
        }
        if matches!(source, RequestSource::Cdi { .. }) {
            let requester = "a CDI specification";
            selection
                .check_no_container_path(requester)
                .map_err(refuse)?;
            selection.check_no_awaited_item(requester).map_err(refuse)?;
        }
        match &source {
            RequestSource::Attach { .. } => {
                let requester = "`boathook attach`";
                selection.check_no_awaited_item(requester).map_err(refuse)?;
            }
            RequestSource::Env { .. } if class.spec.allows_late_devices => {
                selection.mark_names_as_awaited(&class.spec)
            }
            _ => {}
        }
        let is_set = |name: &str| get_env(name).is_some_and(|value| !value.is_empty());
        if let Some((variable, advice)) =
            spec.refused_variables.iter().find(|(name, _)| is_set(name))
        {
            return Err(refuse(RequestError::UnsupportedVariable {
                variable: variable.clone(),
                advice: advice.clone(),
            }));
        }
        let pairs = parse_variable_pairs(spec.pairs.as_ref(), get_env).map_err(refuse)?;
        let requirements =
            parse_requirements(spec.requirements.as_ref(), variables).map_err(refuse)?;
        let capability_list = spec
            .capabilities_env
            .as_ref()
            .and_then(|name| get_env(name.as_str()));
        let (mut capabilities, unknown_capabilities) =
            parse_capabilities(class, capability_list).map_err(refuse)?;
        let are_all_unknown = capabilities.is_empty() && !unknown_capabilities.is_empty();
        let unknown_capability_list = capability_list
            .filter(|_| are_all_unknown)
            .map(str::to_owned);
        let switches = spec.switches.iter();
        capabilities.extend(switches.filter_map(|(name, choices)| {
            let value = get_env(name.as_str())?;
            choices.get(value).cloned()
        }));
        let list_names = spec
            .file_lists_env
            .as_ref()
            .and_then(|name| get_env(name.as_str()));
        let lists = parse_list_names(list_names.unwrap_or_default()).map_err(refuse)?;
        let index_variables = spec.container_index_env.iter().map(EnvName::as_str);
        let container_index_variables = index_variables
            .filter_map(|name| Some((name.to_owned(), get_env(name)?.to_owned())))
            .collect();
        let paths = selection.host_paths(&class.spec);
        let class = class.name.clone();
        Ok(Some(Request {
            class,
            selection,
            paths,
            lists,
            capabilities,
            unknown_capabilities,
            unknown_capability_list,
            requirements,
            pairs,
            container_index_variables,
            source,
        }))
    }
}
