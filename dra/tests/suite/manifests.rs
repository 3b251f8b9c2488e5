//! Tests of the manifests of `deploy/components/dra` and of the chart.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Parser;
use dra::cli::Cli;
use harness::class_files;
use harness::manifests::{chart, documents, kustomized, repository, typed};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Renders the objects of the overlay for CDI with the given components. Returns `None` if
/// there is no kubectl with kustomize.
fn rendered(components: &[&str]) -> Option<Vec<Value>> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let up: PathBuf = directory.path().iter().skip(1).map(|_| "..").collect();
    let deploy = repository("deploy").canonicalize().unwrap();
    let deploy = up.join(deploy.strip_prefix("/").unwrap());
    let deploy = deploy.display();
    let components = components.iter();
    let components = components.map(|name| format!("{deploy}/components/{name}"));
    let components = components.collect::<Vec<_>>().join(", ");
    let text = format!("resources: [{deploy}/overlays/cdi]\ncomponents: [{components}]\n");
    std::fs::write(directory.path().join("kustomization.yaml"), text).unwrap();
    kustomized(directory.path()).unwrap()
}

/// Returns the object of a kind that has the driver's name.
fn object<'v>(objects: &'v [Value], kind: &str) -> &'v Value {
    let own = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == "boathook-dra";
    let object = objects.iter().find(own);
    object.unwrap_or_else(|| panic!("no {kind}"))
}

/// Returns the object of a kind as its Rust type. A field that the type does not have fails
/// the test.
fn only<T: DeserializeOwned + Serialize>(objects: &[Value], kind: &str) -> T {
    typed(object(objects, kind)).unwrap()
}

fn volumes(pod: &PodSpec) -> Vec<&str> {
    let volumes = pod.volumes.iter().flatten();
    volumes.map(|one| one.name.as_str()).collect()
}

#[test]
fn the_component_runs_the_driver_with_the_least_rights() {
    let Some(objects) = rendered(&["dra"]) else {
        return;
    };
    let set: DaemonSet = only(&objects, "DaemonSet");
    let spec = set.spec;
    let pod = spec.template.spec.unwrap();
    let [container] = &pod.containers[..] else {
        panic!("{:?}", pod.containers);
    };
    let words = container
        .command
        .iter()
        .flatten()
        .chain(container.args.iter().flatten());
    // The kubelet replaces `$(NODE_NAME)` in the arguments.
    let words = words.map(|word| word.replace("$(NODE_NAME)", "node-1"));
    Cli::try_parse_from(words).unwrap();
    for mount in container.volume_mounts.iter().flatten() {
        assert!(volumes(&pod).contains(&&*mount.name), "{}", mount.name);
    }
    let mut maps = pod.volumes.iter().flatten();
    let map = maps.find_map(|one| one.config_map.as_ref()).unwrap();
    let is_map = |one: &Value| one["kind"] == "ConfigMap" && one["metadata"]["name"] == map.name;
    assert!(objects.iter().any(is_map), "{map:?}");
    let rolling = spec.update_strategy.unwrap().rolling_update.unwrap();
    assert_eq!(
        json!([rolling.max_surge, rolling.max_unavailable]),
        json!([1, 0])
    );
    let role: ClusterRole = only(&objects, "ClusterRole");
    let rules = role.rules.unwrap();
    let verbs = |resource: &str| -> Vec<String> {
        let has = |list: &Option<Vec<String>>| list.iter().flatten().any(|one| one == resource);
        let of = rules.iter().filter(|rule| has(&rule.resources));
        of.flat_map(|rule| rule.verbs.clone()).collect()
    };
    assert_eq!(rules.len(), 4);
    assert_eq!(verbs("events"), ["create", "patch"]);
    assert_eq!(verbs("resourceclaims"), ["get"]);
    assert_eq!(verbs("nodes"), ["get"]);
    let slices = ["get", "list", "watch", "create", "update", "delete"];
    assert_eq!(verbs("resourceslices"), slices);
    only::<ValidatingAdmissionPolicy>(&objects, "ValidatingAdmissionPolicy");
    only::<ValidatingAdmissionPolicyBinding>(&objects, "ValidatingAdmissionPolicyBinding");
}

#[test]
fn with_the_groups_of_the_host_the_driver_reads_them() {
    let Some(objects) = rendered(&["dra", "host-groups"]) else {
        return;
    };
    let set: DaemonSet = only(&objects, "DaemonSet");
    let pod = set.spec.template.spec.unwrap();
    let mut mounts = pod.containers[0].volume_mounts.iter().flatten();
    let mount = mounts.find(|one| one.mount_path == "/host/etc/group");
    let mut volumes = pod.volumes.iter().flatten();
    let volume = volumes.find(|one| mount.is_some_and(|mount| mount.name == one.name));
    let path = volume.and_then(|volume| volume.host_path.as_ref());
    assert_eq!(path.map(|path| &*path.path), Some("/etc/group"));
}

/// Returns an object without the fields in which the chart and the manifests differ on
/// purpose.
fn comparable(object: &Value) -> Value {
    const DIFFERENT: [&str; 5] = [
        "labels",
        "annotations",
        "matchLabels",
        "imagePullPolicy",
        "configMap",
    ];
    match object {
        Value::Object(fields) => {
            let same = fields
                .iter()
                .filter(|(key, _)| !DIFFERENT.contains(&key.as_str()));
            same.map(|(key, value)| (key.clone(), comparable(value)))
                .collect()
        }
        Value::Array(items) => items.iter().map(comparable).collect(),
        other => other.clone(),
    }
}

#[test]
fn the_chart_has_the_same() {
    check_chart(false, &["dra"]);
}

#[test]
fn with_programs_of_the_host_it_sees_all_of_the_host_and_the_chart_has_the_same() {
    check_chart(true, &["dra", "dra-host-programs"]);
    let Some(objects) = rendered(&["dra", "dra-host-programs"]) else {
        return;
    };
    let set: DaemonSet = only(&objects, "DaemonSet");
    let pod = set.spec.template.spec.unwrap();
    let container = &pod.containers[0];
    let context = container.security_context.as_ref().unwrap();
    assert_eq!(context.privileged, Some(true));
    let mounts: Vec<(&str, &str)> = container
        .volume_mounts
        .iter()
        .flatten()
        .map(|one| (one.name.as_str(), one.mount_path.as_str()))
        .collect();
    let of_host = mounts.iter().filter(|(_, path)| path.starts_with("/host"));
    let of_host: Vec<_> = of_host.collect();
    assert_eq!(of_host, [&("host-for-programs", "/host")]);
    let volumes = volumes(&pod);
    let first_containers = pod.init_containers.iter().flatten();
    let first_mounts =
        first_containers.flat_map(|container| container.volume_mounts.iter().flatten());
    let names = mounts.iter().map(|(name, _)| *name);
    let names: BTreeSet<&str> = names
        .chain(first_mounts.map(|mount| &*mount.name))
        .collect();
    assert_eq!(volumes.iter().copied().collect::<BTreeSet<_>>(), names);
}

fn check_chart(programs: bool, components: &[&str]) {
    let values = json!({
        "classes": {"enabled": ["dummy-npu"]},
        "dra": {"classes": ["dummy-npu"]},
        "hostPrograms": programs,
    });
    let Some(chart) = chart(&values).unwrap() else {
        return;
    };
    let mut maps = chart.iter();
    let is_config = |one: &&Value| one["metadata"]["name"] == "boathook-plugin";
    let config = &maps.find(is_config).unwrap()["data"]["config.toml"];
    let table = "[class.dummy-npu]\nenabled = true\nserve = \"dra\"";
    assert!(config.as_str().unwrap().contains(table), "{config}");
    let Some(objects) = rendered(components) else {
        return;
    };
    for kind in [
        "DaemonSet",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ] {
        let of = |objects| comparable(object(objects, kind));
        assert_eq!(of(&chart), of(&objects), "{kind}");
    }
}

#[test]
fn the_example_and_the_printed_class_fit_each_other() {
    let example = repository("deploy/components/dra/example.yaml");
    let example = documents(&std::fs::read_to_string(example).unwrap()).unwrap();
    typed::<ResourceClaimTemplate>(&example[0]).unwrap();
    let request = &example[0]["spec"]["spec"]["devices"]["requests"][0];
    let name = request["exactly"]["deviceClassName"].as_str().unwrap();
    let (config, classes) = (
        tempfile::NamedTempFile::new().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    class_files::copy_all(classes.path()).unwrap();
    let line = format!("classes = [{:?}]\n", classes.path());
    std::fs::write(config.path(), line).unwrap();
    let names = [name, "nvidia-gpu"].map(|name| name.to_owned().try_into().unwrap());
    let text =
        dra::device_class::build_manifests(&names, Some(config.path()), Path::new("/")).unwrap();
    let printed = documents(&text).unwrap();
    let [npu, gpu]: [DeviceClass; 2] = [0, 1].map(|at| typed(&printed[at]).unwrap());
    assert_eq!(npu.metadata.name.as_deref(), Some(name));
    let resource = npu.spec.unwrap().extended_resource_name;
    assert_eq!(resource.as_deref(), Some("dummy.com/npu"));
    assert_eq!(gpu.spec.unwrap().extended_resource_name, None);
}

/// The DeviceClass of a class selects whole devices only. Each profile of parts has a separate
/// DeviceClass.
#[test]
fn parts_have_classes_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.toml");
    let classes = directory.path().join("classes.d");
    std::fs::create_dir(&classes).unwrap();
    std::fs::write(classes.join("npu.toml"), crate::parts::PARTS).unwrap();
    std::fs::write(&config, "classes = [\"/classes.d\"]\n").unwrap();
    let name = "npu".to_owned().try_into().unwrap();
    let root = directory.path();
    let text = dra::device_class::build_manifests(&[name], Some(&config), root).unwrap();
    let printed = documents(&text).unwrap();
    let printed: Vec<DeviceClass> = printed.iter().map(|one| typed(one).unwrap()).collect();
    let printed = printed.iter().map(|class| {
        let selectors = class.spec.as_ref().unwrap().selectors.as_ref().unwrap();
        let expression = selectors[0].cel.as_ref().unwrap().expression.as_str();
        let (_, end) = expression.split_once("== 'npu'").unwrap();
        (class.metadata.name.as_deref().unwrap(), end)
    });
    let wanted = [
        ("npu", " && !has(device.attributes['boathook.dev'].part)"),
        (
            "npu-half",
            " && has(device.attributes['boathook.dev'].part) && \
             device.attributes['boathook.dev'].part == 'half'",
        ),
        (
            "npu-quarter",
            " && has(device.attributes['boathook.dev'].part) && \
             device.attributes['boathook.dev'].part == 'quarter'",
        ),
    ];
    assert_eq!(printed.collect::<Vec<_>>(), wanted);
}
