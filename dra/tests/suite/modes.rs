//! Tests of the partitions of a GPU that the shipped class makes by writing a mode to a file
//! of sysfs. A mode makes all of its partitions at once. A thread simulates the GPU's driver:
//! it keeps its state in files, and fails or kills `boathook-dra` at each step.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::Pid;

use crate::kernel::Kernel;
use crate::node::{NPUS, Node, refused, unprepare, wait};
use crate::parts::name;

const CLASS: &str = "amd-gpu-parts";
const GPU: &str = "0000:05:00.0";
/// The modes with their numbers of partitions. The next constants are the names of the whole
/// GPU and of one partition of two of the modes.
const MODES: [(&str, usize); 4] = [("SPX", 1), ("DPX", 2), ("QPX", 4), ("CPX", 8)];
const WHOLE: &str = "0000-05-00-0";
const DPX: &str = "0000-05-00-0-dpx-1";
const CPX: &str = "0000-05-00-0-cpx-7";

/// A fault of a write to the mode's file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// The write has no effect.
    Refused,
    /// The write makes only half of the partitions.
    Half,
    /// The writer is killed before (0), after half of (1) or after all of (2) the partitions
    /// were made.
    Killed(usize),
}

/// The orders for the simulated driver.
#[derive(Debug, Default)]
struct Orders {
    /// The fault, and the number of the write at which it occurs, counted from 0.
    fault: Option<(usize, Fault)>,
    victim: Option<u32>,
    /// The modes that were written so far.
    written: Vec<String>,
}

impl Orders {
    /// Records a write and returns its fault, if any.
    fn next(&mut self, mode: &str) -> Option<Fault> {
        self.written.push(mode.to_owned());
        let (left, fault) = self.fault?;
        self.fault = left.checked_sub(1).map(|left| (left, fault));
        (left == 0).then_some(fault)
    }
}

/// Makes the partitions of a mode. Returns the next free number for a partition.
fn switch(sys: &Path, mode: &str, fault: Option<Fault>, next: usize, victim: Option<u32>) -> usize {
    let dies_at = |place: usize| {
        if fault == Some(Fault::Killed(place)) {
            let victim = Pid::from_raw(victim.unwrap().cast_signed());
            kill(victim, Signal::SIGKILL).unwrap();
        }
    };
    let (_, count) = MODES.iter().find(|(name, _)| *name == mode).unwrap();
    let all: Vec<usize> = (0..*count).collect();
    dies_at(0);
    let mut next = partitions(sys, &all[..count.div_ceil(2)], next);
    dies_at(1);
    if fault != Some(Fault::Half) {
        next = partitions(sys, &all, next);
    }
    dies_at(2);
    next
}

/// Starts the simulated driver of the GPU.
fn gpu_driver(sys: PathBuf) -> Kernel<Orders> {
    let file = sys.join(format!(
        "devices/pci0000:00/{GPU}/current_compute_partition"
    ));
    let changed = |file: &Path| fs::metadata(file).unwrap().modified().unwrap();
    let (mut is, mut seen) = ("SPX".to_owned(), changed(&file));
    let mut next = partitions(&sys, &[0], 1);
    Kernel::start(move |orders: &mut Orders| {
        if seen == changed(&file) {
            return;
        }
        seen = changed(&file);
        let now = fs::read_to_string(&file).unwrap().trim().to_owned();
        if MODES.iter().all(|(mode, _)| *mode != now) {
            return;
        }
        // A change between two modes with partitions goes through the mode of the whole GPU,
        // which a scan may not see.
        let between = (now != "SPX" && is != "SPX").then(|| "SPX".to_owned());
        for mode in between.into_iter().chain([now]) {
            match orders.next(&mode) {
                Some(Fault::Refused) => {
                    fs::write(&file, format!("{is}\n")).unwrap();
                    seen = changed(&file);
                    break;
                }
                fault => next = switch(&sys, &mode, fault, next, orders.victim),
            }
            is = mode;
        }
    })
}

/// Replaces the partitions that KFD lists. They get new numbers, beginning with `next`.
/// Returns the next free number.
fn partitions(sys: &Path, which: &[usize], mut next: usize) -> usize {
    let nodes = sys.join("class/kfd/kfd/topology/nodes");
    let _ = fs::remove_dir_all(&nodes);
    for number in which {
        let (minor, location) = (128 + number, 0x0500 + (number << 28));
        let node = nodes.join(next.to_string());
        fs::create_dir_all(&node).unwrap();
        let text = format!("drm_render_minor {minor}\nlocation_id {location}\ndomain 0\n");
        fs::write(node.join("properties"), text).unwrap();
        next += 1;
    }
    next
}

/// Returns a node whose host has such a GPU, or `None` if the test cannot run here.
async fn host() -> Option<Node> {
    if !nix::unistd::geteuid().is_root() {
        skip::report("partitions of a GPU", "needs root");
        return None;
    }
    let node = Node::new(NPUS, 0).await;
    fs::remove_file(node.path("classes/npu.toml")).unwrap();
    let base = include_str!("../../../device-class/classes/amd-gpu.toml");
    let class = include_str!("../../../device-class/classes/amd-gpu-parts.toml");
    node.write("classes/amd-gpu.toml", base);
    node.write("classes/amd-gpu-parts.toml", class);
    node.configure(
        "[class.amd-gpu]\nenabled = false\n[class.amd-gpu-parts]\nenabled = true\nserve = 'dra'\n",
    );
    let (sys, dev) = (node.path("host/sys"), node.path("host/dev"));
    let device = sys.join(format!("devices/pci0000:00/{GPU}"));
    for directory in ["bus/pci/devices", "bus/pci/drivers/amdgpu", "class/drm"] {
        fs::create_dir_all(sys.join(directory)).unwrap();
    }
    fs::create_dir_all(&device).unwrap();
    fs::create_dir_all(dev.join("dri")).unwrap();
    for (file, text) in [
        ("config", "(the configuration space)"),
        ("current_compute_partition", "SPX\n"),
        ("available_compute_partition", "SPX, DPX, QPX, CPX\n"),
        ("current_memory_partition", "NPS1\n"),
    ] {
        fs::write(device.join(file), text).unwrap();
    }
    let at = |path: &str| format!("{path}/devices/pci0000:00/{GPU}");
    let links = ["bus/pci/devices", "bus/pci/drivers/amdgpu"];
    for (link, up) in links.iter().zip(["../../..", "../../../.."]) {
        symlink(at(up), sys.join(link).join(GPU)).unwrap();
    }
    let make = |path: &str, major: u64, minor: u64| {
        let rights = Mode::from_bits_truncate(0o666);
        mknod(
            &dev.join(path),
            SFlag::S_IFCHR,
            rights,
            makedev(major, minor),
        )
        .unwrap();
    };
    make("kfd", 235, 0);
    for number in 0..8 {
        let below = match number {
            0 => format!("devices/pci0000:00/{GPU}"),
            _ => format!("devices/platform/amdgpu_xcp_{}", number - 1),
        };
        for (name, minor) in [("renderD", 128 + number), ("card", 1 + number)] {
            let name = format!("{name}{minor}");
            let directory = sys.join(&below).join("drm").join(&name);
            fs::create_dir_all(&directory).unwrap();
            symlink("../..", directory.join("device")).unwrap();
            symlink(
                format!("../../{below}/drm/{name}"),
                sys.join("class/drm").join(&name),
            )
            .unwrap();
            make(&format!("dri/{name}"), 226, minor);
        }
    }
    Some(node)
}

#[tokio::test]
async fn a_mode_has_all_of_its_partitions_and_excludes_the_others() {
    let Some(mut node) = host().await else { return };
    let kernel = gpu_driver(node.path("host/sys"));
    let written = || std::mem::take(&mut kernel.orders().written);
    let driver = node.start().await;
    node.wait_count(1 + 2 + 4 + 8).await;
    let writes = node.server.writes();
    let before = node.devices();
    assert!(before.iter().all(|device| device["taints"].is_null()));
    node.prepare(&driver, CLASS, CPX).await.unwrap();
    node.prepare(&driver, CLASS, "0000-05-00-0-cpx-3")
        .await
        .unwrap();
    assert_eq!(written(), ["CPX"]);
    // The container gets the render node of its partition and no other one.
    let edits = &node.specified(&format!("u-{CPX}"))[0]["containerEdits"];
    let paths = edits["deviceNodes"].as_array().unwrap().iter();
    let paths: Vec<&str> = paths.map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/dev/dri/card8", "/dev/dri/renderD135", "/dev/kfd"]);
    let wanted = "there is no room for 0000-05-00-0-dpx-1 beside what other claims have";
    refused(node.prepare(&driver, CLASS, DPX), wanted).await;
    let wanted = "is still prepared for the claim n/0000-05-00-0-cpx-3";
    refused(node.prepare(&driver, CLASS, WHOLE), wanted).await;
    for device in [DPX, WHOLE, CPX, "0000-05-00-0-cpx-3"] {
        unprepare(&driver, device).await;
    }
    assert_eq!(written(), [""; 0]);
    node.prepare(&driver, CLASS, DPX).await.unwrap();
    unprepare(&driver, DPX).await;
    node.prepare(&driver, CLASS, WHOLE).await.unwrap();
    unprepare(&driver, WHOLE).await;
    assert_eq!(written(), ["SPX", "DPX", "SPX"]);
    // The published devices do not change when modes change.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!((node.server.writes(), node.devices()), (writes, before));
    // In another memory mode, the driver offers only the partitions that exist.
    let device = node.path("host/sys/devices/pci0000:00").join(GPU);
    fs::write(device.join("current_memory_partition"), "NPS4\n").unwrap();
    fs::write(device.join("current_compute_partition"), "QPX\n").unwrap();
    node.wait_devices("the partitions alone", |devices| {
        let names: Vec<&str> = devices.iter().map(name).collect();
        names == [0, 1, 2, 3].map(|number| format!("0000-05-00-0-qpx-{number}"))
    })
    .await;
}

#[tokio::test]
async fn the_driver_fails_at_each_step() {
    let Some(mut node) = host().await else { return };
    let kernel = gpu_driver(node.path("host/sys"));
    let mut driver = node.start().await;
    node.wait_count(15).await;
    let faults = [
        Fault::Refused,
        Fault::Half,
        Fault::Killed(0),
        Fault::Killed(1),
        Fault::Killed(2),
    ];
    // From a whole GPU to a part; from one mode to another, at both writes; and back.
    for (before, wanted, mode, writes) in [
        (WHOLE, CPX, "CPX", 1),
        (DPX, CPX, "CPX", 2),
        (CPX, WHOLE, "SPX", 1),
    ] {
        for (at, fault) in (0..writes).flat_map(|at| faults.map(|fault| (at, fault))) {
            let case = format!("{before} to {wanted}: {fault:?} at write {at}");
            node.prepare(&driver, CLASS, before).await.expect(&case);
            unprepare(&driver, before).await;
            *kernel.orders() = Orders {
                fault: Some((at, fault)),
                victim: Some(node.pid()),
                written: Vec::new(),
            };
            let result = node.prepare(&driver, CLASS, wanted).await;
            // The lock is free only after the thread has handled the write, and has killed the
            // driver if the case says so.
            let left = kernel.orders().fault.take();
            assert_eq!(left, None, "{case}: {result:?}");
            if matches!(fault, Fault::Killed(_)) {
                // Whether the device may exist after the fault. The whole GPU exists after the
                // first half already.
                let may_be_there = match mode {
                    "SPX" => fault != Fault::Killed(0),
                    _ => fault == Fault::Killed(2),
                };
                assert!(result.is_err() || may_be_there, "{case}");
                driver = node.start().await;
            }
            node.prepare(&driver, CLASS, wanted).await.expect(&case);
            let file = format!("host/sys/devices/pci0000:00/{GPU}/current_compute_partition");
            let is = fs::read_to_string(node.path(&file)).unwrap();
            assert_eq!(is.trim(), mode, "{case}");
            let count = MODES.iter().find(|(name, _)| *name == mode).unwrap().1;
            let listed = || node.names("host/sys/class/kfd/kfd/topology/nodes").len();
            wait("all partitions", || listed() == count).await;
            unprepare(&driver, wanted).await;
        }
    }
}
