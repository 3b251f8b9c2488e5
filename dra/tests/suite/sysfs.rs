//! Tests of parts that a kernel driver makes when a number is written to a file of sysfs. The
//! parts are virtual functions: a device has all of them or none. A thread simulates the
//! driver.

use std::fs;
use std::path::PathBuf;

use nix::sys::stat::Mode;

use crate::kernel::Kernel;
use crate::node::{Node, refused, unprepare, wait};

const CLASS: &str = "version = 1\nresource = 'dummy.com/{sort}'\n\
    request = { env = 'FUNCTIONS' }\n\
    [[discover]]\npath = '/sys/npu/pf{index:number}'\n\
    attributes = [{ name = 'id', value = 'pf{index}' }, { name = 'sort', value = 'pf' }]\n\
    [[discover]]\nadditional = true\npath = '/sys/npu/pf{index:number}/virtfn{number:number}'\n\
    part_of = 'pf{index}'\n\
    attributes = [{ name = 'id', value = 'pf{index}vf{number}' }, { name = 'sort', value = 'vf' }]\n\
    [device]\nid = '{id}'\nindex = '{index}'\n\
    [[parts]]\nprofile = 'vf'\nplacements = '0,1,2,3'\ntogether = true\ntimeout = 2\n\
    found = { value = '{number}', equals = '{placement}' }\n\
    make = [{ file = '/sys/npu/pf{index}/sriov_numvfs', write = '4' }]\n\
    remove = [{ file = '/sys/npu/pf{index}/sriov_numvfs', write = '0' }]\n";

/// Starts a simulated driver that makes as many functions as the file requests.
fn kernel(card: PathBuf) -> Kernel<()> {
    let mut before = String::new();
    Kernel::start(move |()| {
        let now = fs::read_to_string(card.join("sriov_numvfs")).unwrap();
        let wanted: usize = now.trim().parse().unwrap_or(0);
        for number in (0..4).filter(|_| now != before) {
            let function = card.join(format!("virtfn{number}"));
            let _ = if number < wanted {
                fs::create_dir(function)
            } else {
                fs::remove_dir(function)
            };
        }
        before = now;
    })
}

#[tokio::test]
async fn functions_are_made_all_at_once_and_removed_for_their_card() {
    let mut node = Node::new(CLASS, 0).await;
    let card = node.path("host/sys/npu/pf0");
    fs::create_dir_all(&card).unwrap();
    let number = card.join("sriov_numvfs");
    fs::write(&number, "0\n").unwrap();
    let first = kernel(card.clone());
    let driver = node.start().await;
    node.wait_count(5).await;
    let prepare = async |device: &str| node.prepare(&driver, "npu", device).await;
    let written = || fs::read_to_string(&number).unwrap().trim().to_owned();
    prepare("pf0-vf-1").await.unwrap();
    assert_eq!(written(), "4");
    // The function exists already, so the driver must not write to the file. A write would
    // remove the space.
    fs::write(&number, "4 \n").unwrap();
    prepare("pf0-vf-3").await.unwrap();
    assert_eq!(fs::read_to_string(&number).unwrap(), "4 \n");
    refused(prepare("pf0"), "is still prepared for the claim").await;
    // One function disappears and cannot be made again. The other functions stay, because
    // claims have them.
    drop(first);
    fs::remove_dir(card.join("virtfn2")).unwrap();
    let wanted = "each step succeeded, but the devices are as before";
    refused(prepare("pf0-vf-2"), wanted).await;
    assert_eq!(written(), "4");
    for device in ["pf0-vf-1", "pf0-vf-2", "pf0-vf-3", "pf0"] {
        unprepare(&driver, device).await;
    }
    assert_eq!(written(), "4");
    // The whole card can be prepared only without functions. All functions are removed then,
    // so none of them may be in use.
    fs::write(&number, "3\n").unwrap();
    let second = kernel(card.clone());
    wait("three functions", || !card.join("virtfn3").exists()).await;
    node.by_plugin("dummy.com/vf", &["pf0vf2"]);
    let wanted = "in the way and cannot be removed: a container still has it by the device plugin";
    refused(prepare("pf0"), wanted).await;
    assert_eq!(written(), "3");
    node.by_plugin("dummy.com/vf", &[]);
    prepare("pf0").await.unwrap();
    assert_eq!(written(), "0");
    wait("no function", || !card.join("virtfn0").exists()).await;
    unprepare(&driver, "pf0").await;
    // Without the kernel driver no function appears, so the written number is reset to 0.
    drop(second);
    let part = "pf0-vf-0";
    refused(prepare(part), "the part pf0-vf-0 cannot be made").await;
    assert_eq!(written(), "0");
    // The file does not exist. After that, a write to the file blocks, as with a kernel driver
    // that hangs.
    fs::remove_file(&number).unwrap();
    let wanted = "writing `4` to /sys/npu/pf0/sriov_numvfs failed: No such file or directory";
    refused(prepare(part), wanted).await;
    assert!(!number.exists());
    nix::unistd::mkfifo(&number, Mode::S_IRWXU).unwrap();
    refused(prepare(part), "sriov_numvfs takes longer than 2 s").await;
    // The first write still blocks when the kubelet asks again.
    refused(prepare(part), "an earlier write has not ended").await;
}
