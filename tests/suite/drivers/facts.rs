//! The real nvidia-smi of three of the driver's branches, on a substitute of the management
//! library (`programs/management-library.c`): what the shipped class reads of its output, in
//! the plugin and on the command line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use harness::binaries;
use harness::compile::{self, Libc};
use harness::driver_tree::{DriverTree, add_links};
use harness::in_root;
use harness::kubelet::Allocation;
use harness::node::Node;
use harness::privilege::missing_for_root;
use harness::recorded_host::RecordedHost;
use serde_json::Value;

/// As the library has them: the GPUs' buses, and the numbers of their instances.
const BUSES: [u8; 8] = [0x07, 0x0b, 0x48, 0x4c, 0x88, 0x8b, 0xc8, 0xcb];
const INSTANCES: [(usize, u8, u8); 5] = [(0, 1, 0), (0, 9, 0), (0, 11, 0), (7, 2, 0), (7, 2, 1)];

#[test]
#[ignore = "downloads packages: make test-drivers"]
fn nvidia_smi_470() {
    check(
        "bookworm",
        "nvidia-smi-470",
        &["nvidia-tesla-470-smi", "libnvidia-tesla-470-cuda1"],
    );
}

#[test]
#[ignore = "downloads packages: make test-drivers"]
fn nvidia_smi_535() {
    check("bookworm", "nvidia-smi", &["nvidia-smi", "libcuda1"]);
}

#[test]
#[ignore = "downloads packages: make test-drivers"]
fn nvidia_smi_550() {
    check("trixie", "nvidia-smi", &["nvidia-smi", "libcuda1"]);
}

fn check(release: &'static str, name: &'static str, packages: &'static [&'static str]) {
    if let Some(reason) = missing_for_root().or_else(DriverTree::missing) {
        return skip::report(name, &reason);
    }
    let tree = DriverTree {
        release,
        name,
        packages,
    };
    let (host, version) = host(&tree);
    check_plugin(&host);
    let root = host.root();
    let told = run(&root, &["/boathook", "facts", "nvidia-gpu", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    let told = &told["classes"];
    assert_eq!(told[0]["version"], version.as_str(), "{told}");
    assert_eq!(told[0]["faults"].as_array().unwrap().len(), 0, "{told}");
    let facts = fs::read_to_string(root.join("run/boathook/facts/nvidia-gpu")).unwrap();
    let links = facts.lines().filter(|line| line.contains(" NVLink\t"));
    assert!(links.count() >= BUSES.len(), "{facts}");
    // The branch 470 does not tell it.
    let archs = facts.lines().filter(|line| line.ends_with(" arch\t8.0"));
    assert_eq!(
        archs.count(),
        if version.starts_with("470") { 0 } else { 8 }
    );

    let listed = run(&root, &["/boathook", "list", "--all", "--json"]);
    let offered = run(&root, &["/boathook-plugin", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(devices(&listed["devices"]), wanted());
    let offered: Value = serde_json::from_str(&offered).unwrap();
    let mut of_plugin = wanted();
    of_plugin.remove(&gpu(1));
    assert_eq!(devices(&offered["devices"]), of_plugin);
    eprintln!("{release}: nvidia-smi {version}");
}

/// The plugin runs the program itself, and prefers two GPUs with NVLink: without its facts
/// the two that follow the one that is taken.
fn check_plugin(host: &RecordedHost) {
    let node = Node::start(host, "", "nvidia.com/gpu").unwrap();
    let first = Allocation::of_ids("nvidia.com/gpu", &[&gpu(2)]);
    node.allocate(first).unwrap();
    let mut pair = node.allocate(Allocation::new("nvidia.com/gpu", 2)).unwrap();
    pair.ids.sort();
    assert_eq!(pair.ids, [gpu(4), gpu(5)]);
    let instance = Allocation::new("nvidia.com/mig-1c.3g.40gb", 1);
    let given = node.allocate(instance).unwrap();
    assert_eq!(given.ids, ["MIG-2a8b6d51-2f64-5b0f-8c77-d9e2a4b61f05"]);
    node.stop().unwrap();
    fs::remove_file(host.root().join("run/boathook/facts/nvidia-gpu")).unwrap();
}

/// Resource and health by id. GPUs with instances are not listed, and the plugin leaves out the one
/// in MIG mode that has none.
fn wanted() -> BTreeMap<String, (String, bool)> {
    let gpus = (1..7).map(|index| (gpu(index), ("gpu", index != 1)));
    let instances = [
        ("5d0bd4f8-74b1-5a33-9b0d-3e6a8f1c2d40", "mig-3g.40gb"),
        ("0a8b6d51-2f64-5b0f-8c77-d9e2a4b61f05", "mig-1g.10gb"),
        ("1f2b6d51-2f64-5b0f-8c77-d9e2a4b61f05", "mig-1g.10gb.me"),
        ("2a8b6d51-2f64-5b0f-8c77-d9e2a4b61f05", "mig-1c.3g.40gb"),
        ("3a8b6d51-2f64-5b0f-8c77-d9e2a4b61f05", "mig-2c.3g.40gb"),
    ];
    let instances = instances.map(|(uuid, sort)| (format!("MIG-{uuid}"), (sort, true)));
    let all = gpus.chain(instances);
    all.map(|(id, (sort, healthy))| (id, (format!("nvidia.com/{sort}"), healthy)))
        .collect()
}

fn devices(listed: &Value) -> BTreeMap<String, (String, bool)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let listed = listed.as_array().unwrap().iter();
    listed
        .map(|one| {
            let healthy = one["healthy"].as_bool().unwrap();
            (text(&one["id"]), (text(&one["resource"]), healthy))
        })
        .collect()
}

fn gpu(index: usize) -> String {
    format!("GPU-{index:08x}-7f0c-4a6e-a7d9-5a3c9a1d2f77")
}

/// A host with the packages, the substitute, and what the kernel's part of the driver shows.
/// Returns the driver's version, too.
fn host(tree: &DriverTree) -> (RecordedHost, String) {
    let directory = tree.directory().unwrap();
    let library = library(&directory);
    let name = library.file_name().unwrap().to_str().unwrap();
    let version = name.strip_prefix("libnvidia-ml.so.").unwrap().to_owned();
    let host = RecordedHost::with_own_numbers(&recording(&version)).unwrap();
    host.add_shipped_class("nvidia-gpu").unwrap();
    let root = host.root();
    add_links(&directory, &root).unwrap();
    let driver = format!("-DDRIVER=\"{version}\"");
    let arguments = ["-shared", "-fPIC", &driver];
    let made = compile::program("management-library.c", Libc::Glibc, &arguments).unwrap();
    // A link to the tree's file.
    let place = root.join(library.strip_prefix(&directory).unwrap());
    fs::remove_file(&place).unwrap();
    binaries::copy(&made, &place).unwrap();
    let class = host.classes().join("nvidia-gpu.toml");
    in_root::install(&root, &["boathook", "boathook-plugin"], &class).unwrap();
    (host, version)
}

/// The management library of the packages.
fn library(directory: &Path) -> PathBuf {
    let below = directory.join("usr/lib/x86_64-linux-gnu/nvidia");
    let files = fs::read_dir(below)
        .unwrap()
        .flat_map(|one| fs::read_dir(one.unwrap().path()).into_iter().flatten());
    let mut paths = files.map(|file| file.unwrap().path());
    let is_it = |path: &PathBuf| {
        let is_link = path.is_symlink();
        !is_link && path.to_string_lossy().contains("/libnvidia-ml.so.")
    };
    paths.find(is_it).unwrap()
}

fn recording(version: &str) -> String {
    let mut text = format!(
        "file /proc/driver/nvidia/version\n\
         | NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Wed May  6\n\
         file /proc/devices\n| 195 nvidia\n| 237 nvidia-caps\n\
         char /dev/nvidiactl 195:255\n"
    );
    for (minor, bus) in BUSES.iter().enumerate() {
        let device = format!("0000:{bus:02x}:00.0");
        let uuid = gpu(minor);
        write!(
            text,
            "file /proc/driver/nvidia/gpus/{device}/information\n\
             | Model: \t NVIDIA A100 80GB PCIe\n| GPU UUID: \t {uuid}\n\
             | Device Minor: \t {minor}\n\
             dir /proc/driver/nvidia/capabilities/gpu{minor}/mig\n\
             file /sys/bus/pci/devices/{device}/config\n| configuration\n\
             file /sys/bus/pci/devices/{device}/numa_node\n| 0\n\
             char /dev/nvidia{minor} 195:{minor}\n"
        )
        .unwrap();
    }
    for (gpu, gi, ci) in INSTANCES {
        let directory = format!("/proc/driver/nvidia/capabilities/gpu{gpu}/mig/gi{gi}");
        let gi_minor = 100 * gpu + 9 * usize::from(gi) + 3;
        let ci_minor = gi_minor + 1 + usize::from(ci);
        write!(
            text,
            "file {directory}/access\n| DeviceFileMinor: {gi_minor}\n\
             file {directory}/ci{ci}/access\n| DeviceFileMinor: {ci_minor}\n\
             char /dev/nvidia-caps/nvidia-cap{ci_minor} 237:{ci_minor}\n"
        )
        .unwrap();
        let node = format!("char /dev/nvidia-caps/nvidia-cap{gi_minor} 237:{gi_minor}\n");
        if !text.contains(&node) {
            text += &node;
        }
    }
    text
}

/// Returns the output of a command, which must succeed.
fn run(root: &Path, command: &[&str]) -> String {
    in_root::run(root, command)
        .unwrap()
        .success()
        .unwrap()
        .stdout
}
