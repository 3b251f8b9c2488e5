//! Every feature of a class file on this machine's own `/sys`, `/proc` and `/dev`: the
//! files in `classes` use all keys of the schema between them, and each has a row in
//! [`ROWS`] with what comes of it, in both programs' lists and in a container.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use harness::binaries;
use harness::bundle::{Bundle, HookCommand};
use harness::demo_host::VendorLibrary;
use harness::privilege::missing_for_root;
use harness::probe::{Kind, PathReport, Questions};
use harness::rootfs::Rootfs;
use serde_json::Value;

use super::ThisHost;
use super::followed;
use super::hot_added::HotAdded;
use crate::lab::{Lab, STAGE, asking, on_each_cgroup_version};

/// For each class, one of `classes` or of those that the project ships: its ids as the hook and
/// as the plugin list them, `!` before those that are unhealthy, and what a container requests.
/// Below that is what the container has then, and for a node that a group owns its name.
const ROWS: &str = r##"
mem | mem-full mem-nothing mem-zeros | mem-full mem-nothing mem-zeros | LIVE_MEM=1:3,zero LIVE_REQUIRE_1=kernel>=3
/dev/live/null char 1:3
/dev/live/zero char 1:5
/dev/live/full missing
/etc/live/null file "1:3\n"
/opt/zero directory state

tty | tty1 tty2 | tty1 tty2 | LIVE_TTY=2
/dev/tty2 char 4:2
/dev/tty1 missing
/dev/live-tty-full char 1:7

terminal | tty1 tty2 | tty1 tty2 | LIVE_TERMINAL=1
/dev/tty1 char 4:1
/dev/tty2 missing
/dev/live-tty-zero char 1:5
/dev/live-tty-full missing

fuse | fuse | fuse::0 | FUSE_VISIBLE_DEVICES=all
/dev/fuse char 10:229

tun | tun | tun::0 | TUN_VISIBLE_DEVICES=all
/dev/net/tun char 10:200

kvm | kvm | kvm::0 | KVM_VISIBLE_DEVICES=all
/dev/kvm char 10:232

made | made | made | LIVE_MADE=all LIVE_MADE_CAPABILITIES=more
/dev/live-zero char 1:5
/dev/live-loop block 7:0 of disk
/dev/live-nothing missing
/dev/full char 1:7
/dev/every/random char 1:8

parts | nulldev nulluevent zero | nulldev nulluevent zero | LIVE_PART=example.org/part=0:1,absent
/sys/class/mem directory full null
/etc/parts.d/own.conf file "0x2"

files | files | files | LIVE_FILE=all LIVE_FILE_MORE=on
/etc/live.conf file "live\n"
/etc/live-more.conf file "live\n"
/etc/live.d/one.conf file "one\n"
@own@/driver/etc/listed file "listed\n"
/usr/bin/live file "#!/bin/sh\n"
/opt/live directory libmore.so.1
/dev/null char 1:3

health | !bytes !number !text key program well | !bytes !number !text key program well | LIVE_HEALTH=well

shared | null zero | null::0 null::1 zero::0 zero::1 | LIVE_SHARE=null LIVE_SHARE_OF_0=NULL LIVE_SHARE_STATE_0=Busy
/dev/null char 1:3
/srv/state file "busy\n"

combined | combined | combined | LIVE_COMBINED=all
/dev/null char 1:3
/dev/zero char 1:5

joined | 1 | 1 1::0 1::1 | LIVE_JOINED=1
/dev/null char 1:3
/dev/zero char 1:5
"##;

struct Row {
    class: &'static str,
    hook: &'static str,
    plugin: &'static str,
    env: &'static str,
    /// The paths with what is there.
    seen: Vec<(&'static str, &'static str)>,
}

fn rows() -> impl Iterator<Item = Row> {
    ROWS.trim().split("\n\n").map(|row| {
        let mut lines = row.lines();
        let head: Vec<&str> = lines.next().unwrap().split(" | ").collect();
        let [class, hook, plugin, env] = head[..] else {
            panic!("{row}");
        };
        let seen = lines.map(|line| line.split_once(' ').unwrap()).collect();
        Row {
            class,
            hook,
            plugin,
            env,
            seen,
        }
    })
}

on_each_cgroup_version!(containers_get_what_the_rows_say, devices_come_and_go);

#[test]
fn every_feature_of_the_schema_has_a_row() {
    let tree = binaries::source_tree();
    let schema = fs::read_to_string(tree.join("device-class/schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let mut unused = BTreeSet::new();
    let tables = schema["definitions"].as_object().unwrap().iter();
    let top = ("class".to_owned(), schema.clone());
    for (table, definition) in tables.map(|(k, v)| (k.clone(), v.clone())).chain([top]) {
        let keys = definition["properties"].as_object().unwrap().keys();
        unused.extend(keys.map(|key| format!("{table}.{key}")));
    }
    for row in rows() {
        let class: Value = toml::from_str(&text(row.class)).unwrap();
        remove_used(&mut unused, &schema, &schema, "class", &class);
    }
    let added: Value = toml::from_str(&text("added")).unwrap();
    remove_used(&mut unused, &schema, &schema, "class", &added);
    let late: Value = toml::from_str(&followed::late_class("path = '/dev/{name}'")).unwrap();
    remove_used(&mut unused, &schema, &schema, "class", &late);
    // Facts (device-class/tests/suite/facts.rs) and what is announced (live::announced) would be
    // written into this machine's /run.
    unused.retain(|key| !key.contains("fact") && key != "class.announce");
    // udev's database is in this machine's /run, too (live::placed).
    unused.retain(|key| key != "node.udev_links");
    // A container that has an interface deletes a virtual one (at_root::net_interfaces).
    unused.retain(|key| !key.starts_with("netdev.") && key != "device.netdev");
    // The image decides where such a file is (runc::image_names).
    unused.retain(|key| key != "file.beside_image_libraries");
    // boathook-init alone uses the names of a toolkit (initcontainer/tests/install/compatibility.rs).
    unused.retain(|key| !key.contains("compatibility"));
    // The plugin alone writes labels of the node (plugin/tests/suite/node_labels.rs).
    unused.retain(|key| !key.starts_with("label.") && key != "class.labels");
    // boathook-dra alone makes parts (dra/tests/suite/parts.rs).
    let made = [
        "parts.",
        "found_part.",
        "write_step.",
        "health.of_whole",
        "class.parts",
        "class.counters",
    ];
    unused.retain(|key| !made.iter().any(|start| key.starts_with(start)));
    assert!(unused.is_empty(), "no class uses {unused:#?}");
}

/// Removes the keys that `value` has, which is of this definition of the schema.
fn remove_used(
    unused: &mut BTreeSet<String>,
    schema: &Value,
    definition: &Value,
    name: &str,
    value: &Value,
) {
    for (key, value) in value.as_object().into_iter().flatten() {
        unused.remove(&format!("{name}.{key}"));
        let property = &definition["properties"][key];
        let items = &property["items"];
        let forms = items["anyOf"].as_array().into_iter().flatten();
        let reference = [property, items]
            .into_iter()
            .chain(forms)
            .find_map(|form| form["$ref"].as_str());
        let Some(table) = reference.and_then(|path| path.strip_prefix("#/definitions/")) else {
            continue;
        };
        let values = value
            .as_array()
            .map_or(std::slice::from_ref(value), Vec::as_slice);
        for value in values {
            remove_used(unused, schema, &schema["definitions"][table], table, value);
        }
    }
}

#[test]
fn hook_and_plugin_list_what_the_rows_say() {
    if let Some(reason) = missing_for_root() {
        return skip::report("hook_and_plugin_list_what_the_rows_say", &reason);
    }
    for row in rows() {
        let host = row.host();
        let listed = |devices: Vec<Value>| -> String {
            let own = devices.iter().filter(|device| device["class"] == row.class);
            let ids = own.map(|device| {
                let id = device["id"].as_str().unwrap();
                let mark = if device["healthy"] == true { "" } else { "!" };
                format!("{mark}{id}")
            });
            let mut ids: Vec<_> = ids.collect();
            ids.sort();
            ids.join(" ")
        };
        assert_eq!(listed(host.devices()), row.hook, "{}", row.class);
        let plugin = listed(host.devices_of_plugin());
        let more = plugin.strip_prefix(row.plugin);
        let more = more.unwrap_or_else(|| panic!("{}: {plugin}", row.class));
        // The shares of a class may be many.
        let mut more = more.split_whitespace();
        assert!(more.all(|id| id.contains("::")), "{plugin}");
    }
}

fn containers_get_what_the_rows_say(lab: &Lab) {
    for row in rows() {
        let host = row.host();
        check_container(lab, &host, row.class, row.env, &row.seen);
    }
}

/// A device that was added while the host runs is there, and is gone once it is removed.
fn devices_come_and_go(lab: &Lab) {
    let added = [HotAdded::disk(), HotAdded::tap(), HotAdded::memory()];
    let [Some(disk), Some(tap), Some(compressed)] = added else {
        return skip::report(
            "devices_come_and_go",
            "no loop-control, macvtap or zram-control",
        );
    };
    let mut added = vec![("loop", disk), ("tap", tap), ("zram", compressed)];
    let mut class = text("added");
    for (kind, device) in &added {
        class = class.replace(&format!("@{kind}@"), &device.number().to_string());
    }
    let host = furnished().class("added", &class);
    let ids = |added: &[(&str, HotAdded)]| -> Vec<String> {
        let ids = added
            .iter()
            .map(|(kind, device)| format!("{kind}{}", device.number()));
        ids.collect()
    };
    assert_eq!(host.ids(), ids(&added));
    for (kind, device) in &added {
        let node = device.node();
        let (major, minor) = device.device();
        let kind = if *kind == "tap" { "char" } else { "block" };
        let seen = format!("{kind} {major}:{minor}");
        check_container(lab, &host, "added", "LIVE_ADDED=all", &[(&node, &seen)]);
    }
    while !added.is_empty() {
        added.remove(0);
        assert_eq!(host.ids(), ids(&added));
    }
}

fn check_container(lab: &Lab, host: &ThisHost, class: &str, env: &str, seen: &[(&str, &str)]) {
    let paths = seen.iter().map(|(path, _)| host.with_own(path));
    let questions = paths.fold(Questions::new(), Questions::path);
    let hook = HookCommand::boathook(STAGE, &host.config_file()).unwrap();
    // Its log is no part of this machine.
    let hook = hook.with_private_run().unwrap();
    let mut bundle = Bundle::builder(Rootfs::Glibc)
        .hook(STAGE, hook)
        .args(asking(&questions));
    bundle = bundle.bind(&host.own_path("shared"), "/srv");
    for (name, value) in env.split(' ').map(|pair| pair.split_once('=').unwrap()) {
        bundle = bundle.env(name, value);
        // The class's trusted capability.
        if name == "LIVE_FILE_MORE" {
            bundle = bundle.sys_admin();
        }
    }
    let report = lab.probe(&bundle.build().unwrap());
    for (path, wanted) in seen {
        let found = report.path(host.with_own(path)).unwrap();
        let (wanted, group) = match wanted.split_once(" of ") {
            Some((wanted, group)) => (wanted, Some(group)),
            None => (*wanted, None),
        };
        assert_eq!(described(found), wanted, "{class}: {path}: {found:?}");
        if let Some(group) = group {
            assert_eq!(found.gid, group_id(group), "{class}: {path}: {found:?}");
        }
    }
}

impl Row {
    /// This machine with the class, and with the one that it extends.
    fn host(&self) -> ThisHost {
        let class: Value = toml::from_str(&text(self.class)).unwrap();
        let host = match class["extends"].as_str() {
            Some(extended) => furnished().class(extended, &text(extended)),
            None => furnished(),
        };
        host.class(self.class, &text(self.class))
    }
}

/// The id of a group of this machine, which is not root's.
fn group_id(name: &str) -> u32 {
    let groups = fs::read_to_string("/etc/group").unwrap();
    let mut lines = groups.lines().map(|line| line.split(':'));
    let id = lines.find_map(|mut fields| {
        let is_group = fields.next() == Some(name);
        is_group.then(|| fields.nth(1).unwrap().parse().unwrap())
    });
    id.filter(|id| *id != 0).unwrap()
}

/// As [`ROWS`] have it.
fn described(found: &PathReport) -> String {
    let (major, minor) = found.number().unwrap_or_default();
    match (found.kind, &found.entries) {
        (Kind::CharacterDevice, _) => format!("char {major}:{minor}"),
        (Kind::BlockDevice, _) => format!("block {major}:{minor}"),
        (Kind::File, _) => format!("file {:?}", found.text.as_deref().unwrap_or_default()),
        (Kind::Directory, Some(names)) => format!("directory {}", names.join(" ")),
        (Kind::Missing, _) => "missing".to_owned(),
        (kind, _) => format!("{kind:?}"),
    }
}

/// The class file of a row, enabled.
fn text(class: &str) -> String {
    let tree = binaries::source_tree();
    let own = tree.join(format!("tests/suite/at_root/classes/{class}.toml"));
    let shipped = tree.join(format!("device-class/classes/{class}.toml"));
    let text = fs::read_to_string(own).or_else(|_| fs::read_to_string(shipped));
    text.unwrap().replace("\nenabled = false\n", "\n")
}

/// This machine with a driver's root as the class `files` has it.
fn furnished() -> ThisHost {
    let host = ThisHost::new();
    let files = [
        ("shared/state", "idle\n"),
        ("driver/etc/live.conf", "live\n"),
        ("driver/etc/live.d/one.conf", "one\n"),
        ("driver/etc/listed", "listed\n"),
        (
            "driver/etc/lists/driver.csv",
            "lib, @own@/driver/etc/listed\n",
        ),
        ("driver/bin/live", "#!/bin/sh\n"),
        ("driver/more/libmore.so.1", ""),
        ("driver/libraries/none", ""),
    ];
    for (name, content) in files {
        let file = host.own_path(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, host.with_own(content)).unwrap();
    }
    let program = host.own_path("driver/bin/live");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["live", "new", "newer"] {
        VendorLibrary::new(name, "1.2.3")
            .install(&host.own_path("driver/libraries"))
            .unwrap();
    }
    host
}
