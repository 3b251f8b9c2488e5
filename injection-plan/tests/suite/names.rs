//! Tests of the names of devices in requests: the devices that a text means on a host, and the
//! names that are printed.

use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::discover::{self, Device, FoundClass, Inventory};
use device_class::host::RecordedHost;
use injection_plan::plan::{Authority, RecordedDevices};
use injection_plan::request::{Environment, Request, RequestNames};
use proptest::prelude::*;

use crate::planning::{
    asker, directory, parse, plan, recordings, shipped, shipped_class, with_causes,
};

/// Sticks that have the names of their sockets, and whatever their makers wrote into them.
const STICKS: &str = "version = 1\nresource = 'example.com/stick'\n\
    request = { env = 'STICKS' }\n\
    [[discover]]\npath = '/sys/sticks/{port}'\n\
    attributes = [{ name = 'serial', file = 'serial' }]\n\
    [device]\nid = 'usb-{port}'\norder = '{port}'\naliases = ['{port}', '{serial}']\n";

const STICKS_HOST: &str = "file /sys/sticks/1-1/serial\n| 2\n\
    file /sys/sticks/1-2/serial\n| HD Pro Webcam C920\n\
    file /sys/sticks/1-3/serial\n| all\n\
    file /sys/sticks/2-1/serial\n| a, \"b\"\n";

fn request(class: &DeviceClass, value: &str) -> Result<Option<Request>, String> {
    let env = Environment::from(vec![format!("{}={value}", class.spec.request.env)]);
    Request::find(class, &env, |_| None).map_err(with_causes)
}

/// Returns the ids of the devices that a container gets by a request, or the error.
fn chosen(class: &DeviceClass, host: &RecordedHost, value: &str) -> Result<String, String> {
    let request = request(class, value)?.ok_or("nothing")?;
    let plan = plan(class, &request, host, &asker())?;
    Ok(plan.grants[0].devices.join(" "))
}

/// Returns the ids of the devices that a request means in an inventory, or `None` if the
/// request is refused.
fn chosen_of(class: &DeviceClass, inventory: &Inventory, value: &str) -> Option<Vec<String>> {
    let request = request(class, value).ok()??;
    let chosen = request.selection.choose(class, inventory).ok()?;
    Some(chosen.iter().map(|device| device.id.to_string()).collect())
}

#[test]
fn a_name_counts_before_a_range_and_an_index() {
    let class = parse("stick", STICKS).unwrap();
    let host = RecordedHost::parse(STICKS_HOST).unwrap();
    for (value, devices) in [
        // The second stick is in socket 1-2, and a range would be the second and the third.
        ("1-2", "usb-1-2"),
        ("1-3", "usb-1-3"),
        ("2-1", "usb-2-1"),
        ("example.com/stick=1-2", "usb-1-2"),
        ("1-2,0", "usb-1-1 usb-1-2"),
        // The third stick has this text as its index, and the first one as its serial number.
        ("2", "usb-1-1"),
        ("3", "usb-2-1"),
        // Nobody is called so. The numbers of a range are indices.
        ("0-1", "usb-1-1 usb-1-2"),
        ("0-2", "usb-1-1 usb-1-2 usb-1-3"),
        ("HD Pro Webcam C920", "usb-1-2"),
        ("hd pro webcam c920 , 0", "usb-1-1 usb-1-2"),
        ("\"HD Pro Webcam C920\"", "usb-1-2"),
        ("\"a, \"\"b\"\"\",0", "usb-1-1 usb-2-1"),
        ("\"1-2\"", "usb-1-2"),
        ("all", "usb-1-1 usb-1-2 usb-1-3 usb-2-1"),
    ] {
        let found = chosen(&class, &host, value);
        assert_eq!(found.as_deref(), Ok(devices), "{value}");
    }
    for (value, reason) in [
        ("a, \"b\"", "no device `a`"),
        ("\"0-1\"", "no device `0-1`"),
        ("\"all\"", "no device `all`"),
        ("\"none\"", "no device `none`"),
        ("\"example.com/stick=0\"", "no device `example.com/stick=0`"),
        ("\"1-2", "begins with a quote that does not end it"),
        ("\"1-2\"3", "begins with a quote that does not end it"),
        ("\"\"", "`` is neither a device nor a range"),
        ("3-1", "ends before it begins; write 1-3"),
        ("0-9", "no device `4`"),
        (
            "example.org/stick=1-2",
            "which is not a resource of the class",
        ),
    ] {
        let refused = chosen(&class, &host, value).unwrap_err();
        assert!(refused.contains(reason), "{value}: {refused}");
    }
}

/// The names are those that `boathook list` prints.
#[test]
fn a_name_is_written_so_that_it_means_its_device() {
    let class = parse("stick", STICKS).unwrap();
    let host = RecordedHost::parse(STICKS_HOST).unwrap();
    let inventory = discover::devices(&class, &host);
    let names = RequestNames::new(&class, &inventory);
    let written = |device: usize, name: &str| {
        let written = names.write_name(&inventory.devices[device], name)?;
        Some((written.text, written.is_own))
    };
    let own = |text: &str| Some((text.to_owned(), true));
    for (device, name, expected) in [
        (0, "1-1", own("\"1-1\"")),
        (0, "2", own("2")),
        (0, "0", own("0")),
        (1, "HD Pro Webcam C920", own("HD Pro Webcam C920")),
        (2, "2", None),
        (2, "all", None),
        (2, "NONE", None),
        (2, "", None),
        (2, "0-1", None),
        (2, "/dev/stick", None),
        (2, "example.com/stick=2", None),
        (3, "a, \"b\"", own("\"a, \"\"b\"\"\"")),
    ] {
        assert_eq!(written(device, name), expected, "{name}");
    }
    let aliases = inventory.devices.iter().flat_map(|it| &it.aliases);
    let is_word = |name: &&String| ["all", "none", "void"].contains(&name.as_str());
    assert_eq!(aliases.filter(is_word).count(), 0);
}

/// Fails unless each name that is printed means its device, and no other if that is said.
fn assert_written_names_mean_their_devices(class: &DeviceClass, inventory: &Inventory) -> usize {
    let names = RequestNames::new(class, inventory);
    let mut count = 0;
    for device in &inventory.devices {
        let own = [device.id.as_str()]
            .into_iter()
            .chain(device.index.as_deref());
        for name in own.chain(device.aliases.iter().map(String::as_str)) {
            let Some(written) = names.write_name(device, name) else {
                continue;
            };
            let case = format!("{}: {name:?} of {}", class.name, device.id);
            let meant = chosen_of(class, inventory, &written.text).unwrap_or_default();
            assert!(meant.contains(&device.id.to_string()), "{case}: {meant:?}");
            assert_eq!(meant.len() == 1, written.is_own, "{case}: {meant:?}");
            count += 1;
        }
    }
    count
}

#[test]
fn every_printed_name_of_a_recorded_host_means_its_device() {
    let mut count = 0;
    for class in shipped() {
        for case in recordings(directory("testdata").join(class.name.as_str())) {
            let text = std::fs::read_to_string(case.join("host.txt")).unwrap();
            let host = RecordedHost::parse(&text).unwrap();
            let inventory = discover::devices(&class, &host);
            let names = RequestNames::new(&class, &inventory);
            for device in &inventory.devices {
                let id = names.write_name(device, device.id.as_str());
                assert!(id.is_some_and(|id| id.is_own), "{}", device.id);
            }
            count += assert_written_names_mean_their_devices(&class, &inventory);
        }
    }
    assert!(count > 500, "{count} names");
}

/// Texts that have another meaning in a request, or some of its marks.
fn hostile_text() -> impl Strategy<Value = String> {
    let whole = prop::sample::select(vec![
        "all",
        "None",
        "void",
        "0",
        "1",
        "2",
        "0-1",
        "1-0",
        "0-2",
        "1-",
        "-",
        "usb-0",
        "USB-0",
        "usb-1",
        "usb-1::0",
        "/dev/ttyUSB0",
        "/dev/x:/dev/y",
        "example.com/a=0",
        "example.com/b=all",
        "example.com/a=none",
        "=",
        "a=b",
        "\"",
        "\"\"",
        "\"0\"",
        " 0",
        "0,1",
        "a,b",
        "\"a,b\"",
        "all,x",
        " ",
        "é",
    ]);
    let mixed = prop::collection::vec(
        prop::sample::select("01-,\" =/:.aA\t".chars().collect::<Vec<_>>()),
        1..6,
    );
    prop_oneof![
        whole.prop_map(str::to_owned),
        mixed.prop_map(|characters| characters.into_iter().collect()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Hardware whose makers chose its texts.
    #[test]
    fn every_printed_name_of_hostile_hardware_means_its_device(
        texts in prop::collection::vec((hostile_text(), hostile_text(), prop::option::of(hostile_text())), 1..5),
        replicas in prop::option::of(1_u16..3),
        several_resources: bool,
    ) {
        let resource = if several_resources { "example.com/{kind}" } else { "example.com/a" };
        let class = format!(
            "version = 1\nresource = '{resource}'\nrequest = {{ env = 'STICKS' }}\n\
             [[discover]]\ncount = 1\nattributes = [{{ name = 'kind', value = 'a' }}]\n\
             [device]\nid = 'usb-{{index}}'\n"
        );
        let class = parse("stick", &class).unwrap();
        let first = discover::devices(&class, &RecordedHost::parse("").unwrap()).devices.remove(0);
        let devices = texts.into_iter().enumerate().map(|(number, (alias, other, index))| Device {
            id: format!("usb-{number}").try_into().unwrap(),
            aliases: vec![alias, other],
            index: index.or_else(|| Some(number.to_string())),
            replicas,
            ..first.clone()
        });
        let inventory = Inventory { devices: devices.collect(), ..Inventory::default() };
        assert_written_names_mean_their_devices(&class, &inventory);
        // A text that some device has as a name, and that is nothing else, means only devices
        // that have it.
        for alias in inventory.devices.iter().flat_map(|device| &device.aliases) {
            let quoted = format!("\"{}\"", alias.replace('"', "\"\""));
            if alias.starts_with("/dev/") {
                continue;
            }
            let has_it = |id: &String| {
                let device = inventory.devices.iter().find(|device| device.id.as_str() == id);
                device.is_some_and(|device| {
                    let names = device.aliases.iter().map(String::as_str);
                    let mut names = names.chain([device.id.as_str()]);
                    names.any(|name| name.eq_ignore_ascii_case(alias))
                })
            };
            for value in [alias, &quoted] {
                let is_other = value == alias
                    && (alias.contains([',', '=', '"']) || alias.trim() != alias || is_word(alias));
                if is_other {
                    continue;
                }
                let meant = chosen_of(&class, &inventory, value).unwrap_or_default();
                prop_assert!(meant.iter().all(has_it), "{value:?}: {meant:?}");
                prop_assert!(!meant.is_empty(), "{value:?}");
            }
        }
    }
}

fn is_word(text: &str) -> bool {
    ["all", "none", "void"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
}

fn serial_ports() -> (DeviceClass, RecordedHost) {
    let text = std::fs::read_to_string(directory("testdata/serial-port/host.txt")).unwrap();
    let more = "link /dev/zigbee serial/by-id/usb-Other-if00\n\
        link /dev/any ttyUSB0\nlink /dev/loop loop\nlink /dev/null-link /dev/null\n\
        char /dev/null 1:3\nlink /dev/gone ttyUSB7\nchar /dev/copy 188:0\n";
    let host = RecordedHost::parse(&(text + more)).unwrap();
    (shipped_class("serial-port"), host)
}

#[test]
fn a_path_is_the_node_that_the_host_has_there() {
    let (class, host) = serial_ports();
    let second = "/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A10K8WVB-if00-port0";
    for (value, devices) in [
        ("/dev/ttyUSB0", "serial-1-2:1.0"),
        ("/dev//ttyUSB0", "serial-1-2:1.0"),
        (second, "serial-1-3.4:1.0"),
        ("/dev/serial/by-id/usb-Other-if00", "serial-1-4:1.0"),
        ("/dev/zigbee", "serial-1-4:1.0"),
        ("/dev/any,/dev/ttyUSB0", "serial-1-2:1.0"),
        ("\"/dev/any\"", "serial-1-2:1.0"),
        ("devices.boathook.dev/serial=/dev/any", "serial-1-2:1.0"),
        ("/dev/zigbee,ttyUSB10", "serial-1-4:1.0 serial-1-3.4:1.0"),
    ] {
        let found = chosen(&class, &host, value);
        assert_eq!(found.as_deref(), Ok(devices), "{value}");
    }
    for (value, reason) in [
        // Its last component alone would be one.
        (
            "/dev/any/thing/ttyUSB0",
            "/dev/any/thing/ttyUSB0 does not exist",
        ),
        ("/dev/ttyusb0", "does not exist"),
        ("/dev/serial/by-id", "is a directory, not a device node"),
        ("/dev/ttyS0", "it is a node of none of them"),
        (
            "/dev/null-link",
            "it leads to /dev/null, which is a node of none of them",
        ),
        ("/dev/copy", "it is a node of none of them"),
        ("/dev/gone", "does not exist"),
        ("/dev/loop", "cannot look up /dev/loop"),
        ("/dev/../sys/class/tty/ttyUSB0", "is a directory"),
        ("/dev/ttyUSB0/", "serial-1-2:1.0"),
    ] {
        match chosen(&class, &host, value) {
            Ok(devices) => assert_eq!(devices, reason, "{value}"),
            Err(refused) => assert!(refused.contains(reason), "{value}: {refused}"),
        }
    }
}

#[test]
fn a_path_in_the_container_is_refused_with_what_to_write() {
    let (class, host) = serial_ports();
    let by_id = "/dev/serial/by-id/usb-Other-if00";
    let ignoring = parse(
        "tty",
        "version = 1\nresource = 'example.com/tty'\n\
         request = { env = 'TTYS', ignores_unknown = true }\n\
         [[discover]]\npath = '/dev/ttyUSB{index:number}'\n\
         [device]\nid = 'tty-{index}'\nnodes = ['/dev/ttyUSB{index}']\n",
    )
    .unwrap();
    for class in [&class, &ignoring] {
        for (item, host_path) in [
            ("/dev/ttyUSB0:/dev/ttyACM0".to_owned(), "/dev/ttyUSB0"),
            ("/dev/ttyUSB0:/dev/ttyUSB10:rwm".to_owned(), "/dev/ttyUSB0"),
            ("/dev/ttyUSB0:/ttyUSB10".to_owned(), "/dev/ttyUSB0"),
            ("/dev/ttyUSB0:rw".to_owned(), "/dev/ttyUSB0"),
            ("\"/dev/ttyUSB0:/dev/ttyUSB10\"".to_owned(), "/dev/ttyUSB0"),
            (format!("{by_id}:/dev/ttyACM0"), by_id),
            (format!("0,{by_id}:/dev/ttyACM0"), by_id),
        ] {
            let refused = chosen(class, &host, &item).unwrap_err();
            let advice = format!("write {host_path}, which the container has as well");
            assert!(refused.contains(&advice), "{item}: {refused}");
        }
    }
    // What such a class ignores is what the host does not have.
    let found = chosen(&ignoring, &host, "/dev/ttyUSB7,/dev/ttyUSB10,9-10");
    assert_eq!(found.as_deref(), Ok("tty-10"));
}

#[test]
fn a_node_of_several_devices_is_not_one_of_them() {
    let class = "version = 1\nresource = 'example.com/half'\nrequest = { env = 'HALVES' }\n\
        [[discover]]\ncount = 2\n[device]\nid = 'half-{index}'\nnodes = ['/dev/whole']\n";
    let class = parse("half", class).unwrap();
    let host = RecordedHost::parse("char /dev/whole 120:0\n").unwrap();
    let refused = chosen(&class, &host, "/dev/whole").unwrap_err();
    let reason = "/dev/whole is a node of several devices, half-0, half-1; name one of them";
    assert!(refused.contains(reason), "{refused}");
}

/// What each recorded host has of nodes is named by their paths.
#[test]
fn every_node_of_a_recorded_host_names_its_device() {
    for class in shipped() {
        for case in recordings(directory("testdata").join(class.name.as_str())) {
            let text = std::fs::read_to_string(case.join("host.txt")).unwrap();
            let host = RecordedHost::parse(&text).unwrap();
            let inventory = discover::devices(&class, &host);
            let nodes = inventory.devices.iter().flat_map(|device| &device.nodes);
            let paths = nodes.map(|node| node.host.clone());
            let mut paths: Vec<PathBuf> = paths.filter(|it| it.starts_with("/dev/")).collect();
            paths.sort();
            paths.dedup();
            for path in paths {
                let value = path.to_str().unwrap();
                let request = request(&class, value).unwrap().unwrap();
                let Ok(FoundClass { inventory, .. }) =
                    discover::look_up(&class, request.wanted(), &host)
                else {
                    continue;
                };
                let has_it = |it: &&Device| it.nodes.iter().any(|node| node.host == path);
                let divided = inventory.divided.iter().filter(has_it).count();
                let users = inventory.devices.iter().filter(has_it);
                let users: Vec<&str> = users.map(|it| it.id.as_str()).collect();
                match request.selection.choose(&class, &inventory) {
                    Ok(chosen) if divided > 0 => assert_eq!(chosen.len(), 1, "{value}"),
                    Ok(chosen) => assert_eq!([chosen[0].id.as_str()], *users, "{value}"),
                    Err(_) => assert!(users.len() > 1, "{}: {value}", case.display()),
                }
            }
        }
    }
}

/// A class of lamps that are unhealthy if their state file says so.
const LAMPS: &str = "version = 1\nresource = 'example.com/{kind}'\nrequest = { env = 'LAMPS' }\n\
    [[discover]]\npath = '/sys/lamps/{name}'\nattributes = [{ name = 'kind', file = 'kind' }]\n\
    [device]\nid = '{name}'\nhealth = [{ file = 'state', equals = 'ok' }]\n";

fn lamps(states: &[(&str, &str, &str)]) -> RecordedHost {
    let files = states.iter().map(|(name, kind, state)| {
        format!("file /sys/lamps/{name}/kind\n| {kind}\nfile /sys/lamps/{name}/state\n| {state}\n")
    });
    RecordedHost::parse(&files.collect::<String>()).unwrap()
}

#[test]
fn all_of_devices_of_which_none_is_healthy_is_refused_with_the_reasons() {
    let class = parse("lamp", LAMPS).unwrap();
    let ill = lamps(&[("left", "red", "hot"), ("right", "blue", "broken")]);
    let half = lamps(&[("left", "red", "hot"), ("right", "blue", "ok")]);
    let none = lamps(&[]);
    for (host, value, expected) in [
        (
            &ill,
            "all",
            Err(["left is unhealthy", "hot", "right is unhealthy", "broken"].as_slice()),
        ),
        (&ill, "left,ALL", Err(&["right is unhealthy"])),
        (&ill, "example.com/red=all", Err(&["left is unhealthy"])),
        (&half, "example.com/red=all", Err(&["left is unhealthy"])),
        (
            &half,
            "example.com/green=all",
            Err(&["no device `example.com/green=all`"]),
        ),
        (&ill, "left", Ok("left")),
        (&ill, "none", Ok("")),
        (&half, "all", Ok("right")),
        // Hardware that is absent: images set this by default.
        (&none, "all", Ok("")),
    ] {
        let found = chosen(&class, host, value);
        match (found, expected) {
            (Ok(devices), Ok(expected)) => assert_eq!(devices, expected, "{value}"),
            (Err(refused), Err(words)) => {
                assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
            }
            (found, _) => panic!("{value}: {found:?}"),
        }
    }
    // In a pod the kubelet's record decides, whatever the image requests.
    let recorded = Authority::Kubelet(RecordedDevices::default());
    let request = request(&class, "all").unwrap().unwrap();
    assert!(plan(&class, &request, &ill, &recorded).is_ok());
}

#[test]
fn the_reasons_of_many_devices_are_cut() {
    let class = parse("lamp", LAMPS).unwrap();
    let names: Vec<String> = (0..100).map(|number| format!("lamp{number:02}")).collect();
    let states: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), "red", "hot"))
        .collect();
    let refused = chosen(&class, &lamps(&states), "all").unwrap_err();
    assert!(
        refused.contains("lamp07") && !refused.contains("lamp08"),
        "{refused}"
    );
    assert!(refused.contains("; and 92 more"), "{refused}");
}

const CHIPS: &str = "version = 1\nresource = 'example.com/chip'\n\
    request = { env = 'CHIPS', capabilities_env = 'CAPS', default_capabilities = ['compute'], \
    switches = { TRACE = { on = 'trace' } } }\n\
    discover = [{ path = '/dev/chip{index:number}' }]\n\
    device = { id = 'chip-{index}', nodes = ['/dev/chip{index}'] }\n\
    [[edits]]\ncapability = 'compute'\nfiles = ['/etc/compute']\n\
    [[edits]]\ncapability = 'trace'\nfiles = ['/etc/trace']\n\
    [[edits]]\nunless_capability = 'bare'\nfiles = ['/etc/chips']\n";

#[test]
fn a_list_without_any_known_capability_is_refused() {
    let class = parse("chips", CHIPS).unwrap();
    let files = "file /etc/compute\nfile /etc/trace\nfile /etc/chips\n";
    let host = RecordedHost::parse(&format!("char /dev/chip0 120:0\n{files}")).unwrap();
    let bare = RecordedHost::parse(files).unwrap();
    for (devices, capabilities, host, is_refused) in [
        ("0", "compute", &host, false),
        ("0", "COMPUTE,utilities", &host, false),
        ("0", "all,utilities", &host, false),
        ("0", "bare", &host, false),
        ("0", "", &host, false),
        ("0", " , ", &host, false),
        ("0", "utilities", &host, true),
        ("all", "compute;video", &host, true),
        ("none", "compute video", &host, true),
        ("0", "utilities,computes", &host, true),
        // A switch is another variable, and does not make the list right.
        ("0", "trace", &host, true),
        // Who gets nothing anyway is not refused.
        ("all", "utilities", &bare, false),
    ] {
        let env = [("CHIPS", devices), ("CAPS", capabilities), ("TRACE", "on")];
        let env: Vec<String> = env
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let request = Request::find(&class, &env.into(), |_| None)
            .unwrap()
            .unwrap();
        let planned = plan(&class, &request, host, &asker());
        assert_eq!(
            planned.is_err(),
            is_refused,
            "{devices} {capabilities}: {planned:?}"
        );
        if let Err(refused) = planned {
            let wanted = format!(
                "CAPS={capabilities} names no capability of class chips, which has bare, compute;"
            );
            assert!(refused.contains(&wanted), "{refused}");
        }
    }
}
