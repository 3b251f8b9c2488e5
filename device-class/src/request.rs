//! What a container asks for: the text of a variable or an annotation, parsed
//! and then matched with the devices that there are.

use std::collections::BTreeSet;
use std::fmt;

use crate::class::{DeviceClass, PairSpec, RequirementSpec};
use crate::discover::Device;
use crate::name::{CapabilityName, ClassName, DeviceId, EnvName, NameError, excerpt};
use crate::requirement::RequirementError;

/// The annotation that carries a grant is this and the class's name.
pub const ANNOTATION_PREFIX: &str = "devices.boathook.dev/";

/// The longest request, in bytes. 128 ids of the longest sort fit.
pub const MAX_REQUEST: usize = 8192;

/// The numbers of pairs are below this.
const MAX_PAIRS: u32 = 64;

/// One container's request for devices of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The class.
    pub class: ClassName,
    /// Which devices.
    pub selection: Selection,
    /// Which of the class's capabilities.
    pub capabilities: BTreeSet<CapabilityName>,
    /// Capabilities that were asked for and that the class does not have.
    pub unknown_capabilities: Vec<String>,
    /// What the image requires of the host: variables and their texts.
    pub requirements: Vec<(EnvName, String)>,
    /// What is wanted of single devices.
    pub pairs: Vec<Pair>,
    /// Where the request stood.
    pub source: RequestSource,
}

/// What is wanted of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The variable that tells which device is meant, for people.
    pub env: String,
    /// Its value.
    pub select: String,
    /// The value of its partner.
    pub value: String,
}

/// Where a request stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestSource {
    /// In the container's environment.
    Env {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
    },
    /// In the container's annotations.
    Annotation {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
}

impl fmt::Display for RequestSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestSource::Env { name, value } => write!(f, "env {name}={}", excerpt(value)),
            RequestSource::Annotation { key, value } => {
                write!(f, "annotation {key}={}", excerpt(value))
            }
        }
    }
}

/// Which devices a request means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// `void`, or empty: nothing at all.
    Nothing,
    /// `none`: the class's files, but no device and no control node.
    FilesOnly,
    /// `all`: every healthy device.
    All,
    /// A comma list.
    These(Vec<Wanted>),
}

/// One item of a comma list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// An id, an index or an alias.
    Name(String),
    /// The indices from the first to the last.
    Range(u32, u32),
}

/// Why a request can't be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The value is longer than [`MAX_REQUEST`].
    #[error("{length} bytes are too many; a request has at most {MAX_REQUEST}")]
    TooLong {
        /// The length in bytes.
        length: usize,
    },
    /// An item that is neither a name nor a range.
    #[error("`{}` is neither a device nor a range such as 0-3", excerpt(.0))]
    Malformed(String),
    /// A variable of a pair without its partner.
    #[error("{env} is set without {partner}")]
    Unpaired {
        /// The variable.
        env: String,
        /// The one that is missing.
        partner: String,
    },
    /// A variable of a pair with a value that no device could have.
    #[error(transparent)]
    Pair(NameError),
    /// A requirement that the host does not meet.
    #[error("{env}={} can't be met: {error}", excerpt(.text))]
    Requirement {
        /// The variable.
        env: EnvName,
        /// Its value.
        text: String,
        /// What is wrong.
        error: RequirementError,
    },
    /// There is no such device.
    #[error("class {class} has no device `{}` on this host; {known}", excerpt(.wanted))]
    Unknown {
        /// The class.
        class: ClassName,
        /// What was asked for.
        wanted: String,
        /// What there is, for people.
        known: String,
    },
    /// A device that was allocated is not there any more.
    #[error(
        "device {id} of class {class} was allocated to the container but is not on this host any \
         more; delete the pod, so that it is scheduled anew"
    )]
    Lost {
        /// The class.
        class: ClassName,
        /// The device.
        id: DeviceId,
    },
}

/// A request that can't be met, and where it stood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{asked_by}: {error}")]
pub struct RefusedRequest {
    /// The request's [`RequestSource`], for people.
    pub asked_by: String,
    /// What is wrong with it.
    pub error: RequestError,
}

impl Selection {
    /// Reads a request's text.
    ///
    /// # Errors
    /// The text is too long or malformed.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        if text.len() > MAX_REQUEST {
            return Err(RequestError::TooLong { length: text.len() });
        }
        match text.trim() {
            "" | "void" => Ok(Selection::Nothing),
            "none" => Ok(Selection::FilesOnly),
            "all" => Ok(Selection::All),
            list => list
                .split(',')
                .map(Wanted::parse)
                .collect::<Result<_, _>>()
                .map(Self::These),
        }
    }

    /// The devices that are meant, each once, in the order of `devices`.
    ///
    /// # Errors
    /// [`RequestError::Unknown`] when an item means no device.
    pub fn choose<'a>(
        &self,
        class: &ClassName,
        devices: &'a [Device],
    ) -> Result<Vec<&'a Device>, RequestError> {
        let wanted = match self {
            Selection::Nothing | Selection::FilesOnly => return Ok(Vec::new()),
            Selection::All => {
                return Ok(devices.iter().filter(|d| d.health.is_healthy()).collect());
            }
            Selection::These(wanted) => wanted,
        };
        let mut chosen = BTreeSet::<usize>::new();
        let mut choose = |name: &str| match meant(devices, name).as_slice() {
            [] => Err(RequestError::Unknown {
                class: class.clone(),
                wanted: name.to_owned(),
                known: known(devices),
            }),
            found => {
                chosen.extend(found);
                Ok(())
            }
        };
        for item in wanted {
            match item {
                Wanted::Name(name) => choose(name)?,
                Wanted::Range(first, last) => {
                    (*first..=*last).try_for_each(|index| choose(&index.to_string()))?;
                }
            }
        }
        Ok(chosen.into_iter().map(|at| &devices[at]).collect())
    }
}

impl Wanted {
    fn parse(item: &str) -> Result<Self, RequestError> {
        let item = item.trim();
        let malformed = || RequestError::Malformed(item.to_owned());
        if DeviceId::try_from(item.to_owned()).is_err() {
            return Err(malformed());
        }
        // Digits and dashes alone are a range, or a slip of the pen: no id is
        // guessed from them.
        if item.contains('-') && item.chars().all(|c| c.is_ascii_digit() || c == '-') {
            let (first, last) = item.split_once('-').ok_or_else(malformed)?;
            return match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) if first <= last => Ok(Wanted::Range(first, last)),
                _ => Err(malformed()),
            };
        }
        Ok(Wanted::Name(item.to_owned()))
    }
}

/// The positions of the devices that a name means. An id, of a device or of
/// one of its replicas, goes before an index, and an index before an alias.
fn meant(devices: &[Device], name: &str) -> Vec<usize> {
    let one = |fits: &dyn Fn(&Device) -> bool| devices.iter().position(fits);
    let found = one(&|device| device.id.as_str() == name)
        .or_else(|| one(&|device| device.has_replica(name)))
        .or_else(|| one(&|device| device.index.as_deref() == Some(name)));
    match found {
        Some(at) => vec![at],
        None => {
            let all = devices.iter().enumerate();
            let named = all.filter(|(_, device)| device.aliases.iter().any(|a| a == name));
            named.map(|(at, _)| at).collect()
        }
    }
}

fn known(devices: &[Device]) -> String {
    match devices {
        [] => "there are none, so check that the driver is loaded".into(),
        [only] => format!("there is {}", only.id),
        [first, .., last] => {
            format!(
                "there are {}, from {} to {}",
                devices.len(),
                first.id,
                last.id
            )
        }
    }
}

impl Request {
    /// What a container asks of a class. An annotation, which carries what was
    /// allocated, goes before the variable, which an image can set as well.
    /// `None`: nothing was asked.
    ///
    /// # Errors
    /// The request's text is malformed.
    pub fn of<'a>(
        class: &DeviceClass,
        env: impl Fn(&str) -> Option<&'a str>,
        annotation: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Option<Self>, RefusedRequest> {
        let spec = &class.spec.request;
        let key = format!("{ANNOTATION_PREFIX}{}", class.name);
        let source = match (annotation(&key), env(spec.env.as_str())) {
            (Some(value), _) => RequestSource::Annotation {
                key,
                value: value.to_owned(),
            },
            (None, Some(value)) => RequestSource::Env {
                name: spec.env.to_string(),
                value: value.to_owned(),
            },
            (None, None) => return Ok(None),
        };
        let (RequestSource::Env { value, .. } | RequestSource::Annotation { value, .. }) = &source;
        let selection = match Selection::parse(value) {
            Ok(Selection::Nothing) => return Ok(None),
            Ok(selection) => selection,
            Err(error) => {
                return Err(RefusedRequest {
                    asked_by: source.to_string(),
                    error,
                });
            }
        };
        let pairs = pairs(spec.pairs.as_ref(), &env).map_err(|error| RefusedRequest {
            asked_by: source.to_string(),
            error,
        })?;
        let requirements = requirements(spec.requirements.as_ref(), &env);
        let asked = spec
            .capabilities_env
            .as_ref()
            .and_then(|name| env(name.as_str()));
        let (capabilities, unknown_capabilities) = capabilities(class, asked);
        let class = class.name.clone();
        Ok(Some(Request {
            class,
            selection,
            capabilities,
            unknown_capabilities,
            requirements,
            pairs,
            source,
        }))
    }
}

/// The requirements that are set, unless they are switched off.
fn requirements<'a>(
    spec: Option<&RequirementSpec>,
    env: impl Fn(&str) -> Option<&'a str>,
) -> Vec<(EnvName, String)> {
    let Some(spec) = spec else {
        return Vec::new();
    };
    let switch = spec.disable_env.as_ref();
    let off = switch
        .and_then(|name| env(name.as_str()))
        .is_some_and(|value| !matches!(value.trim(), "" | "0" | "false"));
    if off {
        return Vec::new();
    }
    let set = spec.env.iter().filter_map(|name| {
        let text = env(name.as_str())?;
        Some((name.clone(), text.to_owned()))
    });
    set.collect()
}

/// The pairs that a container has, by their numbers.
fn pairs<'a>(
    spec: Option<&PairSpec>,
    env: impl Fn(&str) -> Option<&'a str>,
) -> Result<Vec<Pair>, RequestError> {
    let mut pairs = Vec::new();
    for number in 0..spec.map_or(0, |_| MAX_PAIRS) {
        let Some(spec) = spec else { break };
        let first = format!("{}{number}", spec.select_env);
        let Some(select) = env(&first) else { continue };
        let second = format!("{}{number}", spec.value_env);
        let value = env(&second).ok_or_else(|| RequestError::Unpaired {
            env: first.clone(),
            partner: second.clone(),
        })?;
        // Both may get into paths and command lines.
        for text in [select, value] {
            DeviceId::try_from(text.to_owned()).map_err(RequestError::Pair)?;
        }
        pairs.push(Pair {
            env: first,
            select: select.to_ascii_lowercase(),
            value: value.to_ascii_lowercase(),
        });
    }
    Ok(pairs)
}

/// The capabilities of a request, and those that the class does not know:
/// images ask for all that they could use, so these are no error.
fn capabilities(
    class: &DeviceClass,
    asked: Option<&str>,
) -> (BTreeSet<CapabilityName>, Vec<String>) {
    let known = class.spec.capabilities();
    match asked.map(str::trim) {
        None | Some("") => (
            class
                .spec
                .request
                .default_capabilities
                .iter()
                .cloned()
                .collect(),
            Vec::new(),
        ),
        Some("all") => (known, Vec::new()),
        Some(list) => {
            let items = list
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty());
            let exceptions = class.spec.exceptions();
            let nameable: BTreeSet<_> = known.union(&exceptions).cloned().collect();
            let (fits, unknown): (Vec<&str>, Vec<&str>) =
                items.partition(|item| nameable.iter().any(|name| name.as_str() == *item));
            let chosen = nameable
                .into_iter()
                .filter(|name| fits.contains(&name.as_str()))
                .collect();
            (chosen, unknown.into_iter().map(excerpt).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_word_or_a_list() {
        let name = |name: &str| Wanted::Name(name.into());
        let long = "npu-1,".repeat(2000);
        let table: &[(&str, Result<Selection, &str>)] = &[
            ("", Ok(Selection::Nothing)),
            ("void", Ok(Selection::Nothing)),
            ("none", Ok(Selection::FilesOnly)),
            (" all ", Ok(Selection::All)),
            ("npu-1", Ok(Selection::These(vec![name("npu-1")]))),
            ("0,2", Ok(Selection::These(vec![name("0"), name("2")]))),
            (
                "0-3, GPU-1",
                Ok(Selection::These(vec![Wanted::Range(0, 3), name("GPU-1")])),
            ),
            (
                "3-0",
                Err("`3-0` is neither a device nor a range such as 0-3"),
            ),
            (
                "1-2-3",
                Err("`1-2-3` is neither a device nor a range such as 0-3"),
            ),
            (
                "-1",
                Err("`-1` is neither a device nor a range such as 0-3"),
            ),
            (
                "0-",
                Err("`0-` is neither a device nor a range such as 0-3"),
            ),
            (
                "0,,1",
                Err("`` is neither a device nor a range such as 0-3"),
            ),
            (
                "../../sda",
                Err("`../../sda` is neither a device nor a range such as 0-3"),
            ),
            (
                "a\nb",
                Err("`a\\nb` is neither a device nor a range such as 0-3"),
            ),
            (
                "0-99999999999",
                Err("`0-99999999999` is neither a device nor a range such as 0-3"),
            ),
            (
                &long,
                Err("12000 bytes are too many; a request has at most 8192"),
            ),
        ];
        for (text, wanted) in table {
            let parsed = Selection::parse(text).map_err(|error| error.to_string());
            assert_eq!(
                parsed,
                wanted.clone().map_err(str::to_owned),
                "{}",
                excerpt(text)
            );
        }
    }
}
