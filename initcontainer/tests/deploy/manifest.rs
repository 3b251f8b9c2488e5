//! Manifests as Kubernetes' own types.

use std::fs;
use std::path::{Path, PathBuf};

use harness::manifests::{documents, typed};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::Value;

/// The objects of one or more files.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) config_maps: Vec<ConfigMap>,
    pub(crate) daemon_sets: Vec<DaemonSet>,
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) network_policies: Vec<NetworkPolicy>,
    /// Of a resource that an operator brings: it has no type here.
    pub(crate) pod_monitors: Vec<Value>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) priority_classes: Vec<PriorityClass>,
    pub(crate) runtime_classes: Vec<RuntimeClass>,
    pub(crate) service_accounts: Vec<ServiceAccount>,
}

impl Objects {
    pub(crate) fn of(documents: Vec<Value>) -> Self {
        let mut objects = Self::default();
        for value in documents {
            let text_of = |key: &str| value[key].as_str().unwrap().to_owned();
            match (text_of("apiVersion") + "/" + &text_of("kind")).as_str() {
                "v1/ConfigMap" => objects.config_maps.push(typed(&value).unwrap()),
                "apps/v1/DaemonSet" => objects.daemon_sets.push(typed(&value).unwrap()),
                "v1/Namespace" => objects.namespaces.push(typed(&value).unwrap()),
                "networking.k8s.io/v1/NetworkPolicy" => {
                    objects.network_policies.push(typed(&value).unwrap())
                }
                "monitoring.coreos.com/v1/PodMonitor" => objects.pod_monitors.push(value),
                "v1/Pod" => objects.pods.push(typed(&value).unwrap()),
                "node.k8s.io/v1/RuntimeClass" => {
                    objects.runtime_classes.push(typed(&value).unwrap())
                }
                "scheduling.k8s.io/v1/PriorityClass" => {
                    objects.priority_classes.push(typed(&value).unwrap())
                }
                "v1/ServiceAccount" => objects.service_accounts.push(typed(&value).unwrap()),
                other => panic!("no type for {other}"),
            }
        }
        objects
    }

    pub(crate) fn read(files: &[PathBuf]) -> Self {
        let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
        Self::of(texts.flat_map(|text| documents(&text).unwrap()).collect())
    }
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
