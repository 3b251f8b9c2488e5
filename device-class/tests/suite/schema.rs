//! The documentation has what the JSON Schema and the shipped classes say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use device_class::host::RecordedHost;
use serde_json::Value;

use crate::parse;
use crate::shipped::{self, root};

/// The tables of the schema, in the order and under the headings of the documentation.
const SECTIONS: [(&str, &str); 5] = [
    (
        "Top of the file",
        "top need allocate sharing compatibility prepare",
    ),
    ("Requests", "request requirements pairs"),
    (
        "Discovery",
        "source attribute condition facts fact_lines unclaimed",
    ),
    (
        "Devices",
        "device health links label parts found_part write_step",
    ),
    (
        "Contents of containers",
        "edits node make netdev library library_names image_libraries file directory mask text unmask",
    ),
];

fn schema() -> Value {
    // Not the constant: another test may just have regenerated the file.
    let text = std::fs::read_to_string(root().join("schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns the required keys of each table that a file without `extends` must have.
fn required_unless_extended(schema: &Value) -> BTreeMap<String, BTreeSet<String>> {
    fn add(
        schema: &Value,
        name: &str,
        condition: &Value,
        all: &mut BTreeMap<String, BTreeSet<String>>,
    ) {
        let keys = condition["required"].as_array().into_iter().flatten();
        let keys = keys.map(|key| key.as_str().unwrap().to_owned());
        all.entry(name.to_owned()).or_default().extend(keys);
        for (key, condition) in condition["properties"].as_object().into_iter().flatten() {
            let path = table(schema, name)["properties"][key]["$ref"].as_str();
            let (_, inner) = path.unwrap().rsplit_once('/').unwrap();
            add(schema, inner, condition, all);
        }
    }
    let mut all = BTreeMap::new();
    add(schema, "top", &schema["else"], &mut all);
    all
}

fn table<'a>(schema: &'a Value, name: &str) -> &'a Value {
    match name {
        "top" => schema,
        name => &schema["definitions"][name],
    }
}

/// No two shipped classes share a variable, or a resource: a container would
/// not know which of them it asks, nor a pod what it gets. No host has both drivers of the
/// classes whose resource is the same.
#[test]
fn no_two_classes_speak_for_each_other() {
    let for_other_hosts = [
        ("nvidia-tegra", "nvidia.com/gpu"),
        ("amd-gpu", "amd.com/gpu"),
    ];
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for source in shipped::sources() {
        let class = source.parse().unwrap();
        for word in [
            class.spec.request.env.to_string(),
            class.spec.resource.to_string(),
        ] {
            let owner = owners.insert(word.clone(), class.name.to_string());
            let owner = owner.filter(|owner| !for_other_hosts.contains(&(owner, &word)));
            assert_eq!(owner, None, "{word} is of {} too", class.name);
        }
    }
}

/// Compares a page with its generated part, which stands between two comments.
fn check_part(page: &str, name: &str, content: &str) {
    let path = root().join("../docs").join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (
        format!("<!-- {name} -->\n"),
        format!("<!-- end of {name} -->"),
    );
    let (before, rest) = text.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    let wanted = format!("{before}{begin}{content}{end}{after}");
    expect_test::expect_file![path].assert_eq(&wanted);
}

#[test]
fn the_reference_has_every_key() {
    let schema = schema();
    let defined = schema["definitions"].as_object().unwrap().keys();
    let defined: BTreeSet<&str> = defined.map(String::as_str).chain(["top"]).collect();
    let documented = SECTIONS.iter().flat_map(|(_, tables)| tables.split(' '));
    assert_eq!(BTreeSet::from_iter(documented), defined);
    let mut text = String::new();
    for (heading, tables) in SECTIONS {
        writeln!(text, "\n### {heading}\n").unwrap();
        for name in tables.split(' ') {
            let table = table(&schema, name);
            let title = table["title"].as_str().unwrap();
            if name != "top" {
                let must = required(&schema, "top", title.trim_matches(['`', '[', ']']));
                writeln!(text, "- **{title}** (table{must}): {}", meaning(table)).unwrap();
            }
            for (key, property) in table["properties"].as_object().unwrap() {
                // A table with a header has an entry of its own.
                if headed(&schema, property).is_some_and(|list| !list || name == "top") {
                    continue;
                }
                let must = required(&schema, name, key);
                let (kind, meaning) = (kind(&schema, property), meaning(property));
                writeln!(text, "- `{key}` ({kind}{must}): {meaning}").unwrap();
            }
        }
    }
    check_part("class-reference.md", "reference", &(text + "\n"));
}

/// The classes that were tried with more than hosts that were written from documents.
const TRIED: [(&str, &str); 12] = [
    ("nvidia-gpu", "hardware (H200)"),
    ("amd-gpu", "packages"),
    ("intel-gpu", "packages"),
    ("can", "VM"),
    ("fuse", "VM"),
    ("kvm", "VM"),
    ("rdma-shared", "VM"),
    ("serial-port", "VM"),
    ("tun", "VM"),
    ("usb-reader", "VM"),
    ("v4l2-camera", "VM"),
    ("vfio", "VM"),
];

#[test]
fn the_catalogue_has_every_class() {
    let classes = shipped::sources();
    let is_class = |name: &str| classes.iter().any(|class| class.name.as_str() == name);
    assert!(TRIED.iter().all(|(name, _)| is_class(name)));
    let mut text = String::from(
        "\n| class | devices | resource | variable | pods | tried |\n|---|---|---|---|---|---|\n",
    );
    for class in &classes {
        let class = class.parse().unwrap();
        let (name, spec) = (&class.name, &class.spec);
        let offered = if spec.is_enabled { "yes" } else { "" };
        let tried = TRIED.iter().find(|(tried, _)| *tried == name.as_str());
        let tried = tried.map_or("documents", |(_, level)| level);
        let (what, resource, env) = (&spec.description, &spec.resource, &spec.request.env);
        writeln!(text, "| [{name}](../device-class/classes/{name}.toml) | {what} | `{resource}` | `{env}` | {offered} | {tried} |").unwrap();
    }
    check_part("hardware.md", "classes", &(text + "\n"));
}

/// Whether a property is a table that is written with a header, or a list of such.
fn headed(schema: &Value, property: &Value) -> Option<bool> {
    let reference = property["$ref"]
        .as_str()
        .or(property["items"]["$ref"].as_str())?;
    let (_, name) = reference.rsplit_once('/').unwrap();
    let title = schema["definitions"][name]["title"].as_str().unwrap();
    title.starts_with("`[").then(|| title.starts_with("`[["))
}

/// Returns the mark of a key that a file must have, unless it extends another one.
fn required(schema: &Value, name: &str, key: &str) -> &'static str {
    let in_list = table(schema, name)["required"].as_array();
    let in_list = in_list.is_some_and(|names| names.iter().any(|name| name == key));
    let unless_extended = required_unless_extended(schema);
    let is_required = unless_extended
        .get(name)
        .is_some_and(|keys| keys.contains(key));
    if in_list || is_required {
        ", required"
    } else {
        ""
    }
}

fn kind(schema: &Value, property: &Value) -> String {
    if let Some(name) = property["$ref"].as_str() {
        let (_, name) = name.rsplit_once('/').unwrap();
        return format!(
            "table {}",
            schema["definitions"][name]["title"].as_str().unwrap()
        );
    }
    if property.get("anyOf").is_some() {
        return "text or table".into();
    }
    if property.get("const").is_some() {
        return "number".into();
    }
    if let Some(values) = property["enum"].as_array() {
        let values: Vec<_> = values.iter().map(|value| format!("`{value}`")).collect();
        return values.join(" or ");
    }
    match property["type"].as_str().unwrap() {
        "array" if property["items"].get("anyOf").is_some() => "list of texts or tables".into(),
        "array" if property["items"].get("$ref").is_some() => "list of tables".into(),
        "array" if property["items"]["type"] == "array" => "list of lists".into(),
        "array" if property["items"]["type"] == "integer" => "list of numbers".into(),
        "array" => "list of texts".into(),
        "object" if property["additionalProperties"]["type"] == "integer" => {
            "table of numbers".into()
        }
        "object" if property["additionalProperties"]["type"] == "array" => "table of lists".into(),
        "object" if property["additionalProperties"] == true => "table".into(),
        "object" => "table of texts".into(),
        "string" => "text".into(),
        "integer" => "number".into(),
        _ => "`true` or `false`".into(),
    }
}

fn meaning(property: &Value) -> &str {
    property["description"].as_str().unwrap()
}

/// The tutorial's file is a class in ten lines, and finds what the tutorial
/// says that it finds.
#[test]
fn the_tutorial_works() {
    let text = std::fs::read_to_string(root().join("../docs/class-tutorial.md")).unwrap();
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (file, _) = rest.split_once("```").unwrap();
    let lines = file.lines().filter(|line| !line.trim().is_empty());
    assert!(lines.count() <= 10, "{file}");
    let class = parse("mychip", file).unwrap();
    let host = "char /dev/mychip0 240:0\nchar /dev/mychip1 240:1\nchar /dev/mychip12 240:12\n";
    let host = RecordedHost::parse(host).unwrap();
    let found = device_class::discover::find_devices(&class, &host);
    let ids: Vec<_> = found.devices.iter().map(|d| d.id.as_str()).collect();
    assert_eq!(ids, ["mychip-0", "mychip-1", "mychip-12"]);
    assert!(found.warnings.is_empty());
    for id in ids {
        assert!(text.contains(id), "the tutorial does not show {id}");
    }
}

/// The larger class finds a device that has what the class names.
#[test]
fn the_larger_class_works() {
    const HOST: &str = "
file /sys/module/chip/version
| 1.0
file /sys/class/chip/chip3/serial
| C4711
link /sys/class/chip/chip3/device ../../../devices/pci0000:00/0000:03:00.0
file /sys/devices/pci0000:00/0000:03:00.0/vendor
| 0x10ee
file /sys/class/chip/chip3/status
| ALIVE
file /sys/class/chip/chip3/temp
| 45000
file /sys/class/chip/chip3/heartbeat
| 7
link /sys/bus/pci/devices/0000:03:00.0 ../../../devices/pci0000:00/0000:03:00.0
file /sys/devices/pci0000:00/0000:03:00.0/drm/renderD129/dev
| 226:129
char /dev/chip3 240:3
char /dev/dri/renderD129 226:129
";
    let text = std::fs::read_to_string(root().join("../docs/class-tutorial.md")).unwrap();
    let (_, section) = text.split_once("## A larger class").unwrap();
    let file = section.split("```").nth(1).unwrap().strip_prefix("toml\n");
    let class = parse("chip", file.unwrap()).unwrap();
    let host = RecordedHost::parse(HOST.trim_start()).unwrap();
    let found = device_class::discover::find_devices(&class, &host);
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    let [device] = &found.devices[..] else {
        panic!("{:?}", found.devices);
    };
    let index = device.index.as_deref();
    assert_eq!((device.id.as_str(), index), ("C4711", Some("3")));
}
