//! NVIDIA's real driver with its GPUs, on a machine that has some: what containers compute
//! on them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::binaries;
use harness::bundle::{Bundle, BundleBuilder};
use harness::captured::Captured;
use harness::cgroup_view::CgroupView;
use harness::class_files;
use harness::compile::{self, Libc};
use harness::kubelet::{Allocation, Config, Event, FakeKubelet};
use harness::patience::PATIENCE;
use harness::plugin_process::PluginProcess;
use harness::probe::{Access, Questions};
use harness::rootfs::Rootfs;
use tempfile::TempDir;

use crate::lab::{Lab, with_lab};

const RESOURCE: &str = "nvidia.com/gpu";
const ADD: &str = "/bin/cuda-add";
const VARIABLE: &str = "NVIDIA_VISIBLE_DEVICES";

/// This machine, with the project's class and a kubelet's record.
struct Machine {
    /// In /tmp, because the path of a socket has 107 bytes at most.
    directory: TempDir,
    gpus: Vec<String>,
}

fn with_gpus(test: &str, body: fn(&Lab)) {
    if Path::new("/proc/driver/nvidia/version").exists() {
        with_lab(test, CgroupView::V2, body)
    } else {
        skip::report(test, "needs a GPU of NVIDIA and its driver")
    }
}

fn smi(arguments: &[&str]) -> Captured {
    Captured::run(Command::new("nvidia-smi").args(arguments)).unwrap()
}

impl Machine {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let classes = directory.path().join("classes");
        fs::create_dir(&classes).unwrap();
        let class = binaries::source_tree().join("device-class/classes/nvidia-gpu.toml");
        class_files::copy(&class, &classes.join("nvidia-gpu.toml")).unwrap();
        let checkpoint = directory.path();
        let checkpoint = checkpoint.join("device-plugins/kubelet_internal_checkpoint");
        let text = format!(
            "classes = [{classes:?}]\n[class.nvidia-gpu]\nhealth_programs = true\n\
             [trust]\nkubelet_checkpoint = {checkpoint:?}\n"
        );
        fs::write(directory.path().join("config.toml"), text).unwrap();
        let uuids = smi(&["--query-gpu=uuid", "--format=csv,noheader"]);
        let uuids = uuids.success().unwrap().stdout;
        let gpus = uuids.lines().map(ToOwned::to_owned).collect();
        Self { directory, gpus }
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("config.toml")
    }

    fn container(&self, command: &[&str]) -> BundleBuilder {
        let container = Bundle::with_hook(Rootfs::Glibc, &self.config()).unwrap();
        container.args(command.iter().copied())
    }

    fn boathook(&self, lab: &Lab, arguments: &[&str]) -> Captured {
        let mut command = Command::new(binaries::program("boathook").unwrap());
        command.arg("--config").arg(self.config()).args(arguments);
        command.arg("--root").arg(lab.runc.state_directory());
        Captured::run(&mut command).unwrap()
    }
}

/// Makes the bundle, with the program that computes in it.
fn built(container: BundleBuilder) -> Bundle {
    let bundle = container.build().unwrap();
    let options = ["-ldl", "-std=gnu17"];
    let add = compile::program("cuda-add.c", Libc::Glibc, &options).unwrap();
    binaries::copy(&add, &bundle.in_rootfs(ADD)).unwrap();
    bundle
}

fn run(lab: &Lab, container: BundleBuilder) -> Captured {
    let bundle = built(container);
    let ran = lab.runc.run(&bundle).unwrap();
    lab.assert_nothing_left(&bundle);
    ran
}

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
#[ignore = "needs a GPU of NVIDIA: make test-gpu"]
fn containers_compute_on_the_gpus_that_they_request() {
    with_gpus(module_path!(), |lab| {
        let machine = Machine::new();
        let first = machine.gpus[0].as_str();
        let mut all: Vec<_> = machine.gpus.iter().map(String::as_str).collect();
        all.sort_unstable();
        for (request, expected) in [("all", all), ("0", vec![first]), (first, vec![first])] {
            let ran = run(lab, machine.container(&[ADD]).env(VARIABLE, request));
            let printed = ran.success().unwrap().stdout;
            assert_eq!(lines(&printed), expected, "{request}");
        }
        let listing = machine.container(&["nvidia-smi", "-L"]);
        let listing = listing.env(VARIABLE, "all");
        let listing = listing.env("NVIDIA_DRIVER_CAPABILITIES", "utility");
        let listed = run(lab, listing).success().unwrap();
        assert_eq!(listed.stdout, smi(&["-L"]).stdout);
        // A newer CUDA than any driver has.
        let newer = machine.container(&[ADD]).env(VARIABLE, "all");
        let refused = run(lab, newer.env("NVIDIA_REQUIRE_CUDA", "cuda>=99.0"));
        assert!(!refused.status.success(), "{refused:?}");
        assert!(refused.stderr.contains("cuda>=99.0"), "{refused:?}");
    });
}

#[test]
#[ignore = "needs a GPU of NVIDIA: make test-gpu"]
fn a_container_that_requests_none_has_none() {
    with_gpus(module_path!(), |lab| {
        let machine = Machine::new();
        for request in ["void", "none"] {
            let ran = run(lab, machine.container(&[ADD]).env(VARIABLE, request));
            assert!(!ran.status.success(), "{request}: {ran:?}");
        }
        // The number of the driver's first GPU (its README, "Device Nodes").
        let made = Questions::new().new_node("/dev/made", 195, 0);
        let command = made.command().unwrap();
        let command: Vec<_> = command.iter().map(String::as_str).collect();
        let report = lab.probe(&machine.container(&command).build().unwrap());
        let read = report.new_node("/dev/made").unwrap().read.clone();
        assert_eq!(read, Some(Access::refused("EPERM")));
    });
}

#[test]
#[ignore = "needs a GPU of NVIDIA: make test-gpu"]
fn a_gpu_is_attached_and_detached() {
    with_gpus(module_path!(), |lab| {
        let machine = Machine::new();
        let bundle = built(Bundle::builder(Rootfs::Glibc));
        let running = lab.runc.create(&bundle).unwrap();
        running.start().unwrap();
        assert!(running.output(&[ADD]).is_err());
        let device = format!("nvidia-gpu={}", machine.gpus[0]);
        let attached = machine.boathook(lab, &["attach", bundle.id(), &device]);
        attached.success().unwrap();
        assert_eq!(running.output(&[ADD]).unwrap().trim(), machine.gpus[0]);
        let detached = machine.boathook(lab, &["detach", bundle.id()]);
        detached.success().unwrap();
        assert!(running.output(&[ADD]).is_err());
    });
}

/// And a program's fault on it, of which the driver writes an Xid, is none of the GPU.
#[test]
#[ignore = "needs a GPU of NVIDIA: make test-gpu"]
fn the_plugin_offers_healthy_gpus_and_a_pod_computes() {
    with_gpus(module_path!(), |lab| {
        let machine = Machine::new();
        let directory = machine.directory.path();
        let kubelet = FakeKubelet::start(Config::new(directory)).unwrap();
        let plugin = PluginProcess::start(directory, &machine.config()).unwrap();
        let offered = kubelet.wait_devices(PATIENCE, RESOURCE).unwrap();
        let ids: Vec<_> = offered.iter().map(|device| device.id.as_str()).collect();
        assert_eq!(lines(&ids.join("\n")), lines(&machine.gpus.join("\n")));
        assert!(offered.iter().all(|device| device.health == "Healthy"));
        let first = Allocation::of_ids(RESOURCE, &[&machine.gpus[0]]);
        let given = kubelet.allocate(first).unwrap();
        let pod = |command: &[&str]| {
            let mut pod = machine.container(command);
            for (key, value) in &given.envs {
                pod = pod.env(key, value);
            }
            for (key, value) in &given.annotations {
                pod = pod.annotation(key, value);
            }
            run(lab, pod)
        };
        let printed = pod(&[ADD]).success().unwrap().stdout;
        assert_eq!(printed.trim(), machine.gpus[0]);
        // CUDA_ERROR_ILLEGAL_ADDRESS (cuda.h).
        let fault = pod(&[ADD, "fault"]);
        assert!(fault.stdout.contains("cuCtxSynchronize: 700"), "{fault:?}");
        let is_ill = |event: &Event| match event {
            Event::Devices { devices, .. } => devices.iter().any(|one| one.health != "Healthy"),
            _ => false,
        };
        let ill = kubelet.wait(Duration::from_secs(15), is_ill);
        assert!(ill.is_err(), "{ill:?}");
        plugin.stop(directory).unwrap();
    });
}
