//! The path of a request, which names an object or a collection, and its query parameters.

use serde_json::Value;

/// The path of an object, or of a collection if the name is `None`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    /// Group, version and plural, such as `/api/v1/pods`.
    pub(crate) kind: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
}

impl Target {
    pub(crate) fn of_path(path: &str) -> Self {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let group = if parts[0] == "api" { 2 } else { 3 };
        let (group, rest) = parts.split_at(group);
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
                (Some((*namespace).to_owned()), rest)
            }
            rest => (None, rest),
        };
        Self {
            kind: format!("/{}/{}", group.join("/"), rest[0]),
            namespace,
            name: rest.get(1).map(|name| (*name).to_owned()),
        }
    }

    /// Returns whether an object is in this collection.
    pub(crate) fn holds(&self, object: &Self) -> bool {
        self.kind == object.kind && (self.namespace.is_none() || self.namespace == object.namespace)
    }
}

/// The query parameters of a list or watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parameters {
    pub(crate) watch: bool,
    pub(crate) version: u64,
    pub(crate) limit: usize,
    pub(crate) skip: usize,
    /// Whether the field selector is the one for pods that have a node and have not ended.
    pub(crate) running_pods: bool,
    /// The field selector for fields of `spec`: names and values.
    pub(crate) spec: Vec<(String, String)>,
}

impl Parameters {
    pub(crate) fn parse(query: &str) -> Self {
        let mut parameters = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match key {
                "watch" => parameters.watch = value == "true" || value == "1",
                "resourceVersion" => parameters.version = value.parse().unwrap_or(0),
                "limit" => parameters.limit = value.parse().unwrap(),
                "continue" => parameters.skip = value.parse().unwrap_or(0),
                "fieldSelector" if value.starts_with("spec.nodeName%21%3D%2C") => {
                    parameters.running_pods = true;
                }
                "fieldSelector" => {
                    let equals = value.split("%2C").map(|one| one.split_once("%3D").unwrap());
                    let field = |name: &str| name.strip_prefix("spec.").unwrap().to_owned();
                    parameters.spec = equals
                        .map(|(name, value)| (field(name), value.to_owned()))
                        .collect();
                }
                _ => {}
            }
        }
        parameters
    }

    pub(crate) fn select(&self, object: &Value) -> bool {
        let running = || {
            let phase = object["status"]["phase"].as_str();
            object["spec"]["nodeName"].is_string() && !matches!(phase, Some("Succeeded" | "Failed"))
        };
        let equals = |(name, value): &(String, String)| object["spec"][name] == value.as_str();
        (!self.running_pods || running()) && self.spec.iter().all(equals)
    }
}
