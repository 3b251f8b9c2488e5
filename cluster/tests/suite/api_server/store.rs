//! The objects of the fake API server, and the history of their changes.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::request::{Parameters, Target};

/// The object for a client, or the status and reason of a failure.
pub(crate) type Answer = Result<Value, (StatusCode, &'static str)>;

const ABSENT: (StatusCode, &str) = (StatusCode::NOT_FOUND, "NotFound");
const CONFLICT: (StatusCode, &str) = (StatusCode::CONFLICT, "Conflict");
const INVALID: (StatusCode, &str) = (StatusCode::UNPROCESSABLE_ENTITY, "Invalid");

/// Returns the fault for which a real API server would refuse a resource slice (Kubernetes,
/// pkg/apis/resource/validation).
fn slice_fault(slice: &Value) -> Option<String> {
    let none = Vec::new();
    let sets = slice["spec"]["sharedCounters"].as_array().unwrap_or(&none);
    let counters = |set: &Value| set["counters"].as_object().map_or(0, serde_json::Map::len);
    if sets.len() > 8 || !sets.iter().all(|set| (1..=32).contains(&counters(set))) {
        return Some(format!("the counters {sets:?}"));
    }
    let devices = slice["spec"]["devices"].as_array()?;
    if !sets.is_empty() && !devices.is_empty() {
        return Some("counters and devices in one slice".to_owned());
    }
    let has = |field: &str| devices.iter().any(|device| !device[field].is_null());
    let most = if has("taints") || has("consumesCounters") {
        64
    } else {
        128
    };
    if devices.len() > most {
        return Some(format!("{} devices", devices.len()));
    }
    let is_label = |text: &str| {
        let fit = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let ends = !text.starts_with('-') && !text.ends_with('-');
        (1..=63).contains(&text.len()) && text.chars().all(fit) && ends
    };
    devices.iter().find_map(|device| {
        let name = device["name"].as_str().unwrap_or_default();
        let empty = serde_json::Map::new();
        let attributes = device["attributes"].as_object().unwrap_or(&empty);
        let is_attribute = |(name, value): (&String, &Value)| {
            let name = name.rsplit('/').next().unwrap();
            let of_c = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let fits = (1..=32).contains(&name.len()) && name.chars().all(of_c);
            let text = value["string"].as_str().unwrap_or_default();
            fits && value.as_object().unwrap().len() == 1 && text.len() <= 64
        };
        let same = devices
            .iter()
            .filter(|other| other["name"] == device["name"]);
        let is_right = is_label(name)
            && same.count() == 1
            && attributes.len() <= 32
            && attributes.iter().all(is_attribute);
        (!is_right).then(|| device.to_string())
    })
}

/// A function that is called once before an answer is sent.
pub(crate) type Then = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) version: u64,
    pub(crate) lists: usize,
    pub(crate) writes: usize,
    pub(crate) when_read: Option<(Target, Then)>,
    /// The function to call, and after how many further writes and deletions.
    pub(crate) when_written: Option<(usize, Then)>,
    /// The fields of objects and of their devices that the server drops.
    pub(crate) dropped: Vec<String>,
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

    /// Creates an object under a generated name.
    pub(crate) fn create(&mut self, target: &mut Target, mut object: Value) -> Answer {
        self.writes += 1;
        let start = object["metadata"]["generateName"].as_str().unwrap();
        let name = format!("{}{:05}", &start[..start.len().min(58)], self.version);
        object["metadata"]["uid"] = format!("uid-{}", self.version).into();
        target.name = Some(name);
        self.store(target, object)
    }

    /// Replaces an object if the client's resource version is the current one.
    pub(crate) fn replace(&mut self, target: &Target, object: Value) -> Answer {
        self.writes += 1;
        let present = self.object(target).ok_or(ABSENT)?;
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        if version(&present) == version(&object) {
            self.store(target, object)
        } else {
            Err(CONFLICT)
        }
    }

    /// Removes an object if it meets the preconditions `exactly`.
    pub(crate) fn remove(&mut self, target: &Target, exactly: &Value) -> Answer {
        let present = self.object(target).ok_or(ABSENT)?;
        let is_it = |key: &str| exactly[key].is_null() || exactly[key] == present["metadata"][key];
        if !is_it("uid") || !is_it("resourceVersion") {
            return Err(CONFLICT);
        }
        self.delete(target);
        Ok(present)
    }

    fn store(&mut self, target: &Target, mut object: Value) -> Answer {
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.retain(|field, _| !self.dropped.contains(field));
        }
        let devices = object.pointer_mut("/spec/devices");
        for device in devices.and_then(Value::as_array_mut).into_iter().flatten() {
            let device = device.as_object_mut().unwrap();
            device.retain(|field, _| !self.dropped.contains(field));
            let taints = device.get_mut("taints").and_then(Value::as_array_mut);
            for taint in taints.into_iter().flatten() {
                let time = &mut taint["timeAdded"];
                if time.is_null() {
                    *time = "2026-01-01T00:00:00Z".into();
                }
            }
        }
        if let Some(fault) = slice_fault(&object) {
            eprintln!("refused: {fault}");
            return Err(INVALID);
        }
        self.write(target, object);
        Ok(self.object(target).unwrap())
    }

    pub(crate) fn read(&mut self, target: &Target) -> (Option<Value>, Option<Then>) {
        let then = self.when_read.take_if(|(of, _)| of == target);
        (self.object(target), then.map(|(_, then)| then))
    }

    /// Counts a write or deletion, and returns the function that is due after it. Must be
    /// called after each such request.
    pub(crate) fn written(&mut self) -> Option<Then> {
        let then = self.when_written.take_if(|(left, _)| {
            *left -= 1;
            *left == 0
        });
        then.map(|(_, then)| then)
    }

    pub(crate) fn object(&self, target: &Target) -> Option<Value> {
        self.objects.get(target).cloned()
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

    /// Returns the events after a version, and the current version of the store.
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
