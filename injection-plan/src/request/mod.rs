//! Parses the request of a container, from a variable, an annotation or a hook's arguments,
//! and matches it with the devices of the host.

mod environment;
mod error;
mod list;
mod names;
mod places;
mod selection;
#[cfg(test)]
mod tests;
mod variables;
mod waiting;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

pub use environment::Environment;
pub use error::{RefusedRequest, RequestError};
pub use list::{DeviceList, Item, item_name, quote, split_list};
pub use names::{RequestNames, SimilarDevice, WrittenName};
pub use places::RequestedPlace;
pub use selection::{MAX_REQUEST, Selection};
pub use waiting::{Awaited, MAX_AWAITED};

use device_class::DeviceClass;
use device_class::discover::EditSelection;
use device_class::name::{CapabilityName, ClassName, ListName, excerpt};

use variables::{
    describe_capabilities, parse_capabilities, parse_lists, parse_pairs, parse_requirements,
};

/// The prefix of the annotation by which the device plugin hands an allocation to the hook.
/// The name of the class follows.
pub const ANNOTATION_PREFIX: &str = "devices.boathook.dev/";

/// One container's request for devices of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub class: ClassName,
    pub selection: Selection,
    /// The device paths of the host in the selection. They are resolved when the host is
    /// scanned.
    pub paths: Vec<PathBuf>,
    /// The requested capabilities of the class.
    pub capabilities: BTreeSet<CapabilityName>,
    /// Requested capabilities that the class does not have.
    pub unknown_capabilities: Vec<String>,
    /// The value of the variable with capabilities, if the class has none of the
    /// capabilities in it. `None` means that there was no such mistake.
    pub mistaken_capabilities: Option<String>,
    /// The names of the lists of files that the container requests.
    pub lists: Vec<ListName>,
    /// The image's requirements on the host, as pairs of variable and value.
    pub requirements: Vec<(String, String)>,
    /// The pairs of variables for single devices.
    pub pairs: Vec<Pair>,
    pub source: RequestSource,
}

/// A pair of variables for one device: the first selects the device, and the second has the
/// state that the device must be brought into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The name of the variable that selects the device.
    pub env: String,
    /// The value of that variable.
    pub select: String,
    /// The value of the pair's second variable.
    pub value: String,
}

/// The place where a request was found.
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
    /// The arguments of a hook that a CDI specification added to the container.
    Cdi {
        devices: DeviceList,
    },
    /// A user's `boathook attach` command for a running container.
    Attach {
        devices: DeviceList,
    },
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

impl Request {
    /// Returns the capabilities, file lists and paths that have to be looked up on the host
    /// for this request, in addition to the devices.
    pub fn wanted(&self) -> EditSelection<'_> {
        EditSelection {
            capabilities: &self.capabilities,
            lists: &self.lists,
            paths: &self.paths,
        }
    }

    /// Returns an error if the request lists capabilities and the class has none of them.
    /// The container would get devices without their libraries.
    pub(crate) fn check_capabilities(&self, class: &DeviceClass) -> Result<(), RequestError> {
        let known = describe_capabilities(class);
        let env = class.spec.request.capabilities_env.as_ref();
        match env.zip(self.mistaken_capabilities.as_ref()) {
            Some((env, value)) if !known.is_empty() => Err(RequestError::NoCapability {
                class: class.name.clone(),
                list: format!("{env}={}", excerpt(value)),
                known,
            }),
            _ => Ok(()),
        }
    }

    /// Finds the request of a container for a class. The annotation takes precedence over
    /// the variable, because the annotation has the kubelet's allocation and an image can
    /// set the variable. Returns `None` if the container does not request the class.
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

    /// Parses the request of one source. Other variables of the container select the
    /// capabilities, requirements, pairs and file lists of the request. Returns `None` if
    /// the source requests nothing (`void` or an empty list).
    pub fn parse(
        class: &DeviceClass,
        variables: &Environment,
        source: RequestSource,
    ) -> Result<Option<Self>, RefusedRequest> {
        let spec = &class.spec.request;
        let env = |name: &str| variables.get(name);
        let refused = |error| RefusedRequest {
            requested_by: source.to_string(),
            error,
        };
        let selection = match &source {
            RequestSource::Env { value, .. } | RequestSource::Annotation { value, .. } => {
                Selection::parse(value, &class.spec)
            }
            RequestSource::Cdi { devices } | RequestSource::Attach { devices } => {
                Selection::from_list(devices, &class.spec)
            }
        };
        let mut selection = selection.map_err(refused)?;
        if selection == Selection::Nothing {
            return Ok(None);
        }
        if matches!(source, RequestSource::Cdi { .. }) {
            let requester = "a CDI specification";
            selection.check_no_path(requester).map_err(refused)?;
            selection.check_no_wait(requester).map_err(refused)?;
        }
        match &source {
            RequestSource::Attach { .. } => {
                let requester = "`boathook attach`";
                selection.check_no_wait(requester).map_err(refused)?;
            }
            RequestSource::Env { .. } if class.spec.late => selection.let_names_wait(&class.spec),
            _ => {}
        }
        let is_set = |name: &str| env(name).is_some_and(|value| !value.is_empty());
        if let Some((env, advice)) = spec.refused_env.iter().find(|(name, _)| is_set(name)) {
            let (env, advice) = (env.clone(), advice.clone());
            return Err(refused(RequestError::Unsupported { env, advice }));
        }
        let pairs = parse_pairs(spec.pairs.as_ref(), env).map_err(refused)?;
        let requirements =
            parse_requirements(spec.requirements.as_ref(), variables).map_err(refused)?;
        let asked = spec
            .capabilities_env
            .as_ref()
            .and_then(|name| env(name.as_str()));
        let (mut capabilities, unknown_capabilities) =
            parse_capabilities(class, asked).map_err(refused)?;
        let is_mistaken = capabilities.is_empty() && !unknown_capabilities.is_empty();
        let mistaken_capabilities = asked.filter(|_| is_mistaken).map(str::to_owned);
        let switches = spec.switches.iter();
        capabilities.extend(switches.filter_map(|(name, choices)| {
            let value = env(name.as_str())?;
            choices.get(value).cloned()
        }));
        let named = spec.lists_env.as_ref().and_then(|name| env(name.as_str()));
        let lists = parse_lists(named.unwrap_or_default()).map_err(refused)?;
        let paths = selection.paths(&class.spec);
        let class = class.name.clone();
        Ok(Some(Request {
            class,
            selection,
            paths,
            lists,
            capabilities,
            unknown_capabilities,
            mistaken_capabilities,
            requirements,
            pairs,
            source,
        }))
    }
}
