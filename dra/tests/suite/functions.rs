//! Tests of virtual functions of a network card. The shipped class makes them by writes to
//! four files of sysfs. A thread simulates the kernel: in some cases it omits a file, or kills
//! `boathook-dra` at one of the steps.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use harness::kubelet::dra::DraDriver;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::Pid;
use serde_json::json;

use crate::kernel::Kernel;
use crate::node::{NPUS, Node, refused, unprepare, wait};
use crate::parts::name;

pub(crate) const CLASS: &str = "sriov-vfio-parts";
const CARD: &str = "0000:3b:00.0";
const COUNT: usize = 4;
const VF: &str = "0000-3b-00-0-vf-2";

#[derive(Debug, Default)]
struct Orders {
    /// The step at which a process is killed, and its process id.
    kills: Option<(usize, u32)>,
    /// Whether the functions have no file `driver_override`.
    without_override: bool,
}

fn read(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

fn devices(sys: &Path) -> PathBuf {
    sys.join("devices/pci0000:3a")
}

/// Returns the PCI address of a function. The card has the offset 8 and the stride 1.
fn address(number: usize) -> String {
    format!("0000:3b:01.{number}")
}

/// Simulates the effect of writes to sysfs. The kernel makes functions before the write ends,
/// but this thread runs later. The functions therefore exist from the start, and have a driver
/// only after a write has requested them.
fn step(sys: &Path, orders: &mut Orders) {
    let card = devices(sys).join(CARD);
    let kills = orders.kills;
    let dies_at = |orders: &mut Orders, step: usize| {
        if let Some((_, victim)) = kills.filter(|(at, _)| *at == step) {
            let _ = kill(Pid::from_raw(victim.cast_signed()), Signal::SIGKILL);
            orders.kills = None;
        }
    };
    if read(&card.join("sriov_drivers_autoprobe")) == "0" {
        dies_at(orders, 0);
    }
    let wanted: usize = read(&card.join("sriov_numvfs")).parse().unwrap_or(0);
    if wanted > 0 {
        dies_at(orders, 1);
    }
    for number in 0..COUNT {
        let function = devices(sys).join(address(number));
        let chosen = function.join("driver_override");
        if orders.without_override {
            drop(fs::remove_file(&chosen));
        } else if !chosen.exists() || wanted == 0 {
            // When all functions are removed, their `driver_override` becomes empty.
            fs::write(&chosen, "").unwrap();
        }
        if wanted == 0 {
            let _ = fs::remove_file(function.join("driver"));
        }
        let is_chosen = wanted > 0 && read(&chosen) == "vfio-pci";
        if is_chosen {
            dies_at(orders, 2);
        }
        let probe = sys.join("bus/pci/drivers_probe");
        if is_chosen && read(&probe) == address(number) {
            let _ = symlink("../../../bus/pci/drivers/vfio-pci", function.join("driver"));
            fs::write(probe, "").unwrap();
            dies_at(orders, 3);
        }
    }
}

/// Returns a node with the shipped class and the classes that it extends. `change` edits the
/// text of each.
pub(crate) async fn node(change: impl Fn(&str) -> String) -> Node {
    let node = Node::new(NPUS, 0).await;
    fs::remove_file(node.path("classes/npu.toml")).unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../device-class");
    for class in ["pci-function", "sriov-vfio", CLASS] {
        let file = format!("classes/{class}.toml");
        let text = fs::read_to_string(shipped.join(&file)).unwrap();
        node.write(&file, &change(&text));
    }
    node
}

async fn host() -> Option<Node> {
    if !nix::unistd::geteuid().is_root() {
        skip::report("functions of a network card", "needs root");
        return None;
    }
    let node = node(str::to_owned).await;
    node.configure("[class.sriov-vfio-parts]\nenabled = true\nserve = 'dra'\n");
    let sys = node.path("host/sys");
    let card = devices(&sys).join(CARD);
    for directory in [
        "bus/pci/devices",
        "bus/pci/drivers/vfio-pci",
        "bus/pci/drivers/ice",
    ] {
        fs::create_dir_all(sys.join(directory)).unwrap();
    }
    fs::create_dir_all(&card).unwrap();
    for (file, text) in [
        ("vendor", "0x8086"),
        ("device", "0x1592"),
        ("class", "0x020000"),
        ("sriov_totalvfs", "4"),
        ("sriov_offset", "8"),
        ("sriov_stride", "1"),
        ("sriov_numvfs", "0"),
        ("sriov_drivers_autoprobe", "1"),
    ] {
        fs::write(card.join(file), format!("{text}\n")).unwrap();
    }
    for number in 0..COUNT {
        let function = devices(&sys).join(address(number));
        fs::create_dir_all(&function).unwrap();
        fs::write(function.join("class"), "0x020000\n").unwrap();
        fs::write(function.join("driver_override"), "").unwrap();
        let group = format!("../../../kernel/iommu_groups/{}", 40 + number);
        symlink(group, function.join("iommu_group")).unwrap();
        let from = format!("../../../devices/pci0000:3a/{}", address(number));
        symlink(from, sys.join("bus/pci/devices").join(address(number))).unwrap();
        let link = card.join(format!("virtfn{number}"));
        symlink(format!("../{}", address(number)), link).unwrap();
    }
    fs::write(sys.join("bus/pci/drivers/vfio-pci/bind"), "").unwrap();
    fs::write(sys.join("bus/pci/drivers_probe"), "").unwrap();
    symlink("../../../bus/pci/drivers/ice", card.join("driver")).unwrap();
    let from = format!("../../../devices/pci0000:3a/{CARD}");
    symlink(from, sys.join("bus/pci/devices").join(CARD)).unwrap();
    fs::create_dir_all(node.path("host/dev/vfio")).unwrap();
    let groups = (0..COUNT).map(|number| format!("{}", 40 + number));
    for (minor, name) in (0_u64..).zip(groups.chain(["vfio".to_owned()])) {
        let path = node.path("host/dev/vfio").join(name);
        mknod(&path, SFlag::S_IFCHR, Mode::S_IRWXU, makedev(240, minor)).unwrap();
    }
    Some(node)
}

/// Returns the numbers of the functions that are bound to vfio-pci.
fn bound(sys: &Path) -> Vec<usize> {
    let is_bound = |number: &usize| devices(sys).join(address(*number)).join("driver").exists();
    (0..COUNT).filter(is_bound).collect()
}

#[tokio::test]
async fn functions_are_made_at_once_and_bound_one_by_one_though_each_step_fails() {
    let Some(mut node) = host().await else { return };
    let sys = node.path("host/sys");
    let below = sys.clone();
    let kernel = Kernel::start(move |orders| step(&below, orders));
    let mut driver = node.start().await;
    node.wait_count(1 + COUNT).await;
    // The card itself is not offered to containers: it has a taint.
    let devices_now = node.devices();
    let tainted = devices_now.iter().filter(|one| !one["taints"].is_null());
    assert_eq!(tainted.map(name).collect::<Vec<_>>(), ["0000-3b-00-0"]);
    let card = devices(&sys).join(CARD);
    let free = async |driver: &DraDriver| {
        unprepare(driver, VF).await;
        fs::write(card.join("sriov_numvfs"), "0\n").unwrap();
        wait("no function", || bound(&sys).is_empty()).await;
        fs::write(card.join("sriov_drivers_autoprobe"), "1\n").unwrap();
    };
    for (file, wanted) in [
        (card.join("sriov_drivers_autoprobe"), "writing `0` to"),
        (card.join("sriov_numvfs"), "writing `4` to"),
        (
            sys.join("bus/pci/drivers_probe"),
            "writing `0000:3b:01.2` to",
        ),
    ] {
        fs::rename(&file, sys.join("away")).unwrap();
        let error = node.prepare(&driver, CLASS, VF).await.unwrap_err();
        assert!(
            error.contains(wanted) && error.contains("No such file"),
            "{error}"
        );
        fs::rename(sys.join("away"), &file).unwrap();
        node.prepare(&driver, CLASS, VF).await.unwrap();
        assert_eq!(bound(&sys), [2]);
        free(&driver).await;
    }
    let chosen = devices(&sys).join(address(2)).join("driver_override");
    kernel.orders().without_override = true;
    wait("no file", || !chosen.exists()).await;
    let wanted = "virtfn2/driver_override failed";
    refused(node.prepare(&driver, CLASS, VF), wanted).await;
    kernel.orders().without_override = false;
    wait("the file", || chosen.exists()).await;
    for at in 0..4 {
        kernel.orders().kills = Some((at, node.pid()));
        let _ = node.prepare(&driver, CLASS, VF).await;
        driver = node.start().await;
        node.prepare(&driver, CLASS, VF).await.unwrap();
        assert_eq!(bound(&sys), [2], "killed at {at}");
        if at < 3 {
            free(&driver).await;
        }
    }
    // Another function of the same card is prepared. The functions are not made again.
    node.prepare(&driver, CLASS, "0000-3b-00-0-vf-0")
        .await
        .unwrap();
    assert_eq!(bound(&sys), [0, 2]);
    let edits = &node.specified("u-0000-3b-00-0-vf-0")[0]["containerEdits"];
    let paths = edits["deviceNodes"].as_array().unwrap().iter();
    let paths: Vec<&str> = paths.map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/dev/vfio/40", "/dev/vfio/vfio"]);
    let env = edits["env"].as_array().unwrap();
    assert!(
        env.contains(&json!("PCIDEVICE_INTEL_COM_SRIOV_VFIO=0000:3b:01.0")),
        "{env:?}"
    );
    // A function that is bound to a driver of the host is in use by the host, so the driver
    // writes nothing to its files.
    let function = devices(&sys).join(address(3));
    symlink("../../../bus/pci/drivers/ice", function.join("driver")).unwrap();
    let wanted = "class sriov-vfio-parts has no 0000-3b-00-0-vf-1 now";
    refused(node.prepare(&driver, CLASS, "0000-3b-00-0-vf-1"), wanted).await;
    assert_eq!(read(&card.join("sriov_numvfs")), "4");
}
