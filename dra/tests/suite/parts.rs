//! Tests of parts that are made for claims. A program makes them; it keeps its state in files,
//! and a test can make it fail.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::kubelet::dra::DraDriver;
use serde_json::{Value, json};

use crate::node::{Node, allocation, refused, watched};

/// A class of devices with four slots and 64 units of memory, which can be divided into halves
/// and quarters.
pub(crate) const PARTS: &str = "version = 1\nresource = 'dummy.com/{sort}'\n\
    request = { env = 'DUMMY_VISIBLE_DEVICES' }\ncounters = { memory = '{memory}' }\n\
    [[discover]]\npath = '/sys/npu/npu{index:number}'\n\
    attributes = [{ name = 'id', value = 'NPU.{index}' }, { name = 'sort', value = 'npu' }, { name = 'memory', file = 'memory' }]\n\
    [[discover]]\nadditional = true\npath = '/sys/npu/npu{index:number}/part{slot:number}'\n\
    part_of = 'NPU.{index}'\n\
    attributes = [{ name = 'id', value = 'NPU.{index}.{slot}' }, { name = 'sort', file = 'profile' }]\n\
    [device]\nid = '{id}'\nindex = '{index}'\nhealth = [{ file = 'state', equals = 'ok' }]\n\
    [[parts]]\nprofile = 'half'\nplacements = '0, 2'\nslots = '2'\ntakes = { memory = '32' }\n\
    attributes = [{ name = 'number', formula = '{placement} + 10' }]\n\
    found = { value = '{sort}-{slot}', equals = 'half-{number}' }\n\
    make = [['/opt/busybox', 'sh', '/opt/carve', 'make', '{index}', '{number}', '{profile}']]\n\
    remove = [['/opt/busybox', 'sh', '/opt/carve', 'remove', '{index}', '{number}']]\n\
    timeout = 3\n\
    [[parts]]\nprofile = 'quarter'\nplacements = '0, 1, 2, 3'\ntakes = { memory = '16' }\n\
    attributes = [{ name = 'number', formula = '{placement} + 10' }]\n\
    found = { value = '{sort}-{slot}', equals = 'quarter-{number}' }\n\
    make = [['/opt/busybox', 'sh', '/opt/carve', 'make', '{index}', '{number}', '{profile}']]\n\
    remove = [['/opt/busybox', 'sh', '/opt/carve', 'remove', '{index}', '{number}']]\n\
    timeout = 3\n";

/// The program that makes parts. It writes one line to its log for each call, and reads from
/// `/opt/mode` how it should fail.
const CARVE: &str = r#"
b=/opt/busybox
echo "$1 $2 $3" >>/opt/log
read mode </opt/mode
part=/sys/npu/npu$2/part$3
half=/sys/npu/npu$2/half$3
case $1-$mode in
make-before) echo 'no engine'; exit 3 ;;
make-hang | remove-hang) $b sleep 20 ;;
make-hostile) $b yes x | $b head -c 9000; printf '\n\033[2Jred\a\n'; exit 3 ;;
make-lie | remove-stuck) exit 0 ;;
make-kill-before | remove-remove-kill-before) kill -9 $PPID ;;
esac
case $1 in
make)
    if [ -e $half ] || [ -e $part ]; then echo "slot $3 is in use"; exit 4; fi
    $b mkdir $half
    case $mode in
    half) exit 5 ;;
    kill-half) kill -9 $PPID; exit 5 ;;
    esac
    echo $4 >$half/profile
    echo ok >$half/state
    $b mv $half $part
    case $mode in
    after) exit 6 ;;
    kill-after) kill -9 $PPID ;;
    esac ;;
remove)
    if ! [ -e $half ] && ! [ -e $part ]; then echo 'there is none'; exit 7; fi
    $b rm -rf $half $part
    if [ "$mode" = remove-kill-after ]; then kill -9 $PPID; fi ;;
esac
exit 0
"#;

/// Returns a node with such devices, or `None` if this machine cannot run the program.
pub(crate) async fn node(devices: usize) -> Option<Node> {
    let busybox = Path::new("/bin/busybox");
    if !nix::unistd::geteuid().is_root() || !busybox.exists() {
        skip::report("parts of devices", "needs root and a static /bin/busybox");
        return None;
    }
    let node = Node::new(PARTS, devices).await;
    node.write("host/opt/carve", CARVE);
    mode(&node, "well");
    // Another process copies the file. If this process had it open for writing, a child that
    // another test starts at that moment would inherit the descriptor, and executing the file
    // would fail with ETXTBSY.
    let copied = Command::new("/bin/cp")
        .args([busybox, &node.path("host/opt/busybox")])
        .status();
    assert!(copied.unwrap().success());
    Some(node)
}

pub(crate) fn mode(node: &Node, mode: &str) {
    node.write("host/opt/mode", &format!("{mode}\n"));
}

/// Lists the parts of a device, including those that are only half made.
pub(crate) fn list_made_parts(node: &Node, device: usize) -> Vec<String> {
    let mut names = node.names(&format!("host/sys/npu/npu{device}"));
    names.retain(|name| name.starts_with("part") || name.starts_with("half"));
    names
}

/// Returns the calls of the program since the last call of this function.
pub(crate) fn calls(node: &Node) -> Vec<String> {
    let path = node.path("host/opt/log");
    let log = fs::read_to_string(&path).unwrap_or_default();
    let _ = fs::remove_file(path);
    log.lines().map(str::to_owned).collect()
}

/// Prepares a claim for one device. Returns the id that a container gets.
pub(crate) async fn prepare(
    node: &Node,
    driver: &DraDriver,
    name: &str,
    device: &str,
) -> Result<String, String> {
    let uid = format!("u-{name}");
    node.allocate(name, &uid, &[("r", device)]);
    let prepared = driver.prepare_one(["n", name, &uid]).await;
    prepared.map_err(|error| error.to_string())?;
    let specified = node.specified(&uid);
    let id = specified[0]["containerEdits"]["env"][0].as_str().unwrap();
    Ok(id
        .strip_prefix("DUMMY_VISIBLE_DEVICES=")
        .unwrap()
        .to_owned())
}

/// Checks that a claim for one device is prepared, and that the container gets the given id.
pub(crate) async fn given(node: &Node, driver: &DraDriver, name: &str, device: &str, id: &str) {
    let prepared = prepare(node, driver, name, device).await;
    assert_eq!(prepared.as_deref(), Ok(id), "{device}");
}

pub(crate) async fn unprepare(driver: &DraDriver, name: &str) {
    driver
        .unprepare(["n", name, &format!("u-{name}")])
        .await
        .unwrap();
}

pub(crate) fn name(device: &Value) -> &str {
    device["name"].as_str().unwrap()
}

#[tokio::test]
async fn a_device_and_its_parts_take_of_the_same_counters() {
    let Some(mut node) = node(2).await else {
        return;
    };
    let driver = node.start().await;
    node.wait_count(14).await;
    let slices = node.slices();
    let amount = |text: &str| json!({ "value": text });
    let set = |name: &str| {
        json!({"name": name, "counters": {"memory": amount("64"), "slot-0": amount("1"),
            "slot-1": amount("1"), "slot-2": amount("1"), "slot-3": amount("1")}})
    };
    assert_eq!(
        slices[0]["spec"]["sharedCounters"],
        json!([set("npu-0"), set("npu-1")])
    );
    let devices = node.devices();
    let names: Vec<&str> = devices[..7].iter().map(name).collect();
    assert_eq!(
        names.join(" "),
        "npu-0 npu-0-half-0 npu-0-half-2 \
         npu-0-quarter-0 npu-0-quarter-1 npu-0-quarter-2 npu-0-quarter-3"
    );
    let takes = &devices[0]["consumesCounters"][0];
    assert_eq!(
        takes["counters"],
        slices[0]["spec"]["sharedCounters"][0]["counters"]
    );
    let wanted = json!([{"counterSet": "npu-0", "counters": {"memory": amount("32"),
        "slot-2": amount("1"), "slot-3": amount("1")}}]);
    assert_eq!(devices[2]["consumesCounters"], wanted);
    let wanted = json!({"class": {"string": "npu"}, "id": {"string": "NPU.0"},
        "memory": {"int": 64}, "sort": {"string": "npu"}, "part": {"string": "half"},
        "placement": {"int": 2}, "whole": {"string": "npu-0"}});
    assert_eq!(devices[2]["attributes"], wanted);
    // The driver writes no slice when a part is made, because all possible parts are published
    // already.
    let writes = node.server.writes();
    given(&node, &driver, "a", "npu-0-quarter-1", "NPU.0.11").await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!((node.server.writes(), node.devices()), (writes, devices));
    // The part's own health counts after it was made. Only this part gets the taint.
    node.write("host/sys/npu/npu0/part11/state", "hot\n");
    let tainted = |devices: &[Value]| -> Vec<String> {
        let tainted = devices.iter().filter(|one| !one["taints"].is_null());
        tainted.map(|one| name(one).to_owned()).collect()
    };
    node.wait_devices("a taint", |devices| tainted(devices) == ["npu-0-quarter-1"])
        .await;
    let health = driver.health().await.unwrap();
    let sick: Vec<_> = health.iter().filter(|one| one.health == 2).collect();
    assert!(
        sick.iter().any(|one| one.message.contains("hot")),
        "{health:?}"
    );
    node.device(1, "hot");
    node.wait_devices("taints", |devices| tainted(devices).len() == 8)
        .await;
}

#[tokio::test]
async fn without_counters_the_devices_are_offered_as_they_are() {
    let Some(mut node) = node(2).await else {
        return;
    };
    node.server
        .drop_fields(&["sharedCounters", "consumesCounters"]);
    let driver = node.start().await;
    let names = |devices: &[Value]| devices.iter().map(|one| name(one).to_owned()).collect();
    node.wait_devices("whole devices", |devices| {
        let names: Vec<String> = names(devices);
        names == ["npu-0", "npu-1"]
    })
    .await;
    // The driver may not have replaced all slices of the first attempt yet.
    let mut settled = Err("it writes for ever");
    for _ in 0..10 {
        let writes = node.server.writes();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        if node.server.writes() == writes {
            settled = Ok(writes);
            break;
        }
    }
    let writes = settled.unwrap();
    prepare(&node, &driver, "a", "npu-1").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(node.server.writes(), writes);
}

#[tokio::test]
async fn a_part_is_made_once_and_stays_until_its_room_is_needed() {
    let Some(mut node) = node(1).await else {
        return;
    };
    let driver = node.start().await;
    let quarter = "npu-0-quarter-1";
    given(&node, &driver, "a", quarter, "NPU.0.11").await;
    assert_eq!(calls(&node), ["make 0 11"]);
    given(&node, &driver, "a", quarter, "NPU.0.11").await;
    let driver = node.start().await;
    given(&node, &driver, "a", quarter, "NPU.0.11").await;
    // Other parts of the same device can be prepared, but no part that overlaps the first one,
    // and not the whole device.
    prepare(&node, &driver, "b", "npu-0-half-2").await.unwrap();
    for (device, wanted) in [
        (
            "npu-0-half-0",
            "there is no room for npu-0-half-0 beside what other claims have",
        ),
        ("npu-0-quarter-2", "there is no room for npu-0-quarter-2"),
        (
            "npu-0",
            "device npu-0-quarter-1 of pool worker/npu is still prepared for the claim n/a",
        ),
        ("npu-0-quarter-1", "still prepared for the claim n/a"),
    ] {
        refused(prepare(&node, &driver, "c", device), wanted).await;
        unprepare(&driver, "c").await;
    }
    assert_eq!(calls(&node), ["make 0 12"]);
    // A claim is unprepared without the API server and without the program. The part stays.
    mode(&node, "hang");
    node.server.stop().await;
    unprepare(&driver, "a").await;
    node.server.resume().await;
    mode(&node, "well");
    assert_eq!(
        (list_made_parts(&node, 0), calls(&node)),
        (vec!["part11".into(), "part12".into()], vec![])
    );
    // A part without a claim is removed if another part needs its room, and is used again if
    // it is requested.
    given(&node, &driver, "d", "npu-0-half-0", "NPU.0.10").await;
    assert_eq!(calls(&node), ["remove 0 11", "make 0 10"]);
    unprepare(&driver, "b").await;
    given(&node, &driver, "e", "npu-0-half-2", "NPU.0.12").await;
    assert_eq!(calls(&node), [""; 0]);
    unprepare(&driver, "d").await;
    unprepare(&driver, "e").await;
    given(&node, &driver, "f", "npu-0", "NPU.0").await;
    assert_eq!(
        (calls(&node), list_made_parts(&node, 0)),
        (vec!["remove 0 10".into(), "remove 0 12".into()], vec![])
    );
}

/// After a restart of the node its parts do not exist any more, so they are made again for
/// their claims.
#[tokio::test]
async fn after_a_reboot_a_part_is_made_again() {
    let Some(mut node) = node(1).await else {
        return;
    };
    let driver = node.start().await;
    prepare(&node, &driver, "a", "npu-0-half-0").await.unwrap();
    node.kill();
    fs::remove_dir_all(node.path("host/sys/npu/npu0/part10")).unwrap();
    fs::remove_dir_all(node.path("cdi")).unwrap();
    let driver = node.start().await;
    given(&node, &driver, "a", "npu-0-half-0", "NPU.0.10").await;
    assert_eq!(list_made_parts(&node, 0), ["part10"]);
}

#[tokio::test]
async fn a_claim_may_have_several_parts_and_who_only_looks_has_none_made() {
    let Some(mut node) = node(1).await else {
        return;
    };
    let driver = node.start().await;
    let parts = [("two", "npu-0-half-0"), ("two", "npu-0-quarter-3")];
    node.allocate("a", "u-a", &parts);
    let devices = driver.prepare_one(["n", "a", "u-a"]).await.unwrap();
    let names: Vec<&str> = devices.iter().map(|one| one.device_name.as_str()).collect();
    assert_eq!(names, parts.map(|(_, name)| name));
    let env = &node.specified("u-a")[0]["containerEdits"]["env"];
    assert_eq!(env[0], "DUMMY_VISIBLE_DEVICES=NPU.0.10,NPU.0.13");
    calls(&node);
    let all = ["npu-0", "npu-0-half-0", "npu-0-half-2"];
    node.claim("b", "u-b", allocation(all.map(watched)));
    // The driver may not have scanned the host since the part was made.
    let watches = async || {
        let devices = driver.prepare_one(["n", "b", "u-b"]).await.unwrap();
        let names = devices.iter().map(|one| one.device_name.clone());
        names.collect::<Vec<_>>() == ["npu-0", "npu-0-half-0"]
    };
    let start = Instant::now();
    while !watches().await {
        assert!(start.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(calls(&node), [""; 0]);
}
