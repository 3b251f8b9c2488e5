//! Defines the fields of a pod that the webhook reads. The values are borrowed from the body of an
//! admission review. They may be invalid, because the API server validates a pod only after it has
//! called the webhooks.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::api::{FUNCTION_VARIABLE_PREFIX, REGION_VARIABLE_PREFIX, RESOURCE_PREFIX};
use crate::json::{BoundedList, JsonString};

/// The maximum number of entries in each of a pod's two lists of containers. Parsing a longer list
/// fails.
const MAX_CONTAINERS: usize = 1024;

/// The maximum number of resources with the prefix [`RESOURCE_PREFIX`] that a container may
/// request. Parsing a pod with more of them fails.
const MAX_RESOURCES: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod<'a> {
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    init_containers: Option<BoundedList<Container<'a>, MAX_CONTAINERS>>,
    #[serde(borrow)]
    containers: Option<BoundedList<Container<'a>, MAX_CONTAINERS>>,
}

/// A container, init container or sidecar. Ephemeral containers are not read, because they cannot
/// request resources.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Container<'a> {
    #[serde(borrow)]
    pub(super) name: Option<JsonString<'a>>,
    #[serde(borrow)]
    pub(super) resources: Option<Resources<'a>>,
    #[serde(borrow)]
    pub(super) env: Option<Variables<'a>>,
    /// The sources of further environment variables (`envFrom`). Only their number is read. If it
    /// is not 0, a warning says that the webhook does not check these variables.
    pub(super) env_from: Option<Vec<IgnoredAny>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Resources<'a> {
    #[serde(borrow)]
    pub(super) limits: Option<Quantities<'a>>,
    #[serde(borrow)]
    pub(super) requests: Option<Quantities<'a>>,
}

/// The quantities of the resources whose names have the prefix [`RESOURCE_PREFIX`]. The key is the
/// full name of a resource. The quantities are not parsed yet.
#[derive(Debug, Default)]
pub(super) struct Quantities<'a>(pub(super) BTreeMap<JsonString<'a>, &'a RawValue>);

/// The environment variables of a container. Only the name of the first reserved variable is
/// stored, to save memory.
#[derive(Debug, Default)]
pub(super) struct Variables<'a> {
    /// The name of the first variable that only the webhook may set. `None` means that the
    /// container does not set such a variable, and need not be refused for it.
    pub(super) reserved_name: Option<JsonString<'a>>,
}

impl<'a> Pod<'a> {
    /// Returns the containers of both lists, each with the name of its list and its index in the
    /// list.
    pub(super) fn containers(&self) -> impl Iterator<Item = (&'static str, usize, &Container<'a>)> {
        let spec = self.spec.as_ref();
        let init_containers = spec.and_then(|spec| spec.init_containers.as_ref());
        let main_containers = spec.and_then(|spec| spec.containers.as_ref());
        let lists = [
            ("initContainers", init_containers),
            ("containers", main_containers),
        ];
        lists.into_iter().flat_map(|(name, list)| {
            let containers = list.into_iter().flat_map(|list| list.0.iter().enumerate());
            containers.map(move |(index, container)| (name, index, container))
        })
    }

    /// Returns whether a container of the pod requests a resource whose name has the prefix
    /// [`RESOURCE_PREFIX`].
    pub fn requests_mapped_resources(&self) -> bool {
        self.containers().any(|(_, _, container)| {
            ["limits", "requests"]
                .iter()
                .filter_map(|section| container.quantities(section))
                .any(|quantities| !quantities.0.is_empty())
        })
    }
}

impl<'a> Container<'a> {
    /// Returns the quantities in a section of the container's resources. `section` is `limits` or
    /// `requests`.
    pub(super) fn quantities(&self, section: &str) -> Option<&Quantities<'a>> {
        let resources = self.resources.as_ref()?;
        match section {
            "limits" => resources.limits.as_ref(),
            _ => resources.requests.as_ref(),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Quantities<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor;

        impl<'de> Visitor<'de> for MapVisitor {
            type Value = Quantities<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    formatter,
                    "at most {MAX_RESOURCES} resources {RESOURCE_PREFIX}…"
                )
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut quantities = Quantities::default();
                while let Some(name) = map.next_key::<JsonString<'de>>()? {
                    if name.0.starts_with(RESOURCE_PREFIX) {
                        quantities.0.insert(name, map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                    if quantities.0.len() > MAX_RESOURCES {
                        return Err(A::Error::invalid_length(quantities.0.len(), &self));
                    }
                }
                Ok(quantities)
            }
        }

        deserializer.deserialize_map(MapVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Variables<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Variable<'a> {
            #[serde(borrow, default)]
            name: Option<JsonString<'a>>,
        }

        struct ListVisitor;

        impl<'de> Visitor<'de> for ListVisitor {
            type Value = Variables<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of variables")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut variables = Variables::default();
                while let Some(Variable { name }) = items.next_element()? {
                    let reserved_name = name.filter(|name| {
                        let prefixes = [REGION_VARIABLE_PREFIX, FUNCTION_VARIABLE_PREFIX];
                        prefixes.iter().any(|prefix| name.0.starts_with(prefix))
                    });
                    variables.reserved_name = variables.reserved_name.or(reserved_name);
                }
                Ok(variables)
            }
        }

        deserializer.deserialize_seq(ListVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_error(text: &str) -> Option<String> {
        let pod = serde_json::from_str::<Pod<'_>>(text);
        pod.err().map(|error| error.to_string())
    }

    /// A short body must not lead to much memory or many operations.
    #[test]
    fn the_numbers_of_containers_and_resources_are_bounded() {
        let containers = |count| {
            let more = "{},".repeat(count);
            format!("{{\"spec\":{{\"containers\":[{more}{{}}]}}}}")
        };
        assert_eq!(parse_error(&containers(MAX_CONTAINERS - 1)), None);
        let reason = parse_error(&containers(MAX_CONTAINERS)).unwrap();
        assert!(reason.contains("a list of at most 1024 items"), "{reason}");
        let resources = |count: usize| {
            let names = (0..count).map(|at| format!("\"{RESOURCE_PREFIX}{at}\":\"1\""));
            let limits = names.collect::<Vec<_>>().join(",");
            format!(
                "{{\"spec\":{{\"initContainers\":[{{\"resources\":{{\"limits\":{{{limits}}}}}}}]}}}}"
            )
        };
        assert_eq!(parse_error(&resources(MAX_RESOURCES)), None);
        let reason = parse_error(&resources(MAX_RESOURCES + 1)).unwrap();
        let said = "at most 64 resources fpga.intel.com/…";
        assert!(reason.contains(said), "{reason}");
        // Variables that only the webhook may set are stored, and all others are skipped.
        let many = "{\"name\":\"A\"},".repeat(100_000);
        let text = format!("{{\"spec\":{{\"containers\":[{{\"env\":[{many}{{}}]}}]}}}}");
        assert_eq!(parse_error(&text), None);
    }

    #[test]
    fn a_pod_with_missing_or_null_fields_requests_nothing() {
        for text in [
            "{}",
            "{\"spec\":null}",
            "{\"spec\":{\"containers\":null,\"initContainers\":null}}",
            "{\"spec\":{\"containers\":[{\"name\":null,\"resources\":null,\"env\":null,\"envFrom\":null}]}}",
            "{\"spec\":{\"containers\":[{\"resources\":{\"limits\":null,\"requests\":{}},\"env\":[{}]}]}}",
        ] {
            let pod: Pod<'_> = serde_json::from_str(text).unwrap();
            assert!(!pod.requests_mapped_resources(), "{text}");
        }
        assert!(parse_error("{\"spec\":{\"containers\":3}}").is_some());
    }
}
