//! Hosts and requests for which the vendors' sources say what a container gets. Each case
//! names the file that says it.

use std::path::Path;

use device_class::config::Config;
use device_class::discover;
use device_class::host::RecordedHost;

use crate::planning::shipped_class;
use crate::vendors_behaviour::{has, plan, read};

/// A container of a host that was recorded, and changed.
#[derive(Default)]
struct Case {
    /// Where the vendor's source says it.
    source: &'static str,
    class: &'static str,
    /// Below `testdata`.
    host: &'static str,
    /// What is added to the host.
    further: &'static str,
    /// What is replaced in it.
    replaced: &'static [(&'static str, &'static str)],
    /// Below `[class.CLASS]` of config.toml.
    config: &'static str,
    env: &'static [&'static str],
    /// In the plan.
    has: &'static [&'static str],
    lacks: &'static [&'static str],
    /// The resources of all devices, in their order, if they are compared.
    resources: &'static [&'static str],
}

impl Case {
    fn check(&self) {
        let mut text = read(&format!("testdata/{}/host.txt", self.host)) + self.further;
        for (from, to) in self.replaced {
            assert!(text.contains(from), "{}: {from}", self.source);
            text = text.replace(from, to);
        }
        let host = RecordedHost::parse(&text).unwrap();
        let config = format!("[class.{}]\n{}", self.class, self.config);
        let config = Config::parse(Path::new("config.toml"), &config).unwrap();
        let file = format!("{}.toml", self.class);
        let class = shipped_class(self.class);
        let class = config.adapted(class, Path::new(&file)).unwrap();
        if !self.env.is_empty() {
            let plan = plan(&class, &host, self.env);
            let source = self.source;
            let missing = self.has.iter().filter(|text| !has(&plan, text));
            let missing: Vec<_> = missing.collect();
            let unwanted = self.lacks.iter().filter(|text| has(&plan, text));
            let unwanted: Vec<_> = unwanted.collect();
            assert!(missing.is_empty(), "{source}: no {missing:?}");
            assert!(unwanted.is_empty(), "{source}: {unwanted:?}");
        }
        if !self.resources.is_empty() {
            let found = discover::devices(&class, &host).devices;
            let names = found.iter().map(|device| device.resource.as_str());
            assert_eq!(names.collect::<Vec<_>>(), self.resources, "{}", self.source);
        }
    }
}

/// nvidia-container-toolkit and k8s-device-plugin.
#[test]
fn nvidia() {
    for case in [
        Case {
            source: "internal/platform-support/dgpu/nvml.go: an instance with `gfx` draws",
            class: "nvidia-gpu",
            host: "nvidia-gpu/mig-facts",
            replaced: &[("1g.18gb.me", "1g.18gb.gfx")],
            further: "dir /sys/bus/pci/devices/0000:17:00.0/drm/card1\nchar /dev/dri/card1 226:1\n\
                      dir /sys/bus/pci/devices/0000:17:00.0/drm/renderD129\n\
                      char /dev/dri/renderD129 226:129\n",
            env: &[
                "NVIDIA_VISIBLE_DEVICES=0:0",
                "NVIDIA_DRIVER_CAPABILITIES=graphics",
            ],
            has: &["/dev/dri/renderD129 ", "/dev/dri/card1 ", "nvidia-cap102 "],
            ..Case::default()
        },
        Case {
            source: "the same: another one does not",
            class: "nvidia-gpu",
            host: "nvidia-gpu/mig-facts",
            further: "dir /sys/bus/pci/devices/0000:17:00.0/drm/renderD129\n\
                      char /dev/dri/renderD129 226:129\n",
            env: &[
                "NVIDIA_VISIBLE_DEVICES=0:0",
                "NVIDIA_DRIVER_CAPABILITIES=graphics",
            ],
            lacks: &["renderD129"],
            ..Case::default()
        },
        Case {
            source: "pkg/nvcdi/namer.go: an instance is a device of the kind of GPUs",
            class: "nvidia-gpu",
            host: "nvidia-gpu/mig-facts",
            env: &[
                "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0:1",
                "NVIDIA_DRIVER_CAPABILITIES=utility",
            ],
            has: &["nvidia-cap13 "],
            lacks: &["refused: ", "nvidia-cap103 "],
            ..Case::default()
        },
        Case {
            source: "internal/discover/graphics.go: paths of files",
            class: "nvidia-gpu",
            host: "nvidia-gpu/debian-550",
            further: "file /usr/bin/nvidia-xconfig\n\
                      file /etc/X11/xorg.conf.d/nvidia-drm-outputclass.conf\n\
                      file /usr/share/vulkan/icd.d/nvidia_icd.aarch64.json\n",
            env: &["NVIDIA_VISIBLE_DEVICES=all"],
            has: &[
                " /etc/vulkan/icd.d/nvidia_icd.json from /usr/share/",
                " /etc/vulkan/icd.d/nvidia_icd.aarch64.json from ",
                " /etc/vulkan/implicit_layer.d/nvidia_layers.json from ",
                " /usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf from /etc/",
                " /usr/bin/nvidia-xconfig ",
            ],
            ..Case::default()
        },
        Case {
            source: "pkg/nvcdi/driver-nvml.go: firmware of updates, and an older library",
            class: "nvidia-gpu",
            host: "nvidia-gpu/h200",
            further: "file /usr/lib/firmware/updates/nvidia/580.159.03/gsp_ga10x.bin\n\
                      file /usr/lib/x86_64-linux-gnu/libnvidia-nvvm70.so.4\n\
                      lib libnvidia-nvvm70.so.4 /usr/lib/x86_64-linux-gnu/libnvidia-nvvm70.so.4\n",
            env: &["NVIDIA_VISIBLE_DEVICES=all"],
            has: &[
                "/lib/firmware/updates/nvidia/580.159.03/gsp_ga10x.bin",
                "libnvidia-nvvm70.so.4",
            ],
            ..Case::default()
        },
        Case {
            source: "pkg/nvcdi/driver-nvml.go: modules of VDPAU beside the libraries",
            class: "nvidia-gpu",
            host: "nvidia-gpu/h200",
            further: "file /usr/lib/x86_64-linux-gnu/vdpau/libvdpau_nvidia.so.580.159.03\n\
                      link /usr/lib/x86_64-linux-gnu/vdpau/libvdpau_nvidia.so.1 libvdpau_nvidia.so.580.159.03\n",
            env: &["NVIDIA_VISIBLE_DEVICES=all"],
            has: &["libvdpau_nvidia.so.580.159.03"],
            ..Case::default()
        },
        Case {
            source: "internal/config/image/devices.go: the first of `all` and `none`",
            class: "nvidia-gpu",
            host: "nvidia-gpu/h200",
            env: &["NVIDIA_VISIBLE_DEVICES=all,none"],
            has: &["/dev/nvidia0 "],
            ..Case::default()
        },
        Case {
            source: "api/config/v1/config.go: disable-require",
            class: "nvidia-gpu",
            host: "nvidia-gpu/h200",
            config: "requirements = false",
            env: &["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_REQUIRE_CUDA=cuda>=99"],
            has: &["/dev/nvidia0 "],
            ..Case::default()
        },
        Case {
            source: "pkg/nvcdi/lib-imex.go: channels by name and by number",
            class: "nvidia-imex",
            host: "nvidia-imex",
            env: &["NVIDIA_IMEX_CHANNELS=channel0,2"],
            has: &["/channel0 ", "/channel2 "],
            ..Case::default()
        },
        Case {
            source: "k8s-device-plugin, internal/rm/nvml_devices.go: deviceIDStrategy index",
            class: "nvidia-gpu",
            host: "nvidia-gpu/mig-facts",
            config: "env = { NVIDIA_VISIBLE_DEVICES = '{index}' }",
            env: &[
                "NVIDIA_VISIBLE_DEVICES=MIG-0a8b6d51-2f64-5b0f-8c77-d9e2a4b61f05",
                "NVIDIA_DRIVER_CAPABILITIES=utility",
            ],
            has: &["NVIDIA_VISIBLE_DEVICES=0:1"],
            ..Case::default()
        },
        Case {
            source: "k8s-device-plugin, api/config/v1/replicas.go: renameByDefault",
            class: "nvidia-gpu",
            host: "nvidia-gpu/mig-facts",
            replaced: &[(
                "0000:ca:00.0 MIG mode\tEnabled",
                "0000:ca:00.0 MIG mode\tDisabled",
            )],
            config: "replicas = { 'nvidia.com/gpu.shared' = 4 }\nmap.sort = { gpu = 'gpu.shared' }",
            resources: &[
                "nvidia.com/mig-1g.18gb.me",
                "nvidia.com/mig-3g.71gb",
                "nvidia.com/gpu.shared",
            ],
            ..Case::default()
        },
    ] {
        case.check();
    }
}

/// ROCm's container-toolkit and k8s-device-plugin.
#[test]
fn amd() {
    for case in [
        Case {
            source: "internal/amdgpu/amdgpu.go: a GPU without KFD shifts no index",
            class: "amd-gpu",
            host: "amd-gpu/mixed",
            env: &["AMD_VISIBLE_DEVICES=1"],
            has: &["0000:83:00.0  /dev/dri/renderD"],
            lacks: &["0000:04:00.0"],
            ..Case::default()
        },
        Case {
            source: "internal/gpu-tracker/gpu-tracker.go: mistakes are ignored",
            class: "amd-gpu",
            host: "amd-gpu/mixed",
            env: &["AMD_VISIBLE_DEVICES=3-1,a-b,0"],
            has: &[
                "0000:03:00.0  /dev/dri/renderD",
                "no device 3-1, a-b, which is ignored",
            ],
            lacks: &["0000:83:00.0"],
            ..Case::default()
        },
    ] {
        case.check();
    }
}

/// intel-device-plugins-for-kubernetes.
#[test]
fn intel() {
    let qat = |source, replaced, resources| Case {
        source,
        class: "intel-qat",
        host: "intel-qat",
        replaced,
        resources,
        ..Case::default()
    };
    for case in [
        qat(
            "dpdkdrv.go: services have the order of the driver",
            &[],
            &["qat.intel.com/generic", "qat.intel.com/dc-sym"],
        ),
        qat(
            "dpdkdrv.go: cryptography",
            &[("| dc;sym", "| sym;asym")],
            &["qat.intel.com/generic", "qat.intel.com/cy"],
        ),
        qat(
            "dpdkdrv.go: services of a function that is up",
            &[("| up", "| down")],
            &["qat.intel.com/generic"; 2],
        ),
        qat(
            "dpdkdrv.go: generation 6",
            &[("| 0x4941", "| 0x4949"), ("| dc;sym", "| dcc")],
            &["qat.intel.com/generic", "qat.intel.com/dcc"],
        ),
        Case {
            source: "dpdkdrv.go: without an IOMMU",
            class: "intel-qat",
            host: "intel-qat",
            further: "file /sys/bus/kernel/iommu_groups/7/name\n| vfio-noiommu\n\
                      char /dev/vfio/noiommu-7 240:17\n",
            env: &["INTEL_QAT_VISIBLE_DEVICES=0000:6b:00.1"],
            has: &["/dev/vfio/noiommu-7 ", "QAT0=0000:6b:00.1"],
            ..Case::default()
        },
        Case {
            source: "cmd/iaa_plugin: queues are on the bus of DSA",
            class: "intel-iaa",
            host: "intel-iaa",
            resources: &[
                "iaa.intel.com/wq-user-shared",
                "iaa.intel.com/wq-user-dedicated",
            ],
            ..Case::default()
        },
        Case {
            source: "gpu_plugin.go: -monitoring-mode split",
            class: "intel-gpu-monitoring",
            host: "intel-gpu-monitoring",
            config: "resource = 'gpu.intel.com/{driver}_monitoring'",
            env: &["INTEL_GPU_MONITORING_VISIBLE_DEVICES=all"],
            has: &["/dev/mei1 "],
            resources: &[
                "gpu.intel.com/i915_monitoring",
                "gpu.intel.com/xe_monitoring",
            ],
            ..Case::default()
        },
        Case {
            source: "gpu_plugin.go: -deny-ids",
            class: "intel-gpu",
            host: "intel-gpu",
            further: "file /sys/devices/pci0000:00/0000:00:02.0/device\n| 0x56c0\n",
            config: "except = [{ pci_id = '0x56c0' }]",
            resources: &["gpu.intel.com/xe"],
            ..Case::default()
        },
    ] {
        case.check();
    }
}
