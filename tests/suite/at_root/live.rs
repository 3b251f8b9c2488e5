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
use super::hot_added::HotAdded;
use crate::lab::{Lab, STAGE, asking, on_each_cgroup_version};

/// A class: one of `classes`, or of those that the project ships.
struct Row {
    class: &'static str,
    /// The ids in the lists; `!` before those that are unhealthy.
    hook: &'static [&'static str],
    plugin: &'static [&'static str],
    /// What a container requests, and what it has then.
    env: &'static str,
    seen: &'static [(&'static str, Seen)],
}

/// What is at a path in the container.
enum Seen {
    Char(u64, u64),
    Block(u64, u64),
    File(&'static str),
    Directory(&'static [&'static str]),
    Missing,
}
use Seen::{Block, Char, Directory, File, Missing};

const ROWS: [Row; 13] = [
    Row {
        class: "mem",
        hook: &["mem-nothing", "mem-zeros", "mem-full"],
        plugin: &["mem-full", "mem-nothing", "mem-zeros"],
        env: "LIVE_MEM=1:3,zero LIVE_REQUIRE_1=kernel>=3",
        seen: &[
            ("/dev/live/null", Char(1, 3)),
            ("/dev/live/zero", Char(1, 5)),
            ("/dev/live/full", Missing),
            ("/etc/live/null", File("1:3\n")),
            ("/opt/zero", Directory(&["state"])),
        ],
    },
    Row {
        class: "tty",
        hook: &["tty1", "tty2"],
        plugin: &["tty1", "tty2"],
        env: "LIVE_TTY=2",
        seen: &[("/dev/tty2", Char(4, 2)), ("/dev/tty1", Missing)],
    },
    Row {
        class: "terminal",
        hook: &["tty1", "tty2"],
        plugin: &["tty1", "tty2"],
        env: "LIVE_TERMINAL=1",
        seen: &[("/dev/tty1", Char(4, 1)), ("/dev/tty2", Missing)],
    },
    Row {
        class: "fuse",
        hook: &["fuse"],
        plugin: &["fuse::0"],
        env: "FUSE_VISIBLE_DEVICES=all",
        seen: &[("/dev/fuse", Char(10, 229))],
    },
    Row {
        class: "tun",
        hook: &["tun"],
        plugin: &["tun::0"],
        env: "TUN_VISIBLE_DEVICES=all",
        seen: &[("/dev/net/tun", Char(10, 200))],
    },
    Row {
        class: "kvm",
        hook: &["kvm"],
        plugin: &["kvm::0"],
        env: "KVM_VISIBLE_DEVICES=all",
        seen: &[("/dev/kvm", Char(10, 232))],
    },
    Row {
        class: "made",
        hook: &["made"],
        plugin: &["made"],
        env: "LIVE_MADE=all LIVE_MADE_CAPABILITIES=more",
        seen: &[
            ("/dev/live-zero", Char(1, 5)),
            ("/dev/live-loop", Block(7, 0)),
            ("/dev/live-nothing", Missing),
            ("/dev/full", Char(1, 7)),
            ("/dev/every/random", Char(1, 8)),
        ],
    },
    Row {
        class: "parts",
        hook: &["nulldev", "nulluevent", "zero"],
        plugin: &["nulldev", "nulluevent", "zero"],
        env: "LIVE_PART=example.org/part=0:1,absent",
        seen: &[
            ("/sys/class/mem", Directory(&["full", "null"])),
            ("/etc/parts.d/own.conf", File("0x2")),
        ],
    },
    Row {
        class: "files",
        hook: &["files"],
        plugin: &["files"],
        env: "LIVE_FILE=all LIVE_FILE_MORE=on",
        seen: &[
            ("/etc/live.conf", File("live\n")),
            ("/etc/live-more.conf", File("live\n")),
            ("/etc/live.d/one.conf", File("one\n")),
            ("@own@/driver/etc/listed", File("listed\n")),
            ("/usr/bin/live", File("#!/bin/sh\n")),
            ("/opt/live", Directory(&["libmore.so.1"])),
            ("/dev/null", Char(1, 3)),
        ],
    },
    Row {
        class: "health",
        hook: &["!bytes", "key", "!number", "program", "!text", "well"],
        plugin: &["!bytes", "!number", "!text", "key", "program", "well"],
        env: "LIVE_HEALTH=well",
        seen: &[],
    },
    Row {
        class: "shared",
        hook: &["null", "zero"],
        plugin: &["null::0", "null::1", "zero::0", "zero::1"],
        env: "LIVE_SHARE=null LIVE_SHARE_OF_0=NULL LIVE_SHARE_STATE_0=Busy",
        seen: &[("/dev/null", Char(1, 3)), ("/srv/state", File("busy\n"))],
    },
    Row {
        class: "combined",
        hook: &["combined"],
        plugin: &["combined"],
        env: "LIVE_COMBINED=all",
        seen: &[("/dev/null", Char(1, 3)), ("/dev/zero", Char(1, 5))],
    },
    Row {
        class: "joined",
        hook: &["1"],
        plugin: &["1", "1::0", "1::1"],
        env: "LIVE_JOINED=1",
        seen: &[("/dev/null", Char(1, 3)), ("/dev/zero", Char(1, 5))],
    },
];

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
    for row in &ROWS {
        let class: Value = toml::from_str(&text(row.class)).unwrap();
        remove_used(&mut unused, &schema, &schema, "class", &class);
    }
    let added: Value = toml::from_str(&text("added")).unwrap();
    remove_used(&mut unused, &schema, &schema, "class", &added);
    // Facts (device-class/tests/suite/facts.rs) and what is followed (live::follow, live::told)
    // would be written into this machine's /run.
    unused.retain(|key| !key.contains("fact"));
    unused.retain(|key| !["class.follow", "class.announce"].contains(&key.as_str()));
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
    for row in &ROWS {
        let host = row.host();
        let listed = |devices: Vec<Value>| -> Vec<String> {
            let own = devices.iter().filter(|device| device["class"] == row.class);
            let ids = own.map(|device| {
                let id = device["id"].as_str().unwrap();
                let mark = if device["healthy"] == true { "" } else { "!" };
                format!("{mark}{id}")
            });
            let mut ids: Vec<_> = ids.collect();
            ids.sort();
            ids
        };
        let mut wanted = row.hook.to_vec();
        wanted.sort_unstable();
        assert_eq!(listed(host.devices()), wanted, "{}", row.class);
        let plugin = listed(host.devices_of_plugin());
        let (plugin, more) = plugin.split_at(row.plugin.len().min(plugin.len()));
        assert_eq!(plugin, row.plugin, "{}", row.class);
        // The shares of a class may be many.
        assert!(more.iter().all(|id| id.contains("::")), "{more:?}");
    }
}

fn containers_get_what_the_rows_say(lab: &Lab) {
    for row in &ROWS {
        let host = row.host();
        check_container(lab, &host, row.class, row.env, row.seen);
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
        let seen = match *kind {
            "tap" => Char(major, minor),
            _ => Block(major, minor),
        };
        check_container(lab, &host, "added", "LIVE_ADDED=all", &[(&node, seen)]);
    }
    while !added.is_empty() {
        added.remove(0);
        assert_eq!(host.ids(), ids(&added));
    }
}

fn check_container(lab: &Lab, host: &ThisHost, class: &str, env: &str, seen: &[(&str, Seen)]) {
    let paths = seen.iter().map(|(path, _)| host.with_own(path));
    let questions = paths.fold(Questions::new(), Questions::path);
    let hook = HookCommand::boathook(STAGE, &host.config_file()).unwrap();
    let mut bundle = Bundle::builder(Rootfs::Glibc)
        .hook(STAGE, hook)
        .args(asking(&questions));
    bundle = bundle.bind(&host.own("shared"), "/srv");
    for (name, value) in env.split(' ').map(|pair| pair.split_once('=').unwrap()) {
        bundle = bundle.env(name, value);
    }
    let report = lab.probe(&bundle.build().unwrap());
    for (path, wanted) in seen {
        let found = report.path(host.with_own(path)).unwrap();
        assert!(wanted.is(found), "{class}: {path}: {found:?}");
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

impl Seen {
    fn is(&self, found: &PathReport) -> bool {
        let number = found.number();
        match self {
            Char(major, minor) => {
                found.kind == Kind::CharacterDevice && number == Some((*major, *minor))
            }
            Block(major, minor) => {
                found.kind == Kind::BlockDevice && number == Some((*major, *minor))
            }
            File(text) => found.text.as_deref() == Some(text),
            Directory(names) => found
                .entries
                .as_ref()
                .is_some_and(|entries| entries == names),
            Missing => found.kind == Kind::Missing,
        }
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
        let file = host.own(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, host.with_own(content)).unwrap();
    }
    let program = host.own("driver/bin/live");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["live", "new", "newer"] {
        VendorLibrary::new(name, "1.2.3")
            .install(&host.own("driver/libraries"))
            .unwrap();
    }
    host
}
