//! What containers get from the shipped classes on recorded hosts, where the vendors'
//! stacks have rules of their own. Each test names the source of the rule.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover;
use device_class::host::RecordedHost;
use injection_plan::plan::{Authority, Recorded};
use injection_plan::request::Request;

use crate::planning::{self, asker, directory, shipped_class as class};

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(directory(path)).unwrap()
}

pub(crate) fn host(case: &str) -> RecordedHost {
    RecordedHost::parse(&read(&format!("testdata/{case}/host.txt"))).unwrap()
}

/// The lines of the plan for a container with these variables, or the one with the error.
pub(crate) fn plan(class: &DeviceClass, host: &RecordedHost, env: &[&str]) -> Vec<String> {
    let env: Vec<String> = env.iter().map(|entry| (*entry).to_owned()).collect();
    let request = Request::of(class, &env.into(), |_| None).unwrap().unwrap();
    let plan = planning::plan(class, &request, host, &asker());
    let text = plan.map_or_else(|error| format!("refused: {error}"), |plan| plan.to_string());
    // What is missing on the host is named in notes.
    let lines = text
        .lines()
        .filter(|line| !line.trim().starts_with("note "));
    lines.map(str::to_owned).collect()
}

pub(crate) fn has(plan: &[String], text: &str) -> bool {
    plan.iter().any(|line| line.contains(text))
}

/// The devices of a plan by the nodes that they bring.
pub(crate) fn nodes<'p>(plan: &'p [String], prefix: &str) -> Vec<&'p str> {
    let nodes = plan.iter().filter(|line| line.trim().starts_with("node "));
    let words = nodes.flat_map(|line| line.split_whitespace());
    words.filter(|word| word.starts_with(prefix)).collect()
}

/// libnvidia-container, `options.h`: `video` stands for OPT_VIDEO_LIBS and
/// OPT_COMPUTE_LIBS, `display` for OPT_DISPLAY and OPT_GRAPHICS_LIBS; the nodes of UVM
/// come with OPT_COMPUTE_LIBS (`nvc_mount.c`), compute's programs with `compute` alone.
#[test]
fn capabilities_of_a_gpu_bring_the_libraries_of_others() {
    let (class, host) = (class("nvidia-gpu"), host("nvidia-gpu/h200"));
    let with = |capabilities: &str| {
        let capabilities = format!("NVIDIA_DRIVER_CAPABILITIES={capabilities}");
        plan(&class, &host, &["NVIDIA_VISIBLE_DEVICES=0", &capabilities])
    };
    let (video, compute) = (with("video"), with("compute"));
    for wanted in ["libcuda.so.1", "libnvidia-encode.so.1", "/dev/nvidia-uvm "] {
        assert!(has(&video, wanted), "{wanted}: {video:#?}");
    }
    let program = "/usr/bin/nvidia-cuda-mps-control";
    assert!(
        has(&compute, program) && !has(&video, program),
        "{video:#?}"
    );
    let display = with("display");
    for wanted in ["libnvidia-eglcore.so", "nvidia-drm_gbm.so"] {
        assert!(has(&display, wanted), "{wanted}: {display:#?}");
    }
    assert!(!has(&with("utility"), "/dev/nvidia-uvm "));
}

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
            let brings = |library: &str| has(&plan, &format!("{library}.so.{version}"));
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

/// Ascend's device plugin, `constants.go`: parts are resources by their template
/// (`Ascend910-2c`), and an NPU with parts is none.
#[test]
fn a_part_of_an_npu_is_no_npu() {
    let (class, host) = (class("ascend-npu"), host("ascend-npu/910b"));
    let found = discover::devices(&class, &host).devices;
    let resources: Vec<(&str, &str)> = found
        .iter()
        .map(|npu| (npu.id.as_str(), npu.resource.as_str()))
        .collect();
    assert_eq!(
        resources,
        [
            ("Ascend910-0", "huawei.com/Ascend910"),
            ("Ascend910-116", "huawei.com/Ascend910-2c"),
            ("Ascend910-117", "huawei.com/Ascend910-vnpu"),
            ("Ascend910-10", "huawei.com/Ascend910"),
        ]
    );
    let divided = plan(&class, &host, &["ASCEND_VISIBLE_DEVICES=1"]);
    assert!(has(&divided, "has no device `1`"), "{divided:#?}");
}

/// Ascend Docker Runtime's manual, "dynamic virtualization": with the variable, the runtime
/// makes a virtual NPU of this template for the container, which does not get the NPU.
#[test]
fn a_container_that_wants_a_part_of_an_npu_does_not_get_all_of_it() {
    let class = class("ascend-npu");
    let request = |variables: &[&str]| {
        let env: Vec<String> = variables.iter().map(|entry| (*entry).to_owned()).collect();
        Request::of(&class, &env.into(), |_| None)
    };
    let refused = request(&["ASCEND_VISIBLE_DEVICES=0", "ASCEND_VNPU_SPECS=vir04"]);
    let refused = format!("{:#}", anyhow::Error::new(refused.unwrap_err()));
    for part in [
        "ASCEND_VNPU_SPECS is set, which is not supported",
        "create-vnpu",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(
        request(&["ASCEND_VISIBLE_DEVICES=0", "ASCEND_VNPU_SPECS="])
            .unwrap()
            .is_some()
    );
    // An image that sets it requests nothing.
    assert_eq!(request(&["ASCEND_VNPU_SPECS=vir04"]), Ok(None));
    let void = request(&["ASCEND_VISIBLE_DEVICES=void", "ASCEND_VNPU_SPECS=vir04"]);
    assert_eq!(void, Ok(None));
}

/// Forms that the vendors' programs print: `CanonizeID` of Intel's plugin drops dashes
/// and case; `amd-ctk gpu list` prints upper case (container-toolkit, `list.go`), and its
/// runtime folds it; Ascend's runtime names a chip by its generation; nvidia-smi prints
/// eight digits of the PCI domain.
#[test]
fn devices_are_named_as_the_vendors_programs_print_them() {
    for (name, case, env, node) in [
        (
            "intel-fpga-region",
            "intel-fpga-region/opae",
            &[
                "INTEL_FPGA_REGION_VISIBLE_DEVICES=intel-fpga-port.0",
                "FPGA_REGION_1=CE489693-98F0-5F33-946D-560708BE108A",
                "FPGA_AFU_1=D8424DC4-A4A3-C413-F89E-433683F9040B",
            ][..],
            "/dev/intel-fpga-port.0",
        ),
        (
            "amd-gpu",
            "amd-gpu/mixed",
            &["AMD_VISIBLE_DEVICES=0x5C4A1F00DEADBEEF"],
            "/dev/dri/renderD",
        ),
        (
            "ascend-npu",
            "ascend-npu/310b",
            &["ASCEND_VISIBLE_DEVICES=Ascend310B-0"],
            "/dev/davinci0",
        ),
        (
            "nvidia-gpu",
            "nvidia-gpu/h200",
            &["NVIDIA_VISIBLE_DEVICES=00000000:CA:00.0"],
            "/dev/nvidia0",
        ),
    ] {
        let plan = plan(&class(name), &host(case), env);
        assert_eq!(nodes(&plan, node).len(), 1, "{env:?}: {plan:#?}");
    }
}

/// An image of CUDA lists the branches on which cards of a brand run it with the
/// libraries of forward compatibility; a card of another brand does not.
#[test]
fn a_requirement_on_the_brand_is_that_of_the_card() {
    let class = class("nvidia-gpu");
    let env = [
        "NVIDIA_VISIBLE_DEVICES=0",
        "NVIDIA_REQUIRE_CUDA=cuda>=99 brand=geforcertx,driver>=580,driver<581",
    ];
    let tesla = read("testdata/nvidia-gpu/h200/host.txt");
    for (model, starts) in [("NVIDIA H200", false), ("NVIDIA GeForce RTX 5090", true)] {
        let host = RecordedHost::parse(&tesla.replace("NVIDIA H200", model)).unwrap();
        let plan = plan(&class, &host, &env);
        assert_eq!(!has(&plan, "refused: "), starts, "{model}: {plan:#?}");
    }
}

/// libnvidia-container makes missing nodes (`--load-kmods`, `nvc_mount.c`): a container
/// without /dev/nvidia-uvm would start, and CUDA fail in it.
#[test]
fn nodes_of_a_loaded_driver_are_made() {
    let plan = plan(
        &class("nvidia-gpu"),
        &host("nvidia-gpu/headless"),
        &[
            "NVIDIA_VISIBLE_DEVICES=all",
            "NVIDIA_DRIVER_CAPABILITIES=compute",
        ],
    );
    for node in ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm "] {
        let made = plan
            .iter()
            .any(|line| line.contains(node) && line.contains("; made with "));
        assert!(made, "{node}: {plan:#?}");
    }
}

/// A Coral accelerator on USB is another device once its firmware is loaded (google-coral/
/// edgetpu, issue 536): before that no container gets it.
#[test]
fn a_usb_accelerator_is_ready_when_its_firmware_is_loaded() {
    let found = discover::devices(&class("coral-edgetpu"), &host("coral-edgetpu/usb")).devices;
    let health: Vec<(&str, bool)> = found
        .iter()
        .map(|tpu| (tpu.id.as_str(), tpu.health.is_healthy()))
        .collect();
    assert_eq!(health, [("usb-2-1", true), ("usb-2-10", false)]);
}

/// Xilinx's device plugin, `fpga.go`: cards are also sold under the PCI ids of Advantech,
/// Amazon and Arista. Sony's readers in the public list of USB ids: RC-S300 (0dc8, 0dc9,
/// 0d8f), RC-S320 (01bb), RC-S330, RC-S360 and RC-S370 (02e1, 0193), RC-S380 (06c1, 06c3).
#[test]
fn hardware_is_known_by_each_of_its_ids() {
    for (name, recorded, ids, devices) in [
        (
            "xilinx-fpga",
            "0x10ee",
            &["0x10ee", "0x13fe", "0x1d0f", "0x3475"][..],
            3,
        ),
        (
            "xilinx-card",
            "0x10ee",
            &["0x10ee", "0x13fe", "0x1d0f", "0x3475"],
            2,
        ),
        (
            "usb-reader",
            "0dc9",
            &[
                "0dc8", "0dc9", "0d8f", "01bb", "02e1", "0193", "06c1", "06c3",
            ],
            2,
        ),
    ] {
        let (class, text) = (class(name), read(&format!("testdata/{name}/host.txt")));
        let found = |id: &str| {
            let text = text.replace(&format!("| {recorded}\n"), &format!("| {id}\n"));
            discover::devices(&class, &RecordedHost::parse(&text).unwrap()).devices
        };
        for id in ids {
            assert_eq!(found(id).len(), devices, "{name} {id}");
        }
        assert!(found("ffff").len() < devices, "{name}");
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
    assert!(has(&unset, "libnvidia-encode.so"), "{unset:#?}");
    let config = "[class.nvidia-gpu]\ndefault_capabilities = ['compute', 'utility']\n";
    let config = Config::parse(Path::new("config.toml"), config).unwrap();
    let older = config.adapted(class, Path::new("nvidia-gpu.toml")).unwrap();
    let older = plan(&older, &host, &["NVIDIA_VISIBLE_DEVICES=0"]);
    assert!(!has(&older, "libnvidia-encode.so"), "{older:#?}");
}

/// nvidia-container-toolkit, internal/modifier/gated.go and internal/discover: `enabled` gives
/// the nodes of further drivers. The runtime ignores a driver that is missing; here a promise
/// is kept or refused. NVIDIA_DRIVER_CAPABILITIES=all does not bring them.
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
    for (variable, node, is_refused) in [
        ("NVIDIA_GDRCOPY", "/dev/gdrdrv ", true),
        ("NVIDIA_GDS", "/dev/nvidia-fs0 ", false),
        ("NVIDIA_MOFED", "/dev/infiniband/uverbs0 ", true),
        ("NVIDIA_NVSWITCH", "/dev/nvidia-nvswitchctl ", true),
    ] {
        let set = |value: &str| format!("{variable}={value}");
        let of = |host: &RecordedHost, value: &str| {
            plan(
                &class,
                host,
                &["NVIDIA_VISIBLE_DEVICES=0", all, &set(value)],
            )
        };
        assert!(has(&of(&with, "enabled"), node), "{variable}");
        assert!(!has(&of(&with, "1"), node), "{variable}");
        let refused = has(&of(&without, "enabled"), "refused: ");
        assert_eq!(refused, is_refused, "{variable}");
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
        has(&trusted, "/dev/nvidia-caps/nvidia-cap2 "),
        "{trusted:#?}"
    );
    assert!(has(&trusted, "capabilities/mig/monitor"), "{trusted:#?}");
    let env: Vec<String> = env.iter().map(|entry| (*entry).to_owned()).collect();
    let request = Request::of(&class, &env.into(), |_| None).unwrap().unwrap();
    let authority = Authority::Kubelet(Recorded::default());
    let refused = planning::plan(&class, &request, &host, &authority).unwrap_err();
    assert!(refused.contains("it may not have mig-monitor"), "{refused}");
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
        assert_eq!(!has(&plan, "refused: "), starts, "{devices}: {plan:#?}");
    }
}

/// ROCm's container toolkit, internal/oci: an index that does not exist is left out with a
/// warning; and amd-ctk prints a UUID without leading zeros.
#[test]
fn an_index_that_does_not_exist_is_ignored_where_the_vendor_does() {
    let class = class("amd-gpu");
    let text =
        read("testdata/amd-gpu/mixed/host.txt").replace("5c4a1f00deadbeef", "0c4a1f00deadbeef");
    let id = u64::from_str_radix("5c4a1f00deadbeef", 16)
        .unwrap()
        .to_string();
    let short = u64::from_str_radix("0c4a1f00deadbeef", 16)
        .unwrap()
        .to_string();
    let host = RecordedHost::parse(&text.replace(&id, &short)).unwrap();
    let of = |value: &str| plan(&class, &host, &[&format!("AMD_VISIBLE_DEVICES={value}")]);
    let ignored = of("0,7");
    assert_eq!(nodes(&ignored, "/dev/dri/renderD").len(), 1, "{ignored:#?}");
    assert!(
        has(&ignored, "has no device 7, which is ignored"),
        "{ignored:#?}"
    );
    assert_eq!(nodes(&of("0xC4A1F00DEADBEEF"), "/dev/dri/renderD").len(), 1);
    assert_eq!(nodes(&of("9-12"), "/dev/dri/renderD").len(), 0);
}

/// Ascend's runtime of 2026: unknown options are an error, lists have globs, and that of UB is
/// for every container.
#[test]
fn lists_and_options_of_an_npu_are_those_of_the_vendor() {
    let class = class("ascend-npu");
    let text = read("testdata/ascend-npu/910b/host.txt")
        + "file /etc/ascend-docker-runtime.d/ub_driver.list\n| /usr/lib64/liburma*.so\n\
           file /usr/lib64/liburma.so\nfile /usr/lib64/liburma_ubagg.so\n\
           char /dev/ummu/ummu0 254:0\nfile /etc/hccl_rootinfo.json\n";
    let host = RecordedHost::parse(&text).unwrap();
    let of = |options: &str| {
        let options = format!("ASCEND_RUNTIME_OPTIONS={options}");
        let env: Vec<String> = vec!["ASCEND_VISIBLE_DEVICES=0".into(), options];
        Request::of(&class, &env.into(), |_| None).map(|_| ())
    };
    assert!(of("NODRV,VIRTUAL").is_ok());
    let refused = planning::with_causes(of("NODRIVER").unwrap_err());
    assert!(refused.contains("`NODRIVER` is not an option"), "{refused}");
    let plan = plan(&class, &host, &["ASCEND_VISIBLE_DEVICES=0"]);
    for wanted in [
        "liburma.so",
        "liburma_ubagg.so",
        "/dev/ummu/ummu0 ",
        "hccl_rootinfo.json",
    ] {
        assert!(has(&plan, wanted), "{wanted}: {plan:#?}");
    }
}
