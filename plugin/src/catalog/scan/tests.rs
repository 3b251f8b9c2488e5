use std::collections::BTreeSet;
use std::path::Path;

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::host::RecordedHost;
use device_class::load::ClassSource;

use crate::catalog::fixture::scan_recorded_host;
use crate::service::allocate::{build_allocate_responses, build_container_response};

/// Reads a shipped class and one of its recorded hosts.
fn shipped(name: &str, host: &str) -> (DeviceClass, RecordedHost) {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../device-class"));
    let file = root.join(format!("classes/{name}.toml"));
    let class = ClassSource::read(&file, &[]).unwrap().parse();
    let host = std::fs::read_to_string(root.join(format!("testdata/{host}/host.txt")));
    let host = RecordedHost::parse(&host.unwrap());
    (class.unwrap(), host.unwrap())
}

fn class(text: &str) -> DeviceClass {
    let name = "x".to_owned().try_into().unwrap();
    DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap()
}

/// The recorded host has two MIG instances of different profiles and one whole GPU.
#[test]
fn devices_that_differ_are_unhealthy_under_one_name() {
    let (class, host) = shipped("nvidia-gpu", "nvidia-gpu/mig");
    let one_name = "[class.nvidia-gpu]\nresource = 'nvidia.com/gpu'\n";
    for (config, healthy) in [("", 3), (one_name, 0)] {
        let config = Config::parse(Path::new("config.toml"), config).unwrap();
        let class = config.with_settings(class.clone(), "class.toml".as_ref());
        let scan = scan_recorded_host(&[class.unwrap()], &host);
        let devices = scan.resources.values().flat_map(|one| one.devices());
        let found = devices.filter(|device| device.is_healthy()).count();
        assert_eq!(found, healthy);
    }
}

/// In the modes of which only instances can be used, and on which alerts about capacity that is not
/// allocatable would fire.
#[test]
fn a_device_that_can_be_used_in_parts_only_is_not_offered() {
    let in_mig_mode = "\nfile /etc/dmi_mig_config/dev0\n| 0000:33:00.0\n";
    for (name, recording, more, id) in [
        (
            "nvidia-gpu",
            "nvidia-gpu/mig-facts",
            "",
            "GPU-b0f66a81-7f0c-4a6e-a7d9-5a3c9a1d2f77",
        ),
        ("hygon-dcu", "hygon-dcu", in_mig_mode, "33:00.0"),
    ] {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../device-class"));
        let file = root.join(format!("testdata/{recording}/host.txt"));
        let text = std::fs::read_to_string(file).unwrap() + more;
        let host = RecordedHost::parse(&text).unwrap();
        let (class, _) = shipped(name, recording);
        let found = device_class::discover::find_devices(&class, &host).devices;
        let whole = found
            .iter()
            .find(|device| device.whole_device_fault.is_some());
        let whole = whole.unwrap_or_else(|| panic!("{found:?}"));
        assert!(whole.id.as_str().contains(id));
        let scan = scan_recorded_host(&[class], &host);
        let mut resources = scan.resources.values();
        assert!(resources.all(|one| one.find_position(whole.id.as_str()).is_none()));
        let said = format!("{} is not offered: ", whole.id);
        assert!(
            scan.warnings.iter().any(|line| line.contains(&said)),
            "{:?}",
            scan.warnings
        );
    }
}

/// The variables are those of the vendor's plugin (gpushare-device-plugin, allocate.go):
/// `…_POD` is the sum over all containers of a call, and `…_CONTAINER` is the part of one
/// container.
#[test]
fn a_gpus_shares_bring_the_variables_of_the_vendors_plugin() {
    let (class, host) = shipped("gpu-share", "gpu-share");
    let scan = scan_recorded_host(&[class], &host);
    let of = |name: &str| {
        let mut resources = scan.resources.values();
        let found = resources.find(|resource| resource.name.as_str() == name);
        found.unwrap()
    };
    let resource = of("aliyun.com/gpu-mem");
    let gpu = resource.devices()[0].physical_device_id();
    let share = |number| format!("{gpu}::{number}");
    let first: Vec<String> = (0..5).map(share).collect();
    let second: Vec<String> = (5..8).map(share).collect();
    let answers = build_allocate_responses(resource, &[&first, &second]).unwrap();
    for (answer, own) in answers.iter().zip(["5", "3"]) {
        let wanted = [
            ("ALIYUN_COM_GPU_MEM_CONTAINER", own),
            ("ALIYUN_COM_GPU_MEM_DEV", "80"),
            // The value is the minor number of the GPU's device node.
            ("ALIYUN_COM_GPU_MEM_IDX", "1"),
            ("ALIYUN_COM_GPU_MEM_POD", "8"),
            ("GPU_SHARE_VISIBLE_DEVICES", gpu.as_str()),
        ];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(answer.envs, wanted.into());
    }
    // The vendor's plugin names one GPU for all containers of a pod, so shares of two GPUs are
    // refused.
    let mut others = resource
        .devices()
        .iter()
        .map(|device| device.physical_device_id());
    let other = others.find(|other| *other != gpu).unwrap();
    let error = build_container_response(resource, &[share(0), format!("{other}::0")]).unwrap_err();
    assert_eq!(
        error.message(),
        "aliyun.com/gpu-mem: shares of 2 devices requested for one container, which may have \
         shares of one device only"
    );
    // The second resource is the number of GPUs, which the vendor's plugin writes to the
    // Kubernetes node.
    let count = of("aliyun.com/gpu-count");
    let gpus: BTreeSet<_> = resource
        .devices()
        .iter()
        .map(|d| d.physical_device_id())
        .collect();
    assert_eq!(count.devices().len(), gpus.len());
    let error = build_container_response(count, &[gpu.to_string()]).unwrap_err();
    assert_eq!(
        error.message(),
        "aliyun.com/gpu-count is the number of devices of the class gpu-share and cannot be \
         allocated; request the class's other resource"
    );
}

#[test]
fn shares_are_separate_devices_and_allocate_returns_their_number() {
    let text = "version = 1\nresource = 'x.com/mem'\nrequest = { env = 'X' }\n\
                device = { id = 'x-{index}' }\n[[discover]]\ncount = 2\n\
                [sharing]\nreplicas = 3\ncount_env = 'X_COUNT'\n";
    let scan = scan_recorded_host(&[class(text)], &RecordedHost::default());
    let resource = scan.resources.values().next().unwrap();
    let ids: Vec<&str> = resource.devices().iter().map(|d| d.id.as_str()).collect();
    let wanted = "x-0::0 x-0::1 x-0::2 x-1::0 x-1::1 x-1::2";
    assert_eq!(ids.join(" "), wanted);
    assert_eq!(resource.devices()[4].physical_device_id().as_str(), "x-1");
    let asked = ["x-0::2".to_owned(), "x-1::0".to_owned()];
    let answer = build_container_response(resource, &asked).unwrap();
    assert_eq!(answer.envs["X"], "x-0,x-1");
    let annotation = &answer.annotations["devices.boathook.dev/x"];
    assert_eq!(annotation, "x-0::2,x-1::0");
    assert_eq!(answer.envs["X_COUNT"], "2");
}

#[test]
fn without_a_control_node_no_device_is_healthy() {
    let text = "version = 1\nresource = 'x.com/npu'\n\
                 request = { env = 'X', capabilities_env = 'XC', default_capabilities = ['video'] }\n\
                 discover = [{ path = '/dev/x{index:number}' }]\n\
                 edits = [{ nodes = ['/dev/xctl', { path = '/dev/xopt', optional = true }], capability = 'video' }]\n\
                 device = { id = 'x-{index}', nodes = ['/dev/x{index}'] }\n";
    let healthy = |text: &str| {
        let host = RecordedHost::parse("char /dev/x0 10:1\n").unwrap();
        let scan = scan_recorded_host(&[class(text)], &host);
        let resource = scan.resources.into_values().next().unwrap();
        resource.devices()[0].health.to_string()
    };
    assert_eq!(healthy(text), "unhealthy: /dev/xctl does not exist");
    assert_eq!(healthy(&text.replace("'/dev/xctl', ", "")), "healthy");
}
