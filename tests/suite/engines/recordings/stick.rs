//! A stick of a home user with Docker: it is replugged, and a container lacks it. Its node has the
//! number of another device of this kernel, and its files in /sys are those of a recorded host.

use std::fs;
use std::os::unix::fs::symlink;

use harness::alias_device::AliasDevice;
use harness::engine_root::Generation;
use harness::image::Image;
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;
use serde_json::json;

use super::super::docker::{self, UserNamespaces};
use super::super::engine::printed;
use super::super::machine::Machine;
use super::PROGRAMS;
use super::terminal::Terminal;
use crate::live::follow::tell;

const STICK: &str = "char /dev/ttyUSB0 188:0
link /dev/serial/by-id/usb-Zigbee_Dongle-if00-port0 ../../ttyUSB0
link /sys/class/tty/ttyUSB0 ../../devices/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0
link /sys/devices/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0/device ../../../ttyUSB0
link /sys/bus/usb/devices/1-2 ../../../devices/usb1/1-2
file /sys/devices/usb1/1-2/serial
| f074cc5adcc9ed11
";

/// The link below /dev that udev makes.
const BY_ID: &str = "dev/serial/by-id/usb-Zigbee_Dongle-if00-port0";

const COMPOSE: &str = "services:
  zigbee:
    image: zigbee
    container_name: zigbee
    runtime: boathook
    environment:
      SERIAL_VISIBLE_DEVICES: f074cc5adcc9ed11
";

/// The settings that a machine without a network needs.
const LAB: &str = "services:
  zigbee:
    network_mode: none
    pull_policy: never
    stop_grace_period: 0s
";

/// The program of the image: it opens the stick again and again.
const OPENER: &str = "while :; do for stick in /dev/serial/by-id/*; do \
    if (: <$stick) 2>/dev/null; then echo opened $(readlink -f $stick); \
    else echo there is no stick; fi; done; sleep 0.1; done";

/// A machine with Docker and the stick. The host is removed after the machine.
struct Home {
    machine: Machine,
    host: RecordedHost,
    other: AliasDevice,
}

impl Home {
    /// Returns `None` if it cannot be made here.
    fn new(recording: &str) -> Option<Self> {
        if let Some(reason) = docker::missing(Generation::Forky) {
            skip::report(&format!("the recording {recording}"), &reason);
            return None;
        }
        let runtime = format!("{PROGRAMS}/boathook-runtime");
        let more = json!({
            "runtimes": {"boathook": {"path": runtime}},
            "exec-root": "/run/docker",
        });
        let machine = docker::unconfigured(Generation::Forky, UserNamespaces::None, &more).unwrap();
        super::install_programs(&machine);
        // Docker warns of a network that does not forward.
        let mut forward = machine.private.command("sh");
        forward.args(["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
        printed(&mut forward).unwrap();
        docker::start_daemon(&machine).map(drop).unwrap();
        let host = RecordedHost::bare(STICK).unwrap();
        host.add_shipped_class("serial-port").unwrap();
        // By them the programs know that the host has Docker, and that Boathook is installed for it.
        host.add_program("/usr/bin/dockerd", "").unwrap();
        let record = host.root().join("opt/boathook/state/docker.json");
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        fs::write(record, "{}").unwrap();
        fs::remove_file(host.classes().join("dummy-npu.toml")).unwrap();
        let config = format!(
            "classes = [{:?}]\nhost_root = {:?}\n\
             [runtime]\npath = {:?}\nhook = \"{PROGRAMS}/boathook-hook\"\n",
            host.classes(),
            host.root(),
            machine.generation.program("runc").unwrap()
        );
        machine.write("/etc/boathook/config.toml", &config).unwrap();
        machine.write("/root/compose.yaml", COMPOSE).unwrap();
        machine.write("/root/lab.yaml", LAB).unwrap();
        let (_, other) = AliasDevice::pair().unwrap();
        let home = Self {
            machine,
            host,
            other,
        };
        home.find_containers_by_name();
        home.import();
        Some(home)
    }

    /// Docker keeps names in its directory, which a host's root has.
    fn find_containers_by_name(&self) {
        let data = self.machine.path("data");
        let below = self.host.root().join(data.strip_prefix("/").unwrap());
        fs::create_dir_all(below.parent().unwrap()).unwrap();
        symlink(data, below).unwrap();
    }

    fn import(&self) {
        let image = Image::new(Rootfs::Busybox).unwrap();
        let command = json!(["/bin/sh", "-c", OPENER]);
        let mut import = docker::client(&self.machine);
        import.args(["import", "--change", &format!("CMD {command}")]);
        import.arg(image.layer()).arg("zigbee");
        printed(&mut import).unwrap();
    }

    fn terminal(&self) -> Terminal<'_> {
        let variables = vec![
            ("DOCKER_HOST", docker::socket(&self.machine)),
            ("COMPOSE_FILE", "compose.yaml:lab.yaml".to_owned()),
            // Its words are those of a version of compose.
            ("COMPOSE_PROGRESS", "quiet".to_owned()),
        ];
        Terminal::new(&self.machine, variables)
    }

    fn unplug(&self) {
        let root = self.host.root();
        fs::remove_file(root.join(BY_ID)).unwrap();
        fs::remove_file(root.join("dev/ttyUSB0")).unwrap();
        fs::rename(root.join("sys/class/tty/ttyUSB0"), root.join("ttyUSB0")).unwrap();
        tell();
    }

    /// It comes back with another name and another device number.
    fn plug_in(&self) {
        let root = self.host.root();
        let class = root.join("sys/class/tty/ttyUSB1");
        fs::rename(root.join("ttyUSB0"), class).unwrap();
        self.other.make_node(&root.join("dev/ttyUSB1")).unwrap();
        symlink("../../ttyUSB1", root.join(BY_ID)).unwrap();
        tell();
    }
}

#[test]
fn a_stick_is_replugged_and_the_container_opens_it_again() {
    let Some(home) = Home::new("replugged") else {
        return;
    };
    let mut terminal = home.terminal();
    let look = "docker logs --tail 1 zigbee";
    terminal.run("boathook list");
    terminal.run("cat compose.yaml");
    terminal.run("docker compose up --detach");
    terminal.run_until(look, "opened /dev/ttyUSB0\n");
    terminal.run("boathook follow >follow.log 2>&1 &    # or the service boathook-follow");
    terminal.wait_until("cat follow.log", "following devices\n");
    terminal.remark("The stick is unplugged.");
    home.unplug();
    terminal.run_until(look, "there is no stick\n");
    terminal.remark("It is plugged in again, and the kernel calls it ttyUSB1.");
    home.plug_in();
    terminal.run_until(look, "opened /dev/ttyUSB1\n");
    terminal.finish(
        "replugged",
        "A stick is replugged, and the container has it again",
    );
}

#[test]
fn doctor_names_the_fault_and_the_fix() {
    let Some(home) = Home::new("doctor") else {
        return;
    };
    let run = "docker run --detach --name zigbee";
    let request = "-e SERIAL_VISIBLE_DEVICES=f074cc5adcc9ed11 zigbee";
    let mut terminal = home.terminal();
    terminal.run(&format!("{run} {request}"));
    terminal.run_until("docker logs --tail 1 zigbee", "there is no stick\n");
    terminal.run("boathook doctor zigbee");
    terminal.run("docker rm --force zigbee");
    terminal.run(&format!("{run} --runtime boathook {request}"));
    terminal.run("boathook doctor zigbee | tail -n 1");
    terminal.finish("doctor", "boathook doctor names the fault and the fix");
}
