//! Drivers whose user-space part comes with the image: the class gives the nodes.

use harness::driver_tree::DriverTree;
use harness::recorded_host::RecordedHost;

use super::{PROBE, container, run, with_drivers};

/// The programs with which administrators list a container's devices.
const IMAGE: DriverTree = DriverTree {
    release: "bookworm",
    name: "others",
    packages: &[
        "clinfo",
        "ibverbs-utils",
        "intel-opencl-icd",
        "libze1",
        "rdma-core",
        "rocminfo",
    ],
};

#[test]
#[ignore = "downloads packages: make test-drivers"]
fn rocm() {
    with_drivers(module_path!(), |lab| {
        let recording = recording("amd-gpu/mi300x-cpx");
        let host = RecordedHost::new("amd-gpu", &recording).unwrap();
        let container = container(&host, &IMAGE, &["rocminfo"]).env("AMD_VISIBLE_DEVICES", "all");
        let ran = run(lab, container);
        // It starts, with the libraries of the image, and misses the kernel's module.
        assert!(ran.stdout.contains("ROCk module is NOT loaded"), "{ran:?}");
    });
}

#[test]
#[ignore = "downloads packages: make test-drivers"]
fn level_zero_and_opencl() {
    with_drivers(module_path!(), |lab| {
        let host = RecordedHost::new("intel-gpu", &recording("intel-gpu")).unwrap();
        let asking = |command: &[&str]| {
            container(&host, &IMAGE, command).env("INTEL_GPU_VISIBLE_DEVICES", "all")
        };
        let command = [PROBE, "libze_loader.so.1:zeInit", "libze_intel_gpu.so.1"];
        let printed = run(lab, asking(&command)).success().unwrap().stdout;
        // ZE_RESULT_ERROR_UNINITIALIZED (ze_api.h): no driver has a device.
        let first = printed.lines().next().unwrap_or_default();
        assert!(first.ends_with(" = 2013265921"), "{printed}");
        assert!(!printed.contains("failed"), "{printed}");

        let opencl = run(lab, asking(&["clinfo", "-l"]).env("LD_DEBUG", "files"));
        let opencl = opencl.success().unwrap();
        assert!(opencl.stderr.contains("libigdrcl.so"), "{}", opencl.stderr);
    });
}

#[test]
#[ignore = "downloads packages: make test-drivers"]
fn rdma_core() {
    with_drivers(module_path!(), |lab| {
        let host = RecordedHost::new("rdma-shared", &recording("rdma-shared")).unwrap();
        let container =
            container(&host, &IMAGE, &["ibv_devices"]).env("RDMA_VISIBLE_DEVICES", "all");
        let ran = run(lab, container);
        // This machine's /sys has no card, or no part of the kernel for it.
        let none = ran.stdout.contains("node GUID") || ran.stderr.contains("IB devices list");
        assert!(none, "{ran:?}");
    });
}

fn recording(of: &str) -> String {
    let testdata = harness::binaries::source_tree().join("device-class/testdata");
    std::fs::read_to_string(testdata.join(of).join("host.txt")).unwrap()
}
