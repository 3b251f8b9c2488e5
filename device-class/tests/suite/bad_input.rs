//! Hosts and class files as they should not be: each is answered clearly.

use std::io;
use std::path::{Path, PathBuf};

use device_class::discover::{self, Inventory, MAX_DEVICES};
use device_class::host::{Entry, ProgramAbi, RecordedHost};
use device_class::{DeviceClass, HostView};

use crate::{parse, rows};

const CHIPS: &str = r#"
version = 1
resource = "example.com/chip"
request = { env = "CHIPS" }
discover = [{
  path = "/sys/chips/chip{index:number}",
  attributes = [{ name = "serial", file = "serial" }],
}]
#more
device = { id = "chip-{serial}", index = "{index}", numa = "/sys/chips/chip{index}" }
"#;

fn class(text: &str) -> DeviceClass {
    parse("chips", text).unwrap()
}

fn serials(serials: &[&[u8]]) -> RecordedHost {
    let mut host = RecordedHost::default();
    for (index, serial) in serials.iter().enumerate() {
        host.add_file(format!("/sys/chips/chip{index}/serial"), *serial);
    }
    host
}

fn ids(inventory: &Inventory) -> Vec<&str> {
    let devices = inventory.devices.iter();
    devices.map(|device| device.id.as_str()).collect()
}

#[test]
fn an_attribute_that_is_no_plain_text_is_named() {
    for (serial, warning) in [
        (b"".as_slice(), "serial has no value"),
        (b"\n\n", "serial has no value"),
        (b"\xff\xfe\x00", "serial is not plain text: "),
        (b"a\x07b", "serial is not plain text: a\\u{7}b"),
        (&[b'x'; 100_000], "serial is not plain text: xxxxx"),
    ] {
        let found = discover::find_devices(&class(CHIPS), &serials(&[b"good", serial]));
        assert_eq!(ids(&found), ["chip-good"]);
        let expected = format!("/sys/chips/chip1: /sys/chips/chip1/{warning}");
        assert!(
            found.warnings[0].starts_with(&expected),
            "{:?}",
            found.warnings
        );
        assert!(found.warnings[0].len() < 200);
    }
}

#[test]
fn an_attribute_that_can_not_be_read_is_named() {
    let host = "file /sys/chips/chip0/serial\n| good\n\
        link /sys/chips/chip1/serial loop\nlink /sys/chips/chip1/loop serial\n\
        dir /sys/chips/chip2/serial\ndir /sys/chips/chip3\n";
    let host = RecordedHost::parse(host).unwrap();
    let found = discover::find_devices(&class(CHIPS), &host);
    assert_eq!(ids(&found), ["chip-good"]);
    for (at, words) in [
        "Too many levels of symbolic links",
        "not a regular file",
        "does not exist",
    ]
    .iter()
    .enumerate()
    {
        let warning = &found.warnings[at];
        let path = format!("/sys/chips/chip{}/serial", at + 1);
        assert!(
            warning.contains(&path) && warning.contains(words),
            "{warning}"
        );
    }
}

/// A host on which a directory was listed and then cannot be used any more.
struct Faulty(RecordedHost, &'static str, io::ErrorKind);

impl Faulty {
    fn check_path(&self, path: &Path) -> io::Result<()> {
        if path.starts_with(self.1) {
            return Err(self.2.into());
        }
        Ok(())
    }
}

impl HostView for Faulty {
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        match self.check_path(path) {
            Ok(()) => self.0.entry(path),
            Err(_) => Ok(None),
        }
    }
    fn is_link(&self, path: &Path) -> bool {
        self.check_path(path).is_ok() && self.0.is_link(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.list(path)
    }
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.check_path(path)?;
        self.0.read(path, limit)
    }
    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.check_path(path)?;
        self.0.read_link(path)
    }
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.check_path(path)?;
        self.0.canonicalize(path)
    }
    fn libraries(&self, soname: &str, programs: ProgramAbi) -> io::Result<Vec<PathBuf>> {
        self.0.libraries(soname, programs)
    }
    fn has_library_cache(&self) -> io::Result<bool> {
        self.0.has_library_cache()
    }

    fn library_names(&self, programs: ProgramAbi) -> io::Result<Vec<String>> {
        self.0.library_names(programs)
    }

    fn open_driver_root<'a>(&'a self, path: &Path) -> io::Result<Box<dyn HostView + 'a>> {
        self.0.open_driver_root(path)
    }
}

#[test]
fn a_device_that_vanishes_or_hides_is_left_out() {
    for (error, words) in [
        (io::ErrorKind::NotFound, "serial does not exist"),
        (
            io::ErrorKind::PermissionDenied,
            "serial cannot be read: permission denied",
        ),
        // As the kernel says of a device that was pulled out.
        (io::ErrorKind::TimedOut, "serial cannot be read: timed out"),
    ] {
        let host = Faulty(serials(&[b"a", b"b", b"c"]), "/sys/chips/chip1", error);
        let found = discover::find_devices(&class(CHIPS), &host);
        assert_eq!(ids(&found), ["chip-a", "chip-c"]);
        let warning = format!("/sys/chips/chip1: /sys/chips/chip1/{words}");
        assert_eq!(found.warnings, [warning]);
    }
}

#[test]
fn odd_ids_stay_apart_and_fit() {
    let long = [b'x'; 200];
    let host = serials(&[
        b"a/b",
        b"a b",
        b"a-b",
        &long,
        "ü".as_bytes(),
        b"dup",
        b"dup",
    ]);
    let found = discover::find_devices(&class(CHIPS), &host);
    let ids = ids(&found);
    assert_eq!(ids.len(), 6, "{ids:?}");
    assert_eq!(ids[2], "chip-a-b");
    for id in &ids {
        assert!(id.len() <= 63 && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
        assert_eq!(ids.iter().filter(|other| *other == id).count(), 1, "{id}");
    }
    assert_eq!(found.warnings.len(), 1);
    assert!(
        found.warnings[0].contains("the id chip-dup is not unique"),
        "{:?}",
        found.warnings
    );
}

#[test]
fn an_id_leaves_room_for_replicas() {
    let text = CHIPS.replace("device =", "sharing = { replicas = 65535 }\ndevice =");
    let found = discover::find_devices(&class(&text), &serials(&[&[b'x'; 58]]));
    let ids = found.devices[0].offered_ids();
    assert_eq!(ids.len(), 65535);
    assert!(ids.iter().all(|id| id.as_str().len() <= 63));
    assert!(found.devices[0].has_replica(ids[65534].as_str()));
    assert!(!found.devices[0].has_replica("chip::0"));
}

#[test]
fn devices_above_nine_are_found_and_in_order() {
    let names: Vec<Vec<u8>> = (0..=100).map(|n: u32| n.to_string().into_bytes()).collect();
    let serial: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let found = discover::find_devices(&class(CHIPS), &serials(&serial));
    let indices: Vec<_> = found
        .devices
        .iter()
        .map(|d| d.index.clone().unwrap())
        .collect();
    let expected: Vec<_> = (0..=100).map(|n: u32| n.to_string()).collect();
    assert_eq!(indices, expected);
}

#[test]
fn no_numa_node_is_none() {
    for (text, wanted) in [
        ("-1", None),
        ("0", Some(0)),
        ("3\n", Some(3)),
        ("x", None),
        ("", None),
    ] {
        let mut host = serials(&[b"a"]);
        host.add_file("/sys/chips/chip0/numa_node", text);
        let found = discover::find_devices(&class(CHIPS), &host);
        assert_eq!(found.devices[0].numa, wanted, "{text:?}");
    }
}

#[test]
fn different_devices_of_a_node_have_different_resources() {
    let text = CHIPS.replace("example.com/chip\"", "example.com/chip-{serial}\"");
    let found = discover::find_devices(
        &class(&text),
        &serials(&[b"small", b"big", b"no such/name"]),
    );
    let resources: Vec<_> = found
        .devices
        .iter()
        .map(|d| d.resource.to_string())
        .collect();
    assert_eq!(
        resources,
        ["example.com/chip-small", "example.com/chip-big"]
    );
    assert!(
        found.warnings[0].contains("name of the resource"),
        "{:?}",
        found.warnings
    );
}

#[test]
fn a_glob_that_matches_too_much_is_bounded() {
    let numbers: Vec<Vec<u8>> = (0..10_000)
        .map(|n: u32| n.to_string().into_bytes())
        .collect();
    let serial: Vec<&[u8]> = numbers.iter().map(Vec::as_slice).collect();
    let found = discover::find_devices(&class(CHIPS), &serials(&serial));
    assert_eq!(found.devices.len(), MAX_DEVICES);
    assert_eq!(found.warnings.len(), 1);
    assert!(
        found.warnings[0].contains("narrow the glob"),
        "{:?}",
        found.warnings
    );
}

/// What is replaced in [`CHIPS`], by what, and what is said of it.
const CONTRADICTIONS: &str = r#"
index = "{index}" | index = "{index}", order = "{serial}" | either `index` or `order`
{serial} | {cereal} | uses the attribute `cereal`
#more | sharing = { replicas = 0 } | 0 replicas is not between 1
#more | sharing = { replicas = 2, replicas_from = "{index}" } | either `replicas` or
#more | sharing = { combine = true, one_device = true } | [sharing] has `one_device`, but neither
#more | edits = [{ unless_capability = "x" }] | no capabilities_env
#more | edits = [{ libraries = ["libx"] }] | not the name of a shared library
#more | edits = [{ libraries = ["/opt/x/libx.so.1"] }]
    | for a path use `directories` with `libraries = true`
#more | prepare = { program = "/x", timeout = 0, file = "f", equals = "x" }
    | 0 seconds is not between 1
#more | prepare = { program = "x", timeout = 1, file = "f", equals = "x" } | not an absolute path
#more | allocate = { placement = "scattered" } | `scattered` is none of `
numa = | unmask = ["/proc/chips/{index}"], numa =
    | `/proc/chips/{index}` is not in a directory of `masks`
#more | edits = [{ masks = [{ path = "/proc/a", copies = ["/proc/ab"] }] }]
    | `/proc/ab` is not in a directory of `masks`
#more | needs = ["NET_ADMIN"] | `NET_ADMIN` is no Linux capability: write CAP_NET_ADMIN
#more | needs = ["CAP_NETADMIN"] | did you mean CAP_NET_ADMIN?
#more | needs = [{ needed_for = "mounting" }] | capability
file = "serial" | file = "serial", link = "x" | an attribute is `name` with one of
numa = | health = [{ file = "x", below = 5, recovers_below = 9 }], numa = | a health check is
numa = | health = [{ file = "x", changes_within = 5, steady_for = 9 }], numa =
    | with neither `recovers_below` nor
"#;

#[test]
fn class_files_that_contradict_themselves_are_refused() {
    for [part, by, words] in rows(CONTRADICTIONS) {
        let text = CHIPS.replacen(&part, &by, 1);
        assert_ne!(text, CHIPS, "{part}");
        let error = parse("chips", &text).unwrap_err();
        assert!(
            error.starts_with("chips.toml:") && error.contains(&words),
            "{by}: {error}"
        );
    }
}
