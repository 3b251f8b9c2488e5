//! Tests of two instances of the plugin on one node, of which the newer one replaces the earlier
//! one, as in an update of the DaemonSet with `maxSurge`.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use harness::kubelet::{Allocation, Config, Event, FakeKubelet, PluginTracking, RegisterFault};
use nix::sys::signal::Signal;

use crate::node::{CARDS, MARK_1, NPU, NPUS, Node, PATIENCE, SecondPlugin, wait_until};

pub(crate) const FIRST: &str = "boathook-dummy.com_npu.sock";
const SECOND: &str = "boathook-dummy.com_npu@2.sock";

const HANDOVER_MARK: &str = "boathook-dummy.com_npu.handover";

pub(crate) const DETACHED: &str = "serving in place of another boathook-plugin";

pub(crate) fn registered_as(name: &str) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::Registered { resource, endpoint } if resource == NPU && endpoint == name)
}

pub(crate) fn is_broken(event: &Event) -> bool {
    matches!(event, Event::StreamBroken { .. })
}

/// Requests a device for one more pod. The kubelet must have a healthy one.
fn admit_pod(kubelet: &FakeKubelet) {
    kubelet.allocate(Allocation::new(NPU, 1)).unwrap();
}

/// Starts a kubelet, and a plugin whose devices it has.
fn start(tracking: PluginTracking) -> (Node, FakeKubelet) {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let config = Config::new(&node.path("kubelet"));
    let kubelet = FakeKubelet::start(Config { tracking, ..config }).unwrap();
    node.start_plugin();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    (node, kubelet)
}

#[test]
fn the_kubelet_has_devices_all_the_time_while_instances_replace_each_other() {
    for tracking in [PluginTracking::ByResource, PluginTracking::BySocket] {
        let (mut node, kubelet) = start(tracking);
        let mut instance = node.take_plugin();
        let updates = [
            (SECOND, Signal::SIGTERM),
            (FIRST, Signal::SIGKILL),
            (SECOND, Signal::SIGTERM),
        ];
        for (update, (name, end)) in updates.into_iter().enumerate() {
            let next = node.second_plugin();
            kubelet.wait(PATIENCE, registered_as(name)).unwrap();
            admit_pod(&kubelet);
            wait_until("the earlier instance may end", || {
                node.log().matches(DETACHED).count() == update + 1
            });
            admit_pod(&kubelet);
            instance.end(end);
            admit_pod(&kubelet);
            // The newer instance registers again, so that the kubelet notices its end.
            kubelet.wait(PATIENCE, registered_as(name)).unwrap();
            kubelet.wait_devices(PATIENCE, NPU).unwrap();
            admit_pod(&kubelet);
            wait_until("one socket is left", || node.sockets() == [name]);
            instance = next;
        }
        let events = kubelet.so_far();
        let broken = events.iter().filter(|event| is_broken(event)).count();
        assert_eq!(broken, 0, "{tracking:?}");

        instance.end(Signal::SIGKILL);
        kubelet.wait(PATIENCE, is_broken).unwrap();
        // The kubelet refuses pods until a plugin registers.
        let refused = kubelet.allocate(Allocation::new(NPU, 1)).unwrap_err();
        assert!(refused.contains("0 available"), "{refused}");
        node.start_plugin();
        kubelet.wait_devices(PATIENCE, NPU).unwrap();
        admit_pod(&kubelet);
    }
}

/// The rate is more than that at which a kubelet admits the pods of a busy node.
#[test]
fn no_pod_is_refused_while_ten_instances_replace_each_other() {
    const MIN_PODS: usize = 200;
    const MIN_PODS_PER_SECOND: f64 = 10.0;
    for tracking in [PluginTracking::ByResource, PluginTracking::BySocket] {
        let (mut node, kubelet) = start(tracking);
        let mut instance = node.take_plugin();
        let arrivals = kubelet.let_pods_arrive(NPU, || {
            for update in 1..=10 {
                let name = if update % 2 == 1 { SECOND } else { FIRST };
                let next = node.second_plugin();
                wait_until("the earlier instance may end", || {
                    node.log().matches(DETACHED).count() == update
                });
                instance.end(Signal::SIGTERM);
                wait_until("one socket is left", || node.sockets() == [name]);
                instance = next;
            }
        });
        let admitted_count = arrivals.admitted_count;
        let rate = admitted_count as f64 / arrivals.elapsed.as_secs_f64();
        println!("{admitted_count} pods, {rate:.0} per second, {tracking:?}");
        assert_eq!(arrivals.refusals, [""; 0], "beside {admitted_count}");
        assert!(admitted_count >= MIN_PODS, "{admitted_count}");
        assert!(rate >= MIN_PODS_PER_SECOND, "{rate}");
    }
}

/// The second instance registers for the last time some seconds after the end of the first one. The
/// kubelet answers so late that the third instance has started meanwhile. A registration of the
/// second instance that the kubelet receives after that of the third one would make the kubelet
/// notice its end.
#[test]
fn no_pod_is_refused_when_an_instance_ends_while_its_last_registration_is_unanswered() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let mut kubelet = node.kubelet();
    let [mut first, mut second] = start_handover(&mut node, &kubelet);
    kubelet.set_register_fault(RegisterFault::AnswerLate(Duration::from_secs(60)));
    first.end(Signal::SIGTERM);
    kubelet.wait(PATIENCE, registered_as(SECOND)).unwrap();
    kubelet.set_register_fault(RegisterFault::None);
    let mut third = node.second_plugin();
    let arrivals = kubelet.let_pods_arrive(NPU, || {
        wait_until("the second instance may end", || {
            node.log().matches(DETACHED).count() == 2
        });
        second.end(Signal::SIGTERM);
        wait_until("one socket is left", || node.sockets() == [FIRST]);
        sleep(Duration::from_millis(500));
    });
    assert_eq!(arrivals.refusals, [""; 0]);
    assert!(!kubelet.so_far().iter().any(is_broken));
    third.end(Signal::SIGKILL);
}

#[test]
fn a_newer_instance_serves_although_the_clock_was_set_back() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.serve(NPU);
    let mut earlier = node.take_plugin();
    let touched = Command::new("touch")
        .args(["--no-create", "--date=tomorrow"])
        .arg(node.socket(NPU))
        .status();
    assert!(touched.unwrap().success());
    let _newer = node.second_plugin();
    kubelet.wait(PATIENCE, registered_as(SECOND)).unwrap();
    node.wait_log(DETACHED);
    earlier.end(Signal::SIGTERM);
    kubelet.wait(PATIENCE, registered_as(SECOND)).unwrap();
    wait_until("one socket is left", || node.sockets() == [SECOND]);
    admit_pod(&kubelet);
}

/// Starts two instances, and returns them when the newer one has let the kubelet forget whose end
/// it waits for.
pub(crate) fn start_handover(node: &mut Node, kubelet: &FakeKubelet) -> [SecondPlugin; 2] {
    node.start_plugin();
    kubelet.wait(PATIENCE, registered_as(FIRST)).unwrap();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    let instances = [node.take_plugin(), node.second_plugin()];
    kubelet.wait(PATIENCE, registered_as(SECOND)).unwrap();
    node.wait_log(DETACHED);
    assert!(node.sockets().iter().any(|name| name == HANDOVER_MARK));
    instances
}

#[test]
fn a_plugin_registers_after_both_instances_were_killed_during_their_handover() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.kubelet();
    let [mut earlier, mut newer] = start_handover(&mut node, &kubelet);
    // The stopped instance cannot notice the end of the other one.
    earlier.signal(Signal::SIGSTOP);
    newer.end(Signal::SIGKILL);
    earlier.end(Signal::SIGKILL);
    let events = kubelet.so_far();
    assert!(!events.iter().any(is_broken), "the kubelet has not noticed");

    node.start_plugin();
    kubelet.wait(PATIENCE, registered_as(FIRST)).unwrap();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    admit_pod(&kubelet);
    wait_until("no mark is left", || node.sockets() == [FIRST]);
    // The kubelet notices the end of this instance.
    node.end_plugin(Signal::SIGKILL);
    kubelet.wait(PATIENCE, is_broken).unwrap();
}

#[test]
fn the_kubelet_notices_that_both_instances_end_during_their_handover() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.kubelet();
    for mut instance in start_handover(&mut node, &kubelet) {
        instance.end(Signal::SIGTERM);
    }
    kubelet.wait(PATIENCE, is_broken).unwrap();
    let refused = kubelet.allocate(Allocation::new(NPU, 1)).unwrap_err();
    assert!(refused.contains("0 available"), "{refused}");
    assert_eq!(node.sockets(), [""; 0]);
    node.start_plugin();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    admit_pod(&kubelet);
}

/// The next instance must not take the devices for those of another plugin.
#[test]
fn a_plugin_registers_although_the_kubelet_has_not_noticed_the_end_of_both_instances() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let config = Config::new(&node.path("kubelet"));
    let tracking = PluginTracking::Nothing;
    let kubelet = FakeKubelet::start(Config { tracking, ..config }).unwrap();
    for mut instance in start_handover(&mut node, &kubelet) {
        instance.end(Signal::SIGTERM);
    }
    assert_eq!(node.sockets(), [HANDOVER_MARK]);
    node.start_plugin();
    kubelet.wait(PATIENCE, registered_as(FIRST)).unwrap();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    admit_pod(&kubelet);
    wait_until("no mark is left", || node.sockets() == [FIRST]);
}

/// As when the kubelet takes the end of an earlier instance for that of this one.
#[test]
fn a_plugin_that_the_kubelet_disconnects_registers_again() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.serve(NPU);
    for _ in 0..3 {
        kubelet.disconnect(NPU);
        kubelet.wait(PATIENCE, is_broken).unwrap();
        kubelet.wait(PATIENCE, registered_as(FIRST)).unwrap();
        kubelet.wait_devices(PATIENCE, NPU).unwrap();
        admit_pod(&kubelet);
    }
    node.wait_log("the kubelet has closed ListAndWatch; registering again");
}

#[test]
fn the_earlier_instance_scans_and_writes_nothing_until_the_newer_one_has_ended() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).without_rescans();
    let kubelet = node.serve(NPU);
    let mut newer = node.second_plugin();
    kubelet.wait(PATIENCE, registered_as(SECOND)).unwrap();
    node.wait_log("a newer boathook-plugin serves");
    node.add_card(0, "mark-1", -1);
    node.write("classes/cards.toml", CARDS);
    kubelet.wait_devices(PATIENCE, MARK_1).unwrap();
    let serving = format!("serving resource={MARK_1}");
    assert_eq!(node.log().matches(&serving).count(), 1, "{}", node.log());

    newer.end(Signal::SIGKILL);
    kubelet.wait(PATIENCE, registered_as(FIRST)).unwrap();
    kubelet.wait_devices(PATIENCE, MARK_1).unwrap();
    admit_pod(&kubelet);
    assert_eq!(node.log().matches(&serving).count(), 2, "{}", node.log());
}

/// The plugin watcher knows a plugin by the path of its socket, so that both instances have the
/// same. It registers a plugin only once, unless its socket is another.
#[test]
fn the_plugin_watcher_finds_the_newer_instance_again_when_the_earlier_one_has_ended() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&["--register=watcher"]);
    let kubelet = node.serve(NPU);
    let mut earlier = node.take_plugin();
    let _newer = node.second_plugin();
    kubelet.wait(PATIENCE, registered_as(FIRST)).unwrap();
    node.wait_log("a newer boathook-plugin serves");
    earlier.end(Signal::SIGTERM);
    kubelet.wait(PATIENCE, is_broken).unwrap();
    kubelet.wait(PATIENCE, registered_as(FIRST)).unwrap();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    admit_pod(&kubelet);
}

/// The earlier instance still serves the class, and writes its file again. An engine refuses a device
/// that two files describe, so a file that stays would stop a vendor's own plugin.
#[test]
fn a_class_that_an_update_disables_loses_its_file() {
    let disabled = "[class.dummy-npu]\nenabled = false\n";
    for classes_left in [1, 0] {
        let classes = [("dummy-npu", NPUS), ("cards", CARDS)];
        let classes = &classes[..1 + classes_left];
        let mut node = Node::new(classes).without_rescans();
        node.add_card(0, "big", 0);
        let file = node.path("cdi/boathook-dummy.com.pods.boathook.dev-npu.json");
        let _kubelet = node.serve(NPU);
        let mut earlier = node.take_plugin();
        node.configure(disabled);
        let _newer = node.second_plugin();
        node.wait_log(&format!("removed {}", file.display()));
        wait_until("the earlier instance has written the file again", || {
            file.exists()
        });
        earlier.end(Signal::SIGTERM);
        wait_until("the file is gone", || !file.exists());
    }
}

/// The instance that stays does not serve the class of that file, and an engine refuses a device that
/// two files describe. The instances need not have a resource in common.
#[test]
fn a_class_that_an_undone_update_enabled_loses_its_file() {
    let disable = |class: &str| format!("[class.{class}]\nenabled = false\n");
    for (update, end) in [
        (String::new(), Signal::SIGTERM),
        (String::new(), Signal::SIGKILL),
        (disable("dummy-npu"), Signal::SIGTERM),
    ] {
        let mut node = Node::new(&[("dummy-npu", NPUS), ("cards", CARDS)]).without_rescans();
        node.add_card(0, "big", 0);
        let files = [
            "dummy.com.pods.boathook.dev-npu",
            "cards.example.pods.boathook.dev-big",
        ];
        let [kept, file] = files.map(|name| node.path(&format!("cdi/boathook-{name}.json")));
        node.configure(&disable("cards"));
        let kubelet = node.serve(NPU);
        node.configure(&update);
        let mut newer = node.second_plugin();
        kubelet.wait_devices(PATIENCE, "cards.example/big").unwrap();
        assert!(file.exists());
        newer.end(end);
        wait_until("the file is gone", || !file.exists());
        wait_until("the other file is there", || kept.exists());
    }
}

/// The sockets of its resource cannot be made, so it is killed after its first scan and before its
/// first registration.
#[test]
fn an_instance_that_is_killed_before_it_serves_leaves_no_file() {
    let disable = |class: &str| format!("[class.{class}]\nenabled = false\n");
    let mut node = Node::new(&[("dummy-npu", NPUS), ("cards", CARDS)]).without_rescans();
    node.add_card(0, "big", 0);
    for slot in ["", "@2"] {
        let path = format!("kubelet/device-plugins/boathook-cards.example_big{slot}.sock");
        fs::create_dir_all(node.path(&path)).unwrap();
    }
    let [kept, file] = [
        "dummy.com.pods.boathook.dev-npu",
        "cards.example.pods.boathook.dev-big",
    ]
    .map(|name| node.path(&format!("cdi/boathook-{name}.json")));
    node.configure(&disable("cards"));
    let _kubelet = node.serve(NPU);
    node.configure(&disable("dummy-npu"));
    let mut newer = node.second_plugin();
    wait_until("the newer instance has written its file", || file.exists());
    newer.end(Signal::SIGKILL);
    wait_until("the file is gone", || !file.exists());
    wait_until("the other file is there", || kept.exists());
}
