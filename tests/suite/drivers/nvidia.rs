//! NVIDIA's driver, in two of its production branches.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::bundle::BundleBuilder;
use harness::captured::Captured;
use harness::demo_host::HostDirectory;
use harness::driver_tree::{DriverTree, add_links};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::Value;

use super::{PROBE, container, run, with_drivers};
use crate::lab::Lab;

/// The whole driver apart from its kernel modules and its part of the X server.
const DRIVER: &[&str] = &[
    "firmware-nvidia-gsp",
    "libcuda1",
    "libcudadebugger1",
    "libnvcuvid1",
    "libnvidia-allocator1",
    "libnvidia-api1",
    "libnvidia-cfg1",
    "libnvidia-egl-gbm1",
    "libnvidia-egl-wayland1",
    "libnvidia-encode1",
    "libnvidia-fbc1",
    "libnvidia-ml1",
    "libnvidia-ngx1",
    "libnvidia-nvvm4",
    "libnvidia-opticalflow1",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-ptxjitcompiler1",
    "libnvoptix1",
    "nvidia-cuda-mps",
    "nvidia-driver-bin",
    "nvidia-driver-libs",
    "nvidia-egl-icd",
    "nvidia-opencl-icd",
    "nvidia-persistenced",
    "nvidia-smi",
    "nvidia-vdpau-driver",
    "nvidia-vulkan-icd",
];

/// An image with the libraries of a distribution that the driver's libraries need, and
/// a program of OpenCL. No package of it is the driver's.
const IMAGE: &[&str] = &[
    "clinfo",
    "libdrm2",
    "libegl1",
    "libgbm1",
    "libgl1",
    "libwayland-client0",
    "libwayland-server0",
    "libx11-6",
    "libxext6",
    "ocl-icd-libopencl1",
    "openssl",
];

/// The files that the packages have and containers do not get, with the reason.
const EXCLUDED: &[(&str, &str)] = &[
    ("_nvngx.dll", "a library of Windows, for Wine"),
    ("nvngx.dll", "a library of Windows, for Wine"),
];

#[test]
#[ignore = "downloads packages: make test-drivers"]
fn nvidia_535() {
    with_drivers(module_path!(), |lab| check(lab, "bookworm"));
}

#[test]
#[ignore = "downloads packages: make test-drivers"]
fn nvidia_550() {
    with_drivers(module_path!(), |lab| check(lab, "trixie"));
}

/// One release of Debian with its version of the driver.
struct Case {
    driver: DriverTree,
    image: DriverTree,
    version: String,
    host: HostDirectory,
}

fn check(lab: &Lab, release: &'static str) {
    let case = Case::new(release);
    case.check_completeness(&case.plan("all"));
    let everything = case.check_loading(lab, "all");
    assert!(everything > 40, "{everything} libraries");
    case.check_calls(lab);
    // A library that another one needs may be among those of another capability.
    for capability in ["compute", "video", "graphics", "display"] {
        let some = case.check_loading(lab, capability);
        assert!((2..everything).contains(&some), "{capability}: {some}");
    }
    case.check_programs(lab);
    eprintln!("{release}: driver {}", case.version);
}

impl Case {
    fn new(release: &'static str) -> Self {
        let tree = |name, packages| DriverTree {
            release,
            name,
            packages,
        };
        let (driver, image) = (tree("nvidia", DRIVER), tree("nvidia-image", IMAGE));
        let directory = driver.directory().unwrap();
        let libcuda = directory.join("usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1");
        let file = fs::read_link(libcuda).unwrap();
        let version = file.to_str().unwrap().strip_prefix("libcuda.so.");
        let version = version.unwrap().to_string();
        let host = HostDirectory::new().unwrap();
        host.add_shipped_class("nvidia-gpu").unwrap();
        add_links(&directory, &host.root()).unwrap();
        add_kernel_driver(&host, &version);
        Self {
            driver,
            image,
            version,
            host,
        }
    }

    fn container(&self, capabilities: &str, command: &[&str]) -> BundleBuilder {
        container(&self.host, &self.image, command)
            .env("NVIDIA_VISIBLE_DEVICES", "all")
            .env("NVIDIA_DRIVER_CAPABILITIES", capabilities)
    }

    fn plan(&self, capabilities: &str) -> Vec<Value> {
        let bundle = self.container(capabilities, &["true"]).build().unwrap();
        let mut explain = Command::new(binaries::program("boathook").unwrap());
        explain.arg("--config").arg(self.host.config_file());
        explain
            .args(["explain", "--json", "--bundle"])
            .arg(bundle.directory());
        let printed = Captured::run(&mut explain).unwrap().success().unwrap();
        let plan: Value = serde_json::from_str(&printed.stdout).unwrap();
        plan["steps"].as_array().unwrap().clone()
    }

    /// Every library of the packages is in the plan, or is excluded.
    fn check_completeness(&self, plan: &[Value]) {
        let packaged: BTreeSet<String> = self
            .driver
            .files_of_version(&self.version)
            .unwrap()
            .iter()
            .map(|path| name_of(path))
            .filter(|name| name.contains(".so") || name.ends_with(".dll"))
            .collect();
        let mut brought: BTreeSet<String> = library_names(plan).into_iter().collect();
        let files = plan.iter().filter(|step| step["action"] == "file");
        brought.extend(files.map(|step| name_of(Path::new(step["path"].as_str().unwrap()))));
        let excluded: BTreeSet<String> = EXCLUDED.iter().map(|(n, _)| (*n).to_string()).collect();
        let missing: Vec<_> = packaged.difference(&brought).cloned().collect();
        assert_eq!(missing, excluded.into_iter().collect::<Vec<_>>());
        let programs = ["nvidia-smi", "nvidia-debugdump", "nvidia-persistenced"];
        let mps = ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"];
        for program in programs.into_iter().chain(mps) {
            assert!(brought.contains(program), "{program}");
        }
    }

    /// The image's loader finds each library of these capabilities by its name, and each
    /// finds what it needs. Returns how many names there are.
    fn check_loading(&self, lab: &Lab, capabilities: &str) -> usize {
        let names = library_names(&self.plan(capabilities));
        let mut command = vec![PROBE];
        command.extend(names.iter().map(String::as_str));
        let printed = run(lab, self.container(capabilities, &command));
        let printed = printed.success().unwrap().stdout;
        let expected: Vec<String> = names.iter().map(|name| loaded(name)).collect();
        let lines: Vec<_> = printed.lines().collect();
        assert_eq!(lines, expected, "{capabilities}");
        names.len()
    }

    /// CUDA and the management library miss the device, and nothing else:
    /// CUDA_ERROR_NO_DEVICE (cuda.h), NVML_ERROR_DRIVER_NOT_LOADED (nvml.h).
    fn check_calls(&self, lab: &Lab) {
        let calls = ["libcuda.so.1:cuInit", "libnvidia-ml.so.1:nvmlInitWithFlags"];
        let printed = run(lab, self.container("all", &[&[PROBE], &calls[..]].concat()));
        let printed = printed.success().unwrap().stdout;
        let expected = [("libcuda.so.1", 100), ("libnvidia-ml.so.1", 9)];
        let expected = expected.map(|(name, result)| format!("{} = {result}", loaded(name)));
        assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    }

    fn check_programs(&self, lab: &Lab) {
        let smi = run(lab, self.container("all", &["nvidia-smi"]));
        // "NVIDIA driver is not loaded" (nvidia-smi(1), "RETURN VALUE"); 12 would be a
        // library that it does not find.
        assert_eq!(smi.status.code(), Some(9), "{smi:?}");
        let opencl = self.container("all", &["clinfo", "-l"]);
        let opencl = run(lab, opencl.env("LD_DEBUG", "files")).success().unwrap();
        let loaded = "calling init: /usr/lib/boathook/lib/libnvidia-opencl.so.1";
        assert!(opencl.stderr.contains(loaded), "{}", opencl.stderr);
    }
}

/// Adds the files by which the kernel's part of the driver shows one GPU. Nodes have the driver's
/// numbers, so that opening them fails as it does without the driver.
fn add_kernel_driver(host: &HostDirectory, version: &str) {
    let gpu = "0000:17:00.0";
    let module = format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Wed May  6\n");
    let information = "Model: \t NVIDIA H200\n\
        GPU UUID: \t GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10\nDevice Minor: \t 0\n";
    for (name, text) in [
        ("version", module.as_str()),
        ("params", "ModifyDeviceFiles: 1\n"),
        ("registry", "Binary: \"\"\n"),
        (&format!("gpus/{gpu}/information"), information),
    ] {
        let path = format!("/proc/driver/nvidia/{name}");
        host.add_file(&path, text).unwrap();
    }
    let config = format!("/sys/bus/pci/devices/{gpu}/config");
    host.add_file(&config, "configuration").unwrap();
    // Documentation/admin-guide/devices.txt has 195; the others are given at random.
    for (name, major, minor) in [
        ("nvidia0", 195, 0),
        ("nvidiactl", 195, 255),
        ("nvidia-modeset", 195, 254),
        ("nvidia-uvm", 511, 0),
        ("nvidia-uvm-tools", 511, 1),
    ] {
        let node = host.root().join("dev").join(name);
        let mode = Mode::from_bits_truncate(0o666);
        mknod(&node, SFlag::S_IFCHR, mode, makedev(major, minor)).unwrap();
    }
}

/// The names by which programs can load the plan's libraries.
fn library_names(plan: &[Value]) -> Vec<String> {
    let loaders = plan.iter().filter(|step| step["action"] == "loader");
    let pairs = loaders.flat_map(|step| step["libraries"].as_array().unwrap());
    pairs
        .map(|pair| pair[0].as_str().unwrap().to_string())
        .collect()
}

/// Returns the text that the probe prints for a library that it could load.
fn loaded(name: &str) -> String {
    format!("{name} loaded /usr/lib/boathook/lib/{name}")
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
