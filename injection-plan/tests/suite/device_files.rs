//! Tests of the parts that belong to a single device: files, directories, variables and an
//! index.

use device_class::DeviceClass;
use device_class::discover;
use device_class::host::RecordedHost;
use injection_plan::request::Request;

use crate::planning::{self, asker, parse};

const CLASS: &str = r#"version = 1
resource = "example.com/chip"
request = { env = "CHIPS" }
discover = [{ path = "/dev/chip-{serial}" }]
[device]
id = "chip-{serial}"
nodes = ["/dev/chip-{serial}"]
files = [{ path = "/run/chips/{serial}.sock", type = "socket" }, { path = "/etc/chips/{serial}.conf", optional = true }]
directories = [{ path = "/var/lib/chips/{serial}", container_path = "/var/chip", writable = true }]
env = { CHIP_SERIAL = "{serial}" }
health = [
  { file = "/sys/chips/{serial}/state", one_of = ["up", "idle"] },
  { file = "/sys/chips/{serial}/heat", below = 90 },
]
[[edits]]
directories = ["/usr/share/chips"]
"#;

const HOST: &str = "char /dev/chip-a 240:0\nchar /dev/chip-b 240:1\nchar /dev/chip-c 240:2\n\
    socket /run/chips/a.sock\nsocket /run/chips/b.sock\nfile /etc/chips/b.conf\n\
    dir /var/lib/chips/a\ndir /var/lib/chips/b\ndir /usr/share/chips\n\
    file /sys/chips/a/state\n| up\nfile /sys/chips/a/heat\n| 40\n\
    file /sys/chips/b/state\n| idle\nfile /sys/chips/b/heat\n| 41\n\
    file /sys/chips/c/state\n| off\nfile /sys/chips/c/heat\n| 95\n";

fn class() -> DeviceClass {
    parse("chip", CLASS).unwrap()
}

fn plan(request: &str) -> String {
    let (class, host) = (class(), RecordedHost::parse(HOST).unwrap());
    let env = vec![format!("CHIPS={request}")].into();
    let request = Request::find(&class, &env, |_| None).unwrap().unwrap();
    planning::plan(&class, &request, &host, &asker())
        .map_or_else(|error| error, |plan| plan.to_string())
}

#[test]
fn a_device_brings_its_files_directories_and_variables() {
    expect_test::expect![[r#"
        chip: 1 of 3 devices
          requested by  env CHIPS=1
          authorized by the rules of this host: this is a test
          allow      chip-b  c 240:1 rw
          node       chip-b  /dev/chip-b (c 240:1; bind,ro,nosuid,noexec)
          directory  chip    /usr/share/chips (rbind,ro,nosuid,nodev)
          directory  chip-b  /var/chip from /var/lib/chips/b (rbind,nosuid,nodev)
          file       chip-b  /etc/chips/b.conf (bind,ro,nosuid,nodev)
          file       chip-b  /run/chips/b.sock (bind,ro,nosuid,nodev)
          env        CHIP_SERIAL=b
    "#]]
    .assert_eq(&plan("1"));
    let two = plan("0,chip-b");
    let said = "/var/chip is claimed by both /var/lib/chips/a and /var/lib/chips/b";
    assert!(two.contains(said), "{two}");
    assert_eq!(plan("2"), "chip-c: /run/chips/c.sock does not exist");
}

#[test]
fn devices_without_an_index_are_counted_and_the_new_checks_hold() {
    let host = RecordedHost::parse(HOST).unwrap();
    let found = discover::find_devices(&class(), &host);
    let devices: Vec<String> = found
        .devices
        .iter()
        .map(|d| format!("{} {} {}", d.index.as_deref().unwrap(), d.id, d.health))
        .collect();
    assert_eq!(
        devices,
        [
            "0 chip-a healthy",
            "1 chip-b healthy",
            "2 chip-c unhealthy: /sys/chips/c/state is `off`, not `up` or `idle`",
        ]
    );
    let up = HOST.replace("| off", "| up");
    let found = discover::find_devices(&class(), &RecordedHost::parse(&up).unwrap());
    let reason = "unhealthy: /sys/chips/c/heat is 95, not below 90";
    assert_eq!(found.devices[2].health.to_string(), reason);
}
