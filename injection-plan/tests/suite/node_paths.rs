//! Tests of requests that name a device by the path of its node on the host.

use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::device::{DeviceKind, DeviceNumber};
use device_class::discover::{self, Device, FoundClass};
use device_class::host::RecordedHost;
use injection_plan::plan::{
    self, Action, Authority, CheckpointDevices, PlanInput, SpecDevices, SpecNode,
};
use injection_plan::request::{DeviceList, Environment, Request, RequestSource};

use crate::names::{chosen, request};
use crate::planning::{asker, directory, parse, recordings, shipped, shipped_class, with_causes};

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
        (
            "/dev/serial/by-id",
            "is a directory, not a device node; name the devices in it, ",
        ),
        (
            "/dev/ttyS0",
            "it is a node of none of them: `boathook list /dev/ttyS0` shows",
        ),
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

/// The links of udev to disks lead to block devices.
#[test]
fn a_link_to_a_disk_names_the_disk() {
    let text = "version = 1\nresource = 'x.com/disk'\nrequest = { env = 'DISK_VISIBLE_DEVICES' }\n\
        discover = [{ path = '/dev/{name}', require = [{ exists = '/sys/class/block/{name}/queue' }] }]\n\
        device = { id = '{name}', nodes = [{ path = '/dev/{name}', udev_links = true }] }\n";
    let class = parse("disk", text).unwrap();
    let host = RecordedHost::parse(
        "dir /sys/class/block/sda/queue\ndir /sys/class/block/sdb/queue\n\
         block /dev/sda 8:0\nblock /dev/sdb 8:16\nblock /dev/sda1 8:1\n\
         link /dev/disk/by-id/usb-Key_0417-0:0 ../../sdb\n\
         link /dev/disk/by-uuid/2c1e ../../sda1\n",
    )
    .unwrap();
    let by_id = "/dev/disk/by-id/usb-Key_0417-0:0";
    assert_eq!(chosen(&class, &host, by_id).as_deref(), Ok("sdb"));
    // A partition is no device of this class.
    let refused = chosen(&class, &host, "/dev/disk/by-uuid/2c1e").unwrap_err();
    assert!(
        refused.contains("which is a node of none of them"),
        "{refused}"
    );
}

/// The engines' option `--device` gives all nodes of a directory.
#[test]
fn a_directory_is_refused_with_the_devices_in_it() {
    for (class, directory_path, ids) in [
        ("sound", "/dev/snd", "Headset"),
        ("vfio", "/dev/vfio", "vfio-7, vfio-12, vfio-20"),
        (
            "usb-reader",
            "/dev/bus/usb",
            "felica-0512345, felica-1-10.3",
        ),
        ("serial-port", "/dev/serial/by-id", ""),
    ] {
        let path = directory(&format!("testdata/{class}/host.txt"));
        let host = RecordedHost::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        let class = shipped_class(class);
        for value in [
            directory_path.to_owned(),
            format!("{directory_path}:{directory_path}"),
        ] {
            let refused = chosen(&class, &host, &value).unwrap_err();
            let advice = format!("name the devices in it, {ids}, or request `all`");
            assert!(refused.contains("is a directory"), "{refused}");
            assert_eq!(refused.contains(&advice), !ids.is_empty(), "{refused}");
        }
    }
}

#[test]
fn a_form_of_the_engines_that_no_request_has_is_refused_with_what_to_write() {
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
            ("/dev/ttyUSB0:/dev/ttyUSB10:rwm".to_owned(), "/dev/ttyUSB0"),
            ("/dev/ttyUSB0:/ttyUSB10".to_owned(), "/dev/ttyUSB0"),
            ("/dev/ttyUSB0:rw".to_owned(), "/dev/ttyUSB0"),
            ("\"/dev/ttyUSB0:/dev/ttyUSB10\"".to_owned(), "/dev/ttyUSB0"),
            (format!("{by_id}:/dev/ttyACM0:r"), by_id),
        ] {
            let refused = chosen(class, &host, &item).unwrap_err();
            let advice = format!("write {host_path}, or {host_path}:/dev/NAME for another path");
            assert!(refused.contains(&advice), "{item}: {refused}");
        }
    }
    // Such a class ignores devices that the host does not have.
    let found = chosen(&ignoring, &host, "/dev/ttyUSB7,/dev/ttyUSB10,9-10");
    assert_eq!(found.as_deref(), Ok("tty-10"));
}

/// Returns the nodes and links that a container gets by a request. Each node is its path in the
/// container and its path on the host. The link that the class has for the first stick is left out.
fn placed(class: &DeviceClass, host: &RecordedHost, value: &str) -> Result<String, String> {
    placed_in(class, host, value, &SpecDevices::default(), &asker())
}

fn placed_in(
    class: &DeviceClass,
    host: &RecordedHost,
    value: &str,
    spec: &SpecDevices,
    authority: &Authority,
) -> Result<String, String> {
    let request = request(class, value)?.ok_or("nothing")?;
    let found =
        discover::look_up_class(class, request.edit_selection(), host).map_err(with_causes)?;
    let input = PlanInput {
        class,
        request: &request,
        found_class: &found,
        authority,
    };
    let plan = plan::plan_injection(&[input], spec).map_err(with_causes)?;
    let steps = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Node { mount, .. } => Some(format!(
            "{} from {}",
            mount.path.display(),
            mount.source.display()
        )),
        Action::Link { path, target } => {
            Some(format!("{} -> {}", path.display(), target.display()))
        }
        _ => None,
    });
    // The first port's links of the class and of udev.
    let is_of_class =
        |step: &String| step.contains("usb-ITead") || step.contains("serial/by-path/");
    let steps: Vec<String> = steps.filter(|step| !is_of_class(step)).collect();
    Ok(steps.join("; "))
}

#[test]
fn a_container_has_the_link_by_which_it_requests_a_device() {
    let (class, host) = serial_ports();
    let by_id = "/dev/serial/by-id/usb-Other-if00 -> ../../ttyACM0";
    for (value, expected) in [
        (
            "/dev/any",
            "/dev/ttyUSB0 from /dev/ttyUSB0; /dev/any -> ttyUSB0".to_owned(),
        ),
        (
            "/dev/zigbee",
            format!("/dev/ttyACM0 from /dev/ttyACM0; {by_id}; /dev/zigbee -> ttyACM0"),
        ),
        (
            "/dev/zigbee,ttyACM0",
            format!("/dev/ttyACM0 from /dev/ttyACM0; {by_id}; /dev/zigbee -> ttyACM0"),
        ),
        // The class has this link anyway.
        (
            "/dev/serial/by-id/usb-Other-if00",
            format!("/dev/ttyACM0 from /dev/ttyACM0; {by_id}"),
        ),
        (
            "ttyACM0",
            format!("/dev/ttyACM0 from /dev/ttyACM0; {by_id}"),
        ),
        ("/dev//ttyUSB0", "/dev/ttyUSB0 from /dev/ttyUSB0".to_owned()),
    ] {
        assert_eq!(placed(&class, &host, value), Ok(expected), "{value}");
    }
}

/// As with the engines' option `--device HOST:CONTAINER`.
#[test]
fn a_node_is_where_the_request_wants_it() {
    let (class, host) = serial_ports();
    let by_id = "/dev/serial/by-id/usb-Other-if00";
    for (value, expected) in [
        (
            "/dev/ttyUSB0:/dev/ttyACM0".to_owned(),
            "/dev/ttyACM0 from /dev/ttyUSB0".to_owned(),
        ),
        (
            " ttyUSB0 :/dev/modem , ".to_owned(),
            "/dev/modem from /dev/ttyUSB0".to_owned(),
        ),
        (
            "\"ttyUSB0\":/dev/a/modem".to_owned(),
            "/dev/a/modem from /dev/ttyUSB0".to_owned(),
        ),
        (
            "devices.boathook.dev/serial=ttyUSB0:/dev/modem".to_owned(),
            "/dev/modem from /dev/ttyUSB0".to_owned(),
        ),
        (
            format!("{by_id}:/dev/stick"),
            format!("/dev/stick from /dev/ttyACM0; {by_id} -> ../../stick"),
        ),
        // The node takes the place of the link.
        (
            format!("{by_id}:{by_id}"),
            format!("{by_id} from /dev/ttyACM0"),
        ),
        (
            format!("{by_id}:{by_id},ttyACM0"),
            format!("{by_id} from /dev/ttyACM0; /dev/ttyACM0 from /dev/ttyACM0"),
        ),
        (
            format!("ttyACM0,ttyUSB0:{by_id}"),
            format!("{by_id} from /dev/ttyUSB0; /dev/ttyACM0 from /dev/ttyACM0"),
        ),
        // Also at its own path, since it is requested by its name alone as well.
        (
            "ttyUSB0,/dev/any:/dev/modem".to_owned(),
            "/dev/modem from /dev/ttyUSB0; /dev/ttyUSB0 from /dev/ttyUSB0".to_owned(),
        ),
        // Two sticks change their places.
        (
            "/dev/ttyUSB0:/dev/ttyACM0,/dev/ttyACM0:/dev/ttyUSB0".to_owned(),
            format!(
                "/dev/ttyACM0 from /dev/ttyUSB0; /dev/ttyUSB0 from /dev/ttyACM0; {by_id} -> \
                 ../../ttyUSB0"
            ),
        ),
    ] {
        assert_eq!(placed(&class, &host, &value), Ok(expected), "{value}");
    }
    for (value, reason) in [
        (
            "0:/dev/null",
            "each container has something of its own there",
        ),
        (
            "0:/dev/pts/7",
            "each container has something of its own there",
        ),
        ("0:/dev/../etc/x", "it is not a plain path below /dev"),
        ("0:/dev/", "it is not a plain path below /dev"),
        ("0:/dev/a/", "it is not a plain path below /dev"),
        (":/dev/a", "there is no device before it"),
        ("0:/dev/a\nb", "it has control characters"),
        (
            "0-1:/dev/a",
            "`0-1` is a range of devices, and /dev/a is for one",
        ),
        (
            "all:/dev/a",
            "`all` is in a list with `all`, and /dev/a is for one",
        ),
        ("0:/dev/a,all", "`0` is in a list with `all`"),
        (
            "ttyUSB0:/dev/a,ttyACM0:/dev/a",
            "/dev/a is claimed by both /dev/ttyACM0 and /dev/ttyUSB0",
        ),
        (
            "ttyUSB0:/dev/ttyACM0,ttyACM0",
            "/dev/ttyACM0 is claimed by both /dev/ttyACM0 and /dev/ttyUSB0",
        ),
        (
            "\"ttyUSB0\":/tmp/a",
            "begins with a quote that does not end it",
        ),
        ("\"ttyUSB0\" x", "begins with a quote that does not end it"),
    ] {
        let refused = placed(&class, &host, value).unwrap_err();
        assert!(refused.contains(reason), "{value}: {refused}");
    }
}

/// As when a device is attached to a container that has it at another path.
#[test]
fn two_requests_place_one_device_at_two_paths() {
    let (class, host) = serial_ports();
    let requests = ["ttyACM0:/dev/ttyUSB9", "ttyACM0"];
    let requests = requests.map(|value| request(&class, value).unwrap().unwrap());
    let found = requests
        .each_ref()
        .map(|request| discover::look_up_class(&class, request.edit_selection(), &host).unwrap());
    let authority = asker();
    let inputs = [0, 1].map(|number| PlanInput {
        class: &class,
        request: &requests[number],
        found_class: &found[number],
        authority: &authority,
    });
    let plan = plan::plan_injection(&inputs, &SpecDevices::default()).unwrap();
    let nodes = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Node { mount, .. } => Some(mount.path.display().to_string()),
        Action::Link { target, .. } => Some(format!("link to {}", target.display())),
        _ => None,
    });
    let nodes: Vec<String> = nodes.collect();
    assert_eq!(
        nodes,
        ["/dev/ttyACM0", "/dev/ttyUSB9", "link to ../../ttyUSB9"]
    );
}

#[test]
fn a_path_is_refused_where_something_else_is_or_others_decide() {
    let (class, host) = serial_ports();
    let spec = SpecDevices {
        nodes: vec![SpecNode {
            path: "/dev/modem".into(),
            number: DeviceNumber {
                kind: DeviceKind::Character,
                major: 10,
                minor: 183,
            },
        }],
        mount_points: vec!["/dev/snd".into()],
        ..SpecDevices::default()
    };
    let pod = Authority::Kubelet(CheckpointDevices::default());
    for (value, authority, reason) in [
        // A device that comes later would hide what is there.
        (
            "x9:/dev/modem?",
            asker(),
            "\"x9\" cannot be at /dev/modem in the container: config.json has c 10:183",
        ),
        (
            "x9:/dev/snd/modem?",
            asker(),
            "config.json mounts /dev/snd; choose another path",
        ),
        (
            "ttyUSB0:/dev/one,x9:/dev/one?",
            asker(),
            "/dev/one is claimed by both serial-1-2:1.0 and \"x9\"",
        ),
        (
            "ttyUSB0:/dev/modem",
            asker(),
            "serial-1-2:1.0 cannot be at /dev/modem in the container: config.json has c 10:183",
        ),
        (
            "ttyUSB0:/dev/snd/modem",
            asker(),
            "config.json mounts /dev/snd; choose another path",
        ),
        (
            "ttyUSB0:/dev/a",
            pod,
            "which a pod, whose devices the kubelet chooses, cannot keep; write it without",
        ),
    ] {
        let refused = placed_in(&class, &host, value, &spec, &authority).unwrap_err();
        assert!(refused.contains(reason), "{value}: {refused}");
    }
    let source = RequestSource::Cdi {
        devices: DeviceList::parse("ttyUSB0:/dev/a").unwrap(),
    };
    let refused = Request::parse(&class, &Environment::default(), source).unwrap_err();
    let refused = with_causes(refused);
    assert!(
        refused.contains("which a CDI specification cannot keep"),
        "{refused}"
    );
}

#[test]
fn a_path_is_for_one_node_of_a_device() {
    let class = "version = 1\nresource = 'example.com/gpu'\nrequest = { env = 'GPUS' }\n\
        [[discover]]\ncount = 2\n[device]\nid = 'gpu-{index}'\n\
        nodes = ['/dev/dri/card{index}', '/dev/dri/render{index}']\n";
    let class = parse("gpu", class).unwrap();
    let nodes = "char /dev/dri/card0 226:0\nchar /dev/dri/render0 226:128\n\
        char /dev/dri/card1 226:1\nchar /dev/dri/render1 226:129\n\
        link /dev/dri/by-path/pci-0-render ../render1\n";
    let host = RecordedHost::parse(nodes).unwrap();
    assert_eq!(
        placed(
            &class,
            &host,
            "/dev/dri/by-path/pci-0-render:/dev/dri/render0"
        )
        .as_deref(),
        Ok("/dev/dri/card1 from /dev/dri/card1; /dev/dri/render0 from /dev/dri/render1")
    );
    let link = "/dev/dri/by-path/pci-0-render -> ../render1";
    assert_eq!(
        placed(&class, &host, "/dev/dri/by-path/pci-0-render"),
        Ok(format!(
            "/dev/dri/card1 from /dev/dri/card1; /dev/dri/render1 from /dev/dri/render1; {link}"
        ))
    );
    let refused = placed(&class, &host, "gpu-1:/dev/dri/render0").unwrap_err();
    let reason = "a device with the nodes /dev/dri/card1, /dev/dri/render1, and /dev/dri/render0";
    assert!(refused.contains(reason), "{refused}");
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

/// The nodes of each recorded host are named by their paths.
#[test]
fn every_node_of_a_recorded_host_names_its_device() {
    for class in shipped() {
        for case in recordings(directory("testdata").join(class.name.as_str())) {
            let text = std::fs::read_to_string(case.join("host.txt")).unwrap();
            let host = RecordedHost::parse(&text).unwrap();
            let inventory = discover::find_devices(&class, &host);
            let nodes = inventory.devices.iter().flat_map(|device| &device.nodes);
            let paths = nodes.map(|node| node.host_path.clone());
            let mut paths: Vec<PathBuf> = paths.filter(|it| it.starts_with("/dev/")).collect();
            paths.sort();
            paths.dedup();
            for path in paths {
                let value = path.to_str().unwrap();
                let request = request(&class, value).unwrap().unwrap();
                let Ok(FoundClass { inventory, .. }) =
                    discover::look_up_class(&class, request.edit_selection(), &host)
                else {
                    continue;
                };
                let has_it = |it: &&Device| it.nodes.iter().any(|node| node.host_path == path);
                let divided = inventory.partitioned_devices.iter().filter(has_it).count();
                let users = inventory.devices.iter().filter(has_it);
                let users: Vec<&str> = users.map(|it| it.id.as_str()).collect();
                match request.selection.choose_devices(&class, &inventory) {
                    Ok(chosen) if divided > 0 => assert_eq!(chosen.len(), 1, "{value}"),
                    Ok(chosen) => assert_eq!([chosen[0].id.as_str()], *users, "{value}"),
                    Err(_) => assert!(users.len() > 1, "{}: {value}", case.display()),
                }
            }
        }
    }
}
