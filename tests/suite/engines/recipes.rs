//! Each recipe of [`PAGES`] as it is written there, in containers on a host that was
//! recorded. The image and the network are the lab's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use harness::binaries;
use harness::captured::Captured;
use harness::engine_root::Generation;
use harness::image::Image;
use harness::probe;
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;
use serde_json::json;

use super::docker::{self, UserNamespaces, name_of};
use super::machine::Machine;
use super::podman;

/// The pages with recipes, in docs.
const PAGES: [&str; 3] = ["recipes.md", "podman.md", "class-tutorial.md"];

/// The recordings of the classes, and the card of the last recipe.
const RECORDED: [&str; 5] = [
    "serial-port",
    "coral-edgetpu/usb",
    "v4l2-camera",
    "nvidia-gpu/h200",
    "can",
];
const ACME: &str = "char /dev/acme0 240:0
char /dev/acme0_dma0 240:1
char /dev/acme0_dma1 240:2
char /dev/acme_ctl 240:3
file /sys/class/acme/acme0/state
| ok
file /opt/acme/lib/libacme.so.1
file /lib/firmware/acme.bin
| firmware
";

/// An SDR receiver and a UPS, of which no class is shipped.
const USB: &str = "file /sys/bus/usb/devices/3-1/idVendor
| 0bda
file /sys/bus/usb/devices/3-1/idProduct
| 2838
file /sys/bus/usb/devices/3-1/busnum
| 3
file /sys/bus/usb/devices/3-1/devnum
| 9
file /sys/bus/usb/devices/3-1/serial
| 00000001
file /sys/bus/usb/devices/3-2/idVendor
| 051d
file /sys/bus/usb/devices/3-2/idProduct
| 0002
file /sys/bus/usb/devices/3-2/busnum
| 3
file /sys/bus/usb/devices/3-2/devnum
| 10
char /dev/bus/usb/003/009 189:264
char /dev/bus/usb/003/010 189:265
";

/// The dongle of the recipe, which udev calls so.
const DONGLE: &str =
    "dev/serial/by-id/usb-ITead_Sonoff_Zigbee_3.0_USB_Dongle_Plus_V2_f074cc5adcc9ed11-if00-port0";

/// A host with the devices of all recipes, to which a machine's configuration leads.
fn recorded(machine: &Machine) -> RecordedHost {
    let tree = binaries::source_tree().join("device-class");
    let read =
        |name: &str| fs::read_to_string(tree.join(format!("testdata/{name}/host.txt"))).unwrap();
    let host = RecordedHost::bare(&(RECORDED.map(read).concat() + ACME + USB)).unwrap();
    for recording in RECORDED {
        let class = recording.split('/').next().unwrap();
        let file = tree.join(format!("classes/{class}.toml"));
        host.add_class(class, &fs::read_to_string(file).unwrap())
            .unwrap();
    }
    let config = format!(
        "classes = [{:?}, \"/etc/boathook/classes.d\"]\nhost_root = {:?}\n\
         [runtime]\npath = {:?}\n",
        host.classes(),
        host.root(),
        machine.generation.program("runc").unwrap()
    );
    machine.write("/etc/boathook/config.toml", &config).unwrap();
    fs::create_dir_all(machine.private.file("/etc/boathook/classes.d")).unwrap();
    host
}

fn import(machine: &Machine, engine: &str) {
    let image = Image::new(Rootfs::Busybox).unwrap();
    let (layer, name) = (image.layer(), name_of(Rootfs::Busybox));
    succeeds(
        machine,
        &format!("{engine} import {} {name}", layer.display()),
    );
}

/// A shell's lines on the machine.
fn shell(machine: &Machine, lines: &str) -> Captured {
    let programs = binaries::program("boathook").unwrap();
    let programs = programs.parent().unwrap().display();
    let mut shell = machine.private.command("/bin/sh");
    shell
        .args(["-euc", lines])
        .env("DOCKER_HOST", docker::socket(machine))
        .env("PATH", format!("{programs}:/usr/sbin:/usr/bin:/sbin:/bin"));
    Captured::run(&mut shell).unwrap()
}

fn succeeds(machine: &Machine, lines: &str) -> String {
    shell(machine, lines).success().unwrap().stdout
}

/// The blocks of a language in a section of the page.
fn blocks(heading: &str, language: &str) -> Vec<String> {
    let section = section(heading);
    let parts = section.split("```").skip(1).step_by(2);
    let blocks = parts.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    blocks.map(str::to_owned).collect()
}

fn section(heading: &str) -> String {
    let docs = binaries::source_tree().join("docs");
    let texts = PAGES.map(|page| fs::read_to_string(docs.join(page)).unwrap());
    let heading = format!("\n## {heading}\n");
    let mut sections = texts
        .iter()
        .filter_map(|text| Some(text.split_once(&heading)?.1));
    let section = sections.next().unwrap();
    section.split("\n## ").next().unwrap().to_owned()
}

/// The lab's image, with a program that waits if the recipe names none.
fn with_image(recipe: &str) -> String {
    let image = format!("--network=none {}", name_of(Rootfs::Busybox));
    let waiting = format!("{image} {} {}\n", probe::PATH, probe::PAUSE);
    recipe.replace("IMAGE\n", &waiting).replace("IMAGE", &image)
}

/// Starts the only service of a recipe's compose file, and returns its container.
fn compose(machine: &Machine, heading: &str) -> String {
    compose_up(machine, &blocks(heading, "yaml").remove(0))
}

fn compose_up(machine: &Machine, recipe: &str) -> String {
    let image = name_of(Rootfs::Busybox);
    machine
        .write("/root/compose.yaml", &recipe.replace("IMAGE", &image))
        .unwrap();
    let service = recipe.lines().nth(1).unwrap().trim();
    let lab = format!(
        "services:\n  {service}\n    network_mode: none\n    pull_policy: never\n    \
         stop_grace_period: 0s\n    command: [{:?}, {:?}]\n",
        probe::PATH,
        probe::PAUSE
    );
    machine.write("/root/lab.yaml", &lab).unwrap();
    let compose = "docker compose -f compose.yaml -f lab.yaml";
    let name = service.trim_end_matches(':');
    succeeds(
        machine,
        &format!("cd /root; {compose} up --detach >&2; {compose} ps --quiet {name}"),
    )
}

/// Returns the output of a shell's line in a container.
fn inside(machine: &Machine, container: &str, line: &str) -> String {
    succeeds(
        machine,
        &format!("docker exec {} sh -euc '{line}'", container.trim()),
    )
}

/// The sections of recipes.md whose first block of commands or whose compose file is run.
const RUN: [(&str, &str); 9] = [
    ("A serial dongle, by a name that stays", "sh"),
    ("Zigbee2MQTT", "yaml"),
    ("Home Assistant", "yaml"),
    ("OctoPrint and a printer that is off", "yaml"),
    ("Coral and Frigate", "yaml"),
    ("A CAN bus", "sh"),
    ("An SDR receiver", "sh"),
    ("A UPS", "sh"),
    ("A camera", "sh"),
];

/// The commands of recipes.md that are not run here, each with the reason. Of those that are run, the
/// lab's interface has no bit rate (`can_bus`).
const NOT_RUN: [(&str, &str); 4] = [
    (
        "systemctl enable --now boathook-follow.service",
        "the lab has no systemd; a virtual machine starts the unit at its boot (vm::late_boot)",
    ),
    (
        "boathook-init uninstall --restart    # with a package: apt remove boathook",
        "the programs are no installation (initcontainer/tests/install)",
    ),
    ("docker compose up -d", "compose without Boathook"),
    (
        "docker run --rm --runtime boathook -e PI_CAMERA_VISIBLE_DEVICES=all IMAGE rpicam-hello --list-cameras",
        "the lab has no libcamera, and no CSI camera (runc::classes has the nodes)",
    ),
];

#[test]
fn each_command_of_the_recipes_is_run_or_named() {
    let docs = binaries::source_tree().join("docs");
    let page = fs::read_to_string(docs.join("recipes.md")).unwrap();
    for section in page.split("\n## ").skip(1) {
        let heading = section.lines().next().unwrap();
        for language in ["sh", "yaml"] {
            let is_run = RUN.contains(&(heading, language));
            let blocks = blocks(heading, language);
            assert!(!is_run || !blocks.is_empty(), "{heading} has no {language}");
            let others = blocks.iter().skip(usize::from(is_run));
            for line in others.flat_map(|block| block.lines()) {
                let is_named = NOT_RUN.iter().any(|(command, _)| *command == line);
                assert!(is_named, "{heading}: nothing runs {line}");
            }
        }
    }
    for (command, _) in NOT_RUN {
        assert!(page.contains(command), "{command}");
    }
}

#[test]
fn devices_of_docker_are_there_as_written() {
    if let Some(reason) = docker::missing(Generation::Forky) {
        return skip::report("recipes for docker", &reason);
    }
    let machine = &docker::configured(Generation::Forky, UserNamespaces::None, &json!({})).unwrap();
    let host = recorded(machine);
    import(machine, "docker");
    serial(machine, &host.root());
    applications(machine, &host.root());
    can_bus(machine, &host.root());
    usb_devices(machine);

    let container = compose(machine, "Coral and Frigate");
    let nodes = inside(machine, &container, "cd /dev/bus/usb; echo */*");
    assert_eq!(nodes, "002/014\n");

    let camera = blocks("A camera", "sh").remove(0);
    assert_eq!(succeeds(machine, &with_image(&camera)), "/dev/video0\n");
    camera_by_its_links(machine, &host);

    card(machine);
    let by_variable = gpu_command("docker run") + " --rm --network=none";
    assert_eq!(gpus(machine, &by_variable), "nvidia0 nvidia1\n");
    gpus_by_name(machine, "docker run --rm --network=none");
}

fn serial(machine: &Machine, root: &Path) {
    const HEADING: &str = "A serial dongle, by a name that stays";
    let commands = blocks(HEADING, "sh").remove(0);
    let printed = succeeds(machine, &with_image(&commands));
    let by_docker = printed.lines().last().unwrap().to_owned();
    assert!(printed.contains("serial-1-2:1.0"), "{printed}");
    let by_compose = compose(machine, "Zigbee2MQTT");
    let port = "$ZIGBEE2MQTT_CONFIG_SERIAL_PORT";
    let set = inside(
        machine,
        &by_compose,
        &format!("test -c {port}; echo {port}"),
    );
    assert_eq!(set, format!("/{DONGLE}\n"));
    pasted_lines_start_a_service(machine);
    // The program's configuration names the link; the device can be read.
    let look = format!("head -c 1 /{DONGLE} | wc -c; cd /dev; echo serial/by-id/* tty[UA]*");
    let link = DONGLE.strip_prefix("dev/").unwrap();
    for container in [&by_docker, &by_compose] {
        let seen = inside(machine, container, &look);
        assert_eq!(seen, format!("1\n{link} ttyUSB0\n"));
    }
    // It came back with another number.
    fs::rename(root.join("dev/ttyUSB0"), root.join("dev/ttyUSB3")).unwrap();
    fs::remove_file(root.join(DONGLE)).unwrap();
    symlink("../../ttyUSB3", root.join(DONGLE)).unwrap();
    let class = root.join("sys/class/tty");
    fs::rename(class.join("ttyUSB0"), class.join("ttyUSB3")).unwrap();
    for container in [&by_docker, &by_compose] {
        succeeds(machine, &format!("docker restart --time 0 {container}"));
        let seen = inside(machine, container, &look);
        assert_eq!(seen, format!("1\n{link} ttyUSB3\n"));
        succeeds(machine, &format!("docker rm --force {container}"));
    }
    a_number_of_before_is_named(
        machine,
        "docker run -d",
        &[
            "in place of `--device`, set",
            "and use the runtime boathook",
        ],
    );
}

/// What `boathook list PATH` prints for compose, below the image of a service.
fn pasted_lines_start_a_service(machine: &Machine) {
    let listed = succeeds(machine, "boathook list /dev/ttyUSB0");
    let (_, lines) = listed.split_once("  compose     ").unwrap();
    let (lines, _) = lines.split_once("\n  podman run ").unwrap();
    // The first line has the name of the program, and the others have as many blanks.
    let lines = lines.replace(&format!("\n{}", " ".repeat(14)), "\n    ");
    assert_eq!(lines.lines().count(), 3, "{listed}");
    let service = format!("services:\n  pasted:\n    image: IMAGE\n    {lines}\n");
    let container = compose_up(machine, &service);
    let seen = inside(machine, &container, "cd /dev; echo tty[UA]*");
    assert_eq!(seen, "ttyUSB0\n");
    succeeds(machine, &format!("docker rm --force {container}"));
}

/// A container has by `--device` the number that the dongle had before it was plugged in again. The
/// engine starts it again with this number.
fn a_number_of_before_is_named(machine: &Machine, run: &str, advice: &[&str]) {
    let engine = run.split(' ').next().unwrap();
    let start = format!(
        "mknod /run/ttyUSB0 c 188 0
        {run} --device /run/ttyUSB0:/dev/ttyUSB0 IMAGE
        rm /run/ttyUSB0"
    );
    let container = succeeds(machine, &with_image(&start));
    let container = container.trim();
    for again in ["true", "podman restart --time 0"] {
        let again = format!("{again} {container}");
        if again.starts_with("true") || engine == "podman" {
            succeeds(machine, &again);
        }
        let doctor = shell(machine, &format!("boathook doctor --container {container}"));
        assert_eq!(doctor.status.code(), Some(15), "{again}: {doctor:?}");
        let words = doctor.stdout.split_whitespace();
        let text = words.collect::<Vec<_>>().join(" ");
        let stale = "/dev/ttyUSB0 is c 188:0 in config.json, a device that the host has no more";
        let request = "set SERIAL_VISIBLE_DEVICES=NAME? with a name that stays";
        for words in [stale, request].iter().chain(advice) {
            assert!(text.contains(words), "{again}: no {words} in {text}");
        }
    }
    succeeds(machine, &format!("{engine} rm --force {container}"));
}

/// Services of compose with serial ports.
fn applications(machine: &Machine, root: &Path) {
    let container = compose(machine, "Home Assistant");
    let look = format!("test -c /{DONGLE}; cd /dev; echo tty[UA]*");
    assert_eq!(inside(machine, &container, &look), "ttyUSB3\n");
    succeeds(machine, &format!("docker rm --force {container}"));
    // The printer is switched on later.
    let port = root.join("sys/class/tty/ttyUSB10");
    let away = root.join("sys/class/ttyUSB10-away");
    fs::rename(&port, &away).unwrap();
    let node = root.join("dev/ttyUSB10");
    let node_away = root.join("ttyUSB10-away");
    fs::rename(&node, &node_away).unwrap();
    let container = compose(machine, "OctoPrint and a printer that is off");
    let look = "cd /dev; test -c video0; ls | grep ^tty[UA] || true";
    assert_eq!(inside(machine, &container, look), "");
    fs::rename(&node_away, &node).unwrap();
    fs::rename(&away, &port).unwrap();
    let followed = "boathook follow 2>/dev/null & sleep 5; kill $!; wait || true";
    succeeds(machine, followed);
    assert_eq!(inside(machine, &container, look), "ttyACM0\n");
    succeeds(machine, &format!("docker rm --force {container}"));
}

/// The interface is a virtual one, which has no bit rate.
fn can_bus(machine: &Machine, root: &Path) {
    succeeds(machine, "ip link add can0 type veth peer name can0-peer");
    let index = succeeds(machine, "ip -o link show can0 | cut -d: -f1");
    let usb = root.join("sys/devices/pci0000:00/0000:00:14.0/usb1");
    let interface = usb.join("1-1/1-1.2/1-1.2:1.0/net/can0/ifindex");
    fs::write(interface, index).unwrap();
    let recipe = blocks("A CAN bus", "sh").remove(0);
    let recipe = recipe.replace(" type can bitrate 500000", "");
    assert_eq!(succeeds(machine, &with_image(&recipe)), "can0\nlo\n");
}

/// Devices of classes that `class new` writes.
fn usb_devices(machine: &Machine) {
    let receiver = blocks("An SDR receiver", "sh").remove(0);
    let seen = succeeds(machine, &with_image(&receiver));
    assert_eq!(seen, "/dev/bus/usb/003/009\n");
    // librtlsdr and lsusb find the receivers in this directory, which a machine without USB lacks.
    let run = "mkdir -p /root/sys/bus/usb/devices/3-1 /root/sys/bus/usb/devices/3-2
        docker run --rm --runtime boathook -v /root/sys:/sys IMAGE ls /sys/bus/usb/devices";
    for (run, listed) in [
        (run.to_owned(), "3-1\n3-2\n"),
        (
            run.replace("-v", "-e USB_0BDA_2838_VISIBLE_DEVICES=usb-3-1 -v"),
            "3-1\n",
        ),
    ] {
        assert_eq!(succeeds(machine, &with_image(&run)), listed, "{run}");
    }
    let ups = blocks("A UPS", "sh").remove(0);
    let container = succeeds(machine, &with_image(&ups));
    let nodes = inside(machine, &container, "echo /dev/bus/usb/*/*");
    assert_eq!(nodes, "/dev/bus/usb/003/010\n");
    succeeds(machine, &format!("docker rm --force {container}"));
    for (class, id) in [("sdr", "usb-3-1"), ("ups", "usb-3-2")] {
        let listed = succeeds(machine, &format!("boathook list --json {class}"));
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed["devices"][0]["id"], id);
        let class = format!("/etc/boathook/classes.d/{class}.toml");
        let file = succeeds(machine, &format!("cat {class}"));
        assert!(file.contains("\nfollow = true\n"), "{file}");
    }
}

/// A camera by each of udev's links, which come both with it.
fn camera_by_its_links(machine: &Machine, host: &RecordedHost) {
    let links = [
        "v4l/by-id/usb-Example_HD_Webcam_0001-video-index0",
        "v4l/by-path/pci-0000:00:14.0-usb-0:5:1.0-video-index0",
    ];
    // udev's database is by numbers, and those of the host are not the recorded ones.
    let (major, minor) = host.device().number();
    let known = format!("/run/udev/data/c{major}:{minor}");
    let content = links.map(|link| format!("S:{link}\n")).concat();
    host.add_file(&known, &content).unwrap();
    for link in links {
        let run = format!(
            "docker run --rm --runtime boathook -e CAMERA_VISIBLE_DEVICES=/dev/{link} IMAGE \
             sh -c 'cd /dev; readlink {}; readlink {}; echo video*; head -c 1 /dev/{link} | wc -c'",
            links[0], links[1]
        );
        let seen = succeeds(machine, &with_image(&run));
        assert_eq!(seen, "../../video0\n../../video0\nvideo0\n1\n", "{link}");
    }
}

fn card(machine: &Machine) {
    const HEADING: &str = "A card of your own";
    let section = section(HEADING);
    let new = section.split('`').nth(1).unwrap();
    let first = succeeds(machine, new);
    assert!(first.contains("nodes = [\"/dev/acme_ctl\"]"), "{first}");
    let class = blocks(HEADING, "toml").remove(0);
    machine
        .write("/etc/boathook/classes.d/acme.toml", &class)
        .unwrap();
    let commands = blocks(HEADING, "sh").remove(0);
    let printed = succeeds(machine, &with_image(&commands));
    for words in [
        "acme.toml: class acme: OK",
        "each device is for 4 containers at once",
        "libraries: libacme.so.1",
        "class acme: a container with acme-0",
        "/dev/acme0_dma0",
    ] {
        assert!(printed.contains(words), "no {words} in {printed}");
    }
    assert!(printed.ends_with("/dev/acme0_dma1\n"), "{printed}");
    let run = "docker run --rm --runtime boathook -e ACME_VISIBLE_DEVICES=all IMAGE";
    let look = format!("{run} cat /lib/firmware/acme.bin /usr/lib/boathook/lib/libacme.so.1");
    assert!(succeeds(machine, &with_image(&look)).starts_with("firmware\n"));
    let offered = succeeds(machine, "boathook-plugin list acme");
    assert_eq!(offered.matches("acme-0::").count(), 4, "{offered}");
}

/// The right column of the table for who knows nvidia-ctk: a command of it.
fn gpu_command(begin: &str) -> String {
    let section = section("NVIDIA GPUs");
    let cells = section.lines().filter_map(|line| line.split('|').nth(2));
    let mut spans = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    spans
        .find(|span| span.starts_with(begin))
        .unwrap()
        .to_owned()
}

/// Returns the GPUs that a container has with these options.
fn gpus(machine: &Machine, run: &str) -> String {
    let look = "sh -c 'cd /dev; echo nvidia?'";
    succeeds(
        machine,
        &format!("{run} {} {look}", name_of(Rootfs::Busybox)),
    )
}

/// Each name of the table, with `run`.
fn gpus_by_name(machine: &Machine, run: &str) {
    succeeds(machine, &gpu_command("boathook cdi generate"));
    // Engines' directories are below the host's root.
    let list = gpu_command("boathook cdi list") + " --directory /run/cdi";
    let listed = succeeds(machine, &list);
    let section = section("NVIDIA GPUs");
    let (_, names) = section.split_once("| `--device nvidia.com/gpu=").unwrap();
    assert!(
        names.starts_with("all`, `=0`, `=GPU-…` | the same"),
        "{names}"
    );
    let gpu = "GPU-b0f66a81-7f0c-4a6e-a7d9-5a3c9a1d2f77";
    for (name, nodes) in [
        ("all", "nvidia0 nvidia1\n"),
        ("0", "nvidia1\n"),
        (gpu, "nvidia0\n"),
    ] {
        let device = format!("nvidia.com/gpu={name}");
        assert!(listed.contains(&device), "{listed}");
        let run = format!("{run} --device {device}");
        assert_eq!(gpus(machine, &run), nodes, "{run}");
    }
}

#[test]
fn devices_of_podman_are_there_as_written() {
    if let Some(reason) = podman::missing(Generation::Forky) {
        return skip::report("recipes for podman", &reason);
    }
    let (machine, parent) = podman::unconfigured(Generation::Forky).unwrap();
    let _host = recorded(&machine);
    import(&machine, "podman");
    gpus_by_name(
        &machine,
        &format!("podman run --rm --network=none {parent}"),
    );
    a_number_of_before_is_named(
        &machine,
        &format!("podman run -d {parent}"),
        &[
            "in place of `--device`, or of `AddDevice=` of a quadlet, set",
            "have the hook installed for podman (`boathook-init install --engine podman`)",
        ],
    );
}
