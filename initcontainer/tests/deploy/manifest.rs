//! Reads manifests as JSON values, and checks that they fit Kubernetes' own types.

use std::fs;
use std::path::{Path, PathBuf};

use harness::manifests::{documents, repository, typed};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The objects of one or more files.
pub(crate) struct Objects(Vec<Value>);

impl Objects {
    pub(crate) fn from_documents(documents: Vec<Value>) -> Self {
        Self(documents.into_iter().map(checked).collect())
    }

    /// Reads the objects in a directory of the source tree.
    pub(crate) fn read(directory: &str) -> Self {
        let files = manifests(&repository(directory)).into_iter();
        let texts = files.map(|file| fs::read_to_string(file).unwrap());
        Self::from_documents(texts.flat_map(|text| documents(&text).unwrap()).collect())
    }

    pub(crate) fn of_kind(&self, kind: &str) -> Vec<&Value> {
        let objects = self.0.iter();
        objects.filter(|object| object["kind"] == kind).collect()
    }

    pub(crate) fn only(&self, kind: &str) -> &Value {
        let of_kind = self.of_kind(kind);
        assert_eq!(of_kind.len(), 1, "{kind}");
        of_kind[0]
    }

    /// Returns the pod of the plugin.
    pub(crate) fn pod(&self) -> &Value {
        pod(self.of_kind("DaemonSet")[0])
    }

    /// Returns the container of the plugin.
    pub(crate) fn plugin(&self) -> &Value {
        &self.pod()["containers"][0]
    }

    /// Returns the pod's first init container, which runs the installation.
    pub(crate) fn init(&self) -> &Value {
        &self.pod()["initContainers"][0]
    }
}

pub(crate) fn pod(daemon_set: &Value) -> &Value {
    &daemon_set["spec"]["template"]["spec"]
}

/// Returns the items of a list. A missing list has no items.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_array().into_iter().flatten()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// Returns a list of texts.
pub(crate) fn words(value: &Value) -> Vec<&str> {
    list(value).map(text).collect()
}

pub(crate) fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

pub(crate) fn named<'v>(values: &'v Value, name: &str) -> Option<&'v Value> {
    list(values).find(|value| value["name"] == name)
}

/// Returns the container's mount at a path.
pub(crate) fn mount_at<'v>(container: &'v Value, path: &str) -> Option<&'v Value> {
    list(&container["volumeMounts"]).find(|mount| mount["mountPath"] == path)
}

/// Parses an object as Kubernetes' type, and fails for a field that the type does not have.
fn checked(value: Value) -> Value {
    fn parse_in_full<T: DeserializeOwned + Serialize>(value: &Value) -> Value {
        serde_json::to_value(typed::<T>(value).unwrap()).unwrap()
    }
    let kind = format!("{}/{}", text(&value["apiVersion"]), text(&value["kind"]));
    match kind.as_str() {
        "v1/ConfigMap" => parse_in_full::<ConfigMap>(&value),
        "apps/v1/DaemonSet" => parse_in_full::<DaemonSet>(&value),
        "v1/Namespace" => parse_in_full::<Namespace>(&value),
        "networking.k8s.io/v1/NetworkPolicy" => parse_in_full::<NetworkPolicy>(&value),
        "v1/Pod" => parse_in_full::<Pod>(&value),
        "node.k8s.io/v1/RuntimeClass" => parse_in_full::<RuntimeClass>(&value),
        "scheduling.k8s.io/v1/PriorityClass" => parse_in_full::<PriorityClass>(&value),
        "v1/ServiceAccount" => parse_in_full::<ServiceAccount>(&value),
        // The crates have no types for these resources, which belong to Prometheus' operator and to
        // OpenShift.
        "apps/v1/Deployment" => parse_in_full::<Deployment>(&value),
        "v1/Service" => parse_in_full::<Service>(&value),
        "policy/v1/PodDisruptionBudget" => parse_in_full::<PodDisruptionBudget>(&value),
        "rbac.authorization.k8s.io/v1/ClusterRole" => parse_in_full::<ClusterRole>(&value),
        "rbac.authorization.k8s.io/v1/ClusterRoleBinding" => {
            parse_in_full::<ClusterRoleBinding>(&value)
        }
        "rbac.authorization.k8s.io/v1/RoleBinding" => parse_in_full::<RoleBinding>(&value),
        "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" => {
            parse_in_full::<ValidatingAdmissionPolicy>(&value)
        }
        "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding" => {
            parse_in_full::<ValidatingAdmissionPolicyBinding>(&value)
        }
        "monitoring.coreos.com/v1/PodMonitor"
        | "monitoring.coreos.com/v1/PrometheusRule"
        | "security.openshift.io/v1/SecurityContextConstraints" => value,
        other => panic!("no type for {other}"),
    }
}

/// Returns the YAML files in a directory, except for kustomization.yaml.
pub(crate) fn manifests(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let is_manifest = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "yaml") && !path.ends_with("kustomization.yaml")
    };
    let mut files: Vec<_> = entries.filter(is_manifest).collect();
    files.sort();
    files
}
