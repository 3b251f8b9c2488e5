//! `boathook list` and `boathook check`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use harness::binaries;
use harness::demo_host::HostDirectory;
use harness::patience::PATIENCE;
use serde_json::{Value, json};

use super::{assert_refused, boathook, bundle, code, host_with_thing, succeeds};
use crate::said::assert_says;

/// Returns the output of `boathook list --json`.
fn listed(host: &HostDirectory, arguments: &[&str]) -> Value {
    let ran = succeeds(host, &[&["list", "--json"], arguments].concat());
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn every_device_is_listed() {
    let host = HostDirectory::new().unwrap();
    let ran = succeeds(&host, &["list", "--all"]);
    let devices: Vec<_> = ran
        .stdout
        .lines()
        .filter(|line| line.starts_with("dummy-npu "))
        .collect();
    assert_eq!(devices.len(), 64, "{}", ran.stdout);
    assert!(
        devices[63].contains("npu-63") && devices[63].contains("healthy"),
        "{}",
        devices[63]
    );

    let listed = listed(&host, &["--all"]);
    assert_eq!(listed["devices"].as_array().unwrap().len(), 64);
    assert_eq!(listed["devices"][10]["id"], "npu-10");
    assert_eq!(listed["devices"][10]["healthy"], true);
}

/// A host with a class that is not enabled and whose devices are found, one without devices, and
/// one whose devices are virtual.
fn host_after_an_installation() -> HostDirectory {
    let host = host_with_thing(
        "enabled = false\ndiscover = [{ path = '/dev/thing{index:number}' }]\n\
         device = { id = 'thing-{index}' }\n",
    );
    let absent = "version = 1\nresource = 'example.com/absent'\nrequest = { env = 'ABSENT' }\n\
                  discover = [{ path = '/dev/absent{index:number}' }]\n\
                  device = { id = 'absent-{index}' }\n";
    host.add_class("absent", absent).unwrap();
    host.write_config("[class.dummy-npu]\nenabled = false\n")
        .unwrap();
    host.add_file("/dev/thing1", "").unwrap();
    host
}

/// A container with it would be refused.
#[test]
fn no_request_is_proposed_for_an_unhealthy_device() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nresource = 'example.com/card'\nrequest = { env = 'CARDS' }\n\
         discover = [{ path = '/dev/card{number:number}' }]\n\
         device = { id = 'card-{number}', health = [{ file = '/sys/card{number}/state', equals = 'ok' }] }\n";
    host.add_class("card", class).unwrap();
    host.add_file("/dev/card0", "").unwrap();
    for (state, is_proposed) in [("ok", true), ("lost", false)] {
        host.add_file("/sys/card0/state", state).unwrap();
        let text = succeeds(&host, &["list", "card"]).stdout;
        assert_eq!(
            text.contains("a container gets card-0"),
            is_proposed,
            "{text}"
        );
    }
}

#[test]
fn without_a_kubelet_the_devices_of_this_host_are_listed_with_their_variables() {
    let host = host_after_an_installation();
    let list = |arguments: &[&str]| succeeds(&host, &[&["list"], arguments].concat()).stdout;
    let text = list(&[]);
    let lines: Vec<&str> = text.lines().collect();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words(lines[0]),
        "CLASS DEVICE INDEX VARIABLE HEALTH NUMA NODES"
    );
    assert_eq!(words(lines[1]), "thing thing-1 0 THINGS healthy - -");
    assert_says(
        &text,
        &["a container gets thing-1 of class thing by\n- `THINGS=thing-1`"],
    );
    for word in ["npu", "absent", "enabled"] {
        assert!(!text.contains(word), "{text}");
    }
    let verbose = list(&["-v"]);
    assert_says(
        &verbose,
        &["no devices of absent", "virtual devices", "dummy-npu (64)"],
    );
    assert_says(&list(&["absent"]), &["no devices of absent"]);

    // The example has the words of the engines that the host has, and what they need before.
    let by_variable = "`docker run --runtime boathook -e THINGS=thing-1 IMAGE`";
    host.add_file("/usr/bin/dockerd", "").unwrap();
    let install = format!("after `boathook-init install --engine docker`: {by_variable}");
    assert_says(&list(&[]), &[&install]);
    host.add_file("/usr/bin/podman", "").unwrap();
    let by_name = "run --device example.com/thing=thing-1 IMAGE`";
    let generate = format!("after `boathook cdi generate thing`: `podman {by_name}");
    assert_says(&list(&[]), &[&generate]);
    let specification = json!({ "cdiVersion": "0.5.0", "kind": "example.com/thing",
        "devices": [{ "name": "thing-1" }] });
    host.add_file("/etc/cdi/thing.json", &specification.to_string())
        .unwrap();
    let text = list(&[]);
    assert_says(
        &text,
        &[
            &format!("- `docker {by_name}"),
            &format!("- `podman {by_name}"),
        ],
    );
    assert!(!text.contains("after `"), "{text}");
    for engine in ["docker", "podman"] {
        host.add_file(&format!("/opt/boathook/state/{engine}.json"), "{}")
            .unwrap();
    }
    let by_hook = "- `podman run -e THINGS=thing-1 IMAGE`";
    assert_says(&list(&[]), &[&format!("- {by_variable}"), by_hook]);
    fs::remove_file(host.root().join("dev/thing1")).unwrap();
    assert_says(
        &list(&[]),
        &["no device of any class on this host", "`boathook class new"],
    );
}

#[test]
fn on_a_node_the_devices_that_are_offered_to_pods_are_listed() {
    let host = host_after_an_installation();
    fs::create_dir_all(host.root().join("var/lib/kubelet/device-plugins")).unwrap();
    let text = succeeds(&host, &["list"]).stdout;
    let not_offered = "not offered to pods unless config.toml enables the class, and shown by name \
                       or with --all: dummy-npu (64), thing (1)";
    assert_says(&text, &[not_offered]);
    assert!(!text.contains("thing-1"), "{text}");
    let text = succeeds(&host, &["list", "--all"]).stdout;
    let variables = "containers request dummy-npu by DUMMY_VISIBLE_DEVICES, thing by THINGS";
    assert_says(&text, &["RESOURCE", "example.com/thing", variables]);
}

/// The program is stopped at the end.
struct Watch {
    child: Child,
    lines: Receiver<String>,
}

impl Watch {
    fn start(host: &HostDirectory, arguments: &[&str]) -> Self {
        let mut command = Command::new(binaries::program("boathook").unwrap());
        command.arg("--config").arg(host.config_file());
        command.args(["list", "--watch"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Watch { child, lines }
    }

    /// Reads lines until one contains all the words.
    fn read(&self, words: &[&str]) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no line with {words:?}"));
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn devices_that_come_and_go_are_printed_until_the_program_is_stopped() {
    let host = host_after_an_installation();
    let text = Watch::start(&host, &[]);
    text.read(&["thing  thing-1"]);
    let json = Watch::start(&host, &["--json"]);
    let first: Value = serde_json::from_str(&json.read(&["thing-1"])).unwrap();
    assert_eq!(first["devices"][0]["id"], "thing-1");

    host.add_file("/dev/thing2", "").unwrap();
    text.read(&["Z added  thing  thing-2  THINGS"]);
    let line: Value = serde_json::from_str(&json.read(&["thing-2"])).unwrap();
    assert_eq!(
        (&line["change"], &line["device"]["class"]),
        (&"added".into(), &"thing".into())
    );
    fs::remove_file(host.root().join("dev/thing1")).unwrap();
    text.read(&["removed  thing  thing-1"]);
    json.read(&["\"removed\"", "thing-1"]);

    let refused = boathook(&host, &["list", "--watch", "/dev/thing2"], b"");
    assert_refused(&refused, code::USAGE, &["name the class of the device"]);
}

#[test]
fn an_empty_host_has_nothing_to_list() {
    let host = HostDirectory::new().unwrap();
    host.add_class("dummy-npu", "").unwrap();
    let ran = boathook(&host, &["list", "--all", "--json"], b"");
    let listed: Value = serde_json::from_str(&ran.stdout).unwrap();
    let nothing = json!({ "classes": [], "without_devices": [], "not_enabled": [], "left_out": [], "devices": [] });
    assert_eq!(listed, nothing);
    assert_eq!(ran.status.code(), Some(code::SUCCESS), "{}", ran.stderr);
    let said = format!("no class file in {}", host.classes().display());
    assert!(ran.stderr.contains(&said), "{}", ran.stderr);
    // Without a class file nobody knows whether the host has devices.
    let ran = boathook(&host, &["list"], b"");
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains(&said), "{}", ran.stderr);
}

/// In a user namespace, as Docker in an unprivileged container: a node that lacks cannot be made. The
/// reason is told to who asks for the class, or for more.
#[test]
fn a_device_that_the_container_was_not_given_is_absent() {
    let config = tempfile::tempdir().unwrap();
    let class = r#"
        version = 1
        resource = "given.example/device"
        request = { env = "GIVEN_VISIBLE_DEVICES" }
        discover = [{ count = 2, attributes = [
          { name = "node", value = "{index}", map = { "0" = "null", "1" = "boathook-not-given" } },
        ] }]
        [device]
        id = "given-{index}"
        nodes = [{ path = "/dev/{node}", driver = "mem", make = { minor = "9" } }]
    "#;
    fs::write(config.path().join("given.toml"), class).unwrap();
    let file = config.path().join("config.toml");
    let classes = format!("classes = [\"{}\"]\n", config.path().display());
    fs::write(&file, classes).unwrap();
    let run = |prefix: &[&str], arguments: &[&str]| {
        let program = binaries::program("boathook").unwrap();
        let mut command = prefix.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        command.push(program.display().to_string());
        let ran = Command::new(&command[0])
            .args(&command[1..])
            .arg("--config")
            .arg(&file)
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    let list = |prefix: &[&str]| {
        let text = run(prefix, &["list", "--json", "given"]);
        let listed: Value = serde_json::from_str(&text).unwrap();
        listed["devices"].as_array().unwrap().clone()
    };
    let outside = list(&["env"]);
    assert_eq!(outside.len(), 2, "{outside:?}");
    assert_eq!(outside[1]["healthy"], true, "{outside:?}");
    let unshare = ["unshare", "--user", "--map-root-user"];
    let inside = list(&unshare);
    assert_eq!(inside.len(), 1, "{inside:?}");
    assert_eq!(inside[0]["healthy"], true, "{inside:?}");
    let absent = [
        "given-1 is absent: /dev/boathook-not-given does not exist",
        "was not given this one",
    ];
    for arguments in [
        &["list", "given"][..],
        &["list", "--all", "-v"],
        &["check", "given"],
    ] {
        assert_says(&run(&unshare, arguments), &absent);
    }
    let brief = run(&unshare, &["list", "--all"]);
    assert!(
        brief.contains("given-0") && !brief.contains("given-1"),
        "{brief}"
    );
}

/// But not those that mean several.
#[test]
fn other_names_of_devices_are_listed_with_their_class() {
    let host = host_with_thing(
        "discover = [{ count = 2 }]\n[device]\n\
         id = 'thing-{index}'\naliases = ['both', 'no{index}', 'thing-{index}']\n",
    );
    let ran = boathook(&host, &["list", "thing"], b"");
    let said: Vec<&str> = ran
        .stdout
        .lines()
        .filter(|it| it.contains(" is also "))
        .collect();
    assert_eq!(said, ["thing-0 is also no0", "thing-1 is also no1"]);
    let all = boathook(&host, &["list", "--all"], b"").stdout;
    assert!(!all.contains(" is also "), "{all}");
    let listed = listed(&host, &["thing"]);
    let names = json!(["both", "no1", "thing-1"]);
    assert_eq!(listed["devices"][1]["aliases"], names);
}

/// A directory, as in the engines' option `--device /dev/snd`, has the devices with a node in it.
#[test]
fn a_directory_is_listed_with_its_devices() {
    let host = host_with_thing(
        "discover = [{ count = 2 }]\n[device]\n\
         id = 'thing-{index}'\nnodes = ['/dev/things/{index}']\n",
    );
    for file in ["/dev/things/text", "/dev/empty/text"] {
        host.add_file(file, "").unwrap();
    }
    let ran = succeeds(&host, &["list", "/dev/things"]);
    assert_says(
        &ran.stdout,
        &[
            "/dev/things/0 is thing-0 of class thing",
            "/dev/things/1 is thing-1 of class thing",
        ],
    );
    let json = succeeds(&host, &["list", "--json", "/dev/things"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["devices"][1]["path"], "/dev/things/1");
    let ran = boathook(&host, &["list", "/dev/empty"], b"");
    assert_refused(
        &ran,
        code::REQUEST,
        &["the directory /dev/empty has no nodes of devices"],
    );
}

/// A name that a request would not understand is not printed, and one with a comma or like a range is quoted.
#[test]
fn a_listed_name_can_be_requested() {
    let host = host_with_thing(
        "[[discover]]\ncount = 4\nattributes = [{ name = 'name', file = '/things/{index}' }]\n\
         [device]\nid = 'thing-{index}'\nindex = '{index}'\naliases = ['{name}']\n",
    );
    for (index, name) in ["1-2", "HD Pro Webcam C920", "none", "a,b"]
        .iter()
        .enumerate()
    {
        host.add_file(&format!("/things/{index}"), name).unwrap();
    }
    let ran = succeeds(&host, &["list", "thing"]);
    let said = ran.stdout.lines().filter(|it| it.contains(" is also "));
    let expected = [
        ("thing-0", "\"1-2\""),
        ("thing-1", "HD Pro Webcam C920"),
        ("thing-3", "\"a,b\""),
    ];
    let lines = expected.map(|(device, name)| format!("{device} is also {name}"));
    assert_eq!(said.collect::<Vec<_>>(), lines);
    let bundles = expected.map(|(device, name)| (device, bundle(&[("THINGS", name)])));
    for (device, bundle) in bundles {
        let arguments = [
            "explain",
            "--json",
            "--bundle",
            bundle.path().to_str().unwrap(),
        ];
        let plan: Value = serde_json::from_str(&succeeds(&host, &arguments).stdout).unwrap();
        assert_eq!(plan["grants"][0]["devices"], json!([device]));
    }
    assert_eq!(
        listed(&host, &["thing"])["devices"][2]["aliases"],
        json!([])
    );
}

#[test]
fn classes_are_listed_by_name_and_without_devices() {
    let host = host_with_thing(
        "discover = [{ path = '/dev/thing{index:number}' }]\n\
         device = { id = 'thing-{index}' }\n",
    );
    let listed = listed(&host, &["thing"]);
    let expected = json!({
        "classes": ["thing"], "without_devices": ["thing"], "not_enabled": [], "left_out": [], "devices": [],
    });
    assert_eq!(listed, expected);
    let ran = boathook(&host, &["list", "dummy-npu"], b"");
    assert!(ran.stdout.contains("npu-63") && !ran.stdout.contains("thing"));
}

/// The hook would refuse a container with it.
#[test]
fn a_device_whose_file_is_missing_is_unhealthy() {
    let host = host_with_thing(
        "discover = [{ count = 1 }]\ndevice = { id = 'thing' }\n\
         edits = [{ nodes = ['/dev/things-control'] }]\n",
    );
    let listed = listed(&host, &["thing"]);
    let thing = &listed["devices"][0];
    assert_eq!(thing["healthy"], false);
    let reason = thing["reason"].as_str().unwrap();
    assert!(reason.contains("/dev/things-control"), "{reason}");
}

#[test]
fn devices_that_differ_are_unhealthy_under_one_name() {
    let host = host_with_thing(
        "discover = [{ count = 2 }]\ndevice = { id = 'thing-{index}', uniform = '{index}' }\n",
    );
    let wanted = "the devices of example.com/thing differ (0, 1)";
    for command in ["list", "check"] {
        let ran = boathook(&host, &[command, "thing"], b"");
        assert_eq!(ran.stdout.matches(wanted).count(), 2, "{}", ran.stdout);
    }
}

/// Of all classes only the names are listed.
#[test]
fn a_check_of_a_class_names_the_driver_that_the_host_lacks() {
    let host = host_with_thing(
        "driver_path = '/sys/module/thing'\ndiscover = [{ count = 2 }]\n\
         device = { id = 'thing-{index}' }\n",
    );
    let check = |arguments: &[&str]| boathook(&host, arguments, b"").stdout;
    let named = check(&["check", "thing"]);
    let reason = "no device on this host: the host has no /sys/module/thing";
    assert!(named.contains(reason), "{named}");
    let all = check(&["check"]);
    let mut lines = all.lines();
    let line = lines.find(|line| line.contains("no device on this host: "));
    let (_, names) = line.unwrap().split_once(": ").unwrap();
    assert!(names.split(", ").any(|name| name == "thing"), "{all}");
    assert!(!all.contains("/sys/module/thing"), "{all}");
}

/// Each line has its verdict, and each problem a fix.
#[test]
fn a_check_reports_on_this_host() {
    let host = HostDirectory::new().unwrap();
    let ran = boathook(&host, &["check"], b"");
    assert!(matches!(ran.status.code(), Some(0 | 1)), "{}", ran.stderr);
    assert_says(&ran.stdout, &["openat2", "cgroup", "dummy-npu"]);
    for line in ran.stdout.lines().filter(|line| !line.trim().is_empty()) {
        let verdict = ["ok", "warning", "error", "fix: "]
            .iter()
            .any(|word| line.contains(word));
        assert!(verdict, "no verdict in {line}");
    }
}

/// The whole output has no word of Kubernetes on a host that is no node of a cluster, and some on
/// one that is.
#[test]
fn a_check_has_words_of_kubernetes_on_a_node_alone() {
    for is_node in [false, true] {
        let host = HostDirectory::new().unwrap();
        let kubelet = host.path().join("kubelet");
        if is_node {
            fs::create_dir_all(kubelet.join("device-plugins")).unwrap();
        }
        host.trust_kubelet(&kubelet, "").unwrap();
        let ran = boathook(&host, &["check"], b"");
        let text = ran.stdout.to_lowercase();
        let words = ["kubernetes", "kubelet", "kubectl", "runtimeclass", " pod"];
        let found: Vec<_> = words.iter().filter(|word| text.contains(**word)).collect();
        assert_eq!(!found.is_empty(), is_node, "{found:?} in {}", ran.stdout);
    }
}

#[test]
fn the_holder_of_a_device_is_listed_where_a_kubelet_records_it() {
    let host = HostDirectory::new().unwrap();
    let directory = host.path().join("kubelet/device-plugins");
    fs::create_dir_all(&directory).unwrap();
    let record = json!({ "Data": { "PodDeviceEntries": [
        { "PodUID": "6b9a0f9e-6f0c-4d0e-9a55-0d4e5f2a7b11", "ContainerName": "train",
          "ResourceName": "dummy.com/npu", "DeviceIDs": { "-1": ["npu-3", "npu-4"] } },
        { "PodUID": "0c0d", "ContainerName": "no-logs",
          "ResourceName": "dummy.com/npu", "DeviceIDs": ["npu-5"] },
        { "PodUID": "0c0e", "ContainerName": "another",
          "ResourceName": "example.com/npu", "DeviceIDs": ["npu-6"] },
    ] } });
    let file = directory.join("kubelet_internal_checkpoint");
    fs::write(&file, record.to_string()).unwrap();
    let logs = "var/log/pods/team-a_train-0_6b9a0f9e-6f0c-4d0e-9a55-0d4e5f2a7b11";
    fs::create_dir_all(host.root().join(logs)).unwrap();
    let kubelet = directory.parent().unwrap();
    host.trust_kubelet(kubelet, "").unwrap();

    let ran = boathook(&host, &["list", "--all"], b"");
    let line_of = |id: &str| {
        let mut lines = ran.stdout.lines();
        let line = lines.find(|line| line.split_whitespace().nth(1) == Some(id));
        line.unwrap().trim_end().to_string()
    };
    assert!(ran.stdout.lines().next().unwrap().ends_with("HOLDER"));
    for (id, holder) in [
        ("npu-3", "team-a/train-0/train"),
        ("npu-4", "team-a/train-0/train"),
        ("npu-5", "0c0d/no-logs"),
        ("npu-6", " -"),
    ] {
        let line = line_of(id);
        assert!(line.ends_with(holder), "{line}");
    }
    let listed = listed(&host, &["--all"]);
    let holder = &listed["devices"][3]["holders"][0];
    assert_eq!(holder["pod"], "team-a/train-0");
    assert_eq!(holder["container"], "train");

    // On a host without Kubernetes there is no such column.
    fs::remove_file(&file).unwrap();
    let ran = boathook(&host, &["list", "--all"], b"");
    assert!(!ran.stdout.contains("HOLDER"), "{}", ran.stdout);
    // A record that cannot be used is reported.
    fs::write(&file, "[]").unwrap();
    let ran = boathook(&host, &["list", "--all"], b"");
    assert_says(&ran.stderr, &["holders are not shown"]);
}
