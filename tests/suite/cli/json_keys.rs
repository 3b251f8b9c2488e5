//! docs/json.md names the keys of the objects that commands print, and no others.

use std::collections::BTreeSet;
use std::fs;

use harness::binaries;
use harness::demo_host::HostDirectory;
use serde_json::{Value, json};

use super::{boathook, bundle};

/// A class whose devices have each key that a device can have, but `replicas`.
const CARD: &str = "version = 1\nresource = 'example.com/card'\n\
    request = { env = 'CARDS' }\ndiscover = [{ path = '/sys/card{index:number}' }]\n\
    needs = [{ capability = 'CAP_SYS_NICE', needed_for = 'real-time queues' }]\n\
    device = { id = 'card-{index}', index = '{index}', aliases = ['first-{index}'], \
    netdev = '/sys/card{index}/net/*', health = [{ file = '/sys/card{index}/state', \
    equals = 'up', advice = 'reset it' }] }\n";

/// Returns the names in back quotes of the sentence or the parentheses after `start` in
/// docs/json.md. Values, such as those of `verdict`, are in parentheses there, so they are left out.
fn keys_of_page(start: &str, end: char) -> BTreeSet<String> {
    let page = fs::read_to_string(binaries::source_tree().join("docs/json.md")).unwrap();
    let page = page.replace('\n', " ");
    let (_, rest) = page
        .split_once(start)
        .unwrap_or_else(|| panic!("no {start:?}"));
    let (mut keys, mut depth) = (BTreeSet::new(), 0);
    for (part, text) in rest.split('`').enumerate() {
        if part % 2 == 1 {
            if depth == 0 {
                keys.insert(text.to_owned());
            }
            continue;
        }
        for character in text.chars() {
            match character {
                _ if character == end && depth == 0 => return keys,
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
        }
    }
    panic!("{start:?} does not end")
}

/// Returns the keys of all objects in a list.
fn keys_of(objects: &Value) -> BTreeSet<String> {
    let objects = objects.as_array().unwrap().iter();
    let keys = objects.flat_map(|object| object.as_object().unwrap().keys());
    keys.cloned().collect()
}

fn run(host: &HostDirectory, arguments: &[&str]) -> Value {
    let ran = boathook(host, &[&["--json"], arguments].concat(), b"");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
}

#[test]
fn the_page_has_the_keys_that_are_printed() {
    let host = HostDirectory::new().unwrap();
    host.add_class("card", CARD).unwrap();
    host.add_file("/sys/card0/state", "up\n").unwrap();
    host.add_file("/sys/card0/net/eth7/mtu", "1500\n").unwrap();
    host.add_file("/sys/card1/state", "down\n").unwrap();
    let checkpoint = json!({ "Data": { "PodDeviceEntries": [
        { "PodUID": "0c0d", "ContainerName": "main", "ResourceName": "example.com/card",
          "DeviceIDs": ["card-0"] },
    ] } });
    let kubelet = host.path().join("kubelet");
    fs::create_dir_all(kubelet.join("device-plugins")).unwrap();
    fs::write(
        kubelet.join("device-plugins/kubelet_internal_checkpoint"),
        checkpoint.to_string(),
    )
    .unwrap();
    host.trust_kubelet(&kubelet, "[class.dummy-npu]\nreplicas = 2\n")
        .unwrap();

    let listed = run(&host, &["list", "--all"]);
    assert_eq!(
        keys_of(&listed["devices"]),
        keys_of_page("A device has ", '.'),
        "{listed:#}"
    );

    let bundle = bundle(&[("CARDS", "first-1,frist-0?")]);
    let bundle = bundle.path().to_str().unwrap();
    let explained = run(&host, &["explain", "--bundle", bundle]);
    let grants = keys_of(&explained["grants"]);
    let needs = keys_of(&explained["needs"]);
    // Some keys are there for running containers and for devices that come later alone.
    for (printed, named) in [(grants, "`grants` ("), (needs, "`needs` (")] {
        let named_keys = keys_of_page(named, ')');
        assert!(printed.is_subset(&named_keys), "{named} {explained:#}");
    }

    let doctor = run(&host, &["doctor", "--bundle", bundle]);
    // A bundle that never ran has neither an id nor a process.
    let containers = keys_of(&doctor["containers"]);
    let named_keys = keys_of_page("`containers`, each with ", '|');
    assert!(containers.is_subset(&named_keys), "{doctor:#}");
    let checked = run(&host, &["check", "card"]);
    let findings = [&checked["findings"], &doctor["containers"][0]["findings"]];
    let findings: BTreeSet<String> = findings.into_iter().flat_map(keys_of).collect();
    assert_eq!(findings, keys_of_page("A finding has ", '.'), "{doctor:#}");
}
