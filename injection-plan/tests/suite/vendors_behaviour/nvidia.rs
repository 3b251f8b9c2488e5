//! NVIDIA's toolkit: capabilities, libraries, indices, requirements.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use device_class::host::RecordedHost;
use injection_plan::plan::{Authority, CheckpointDevices};
use injection_plan::request::Request;

use super::{contains_text, host, nodes, plan, read};
use crate::planning::{self, shipped_class as class};

/// NEEDED entries of the driver's libraries for each other, read in Debian's packages with
/// `objdump -p`: a capability that brings a library brings those without which it cannot be
/// loaded. Between the two versions libnvidia-gpucomp was added.
#[test]
fn a_library_comes_with_those_that_it_needs() {
    let class = class("nvidia-gpu");
    let always = [
        ("libGLX_nvidia", "libnvidia-glcore"),
        ("libGLX_nvidia", "libnvidia-glsi"),
        ("libGLX_nvidia", "libnvidia-tls"),
        ("libEGL_nvidia", "libnvidia-glsi"),
        ("libnvidia-glcore", "libnvidia-tls"),
        ("libnvidia-eglcore", "libnvidia-glsi"),
        ("libnvidia-encode", "libnvcuvid"),
        ("libnvidia-opticalflow", "libnvcuvid"),
    ];
    let of_550 = [
        ("libnvidia-glcore", "libnvidia-gpucomp"),
        ("libnvidia-eglcore", "libnvidia-gpucomp"),
    ];
    let of_535 = [("libnvidia-vulkan-producer", "libEGL_nvidia")];
    for (version, further) in [("535.261.03", &of_535[..]), ("550.163.01", &of_550)] {
        let host = host(&format!("nvidia-gpu/debian-{}", &version[..3]));
        let mut seen = BTreeSet::new();
        for capability in ["utility", "compute", "video", "graphics", "display", "ngx"] {
            let capabilities = format!("NVIDIA_DRIVER_CAPABILITIES={capability}");
            let plan = plan(&class, &host, &["NVIDIA_VISIBLE_DEVICES=0", &capabilities]);
            let brings = |library: &str| contains_text(&plan, &format!("{library}.so.{version}"));
            for (library, needed) in always.iter().chain(further) {
                if brings(library) {
                    seen.insert(*library);
                    assert!(brings(needed), "{capability}: {library} needs {needed}");
                }
            }
        }
        let all = always.iter().chain(further).map(|(library, _)| *library);
        assert_eq!(seen, all.collect(), "{version}");
    }
}

/// libnvidia-container, `cli/common.c`: `select_gpu_device` counts physical GPUs in the
/// order of the bus, and adds the GPU alone, by its index, UUID or address;
/// `select_mig_device` takes `GPU:INSTANCE`, and `configure.c` mounts the instances that it
/// added. The name `MIG-GPU-<uuid>/<gi>/<ci>` is that of drivers before the branch 470.
#[test]
fn an_index_is_that_of_the_physical_gpu() {
    let (class, host) = (class("nvidia-gpu"), host("nvidia-gpu/mig"));
    let of = |value: &str| {
        let value = format!("NVIDIA_VISIBLE_DEVICES={value}");
        let env = [&value, "NVIDIA_DRIVER_CAPABILITIES=utility"];
        let plan = plan(&class, &host, &env);
        let caps = nodes(&plan, "/dev/nvidia-caps/nvidia-cap");
        let caps = caps
            .iter()
            .map(|path| path["/dev/nvidia-caps/nvidia-".len()..].to_owned());
        let gpus = nodes(&plan, "/dev/nvidia");
        let gpus = gpus.iter().map(|path| path["/dev/".len()..].to_owned());
        let gpus = gpus.filter(|name| ["nvidia0", "nvidia1"].contains(&name.as_str()));
        gpus.chain(caps).collect::<Vec<_>>().join(" ")
    };
    // GPU 0 is divided in two instances. GPU 1 is in MIG mode too, but has none: no file
    // shows it, so that it is one GPU (a health program does, see health_commands.rs).
    assert_eq!(of("0"), "nvidia0");
    assert_eq!(of("all"), "nvidia0 nvidia1 cap102 cap103 cap12 cap13");
    assert_eq!(of("0,0:1"), "nvidia0 cap102 cap103");
    assert_eq!(of("1"), "nvidia1");
    assert_eq!(of("0:0"), "nvidia0 cap12 cap13");
    assert_eq!(of("0:1"), "nvidia0 cap102 cap103");
    let uuid = "GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10";
    assert_eq!(of(&format!("MIG-{uuid}/11/0")), "nvidia0 cap102 cap103");
    assert_eq!(of(uuid), of("0"));
    assert_eq!(of("0000:17:00.0"), of("0"));
}

/// The brands of a virtual machine's GPU (NVML's nvmlBrandType_t), which nvidia-smi prints in
/// words and images of CUDA in short.
#[test]
fn a_requirement_on_the_brand_holds_in_a_virtual_machine() {
    let class = class("nvidia-gpu");
    let text = read("testdata/nvidia-gpu/mig-facts/host.txt");
    for (brand, short) in [
        ("NVIDIA RTX Virtual Workstation", "vws"),
        ("NVIDIA Virtual Compute Server", "vcs"),
        ("NVIDIA Virtual PC", "vpc"),
        ("NVIDIA Virtual Applications", "vapps"),
        ("NVIDIA Cloud Gaming", "cloudgaming"),
    ] {
        let text = text.replace("brand\tNVIDIA", &format!("brand\t{brand}"));
        let host = RecordedHost::parse(&text).unwrap();
        for (required, starts) in [(short, true), ("tesla", false)] {
            let required = format!("NVIDIA_REQUIRE_CUDA=brand={required},driver>=575");
            // A GPU, and an instance of MIG.
            for device in ["1", "0:0"] {
                let device = format!("NVIDIA_VISIBLE_DEVICES={device}");
                let plan = plan(&class, &host, &[&device, &required]);
                assert_eq!(
                    !contains_text(&plan, "cannot be met"),
                    starts,
                    "{brand}: {plan:#?}"
                );
            }
        }
    }
}

/// nvidia-container-toolkit 1.18: the mode `auto` is jit-cdi, which gives all libraries of the
/// driver (pkg/nvcdi/driver-nvml.go) if the variable is not set.
#[test]
fn without_the_variable_a_container_has_all_of_the_driver() {
    let class = class("nvidia-gpu");
    let host = host("nvidia-gpu/debian-550");
    let of = |env: &[&str]| {
        plan(
            &class,
            &host,
            &[&["NVIDIA_VISIBLE_DEVICES=0"], env].concat(),
        )
    };
    let unset = of(&[]);
    assert_eq!(
        unset,
        of(&["NVIDIA_DRIVER_CAPABILITIES=compute,utility,video,graphics,display,ngx"])
    );
    assert!(contains_text(&unset, "libnvidia-encode.so"), "{unset:#?}");
    let config = "[class.nvidia-gpu]\ndefault_capabilities = ['compute', 'utility']\n";
    let config = Config::parse(Path::new("config.toml"), config).unwrap();
    let older = config
        .with_settings(class, Path::new("nvidia-gpu.toml"))
        .unwrap();
    let older = plan(&older, &host, &["NVIDIA_VISIBLE_DEVICES=0"]);
    assert!(!contains_text(&older, "libnvidia-encode.so"), "{older:#?}");
}

/// nvidia-container-toolkit, internal/modifier/gated.go and internal/discover: `enabled` gives
/// the nodes of further drivers. A driver that is missing is ignored, as clusters set the variables
/// for all containers. NVIDIA_DRIVER_CAPABILITIES=all does not bring them.
#[test]
fn further_drivers_have_variables_of_their_own() {
    let class = class("nvidia-gpu");
    let text = read("testdata/nvidia-gpu/h200/host.txt");
    let further = "char /dev/gdrdrv 510:0\nchar /dev/nvidia-fs0 509:0\n\
                   char /dev/infiniband/uverbs0 231:192\nchar /dev/infiniband/rdma_cm 10:58\n\
                   char /dev/nvidia-nvswitchctl 508:255\nchar /dev/nvidia-nvswitch0 508:0\n\
                   file /etc/cufile.json\ndir /run/udev\n";
    let with = RecordedHost::parse(&format!("{text}{further}")).unwrap();
    let without = RecordedHost::parse(&text).unwrap();
    let all = "NVIDIA_DRIVER_CAPABILITIES=all";
    for (variable, node) in [
        ("NVIDIA_GDRCOPY", "/dev/gdrdrv "),
        ("NVIDIA_GDS", "/dev/nvidia-fs0 "),
        ("NVIDIA_MOFED", "/dev/infiniband/uverbs0 "),
        ("NVIDIA_NVSWITCH", "/dev/nvidia-nvswitchctl "),
    ] {
        let set = |value: &str| format!("{variable}={value}");
        let of = |host: &RecordedHost, value: &str| {
            plan(
                &class,
                host,
                &["NVIDIA_VISIBLE_DEVICES=0", all, &set(value)],
            )
        };
        assert!(contains_text(&of(&with, "enabled"), node), "{variable}");
        assert!(!contains_text(&of(&with, "1"), node), "{variable}");
        let absent = of(&without, "enabled");
        assert!(contains_text(&absent, "/dev/nvidia1 "), "{absent:#?}");
        let warning = "warning    nvidia-gpu: /dev/";
        assert!(!contains_text(&absent, warning), "{absent:#?}");
    }
}

/// libnvidia-container, cli/common.c (`select_mig_monitor_devices`), and the toolkit's hook,
/// which requires a privileged container.
#[test]
fn who_may_monitor_instances_of_others_is_trusted() {
    let (class, host) = (class("nvidia-gpu"), host("nvidia-gpu/mig-facts"));
    let env = [
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=utility",
        "NVIDIA_MIG_MONITOR_DEVICES=all",
    ];
    let trusted = plan(&class, &host, &env);
    assert!(
        contains_text(&trusted, "/dev/nvidia-caps/nvidia-cap2 "),
        "{trusted:#?}"
    );
    assert!(
        contains_text(&trusted, "capabilities/mig/monitor"),
        "{trusted:#?}"
    );
    let env: Vec<String> = env.iter().map(|entry| (*entry).to_owned()).collect();
    let request = Request::find(&class, &env.into(), |_| None)
        .unwrap()
        .unwrap();
    // In a pod, and outside pods without CAP_SYS_ADMIN.
    let unprivileged = Authority::Requester {
        reason: "the container is in no pod".into(),
        allows_trusted_capabilities: false,
    };
    for (authority, said) in [
        (Authority::Kubelet(CheckpointDevices::default()), "in a pod"),
        (unprivileged, "without CAP_SYS_ADMIN"),
    ] {
        let refused = planning::plan(&class, &request, &host, &authority).unwrap_err();
        assert!(refused.contains("it may not have mig-monitor"), "{refused}");
        assert!(refused.contains(said), "{refused}");
    }
}

/// Of two GPUs of different brands, and none (libnvidia-container, cli/configure.c).
#[test]
fn requirements_are_those_of_each_gpu_that_a_container_gets() {
    let class = class("nvidia-gpu");
    let text = read("testdata/nvidia-gpu/h200/host.txt");
    let at = text.find("| Model: \t\t NVIDIA H200").unwrap();
    let (first, rest) = text.split_at(at);
    let mixed = format!(
        "{first}{}",
        rest.replacen("NVIDIA H200", "NVIDIA GeForce RTX 5090", 1)
    );
    let host = RecordedHost::parse(&mixed).unwrap();
    for (devices, starts) in [("0", true), ("1", false), ("0,1", false), ("none", true)] {
        let devices = format!("NVIDIA_VISIBLE_DEVICES={devices}");
        let env = [
            devices.as_str(),
            "NVIDIA_REQUIRE_X=Brand=GeForceRTX,driver>=500",
        ];
        let plan = plan(&class, &host, &env);
        assert_eq!(
            !contains_text(&plan, "refused: "),
            starts,
            "{devices}: {plan:#?}"
        );
    }
}
