//! Devices come, go, fall ill and recover.

use harness::kubelet::{DeviceReport, Event};
use nix::sys::signal::Signal;

use crate::node::{CARDS, NPU, NPUS, Node, PATIENCE, wait_until};
use crate::pages;

const MARK_1: &str = "cards.example/mark-1";
const MARK_2: &str = "cards.example/mark-2";

fn brief(devices: &[DeviceReport]) -> Vec<(&str, &str, Option<i64>)> {
    devices
        .iter()
        .map(|d| (d.id.as_str(), d.health.as_str(), d.numa))
        .collect()
}

#[test]
fn lost_and_regained_health_are_each_reported_once() {
    let mut node = Node::new(&[("cards", CARDS)]);
    node.add_card(2, "mark-1", 1);
    node.add_card(10, "mark-1", -1);
    let kubelet = node.kubelet();
    node.start_plugin();
    let well = [("card-2", "Healthy", Some(1)), ("card-10", "Healthy", None)];
    assert_eq!(
        brief(&kubelet.wait_devices(PATIENCE, MARK_1).unwrap()),
        well
    );

    node.write("host/sys/card2/health", "burnt");
    let ill = [
        ("card-2", "Unhealthy", Some(1)),
        ("card-10", "Healthy", None),
    ];
    assert_eq!(brief(&kubelet.wait_devices(PATIENCE, MARK_1).unwrap()), ill);

    node.write("host/sys/card2/health", "ok");
    assert_eq!(
        brief(&kubelet.wait_devices(PATIENCE, MARK_1).unwrap()),
        well
    );
    node.wait_log("device is healthy again resource=cards.example/mark-1 device=card-2");
    assert_eq!(
        node.log().matches("device is unhealthy").count(),
        1,
        "{}",
        node.log()
    );
}

#[test]
fn shares_have_the_health_of_their_device() {
    let text = format!("{CARDS}[sharing]\nreplicas_from = \"{{shares}}\"\n");
    let shares = "attributes = [{ name = \"shares\", file = \"/sys/card{index}/shares\" }, ";
    let mut node = Node::new(&[("cards", &text.replace("attributes = [", shares))]);
    for (index, count) in [(0, "2"), (1, "1"), (2, "2")] {
        node.add_card(index, "mark-1", 1);
        node.write(&format!("host/sys/card{index}/shares"), count);
    }
    let kubelet = node.kubelet();
    node.start_plugin();
    let healths = || -> Vec<(String, String)> {
        let devices = kubelet.wait_devices(PATIENCE, MARK_1).unwrap();
        devices.into_iter().map(|d| (d.id, d.health)).collect()
    };
    let wanted = |ill: &str| {
        let ids = [
            "card-0::0",
            "card-0::1",
            "card-1::0",
            "card-2::0",
            "card-2::1",
        ];
        ids.map(|id| {
            let health = if id.starts_with(ill) {
                "Unhealthy"
            } else {
                "Healthy"
            };
            (id.to_owned(), health.to_owned())
        })
    };
    assert_eq!(healths(), wanted("none"));
    node.write("host/sys/card2/health", "burnt");
    assert_eq!(healths(), wanted("card-2"));
    node.write("host/sys/card2/health", "ok");
    assert_eq!(healths(), wanted("none"));
}

#[test]
fn a_device_that_flickers_is_no_news() {
    let patient = CARDS.replace("equals = \"ok\"", "equals = \"ok\", steady_for = 3600");
    let mut node = Node::new(&[("cards", &patient)]).with_arguments(&pages::SERVE);
    node.add_card(0, "mark-1", -1);
    node.add_card(1, "mark-1", -1);
    node.write("host/sys/card1/health", "burnt");
    let kubelet = node.kubelet();
    node.start_plugin();
    // What is seen first counts at once.
    let first = [("card-0", "Healthy", None), ("card-1", "Unhealthy", None)];
    assert_eq!(
        brief(&kubelet.wait_devices(PATIENCE, MARK_1).unwrap()),
        first
    );
    let address = pages::address(&node);
    for (card0, card1) in [("burnt", "ok"), ("ok", "burnt"), ("burnt", "ok")] {
        node.write("host/sys/card0/health", card0);
        node.write("host/sys/card1/health", card1);
        pages::wait_for_scan(&address);
    }
    node.add_card(2, "mark-1", -1);
    let devices = kubelet.wait_devices(PATIENCE, MARK_1).unwrap();
    assert_eq!(
        devices.len(),
        3,
        "the next news is the new card: {devices:?}"
    );
    assert_eq!(brief(&devices[..2]), first);
}

#[test]
fn a_resource_gets_its_server_with_its_first_device_and_loses_it_with_the_last() {
    let mut node = Node::new(&[("cards", CARDS)]);
    node.add_card(0, "mark-1", -1);
    let kubelet = node.serve(MARK_1);

    node.add_card(1, "mark-2", -1);
    assert_eq!(kubelet.wait_devices(PATIENCE, MARK_2).unwrap().len(), 1);
    let both = [
        "boathook-cards.example_mark-1.sock",
        "boathook-cards.example_mark-2.sock",
    ];
    assert_eq!(node.sockets(), both);

    node.remove("host/dev/card0");
    let broken =
        |event: &Event| matches!(event, Event::StreamBroken { resource } if resource == MARK_1);
    kubelet.wait(PATIENCE, broken).unwrap();
    wait_until("the first socket is gone", || node.sockets() == both[1..]);
}

#[test]
fn a_driver_may_be_loaded_late_and_again() {
    let text = format!("driver_path = \"/sys/module/cards\"\n{CARDS}");
    let mut node = Node::new(&[("cards", &text)]);
    node.write("classes/dummy-npu.toml", NPUS);
    node.add_card(0, "mark-1", -1);
    let kubelet = node.serve(NPU);
    assert_eq!(node.sockets(), ["boathook-dummy.com_npu.sock"]);

    let well = [("card-0", "Healthy", None)];
    let devices = || kubelet.wait_devices(PATIENCE, MARK_1).unwrap();
    node.write("host/sys/module/cards/version", "1");
    assert_eq!(brief(&devices()), well);
    std::fs::remove_dir_all(node.path("host/sys/module/cards")).unwrap();
    assert_eq!(brief(&devices()), [("card-0", "Unhealthy", None)]);
    // Before it is forgotten, or after.
    node.write("host/sys/module/cards/version", "2");
    assert_eq!(brief(&devices()), well);
}

#[test]
fn a_changed_class_is_read_again_without_touching_the_others() {
    let mut node = Node::new(&[("cards", CARDS)]).without_rescans();
    node.write("classes/dummy-npu.toml", NPUS);
    node.add_card(0, "mark-1", -1);
    let kubelet = node.serve(NPU);
    // Words that mean the same are no news.
    node.write("classes/cards.toml", &format!("# Cards.\n{CARDS}"));
    for count in [8, 9] {
        node.write(
            "classes/dummy-npu.toml",
            &NPUS.replace("64", &count.to_string()),
        );
        assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), count);
    }
    node.remove("classes/dummy-npu.toml");
    let broken =
        |event: &Event| matches!(event, Event::StreamBroken { resource } if resource == NPU);
    kubelet.wait(PATIENCE, broken).unwrap();
    let of_cards: Vec<String> = kubelet
        .log()
        .so_far()
        .iter()
        .filter_map(kind_if_of_cards)
        .collect();
    assert_eq!(
        of_cards,
        ["registered", "1 devices"],
        "their stream goes on"
    );
}

/// What happened to the cards.
fn kind_if_of_cards(event: &Event) -> Option<String> {
    match event {
        Event::Registered { resource, .. } if resource == MARK_1 => Some("registered".into()),
        Event::StreamBroken { resource } if resource == MARK_1 => Some("broken".into()),
        Event::Devices { resource, devices } if resource == MARK_1 => {
            Some(format!("{} devices", devices.len()))
        }
        _ => None,
    }
}

#[test]
fn a_hang_up_reads_classes_and_attributes_again() {
    let mut node = Node::new(&[("cards", CARDS)]).without_rescans();
    node.add_card(0, "mark-1", -1);
    let kubelet = node.serve(MARK_1);
    node.write("host/sys/card0/health", "burnt");
    node.signal(Signal::SIGHUP);
    let devices = kubelet.wait_devices(PATIENCE, MARK_1).unwrap();
    assert_eq!(devices[0].health, "Unhealthy");
    let of_cards: Vec<String> = kubelet
        .log()
        .so_far()
        .iter()
        .filter_map(kind_if_of_cards)
        .collect();
    assert_eq!(of_cards, ["registered", "1 devices", "1 devices"]);
}
