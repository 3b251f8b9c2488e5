//! The manifests of `deploy/components/dra` and of the chart.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use dra::cli::Cli;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

/// The objects of the overlay for CDI with components. `None`: there is no kubectl that has
/// kustomize.
fn rendered(components: &[&str]) -> Option<Vec<Value>> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let up: PathBuf = directory.path().iter().skip(1).map(|_| "..").collect();
    let deploy = up
        .join(repository().strip_prefix("/").unwrap())
        .join("deploy");
    let deploy = deploy.display();
    let components = components
        .iter()
        .map(|name| format!("{deploy}/components/{name}"));
    let components: Vec<String> = components.collect();
    let components = components.join(", ");
    let text = format!("resources: [{deploy}/overlays/cdi]\ncomponents: [{components}]\n");
    std::fs::write(directory.path().join("kustomization.yaml"), text).unwrap();
    let kubectl = Command::new("kubectl")
        .arg("kustomize")
        .arg(directory.path())
        .output();
    let output = match kubectl {
        Ok(output) => output,
        Err(error) => {
            skip::report("rendered manifests", &format!("needs kubectl: {error}"));
            return None;
        }
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(documents(&String::from_utf8(output.stdout).unwrap()))
}

/// The object of a kind with the driver's name, which has no key that its type lacks.
fn only<T: DeserializeOwned + Serialize>(objects: &[Value], kind: &str) -> T {
    let mut of_kind = objects
        .iter()
        .filter(|one| one["kind"] == kind && one["metadata"]["name"] == "boathook-dra");
    let object = of_kind.next().unwrap_or_else(|| panic!("no {kind}"));
    typed(object)
}

fn typed<T: DeserializeOwned + Serialize>(object: &Value) -> T {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    assert_known(object, &serde_json::to_value(&typed).unwrap());
    typed
}

fn assert_known(written: &Value, known: &Value) {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            for (key, value) in written {
                assert_known(
                    value,
                    known
                        .get(key)
                        .unwrap_or_else(|| panic!("unknown key {key}")),
                );
            }
        }
        (Value::Array(written), Value::Array(known)) => {
            written
                .iter()
                .zip(known)
                .for_each(|(one, other)| assert_known(one, other));
        }
        _ => {}
    }
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
    Cli::try_parse_from(words).unwrap();
    let volumes: Vec<&str> = pod
        .volumes
        .iter()
        .flatten()
        .map(|one| one.name.as_str())
        .collect();
    for mount in container.volume_mounts.iter().flatten() {
        assert!(volumes.contains(&mount.name.as_str()), "{}", mount.name);
    }
    let map = pod
        .volumes
        .iter()
        .flatten()
        .find_map(|one| one.config_map.clone())
        .unwrap();
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
    assert_eq!(rules.len(), 3);
    assert_eq!(verbs("resourceclaims"), ["get"]);
    assert_eq!(verbs("nodes"), ["get"]);
    let slices = ["get", "list", "watch", "create", "update", "delete"];
    assert_eq!(verbs("resourceslices"), slices);
    only::<ValidatingAdmissionPolicy>(&objects, "ValidatingAdmissionPolicy");
    only::<ValidatingAdmissionPolicyBinding>(&objects, "ValidatingAdmissionPolicyBinding");
}

/// An object without the intended differences.
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
    assert_eq!(
        of_host.collect::<Vec<_>>(),
        [&("host-for-programs", "/host")]
    );
    let volumes: Vec<&str> = pod
        .volumes
        .iter()
        .flatten()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(volumes.len(), mounts.len());
    assert!(mounts.iter().all(|(name, _)| volumes.contains(name)));
}

fn check_chart(programs: bool, components: &[&str]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let values = json!({"dra": {"classes": ["dummy-npu"]}, "hostPrograms": programs});
    std::fs::write(file.path(), values.to_string()).unwrap();
    let script = repository().join("scripts/helm-template");
    let output = Command::new(script).arg(file.path()).output().unwrap();
    if output.status.code() == Some(77) {
        return skip::report("the Helm chart", "needs helm, or scripts/install-helm");
    }
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let chart = documents(&String::from_utf8(output.stdout).unwrap());
    let config = chart
        .iter()
        .find(|one| one["metadata"]["name"] == "boathook-plugin")
        .unwrap();
    let config = config["data"]["config.toml"].as_str().unwrap();
    assert!(
        config.contains("[class.dummy-npu]\nserve = \"dra\""),
        "{config}"
    );
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
        let of = |objects: &[Value]| -> Value {
            let own =
                |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == "boathook-dra";
            comparable(
                objects
                    .iter()
                    .find(own)
                    .unwrap_or_else(|| panic!("no {kind}")),
            )
        };
        assert_eq!(of(&chart), of(&objects), "{kind}");
    }
}

#[test]
fn the_example_and_the_printed_class_fit_each_other() {
    let example = repository().join("deploy/components/dra/example.yaml");
    let example = documents(&std::fs::read_to_string(example).unwrap());
    let template: ResourceClaimTemplate = typed(&example[0]);
    let requests = template
        .spec
        .unwrap()
        .spec
        .unwrap()
        .devices
        .unwrap()
        .requests
        .unwrap();
    let name = requests[0]
        .exactly
        .as_ref()
        .unwrap()
        .device_class_name
        .clone();
    let config = tempfile::NamedTempFile::new().unwrap();
    let classes = repository().join("device-class/classes");
    std::fs::write(config.path(), format!("classes = [{classes:?}]\n")).unwrap();
    let names = [name.clone(), "nvidia-gpu".to_owned()].map(|name| name.try_into().unwrap());
    let text = dra::device_class::manifests(&names, Some(config.path()), Path::new("/")).unwrap();
    let printed = documents(&text);
    let class: DeviceClass = typed(&printed[0]);
    assert_eq!(class.metadata.name, Some(name));
    assert_eq!(
        class.spec.unwrap().extended_resource_name.as_deref(),
        Some("dummy.com/npu")
    );
    let class: DeviceClass = typed(&printed[1]);
    assert_eq!(class.spec.unwrap().extended_resource_name, None);
}

/// Whoever asks for a device of the class does not get a part, and each profile has a class.
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
    let text = dra::device_class::manifests(&[name], Some(&config), root).unwrap();
    let printed: Vec<DeviceClass> = documents(&text).iter().map(typed).collect();
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
