//! Objects, and the history of their changes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::request::{Parameters, Target};

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) version: u64,
    pub(crate) lists: usize,
    objects: BTreeMap<Target, Value>,
    changes: Vec<Change>,
    /// The oldest version from which a watch can begin.
    oldest: u64,
}

struct Change {
    version: u64,
    target: Target,
    before: Option<Value>,
    after: Option<Value>,
}

impl Store {
    pub(crate) fn write(&mut self, target: &Target, mut object: Value) -> u64 {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = self.version.to_string().into();
        metadata["name"] = target.name.clone().unwrap().into();
        if let Some(namespace) = &target.namespace {
            metadata["namespace"] = namespace.clone().into();
        }
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("uid-of-{}", target.name.as_ref().unwrap()).into();
        }
        let before = self.objects.insert(target.clone(), object.clone());
        self.note(target, before, Some(object))
    }

    pub(crate) fn delete(&mut self, target: &Target) -> u64 {
        self.version += 1;
        let before = self.objects.remove(target);
        self.note(target, before, None)
    }

    fn note(&mut self, target: &Target, before: Option<Value>, after: Option<Value>) -> u64 {
        self.changes.push(Change {
            version: self.version,
            target: target.clone(),
            before,
            after,
        });
        self.version
    }

    pub(crate) fn compact(&mut self) {
        self.changes.clear();
        self.version += 1;
        self.oldest = self.version;
    }

    fn matching(&self, target: &Target, parameters: &Parameters) -> Vec<&Value> {
        let matching = self
            .objects
            .iter()
            .filter(|(key, object)| target.holds(key) && parameters.select(object));
        matching.map(|(_, object)| object).collect()
    }

    pub(crate) fn page(&mut self, target: &Target, parameters: &Parameters) -> Value {
        self.lists += 1;
        let all = self.matching(target, parameters);
        let end = match parameters.limit {
            0 => all.len(),
            limit => all.len().min(parameters.skip + limit),
        };
        let more = (end < all.len()).then(|| end.to_string());
        json!({
            "apiVersion": "v1", "kind": "List",
            "metadata": {"resourceVersion": self.version.to_string(), "continue": more},
            "items": all[parameters.skip..end],
        })
    }

    /// The events after a version, and the version after them.
    pub(crate) fn events(
        &self,
        target: &Target,
        parameters: &Parameters,
        after: u64,
    ) -> (Vec<Value>, u64) {
        if after < self.oldest {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                "status": "Failure", "message": "too old resource version",
                "reason": "Expired", "code": 410});
            return (
                vec![json!({"type": "ERROR", "object": status})],
                self.version,
            );
        }
        let new = self.changes.iter().filter(|change| change.version > after);
        let events = new
            .filter(|change| target.holds(&change.target))
            .filter_map(|change| {
                let selected = |object: &Option<Value>| {
                    object
                        .as_ref()
                        .is_some_and(|object| parameters.select(object))
                };
                let (before, after) = (selected(&change.before), selected(&change.after));
                let (kind, object) = match (before, after) {
                    (false, false) => return None,
                    (false, true) => ("ADDED", &change.after),
                    (true, true) => ("MODIFIED", &change.after),
                    (true, false) => ("DELETED", &change.before),
                };
                Some(json!({"type": kind, "object": object}))
            });
        (events.collect(), self.version)
    }
}
