//! Tests of the webhook, called as the API server calls it.

mod definitions;
mod mutation;
mod objects;
pub(crate) mod reviews;
mod rules;
mod tls;

use std::collections::BTreeSet;

use cluster::webhook::api::{AcceleratorFunctionSpec, FpgaRegionSpec};
use cluster::webhook::mappings::{MappingKind, MappingObject, Mappings, Namespace};
use cluster::webhook::mutate::{self, Mutation};
use serde_json::{Map, Value, json};

pub(crate) const DCP10: &str = "ce48969398f05f33946d560708be108a";
pub(crate) const DCP12: &str = "69528db6eb31577a8c3668f9faa081f6";
pub(crate) const NLB0: &str = "d8424dc4a4a3c413f89e433683f9040b";
pub(crate) const NLB3: &str = "f7df405cbd7acf7222f144b0b93acd18";

pub(crate) fn function(interface: &str, function: &str, mode: &str) -> MappingObject {
    MappingObject::Function(AcceleratorFunctionSpec {
        afu_id: function.to_owned(),
        interface_id: interface.to_owned(),
        mode: mode.to_owned(),
    })
}

pub(crate) fn region(interface: &str) -> MappingObject {
    MappingObject::Region(FpgaRegionSpec {
        interface_id: interface.to_owned(),
    })
}

/// Returns the mappings that the tests use.
pub(crate) fn mappings() -> Mappings {
    let objects = [
        ("nlb0-pre", function(DCP12, NLB0, "af")),
        ("nlb3-pre", function(DCP12, NLB3, "af")),
        ("nlb0-orch", function(DCP12, NLB0, "region")),
        ("nlb3-orch", function(DCP12, NLB3, "region")),
        ("nlb0-orch.dcp1.0", function(DCP10, NLB0, "region")),
        ("whole", region(DCP12)),
        ("both", function(DCP12, NLB0, "af")),
        ("both", region(DCP12)),
        ("odd-mode", function(DCP12, NLB0, "afx")),
        ("odd-id", function("xyz", NLB0, "region")),
        ("odd-length", function(DCP12, &NLB0[1..], "af")),
        // A name in the form of the device plugin's own names is ignored.
        (
            "region-69528db6eb31577a8c3668f9faa081f6",
            function(DCP10, NLB0, "af"),
        ),
    ];
    let listed = |is_one: fn(&MappingObject) -> bool| -> BTreeSet<(String, String)> {
        let names = objects.iter().filter(|(_, object)| is_one(object));
        let key = |(name, _): &(&str, MappingObject)| ("fpga".to_owned(), (*name).to_owned());
        names.map(key).collect()
    };
    let functions = listed(|object| matches!(object, MappingObject::Function(_)));
    let regions = listed(|object| matches!(object, MappingObject::Region(_)));
    let mut mappings = Mappings::default();
    for (name, object) in objects {
        mappings.set("fpga", name, object);
    }
    mappings.retain_listed(MappingKind::Function, &functions);
    mappings.retain_listed(MappingKind::Region, &regions);
    mappings
}

pub(crate) fn namespace() -> Namespace {
    mappings().namespace("fpga")
}

/// Returns the mutation of a pod that is given as JSON.
pub(crate) fn mutate(pod: &Value, namespace: &Namespace) -> anyhow::Result<Mutation> {
    let text = pod.to_string();
    mutate::plan_mutation(&serde_json::from_str(&text).unwrap(), namespace)
}

/// Returns amounts of resources. The names in `list` have no prefix.
pub(crate) fn amounts(list: &[(&str, &str)]) -> Value {
    let amounts: Map<String, Value> = list
        .iter()
        .map(|(name, units)| (format!("fpga.intel.com/{name}"), json!(units)))
        .collect();
    amounts.into()
}

/// Returns a container with limits and equal requests, because the API server copies limits to
/// requests.
pub(crate) fn container(list: &[(&str, &str)]) -> Value {
    json!({"name": "main", "image": "x", "resources": {
        "limits": amounts(list), "requests": amounts(list),
    }})
}

pub(crate) fn pod(container: Value) -> Value {
    json!({"metadata": {"generateName": "x-"}, "spec": {"containers": [container]}})
}
