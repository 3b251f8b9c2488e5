//! Manifests as Kubernetes' own types.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The objects of one or more files.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) config_maps: Vec<ConfigMap>,
    pub(crate) daemon_sets: Vec<DaemonSet>,
    pub(crate) namespaces: Vec<Namespace>,
    /// Of a resource that an operator brings: it has no type here.
    pub(crate) pod_monitors: Vec<Value>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) runtime_classes: Vec<RuntimeClass>,
    pub(crate) service_accounts: Vec<ServiceAccount>,
}

impl Objects {
    /// Reads a text of one or more YAML documents.
    pub(crate) fn add(&mut self, text: &str) {
        for value in documents(text) {
            let text_of = |key: &str| value[key].as_str().unwrap().to_owned();
            match (text_of("apiVersion") + "/" + &text_of("kind")).as_str() {
                "v1/ConfigMap" => self.config_maps.push(typed(value)),
                "apps/v1/DaemonSet" => self.daemon_sets.push(typed(value)),
                "v1/Namespace" => self.namespaces.push(typed(value)),
                "monitoring.coreos.com/v1/PodMonitor" => self.pod_monitors.push(value),
                "v1/Pod" => self.pods.push(typed(value)),
                "node.k8s.io/v1/RuntimeClass" => self.runtime_classes.push(typed(value)),
                "v1/ServiceAccount" => self.service_accounts.push(typed(value)),
                other => panic!("no type for {other}"),
            }
        }
    }

    pub(crate) fn read(files: &[PathBuf]) -> Self {
        let mut objects = Self::default();
        for file in files {
            objects.add(&fs::read_to_string(file).unwrap());
        }
        objects
    }
}

/// The documents of a YAML text.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// A value as its type. A key that the type does not know, and the API server
/// would refuse, is an error.
fn typed<T: DeserializeOwned + Serialize>(value: Value) -> T {
    let object: T = serde_json::from_value(value.clone()).unwrap();
    assert_covered(&value, &serde_json::to_value(&object).unwrap(), "");
    object
}

fn assert_covered(written: &Value, known: &Value, at: &str) {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            for (key, value) in written {
                let known = known.get(key);
                assert!(known.is_some(), "unknown key {at}.{key}");
                assert_covered(value, known.unwrap(), &format!("{at}.{key}"));
            }
        }
        (Value::Array(written), Value::Array(known)) => {
            assert_eq!(written.len(), known.len(), "{at}");
            for (written, known) in written.iter().zip(known) {
                assert_covered(written, known, at);
            }
        }
        _ => {}
    }
}

pub(crate) fn repository(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.join(path)
}

/// The YAML files of a directory but its kustomization.
pub(crate) fn manifests(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let is_manifest = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "yaml") && !path.ends_with("kustomization.yaml")
    };
    let mut files: Vec<_> = entries.filter(is_manifest).collect();
    files.sort();
    files
}
