//! Labels that the devices of recorded hosts give their node.

use std::collections::BTreeMap;

use device_class::DeviceClass;
use device_class::discover;
use device_class::name::{AttributeName, ResourceName};
use device_class::template::Attributes;

use crate::parse;
use crate::shipped::{class, host};

/// Returns the labels of one device of a resource.
fn labels_of(
    class: &DeviceClass,
    resource: &str,
    attributes: &Attributes,
) -> BTreeMap<String, String> {
    let resource = ResourceName::try_from(resource.to_owned()).unwrap();
    let labels = class.spec.labels.iter();
    let filled = labels.filter_map(|(name, label)| Some((name, label.fill(attributes)?)));
    filled
        .map(|(name, value)| (name.for_resource(&resource), value))
        .collect()
}

/// Returns the labels of one whole GPU.
fn labels(class: &DeviceClass, attributes: &Attributes) -> BTreeMap<String, String> {
    labels_of(class, "nvidia.com/gpu", attributes)
}

fn attributes(list: &[(&str, &str)]) -> Attributes {
    let name = |text: &str| AttributeName::try_from(text.to_owned()).unwrap();
    list.iter()
        .map(|(key, value)| (name(key), (*value).to_owned()))
        .collect()
}

/// The names are those of the vendor's labeller, so that pods that select by them run on.
#[test]
fn gpus_have_the_labels_of_the_vendors_labeller() {
    let class = class("nvidia-gpu");
    let mut host = host("nvidia-gpu/h200");
    host.add_file("/sys/class/dmi/id/product_name", "PowerEdge XE9680\n");
    let found = discover::find_devices(&class, &host);
    let labels = labels(&class, &found.devices[0].attributes);
    let shown = labels.iter().map(|(name, value)| format!("{name}={value}"));
    let wanted = [
        "nvidia.com/cuda.driver-version.full=580.159.03",
        "nvidia.com/cuda.driver-version.major=580",
        "nvidia.com/cuda.driver-version.minor=159",
        "nvidia.com/cuda.driver-version.revision=03",
        "nvidia.com/cuda.runtime-version.full=13.0",
        "nvidia.com/cuda.runtime-version.major=13",
        "nvidia.com/cuda.runtime-version.minor=0",
        "nvidia.com/gpu.machine=PowerEdge-XE9680",
        "nvidia.com/gpu.product=NVIDIA-H200",
    ];
    assert_eq!(shown.collect::<Vec<_>>(), wanted);
}

/// The memory and the architecture are facts of the vendor's program, and no device has 0 MiB.
#[test]
fn labels_of_facts_are_left_out_where_no_program_reports_them() {
    let class = class("nvidia-gpu");
    let with = attributes(&[("memory_mib", "143771"), ("arch", "9.0"), ("cuda", "600")]);
    let with: Vec<_> = labels(&class, &with).into_iter().collect();
    let pair = |name: &str, value: &str| (format!("nvidia.com/gpu.{name}"), value.to_owned());
    // The class does not know the CUDA of a newer branch of the driver.
    let wanted = [
        pair("compute.major", "9"),
        pair("compute.minor", "0"),
        pair("family", "hopper"),
        pair("memory", "143771"),
    ];
    assert_eq!(with, wanted);
    let without = attributes(&[("memory_mib", "0"), ("arch", ""), ("model", " ")]);
    assert!(labels(&class, &without).is_empty());
}

/// The architecture of a GPU that is newer than the class is in no label.
#[test]
fn a_gpu_has_the_family_of_its_architecture() {
    let class = class("nvidia-gpu");
    for (arch, family) in [
        ("7.0", Some("volta")),
        ("7.5", Some("turing")),
        ("8.6", Some("ampere")),
        ("8.9", Some("ada-lovelace")),
        ("12.0", Some("blackwell")),
        ("99.0", None),
    ] {
        let labels = labels(&class, &attributes(&[("arch", arch)]));
        let found = labels.get("nvidia.com/gpu.family").map(String::as_str);
        assert_eq!(found, family, "{arch}");
    }
}

#[test]
fn instances_have_the_labels_of_their_resource() {
    let class = class("nvidia-gpu");
    for (profile, resource, gi, ci) in [
        ("1g.10gb", "nvidia.com/mig-1g.10gb", "1", "1"),
        ("3g.40gb", "nvidia.com/mig-3g.40gb", "3", "3"),
        ("1c.2g.20gb", "nvidia.com/mig-1c.2g.20gb", "2", "1"),
    ] {
        let attributes = attributes(&[("model", "X1 80GB"), ("profile", profile)]);
        let labels = labels_of(&class, resource, &attributes);
        let label = |ending: &str| labels.get(&format!("{resource}.{ending}")).cloned();
        assert_eq!(label("product"), Some(format!("X1-80GB-MIG-{profile}")));
        assert_eq!(label("slices.gi").as_deref(), Some(gi));
        assert_eq!(label("slices.ci").as_deref(), Some(ci));
    }
    // Where no program reports the profile, and for a whole GPU, there is no such label.
    for without in [
        vec![("model", "X1"), ("profile", "")],
        vec![("model", "X1")],
    ] {
        let labels = labels_of(&class, "nvidia.com/mig", &attributes(&without));
        let names: Vec<_> = labels.keys().collect();
        assert_eq!(names, ["nvidia.com/gpu.product"]);
    }
}

const CLASS: &str = "version = 1
resource = 'x.example/chip'
request = { env = 'CHIPS' }
discover = [{ path = '/dev/chip{index:number}' }]
device = { id = '{index}' }
[labels]
";

#[test]
fn a_label_that_no_device_can_have_is_refused() {
    for (label, reason) in [
        (
            "'x.example/model' = '{modle}'",
            "uses the attribute `modle`",
        ),
        ("model = '{index}'", "label"),
        ("'node.kubernetes.io/x' = '{index}'", "Kubernetes reserves"),
        (
            "'x.example/model' = { value = '{index}', regexp = '.' }",
            "regexp",
        ),
        (
            "'x.example/model' = { value = '{index}', regex = '(' }",
            "bad regex",
        ),
    ] {
        let error = parse("chip", &format!("{CLASS}{label}\n")).unwrap_err();
        assert!(error.contains(reason), "{label}: {error}");
    }
    parse("chip", &format!("{CLASS}'x.example/model' = '{{index}}'\n")).unwrap();
}
