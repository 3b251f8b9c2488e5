//! Parts that a driver of the kernel makes when a number is written to a file of sysfs: virtual
//! functions, of which a device has all or none. A thread stands for the driver.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::stat::Mode;
use serde_json::json;

use crate::node::{Node, wait};

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

/// What makes as many functions as the file says, or does not.
struct Driver {
    runs: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    fn start(card: PathBuf) -> Self {
        let runs = Arc::new(AtomicBool::new(true));
        let goes_on = Arc::clone(&runs);
        let mut before = String::new();
        let thread = thread::spawn(move || {
            while goes_on.load(Ordering::Relaxed) {
                let now = fs::read_to_string(card.join("sriov_numvfs")).unwrap();
                let wanted: usize = now.trim().parse().unwrap_or(0);
                for number in (0..4).filter(|_| now != before) {
                    let function = card.join(format!("virtfn{number}"));
                    let _ = match number < wanted {
                        true => fs::create_dir(function),
                        false => fs::remove_dir(function),
                    };
                }
                before = now;
                thread::sleep(Duration::from_millis(5));
            }
        });
        Driver {
            runs,
            thread: Some(thread),
        }
    }

    fn stop(&mut self) {
        self.runs.store(false, Ordering::Relaxed);
        self.thread
            .take()
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.runs.store(false, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn functions_are_made_all_at_once_and_removed_for_their_card() {
    let mut node = Node::new(CLASS, 0).await;
    let card = node.path("host/sys/npu/pf0");
    fs::create_dir_all(&card).unwrap();
    let number = card.join("sriov_numvfs");
    fs::write(&number, "0\n").unwrap();
    let mut kernel = Driver::start(card.clone());
    let driver = node.start().await;
    node.wait_devices("functions", |devices| devices.len() == 5)
        .await;
    let prepare = async |device: &str| {
        let uid = format!("u-{device}");
        let result = json!({"request": "r", "driver": "boathook.dev", "pool": "worker/npu",
            "device": device});
        node.claim(device, &uid, json!({"devices": {"results": [result]}}));
        let prepared = driver.prepare_one(["n", device, &uid]).await;
        prepared.map(drop).map_err(|error| error.to_string())
    };
    let unprepare = async |device: &str| {
        let uid = format!("u-{device}");
        driver.unprepare(["n", device, &uid]).await.unwrap();
    };
    let written = || fs::read_to_string(&number).unwrap().trim().to_owned();
    prepare("pf0-vf-1").await.unwrap();
    assert_eq!(written(), "4");
    // It is there; what is written now would be noticed.
    fs::write(&number, "4 \n").unwrap();
    prepare("pf0-vf-3").await.unwrap();
    assert_eq!(fs::read_to_string(&number).unwrap(), "4 \n");
    let error = prepare("pf0").await.unwrap_err();
    assert!(error.contains("is still prepared for the claim"), "{error}");
    // One is lost, and does not come again: the others, which claims have, are not given up.
    kernel.stop();
    fs::remove_dir(card.join("virtfn2")).unwrap();
    let error = prepare("pf0-vf-2").await.unwrap_err();
    assert!(
        error.contains("each step succeeded, but the devices are as before"),
        "{error}"
    );
    assert_eq!(written(), "4");
    for device in ["pf0-vf-1", "pf0-vf-2", "pf0-vf-3", "pf0"] {
        unprepare(device).await;
    }
    assert_eq!(written(), "4");
    // For the card as such none may be there: all go, and so none may be in use.
    fs::write(&number, "3\n").unwrap();
    kernel = Driver::start(card.clone());
    wait("three functions", || !card.join("virtfn3").exists()).await;
    fs::create_dir_all(node.path("kubelet/device-plugins")).unwrap();
    let by_plugin = |ids: &[&str]| {
        let entry = json!({"PodUID": "p", "ContainerName": "c", "ResourceName": "dummy.com/vf",
            "DeviceIDs": {"-1": ids}});
        let text = json!({"Data": {"PodDeviceEntries": [entry]}, "Checksum": 1}).to_string();
        node.write("kubelet/device-plugins/kubelet_internal_checkpoint", &text);
    };
    by_plugin(&["pf0vf2"]);
    let error = prepare("pf0").await.unwrap_err();
    let wanted = "in the way and cannot be removed: a container still has it by the device plugin";
    assert!(error.contains(wanted), "{error}");
    assert_eq!(written(), "3");
    by_plugin(&[]);
    prepare("pf0").await.unwrap();
    assert_eq!(written(), "0");
    wait("no function", || !card.join("virtfn0").exists()).await;
    unprepare("pf0").await;
    // Without its driver, what was written is taken back.
    kernel.stop();
    let error = prepare("pf0-vf-0").await.unwrap_err();
    assert!(
        error.contains("the part pf0-vf-0 cannot be made"),
        "{error}"
    );
    assert_eq!(written(), "0");
    // A file that is not there, and one whose driver does not answer.
    fs::remove_file(&number).unwrap();
    let error = prepare("pf0-vf-0").await.unwrap_err();
    let wanted = "writing `4` to /sys/npu/pf0/sriov_numvfs failed: No such file or directory";
    assert!(error.contains(wanted), "{error}");
    assert!(!number.exists());
    nix::unistd::mkfifo(&number, Mode::S_IRWXU).unwrap();
    let error = prepare("pf0-vf-0").await.unwrap_err();
    assert!(
        error.contains("sriov_numvfs takes longer than 2 s"),
        "{error}"
    );
    // It stays behind, and the kubelet asks again.
    let error = prepare("pf0-vf-0").await.unwrap_err();
    assert!(error.contains("an earlier write has not ended"), "{error}");
}
