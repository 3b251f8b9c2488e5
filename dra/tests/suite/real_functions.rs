//! Tests with real virtual functions of a PCI device of this machine. Its kernel makes them
//! and binds them to vfio-pci. The virtual machine of `make test-vm` has such a device, an
//! NVMe disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::functions::{self, CLASS};
use crate::node::{Node, unprepare};

const DEVICES: &str = "/sys/bus/pci/devices";

/// Returns the PCI address of the first device that can have virtual functions.
fn card() -> Option<String> {
    let read = |name: &str| fs::read_to_string(format!("{DEVICES}/{name}/sriov_totalvfs"));
    let mut names = crate::node::names(Path::new(DEVICES)).into_iter();
    names.find(|name| read(name).is_ok_and(|total| total.trim() != "0"))
}

/// Returns a node whose host is this machine. The shipped class is changed to match the PCI
/// class 01 (storage).
async fn node() -> Node {
    const NETWORK: &str = "\"{class}\", equals = \"02\"";
    let of_disks = |text: &str| text.replace(NETWORK, &NETWORK.replace("02", "01"));
    let node = functions::node(of_disks).await;
    let classes = node.path("classes");
    node.write(
        "config.toml",
        &format!("classes = [{classes:?}]\n[class.{CLASS}]\nenabled = true\nserve = 'dra'\n"),
    );
    node
}

/// Runs a container that has only the device nodes of a claim. Returns its output.
fn container(node: &Node, uid: &str, command: &[&str]) -> String {
    let edits = &node.specified(uid)[0]["containerEdits"];
    let nodes = edits["deviceNodes"].as_array().unwrap().iter();
    let mut full = Command::new("full");
    full.args(["--ulimit", "memlock=-1"]);
    for path in nodes.map(|node| node["path"].as_str().unwrap()) {
        full.args(["--device", path]);
    }
    let output = full.arg("--").args(command).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    format!("{}{error}", String::from_utf8_lossy(&output.stdout))
}

#[tokio::test]
#[ignore = "needs a card with virtual functions, and podman: make test-vm"]
async fn a_claim_makes_functions_of_a_card_and_a_container_uses_one() {
    let card = card().unwrap();
    let directory = Path::new(DEVICES).join(&card);
    let whole = card.replace([':', '.'], "-");
    let function = |number: usize| directory.join(format!("virtfn{number}"));
    let link = |path: PathBuf| {
        let to = fs::read_link(path).ok()?;
        Some(to.file_name()?.to_str()?.to_owned())
    };
    let read = |file: &str| {
        let text = fs::read_to_string(directory.join(file)).unwrap();
        text.trim().to_owned()
    };
    let mut node = node().await;
    let mut driver = node.start().await;
    node.wait_count(3).await;
    assert_eq!(read("sriov_numvfs"), "0");

    let [first, second] = [0, 1].map(|number| format!("{whole}-vf-{number}"));
    node.prepare(&driver, CLASS, &second).await.unwrap();
    assert_eq!(read("sriov_numvfs"), "2");
    let bound = || [0, 1].map(|number| link(function(number).join("driver")));
    assert_eq!(bound(), [None, Some("vfio-pci".to_owned())]);
    let (name, group) = (
        link(function(1)).unwrap(),
        link(function(1).join("iommu_group")).unwrap(),
    );
    let uid = &format!("u-{second}");
    let seen = container(&node, uid, &["/root/programs/vfio-read", &group, &name]);
    assert!(seen.contains("device: 1b36:0010"), "{seen}");
    let of_other = link(function(0).join("iommu_group")).unwrap();
    let seen = container(&node, uid, &["/root/programs/vfio-read", &of_other, &name]);
    assert!(seen.contains("No such file or directory"), "{seen}");

    // A new process of the driver binds the other function, too. The existing function is not
    // made again.
    let before = fs::metadata(function(1)).unwrap().ino();
    driver = node.start().await;
    node.prepare(&driver, CLASS, &first).await.unwrap();
    assert_eq!(bound(), [(); 2].map(|()| Some("vfio-pci".to_owned())));
    assert_eq!(fs::metadata(function(1)).unwrap().ino(), before);
    let error = node.prepare(&driver, CLASS, &whole).await.unwrap_err();
    assert!(error.contains("is still prepared for the claim"), "{error}");

    // All functions are removed when the whole card is requested, and the kernel may bind new
    // functions to its drivers again (`sriov_drivers_autoprobe`).
    for device in [&first, &second, &whole] {
        unprepare(&driver, device).await;
    }
    node.prepare(&driver, CLASS, &whole).await.unwrap();
    unprepare(&driver, &whole).await;
    let left = ["sriov_numvfs", "sriov_drivers_autoprobe"].map(read);
    assert_eq!(left, ["0", "1"]);
    println!("{card}: function 1 as {name} of IOMMU group {group}");
}
