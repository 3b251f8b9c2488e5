//! Labels that the devices of recorded hosts give their node.

use std::collections::BTreeMap;
use std::path::Path;

use device_class::DeviceClass;
use device_class::HostView;
use device_class::config::Config;
use device_class::discover;
use device_class::name::{AttributeName, ResourceName};
use device_class::template::Attributes;

use crate::parse;
use crate::shipped::{class, host, source};

/// Returns the labels of one device of a resource.
fn labels_of(
    class: &DeviceClass,
    resource: &str,
    attributes: &Attributes,
) -> BTreeMap<String, String> {
    let resource = ResourceName::try_from(resource.to_owned()).unwrap();
    let mut attributes = attributes.clone();
    for (name, value) in [("shared_suffix", ""), ("shared", "false")] {
        let name = AttributeName::try_from(name.to_owned()).unwrap();
        attributes.entry(name).or_insert_with(|| value.to_owned());
    }
    let labels = class.spec.labels.iter();
    let filled = labels.filter_map(|(name, label)| Some((name, label.fill(&attributes)?)));
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
    let wanted = [
        "nvidia.com/cuda.driver-version.full=580.159.03",
        "nvidia.com/cuda.driver-version.major=580",
        "nvidia.com/cuda.driver-version.minor=159",
        "nvidia.com/cuda.driver-version.revision=03",
        "nvidia.com/cuda.driver.major=580",
        "nvidia.com/cuda.driver.minor=159",
        "nvidia.com/cuda.driver.rev=03",
        "nvidia.com/cuda.runtime-version.full=13.0",
        "nvidia.com/cuda.runtime-version.major=13",
        "nvidia.com/cuda.runtime-version.minor=0",
        "nvidia.com/cuda.runtime.major=13",
        "nvidia.com/cuda.runtime.minor=0",
        "nvidia.com/gpu.machine=PowerEdge-XE9680",
        "nvidia.com/gpu.product=NVIDIA-H200",
        "nvidia.com/gpu.replicas=1",
        "nvidia.com/gpu.sharing-strategy=none",
    ];
    assert_eq!(shown(&class, &found.devices[0]), wanted);
}

/// Returns the labels of a device of a recorded host, as the plugin writes them.
fn shown(class: &DeviceClass, device: &discover::Device) -> Vec<String> {
    let attributes = discover::list_label_attributes(device);
    let labels = labels_of(class, device.resource.as_str(), &attributes);
    let shown = labels.iter().map(|(name, value)| format!("{name}={value}"));
    shown.collect()
}

/// As with `replicas` in config.toml, and with a name that says so, for which the vendor's labeller
/// writes no suffix either.
#[test]
fn shared_gpus_and_instances_have_the_labels_of_shared_ones() {
    let class = class("nvidia-gpu");
    let found = discover::find_devices(&class, &host("nvidia-gpu/mig-facts"));
    let instance = &found.devices[0];
    let whole = found.devices.last().unwrap();
    for (device, resource, replicas, product, others) in [
        (
            whole,
            "gpu",
            None,
            ("nvidia.com/gpu.product", ""),
            [
                "nvidia.com/gpu.replicas=1",
                "nvidia.com/gpu.sharing-strategy=none",
            ],
        ),
        (
            whole,
            "gpu",
            Some(4),
            ("nvidia.com/gpu.product", "-SHARED"),
            [
                "nvidia.com/gpu.replicas=4",
                "nvidia.com/gpu.sharing-strategy=time-slicing",
            ],
        ),
        (
            whole,
            "gpu.shared",
            Some(4),
            ("nvidia.com/gpu.product", ""),
            [
                "nvidia.com/gpu.replicas=4",
                "nvidia.com/gpu.sharing-strategy=time-slicing",
            ],
        ),
        (
            instance,
            "mig-1g.18gb.me",
            None,
            ("nvidia.com/mig-1g.18gb.me.product", "-MIG-1g.18gb.me"),
            [
                "nvidia.com/mig-1g.18gb.me.replicas=1",
                "nvidia.com/mig-1g.18gb.me.sharing-strategy=none",
            ],
        ),
        (
            instance,
            "mig-1g.18gb.me",
            Some(2),
            (
                "nvidia.com/mig-1g.18gb.me.product",
                "-MIG-1g.18gb.me-SHARED",
            ),
            [
                "nvidia.com/mig-1g.18gb.me.replicas=2",
                "nvidia.com/mig-1g.18gb.me.sharing-strategy=time-slicing",
            ],
        ),
    ] {
        let mut device = device.clone();
        device.replicas = replicas;
        device.resource = format!("nvidia.com/{resource}").try_into().unwrap();
        let labels = shown(&class, &device);
        for label in others {
            assert!(
                labels.iter().any(|other| other == label),
                "{label}: {labels:?}"
            );
        }
        let (name, suffix) = product;
        let product = labels
            .iter()
            .find_map(|label| label.strip_prefix(&format!("{name}=")));
        let expected = format!("NVIDIA-H200{suffix}");
        assert_eq!(product, Some(expected.as_str()), "{labels:?}");
    }
}

/// As docs/vendors.md has it for `renameByDefault`: the resource has another name, and the GPUs are
/// shared.
#[test]
fn renamed_gpus_have_the_labels_of_sharing() {
    let config = "[class.nvidia-gpu]\nreplicas = { \"nvidia.com/gpu.shared\" = 4 }\n\
                  [class.nvidia-gpu.map.sort]\ngpu = \"gpu.shared\"\n";
    let config = Config::parse(Path::new("config.toml"), config).unwrap();
    let class = config.class(&source("nvidia-gpu")).unwrap();
    let found = discover::find_devices(&class, &host("nvidia-gpu/h200"));
    let device = &found.devices[0];
    assert_eq!(device.resource.as_str(), "nvidia.com/gpu.shared");
    let labels = shown(&class, device);
    let names = ["product", "replicas", "sharing-strategy"];
    let found = names.map(|name| {
        let prefix = format!("nvidia.com/gpu.{name}=");
        labels.iter().find_map(|label| label.strip_prefix(&prefix))
    });
    assert_eq!(
        found,
        [Some("NVIDIA-H200"), Some("4"), Some("time-slicing")]
    );
}

/// The share of an instance are facts of the vendor's program, and the strategy is that of the
/// resources' names.
#[test]
fn instances_have_the_labels_of_their_share() {
    let class = class("nvidia-gpu");
    let mut host = host("nvidia-gpu/mig-facts");
    host.add_file("/sys/bus/pci/devices/0000:17:00.0/class", "0x030200\n");
    let found = discover::find_devices(&class, &host);
    let mut instance = found.devices[0].clone();
    let resource = "nvidia.com/mig-1g.18gb.me";
    assert_eq!(instance.resource.as_str(), resource);
    let expected = [
        "engines.copy=1",
        "engines.decoder=1",
        "engines.encoder=0",
        "engines.jpeg=1",
        "engines.ofa=0",
        "memory=16384",
        "multiprocessors=16",
        "slices.ci=1",
        "slices.gi=1",
    ];
    let labels = shown(&class, &instance);
    for label in expected.map(|label| format!("{resource}.{label}")) {
        assert!(labels.contains(&label), "{label}: {labels:?}");
    }
    assert!(
        labels.contains(&"nvidia.com/gpu.mode=compute".to_owned()),
        "{labels:?}"
    );
    let strategy = |device: &discover::Device| {
        let labels = shown(&class, device);
        let strategy = labels
            .iter()
            .find_map(|label| label.strip_prefix("nvidia.com/mig.strategy="));
        strategy.map(str::to_owned)
    };
    for (resource, expected) in [
        (resource, Some("mixed")),
        ("nvidia.com/mig-1g.18gb.shared", Some("mixed")),
        ("nvidia.com/gpu", Some("single")),
        ("nvidia.com/gpu.shared", Some("single")),
        ("nvidia.com/gpu.other", None),
        ("example.com/slice", None),
    ] {
        instance.resource = resource.to_owned().try_into().unwrap();
        assert_eq!(strategy(&instance).as_deref(), expected, "{resource}");
    }
    // A whole GPU, also beside instances.
    assert_eq!(strategy(found.devices.last().unwrap()), None);
    for (pci_class, mode) in [
        ("0x030000", Some("graphics")),
        ("0x030200", Some("compute")),
        ("unknown", None),
    ] {
        let labels = labels_of(
            &class,
            "nvidia.com/gpu",
            &attributes(&[("display_class", pci_class)]),
        );
        assert_eq!(labels.get("nvidia.com/gpu.mode").map(String::as_str), mode);
    }
}

/// Whether a GPU can be divided is a fact of the vendor's program.
#[test]
fn the_mode_of_a_gpu_tells_whether_it_can_be_divided() {
    let class = class("nvidia-gpu");
    for (capable, label) in [("true", Some("true")), ("false", Some("false")), ("", None)] {
        let labels = labels(&class, &attributes(&[("mig_capable", capable)]));
        let found = labels.get("nvidia.com/mig.capable").map(String::as_str);
        assert_eq!(found, label);
    }
    let found = discover::find_devices(&class, &host("nvidia-gpu/mig-facts"));
    for device in &found.devices {
        let labels = shown(&class, device);
        assert!(
            labels.contains(&"nvidia.com/mig.capable=true".to_owned()),
            "{labels:?}"
        );
    }
}

/// The labels of the other vendors' labellers, on recorded hosts with the files that they read.
#[test]
fn gpus_of_other_vendors_have_the_labels_of_their_labellers() {
    let mut mi300x = host("amd-gpu/xgmi");
    let amd = class("amd-gpu");
    let gpu = discover::find_devices(&amd, &mi300x).devices.remove(0);
    let attribute = |device: &discover::Device, name: &str| {
        let name = AttributeName::try_from(name.to_owned()).unwrap();
        device.attributes[&name].clone()
    };
    let (bdf, node) = (attribute(&gpu, "bdf"), attribute(&gpu, "node"));
    let pci = Path::new("/sys/bus/pci/devices").join(bdf);
    let pci = mi300x.canonicalize(&pci).unwrap().display().to_string();
    let bank = format!("/sys/class/kfd/kfd/topology/nodes/{node}/mem_banks/0/properties");
    for (path, text) in [
        (format!("{pci}/device"), "0x74a1\n"),
        (format!("{pci}/product_name"), "AMD Instinct MI300X OAM\n"),
        (bank, "heap_type 1\nsize_in_bytes 206141652992\nflags 0\n"),
        ("/sys/module/amdgpu/version".to_owned(), "6.10.5\n"),
        ("/sys/module/amdgpu/srcversion".to_owned(), "5D45E4AEB6A7\n"),
    ] {
        mi300x.add_file(&path, text);
    }
    let devices = discover::find_devices(&amd, &mi300x).devices;
    let labels = shown(&amd, &devices[0]);
    for label in [
        "amd.com/gpu.device-id=74a1",
        "amd.com/gpu.driver-src-version=5D45E4AEB6A7",
        "amd.com/gpu.driver-version=6.10.5",
        "amd.com/gpu.product-name=AMD-Instinct-MI300X-OAM",
        "amd.com/gpu.vram=192G",
    ] {
        assert!(
            labels.iter().any(|other| other == label),
            "{label}: {labels:?}"
        );
    }
    let units = attributes(&[("simds", "1216"), ("units", "304"), ("vram_gib", "0")]);
    let units: Vec<_> = labels_of(&amd, "amd.com/gpu", &units).into_iter().collect();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let wanted = [
        pair("amd.com/gpu.cu-count", "304"),
        pair("amd.com/gpu.simd-count", "1216"),
    ];
    assert_eq!(units, wanted);
    for (name, resource, attribute, value) in [
        (
            "cambricon-mlu",
            "cambricon.com/mlu.product",
            "model",
            "MLU590",
        ),
        ("gaudi", "habana.ai/gaudi.product", "model", "GAUDI2"),
        (
            "gaudi",
            "habana.ai/gaudi.driver-version",
            "driver_version",
            "1.17.0-28a11ca",
        ),
    ] {
        let resource_name = resource.rsplit_once('.').unwrap().0;
        let labels = labels_of(
            &class(name),
            resource_name,
            &attributes(&[(attribute, value)]),
        );
        assert_eq!(
            labels.get(resource).map(String::as_str),
            Some(value),
            "{labels:?}"
        );
        let unknown = attributes(&[("model", "unknown"), ("driver_version", "")]);
        assert!(labels_of(&class(name), resource_name, &unknown).is_empty());
    }
    let intel = class("intel-gpu");
    for (id, product, family) in [
        ("0x0bda", Some("Max_1100"), Some("Max_Series")),
        ("0x56c1", Some("Flex_140"), Some("Flex_Series")),
        ("0x56a0", None, Some("A_Series")),
        ("0x9a49", None, None),
        ("unknown", None, None),
    ] {
        let labels = labels_of(&intel, "gpu.intel.com/i915", &attributes(&[("pci_id", id)]));
        let label = |name: &str| {
            labels
                .get(&format!("gpu.intel.com/{name}"))
                .map(String::as_str)
        };
        assert_eq!(
            (label("product"), label("family")),
            (product, family),
            "{id}"
        );
    }
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

/// The vendor's build of i915, xe with two tiles, and drivers that show no memory.
#[test]
fn the_memory_of_a_card_is_that_of_all_its_tiles() {
    let intel = class("intel-gpu");
    for (files, expected) in [
        (
            "file CARD/lmem_total_bytes\n| 8000\ndir CARD/gt/gt0\n",
            Some("8000"),
        ),
        (
            "file CARD/lmem_total_bytes\n| 8000\ndir CARD/gt/gt0\ndir CARD/gt/gt1\n",
            Some("16000"),
        ),
        (
            "file PCI/tile0/physical_vram_size_bytes\n| 9000\n",
            Some("9000"),
        ),
        (
            "file PCI/tile0/physical_vram_size_bytes\n| 9000\nfile PCI/tile1/physical_vram_size_bytes\n| 9000\n",
            Some("18000"),
        ),
        ("dir PCI/tile0\ndir CARD/gt/gt0\n", None),
        (
            "file CARD/lmem_total_bytes\n| much\ndir CARD/gt/gt0\n",
            None,
        ),
    ] {
        let host = "file PCI/vendor\n| 0x8086\nlink CARD/device ../../../0000:03:00.0\nlink /sys/class/drm/card0 \
                    ../../devices/pci0000:00/0000:03:00.0/drm/card0\nlink PCI/driver ../../../bus/pci/drivers/xe\n\
                    link /sys/bus/pci/devices/0000:03:00.0 ../../../devices/pci0000:00/0000:03:00.0\n\
                    char /dev/dri/card0 226:0\n"
            .to_owned()
            + files;
        let host = host
            .replace("CARD", "PCI/drm/card0")
            .replace("PCI", "/sys/devices/pci0000:00/0000:03:00.0");
        let host = device_class::host::RecordedHost::parse(&host).unwrap();
        let devices = discover::find_devices(&intel, &host).devices;
        let attributes = discover::list_label_attributes(&devices[0]);
        let labels = labels_of(&intel, "gpu.intel.com/xe", &attributes);
        let memory = labels.get("gpu.intel.com/memory.max");
        assert_eq!(memory.map(String::as_str), expected, "{files}");
    }
}
