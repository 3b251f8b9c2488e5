//! Classes that extend others: what they get, and what is wrong with them.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover::{self, PathLookup};
use device_class::host::RecordedHost;
use device_class::load::{self, ClassSource};

use crate::rows;
use crate::shipped::{self, root};

const CHIP: &str = r#"
version = 1
description = "Chips"
resource = "example.com/chip"
[request]
env = "CHIP_VISIBLE_DEVICES"
capabilities_env = "CHIP_CAPABILITIES"
[[discover]]
path = "/dev/chip{index:number}"
[device]
id = "chip-{index}"
nodes = ["/dev/chip{index}"]
[[edits]]
capability = "math"
"#;

/// Directories of class files, of which a later one masks an earlier one.
struct Directories {
    root: tempfile::TempDir,
    all: Vec<PathBuf>,
}

impl Directories {
    /// `files` have paths such as `1/chip.toml`.
    fn new(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let all = ["1", "2"].map(|name| root.path().join(name));
        all.iter().for_each(|path| fs::create_dir(path).unwrap());
        for (path, text) in files {
            let path = root.path().join(path);
            fs::write(&path, text).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }
        Directories {
            root,
            all: all.into(),
        }
    }

    fn source(&self, class: &str) -> ClassSource {
        let sources = load::read_each_source(&self.all).unwrap();
        let mut sources = sources.into_iter().flatten();
        let is_asked = |source: &ClassSource| source.name.as_str() == class;
        sources.find(is_asked).unwrap()
    }

    fn class(&self, class: &str) -> Result<DeviceClass, String> {
        let parsed = self.source(class).parse();
        let root = format!("{}/", self.root.path().display());
        parsed.map_err(|error| error.to_string().replace(&root, ""))
    }
}

#[test]
fn tables_are_merged_and_other_values_replaced() {
    let small = "extends = \"chip\"\nresource = \"example.com/small\"\n\
                 [request]\nenv = \"SMALL\"\n[device]\nnodes = []\naliases = [\"{index}\"]\n";
    let tiny = "extends = \"small\"\ndescription = \"Tiny chips\"\n";
    let files = [
        ("1/chip.toml", CHIP),
        ("1/small.toml", small),
        ("1/tiny.toml", tiny),
    ];
    let directories = Directories::new(&files);
    let small = directories.class("small").unwrap().spec;
    assert_eq!(small.description, "Chips");
    assert_eq!(small.resource.to_string(), "example.com/small");
    assert_eq!(small.request.env.as_str(), "SMALL");
    let capabilities = small.request.capabilities_env.unwrap();
    assert_eq!(capabilities.as_str(), "CHIP_CAPABILITIES");
    assert_eq!(small.device.id.to_string(), "chip-{index}");
    assert_eq!(
        (small.device.nodes.len(), small.device.aliases.len()),
        (0, 1)
    );
    assert_eq!((small.discover.len(), small.edits.len()), (1, 1));
    let tiny = directories.class("tiny").unwrap().spec;
    assert_eq!(tiny.description, "Tiny chips");
    assert_eq!(tiny.request.env.as_str(), "SMALL");
}

const LISTS: &str = r#"
version = 1
resource = "example.com/chip"
library_directories = ["/a", "/b"]
[request]
env = "CHIP_VISIBLE_DEVICES"
capabilities_env = "CHIP_CAPABILITIES"
[[discover]]
count = 1
[device]
id = "chip-{index}"
nodes = ["/dev/chip{index}", { path = "/dev/control", access = "rw" }]
[[edits]]
capability = "math"
binaries = ["/usr/bin/chip-tool", { path = "/usr/bin/other" }]
[[edits]]
capability = "draw"
libraries = ["libchip.so.1", { soname = "libdraw.so.1" }]
"#;

/// `[add]` and `[remove]` of two classes of which each extends the next one, and the lists after
/// them.
const CHANGES: &str = r"
[remove]\nlibrary_directories = ['/a'] | [add] | /b; 2; 2 0, 0 2
[add]\nlibrary_directories = ['/c'] | [add]\nlibrary_directories = ['/d'] | /a /b /c /d; 2; 2 0, 0 2
[add]\nlibrary_directories = ['/c'] | [remove]\nlibrary_directories = ['/c', '/a'] | /b; 2; 2 0, 0 2
[add]\nprogram_directories = ['/p'] | [remove.device]\nnodes = ['/dev/control'] | /a /b; 1; 2 0, 0 2
[remove]\nedits = [{ capability = 'math' }] | [add] | /a /b; 2; 0 2
[remove]\nedits = [{ capability = 'math', binaries = ['/usr/bin/other'] }] | [add] | /a /b; 2; 1 0, 0 2
[remove]\nedits = [{ libraries = ['libdraw.so.1'] }] | [add] | /a /b; 2; 2 0, 0 1
[add]\nedits = [{ capability = 'draw', binaries = ['/x'] }] | [add] | /a /b; 2; 2 0, 0 2, 1 0
library_directories = ['/own'] | [add]\nlibrary_directories = ['/c'] | /own /c; 2; 2 0, 0 2
";

#[test]
fn lists_of_the_base_are_changed_item_by_item() {
    for [own, further, wanted] in rows(CHANGES) {
        let small = format!("extends = 'chip'\n{own}\n");
        let tiny = format!("extends = 'small'\n{further}\n");
        let files = [
            ("1/chip.toml", LISTS),
            ("1/small.toml", &small),
            ("1/tiny.toml", &tiny),
        ];
        let spec = Directories::new(&files).class("tiny").unwrap().spec;
        let directories = spec.library_directories.iter();
        let directories: Vec<String> = directories.map(|it| it.template().to_string()).collect();
        let edits = spec.edits.iter();
        let edits = edits.map(|it| format!("{} {}", it.binaries.len(), it.libraries.len()));
        let edits: Vec<String> = edits.collect();
        let found = format!(
            "{}; {}; {}",
            directories.join(" "),
            spec.device.nodes.len(),
            edits.join(", ")
        );
        assert_eq!(found, wanted, "{own} & {further}");
    }
}

#[test]
fn the_administrators_file_is_the_base() {
    let own = CHIP.replace("\"Chips\"", "\"Our chips\"");
    let files = [
        ("1/chip.toml", CHIP),
        ("1/small.toml", "extends = 'chip'\n"),
        ("2/chip.toml", &own),
    ];
    let class = Directories::new(&files).class("small").unwrap();
    assert_eq!(class.spec.description, "Our chips");
}

/// A container that sets none of its variables does not pay for the parsing of a class.
/// The conditions of the base are for the driver root that the base names. A class that names none,
/// or writes conditions itself, has conditions.
#[test]
fn another_driver_root_has_no_conditions_of_the_base() {
    let base = CHIP.replacen(
        "resource",
        "driver_root = '/run/chip'\ndriver_root_require = [{ exists = '/run/chip/ready' }]\nresource",
        1,
    );
    let base = format!("{base}binaries = ['/usr/bin/chip-info']\n");
    let text = "char /dev/chip0 240:0\nfile /usr/bin/chip-info\nfile /run/chip/usr/bin/chip-info\n\
                file /opt/chip/usr/bin/chip-info\n";
    let host = RecordedHost::parse(text).unwrap();
    let own = "driver_root = '/opt/chip'";
    let own_condition = format!("{own}\ndriver_root_require = [{{ exists = '/opt/ready' }}]");
    for (keys, path) in [
        ("", "/usr/bin/chip-info"),
        (own, "/opt/chip/usr/bin/chip-info"),
        (&own_condition, "/usr/bin/chip-info"),
    ] {
        let ours = format!("extends = \"chip\"\n{keys}\n");
        let tiny = "extends = \"ours\"\n";
        let files = [
            ("1/chip.toml", base.as_str()),
            ("2/ours.toml", &ours),
            ("2/tiny.toml", tiny),
        ];
        let directories = Directories::new(&files);
        for name in ["ours", "tiny"] {
            let class = directories.class(name).unwrap();
            let math = BTreeSet::from(["math".to_owned().try_into().unwrap()]);
            let found = discover::look_up_class(&class, (&math).into(), &host).unwrap();
            let PathLookup::Found(file) = &found.edits.files[0].file else {
                panic!("{name}: {keys}: {:?}", found.edits.files);
            };
            assert_eq!(file.path, Path::new(path), "{name}: {keys}");
        }
    }
}

#[test]
fn a_class_is_parsed_for_its_variable_and_for_that_of_the_base() {
    let files = [
        ("1/chip.toml", CHIP),
        ("1/same.toml", "extends = 'chip'\n"),
        ("1/own.toml", "extends = 'chip'\n[request]\nenv = 'OWN'\n"),
        ("1/third.toml", "extends = 'own'\n"),
    ];
    let directories = Directories::new(&files);
    for (class, variable, is_parsed) in [
        ("chip", "CHIP_VISIBLE_DEVICES", true),
        ("chip", "OWN", false),
        ("same", "CHIP_VISIBLE_DEVICES", true),
        ("own", "CHIP_VISIBLE_DEVICES", true),
        ("own", "OWN", true),
        ("own", "OTHER", false),
        ("third", "OWN", true),
    ] {
        let source = directories.source(class);
        let found = source.may_be_requested(|name| name == variable);
        assert_eq!(found, is_parsed, "{class}: {variable}");
    }
}

/// What is written beside [`CHIP`], in which files, and why the class `x` is refused.
const REFUSED: &str = r#"
1/x.toml: \nextends = 'chips'
    | 1/x.toml:2: extends: no class file of the name chips.toml, or an empty one disables it
2/chip.toml: \n & 2/x.toml: extends = 'chip'
    | 2/x.toml:1: extends: no class file of the name chip.toml, or an empty one disables it
1/x.toml: extends = 'x' | 1/x.toml:1: extends: a class cannot extend itself: x -> x
1/x.toml: extends = 'b' & 1/b.toml: extends = 'x'
    | 1/b.toml:1: extends: a class cannot extend itself: x -> b -> x
1/x.toml: extends = 'b' & 1/b.toml: extends = 'c' & 1/c.toml: extends = 'd'
    & 1/d.toml: extends = 'e' & 1/e.toml: extends = 'chip'
    | 1/e.toml:1: extends: more than 4 classes, one by way of another:
    x -> b -> c -> d -> e -> chip
1/x.toml: extends = 'n/o'
    | 1/x.toml:1: extends: class name `n/o` may not have the character '/'; allowed are
    a-z A-Z 0-9 - _ .
1/x.toml: 'extends' = 'chip'
    | 1/x.toml: extends: write it at the beginning of a line, before all tables, as
    extends = "CLASS"
# Mistakes are those of the file that has them.
1/x.toml: extends = 'chip'\n[device]\nnods = []
    | 1/x.toml:3: unknown key `nods`, did you mean `nodes`?
1/chip.toml: \n\nx = & 1/x.toml: extends = 'chip'\n
    | 1/chip.toml:3: x: string values must be quoted, expected literal string
1/x.toml: extends = 'chip'\n[device]\nid = '{serial}'
    | 1/x.toml:3: `{serial}` uses the attribute `serial`; known attributes are index
1/x.toml: extends = 'chip'\n[[discover]]\npath = '/dev/x'
    | 1/chip.toml:11: `chip-{index}` uses the attribute `index`; known attributes are none
1/x.toml: extends = 'chip'\n[remove.device]\nnodes = ['/dev/chips']
    | 1/x.toml:3: nodes: the class that is extended has no such item
1/x.toml: extends = 'chip'\n[remove]\nnods = ['/dev/chips']
    | 1/x.toml:3: nods: the class that is extended has no such list
1/x.toml: extends = 'chip'\n[remove]\nresource = ['example.com/chip']
    | 1/x.toml:3: resource: is not a list, so that nothing can be removed from it
1/x.toml: extends = 'chip'\n[add]\ndescription = 'more'
    | 1/x.toml:3: description: is not a list, so that nothing can be added to it
1/x.toml: extends = 'chip'\n[add.device]\nnods = ['/dev/x']
    | 1/x.toml:3: unknown key `nods`, did you mean `nodes`?
1/x.toml: version = 1\n[add]\nlibrary_directories = []
    | 1/x.toml:2: [add]: only a class that extends another one has this table: it changes the
    lists of that one
"#;

#[test]
fn what_cannot_be_extended_is_refused() {
    for [files, wanted] in rows(REFUSED) {
        let own = files
            .split(" & ")
            .map(|file| file.split_once(": ").unwrap());
        let all: Vec<_> = [("1/chip.toml", CHIP)].into_iter().chain(own).collect();
        let error = Directories::new(&all).class("x").unwrap_err();
        assert_eq!(error, wanted, "{files}");
    }
}

#[test]
fn a_base_that_others_can_change_is_refused() {
    let files = [("1/chip.toml", CHIP), ("2/x.toml", "extends = 'chip'\n")];
    let directories = Directories::new(&files);
    let base = directories.all[0].join("chip.toml");
    fs::set_permissions(&base, Permissions::from_mode(0o666)).unwrap();
    let error = directories.class("x").unwrap_err();
    let wanted = "2/x.toml:1: extends: 1/chip.toml: has mode 0666";
    assert!(error.starts_with(wanted), "{error}");
    fs::remove_file(&base).unwrap();
    fs::create_dir(&base).unwrap();
    assert_eq!(
        directories.class("x").unwrap_err(),
        "2/x.toml:1: extends: 1/chip.toml: cannot be read: it is a directory, not a regular file"
    );
}

/// A file that is no installed one: `boathook class check FILE`.
#[test]
fn the_base_of_one_file_is_beside_it_or_installed() {
    let own = CHIP.replace("\"Chips\"", "\"Chips beside\"");
    let files = [("1/chip.toml", CHIP), ("2/x.toml", "extends = 'chip'\n")];
    let directories = Directories::new(&files);
    let description = || {
        let file = directories.all[1].join("x.toml");
        let class = ClassSource::read(&file, &directories.all[..1]).unwrap();
        class.parse().unwrap().spec.description
    };
    assert_eq!(description(), "Chips");
    fs::write(directories.all[1].join("chip.toml"), own).unwrap();
    assert_eq!(description(), "Chips beside");
}

/// The last example of docs/class-tutorial.md, "A class that extends another one".
#[test]
fn one_entry_of_a_shipped_class_is_removed() {
    let docs = fs::read_to_string(root().join("../docs/class-tutorial.md")).unwrap();
    let first = "extends = \"nvidia-gpu\"";
    let (_, rest) = docs.split_once(&format!("```toml\n{first}")).unwrap();
    let class = format!("{first}{}", rest.split_once("```").unwrap().0);
    let directories = Directories::new(&[("2/ours.toml", &class)]);
    let file = directories.all[1].join("ours.toml");
    let ours = shipped::source_of_file(&file);
    let (ours, shipped) = (
        ours.parse().unwrap().spec,
        shipped::class("nvidia-gpu").spec,
    );
    let programs = |spec: &device_class::class::ClassSpec| {
        let edits = spec.edits.iter();
        edits.map(|edits| edits.binaries.len()).sum::<usize>()
    };
    assert_eq!(programs(&ours) + 1, programs(&shipped));
    assert_eq!(ours.edits.len(), shipped.edits.len());
    let directories = ours.library_directories.len();
    assert_eq!(directories, shipped.library_directories.len() + 1);
}

/// docs/class-tutorial.md, "A class that extends another one".
#[test]
fn a_second_resource_of_the_same_hardware_is_a_few_lines() {
    let docs = fs::read_to_string(root().join("../docs/class-tutorial.md")).unwrap();
    let block = |first: &str| {
        let (_, rest) = docs.split_once(&format!("```toml\n{first}")).unwrap();
        format!("{first}{}", rest.split_once("```").unwrap().0)
    };
    let class = block("extends = \"rdma-shared\"");
    let only = "only = [{ vendor = \"0x15b3\" }]";
    assert!(docs.contains(&format!("`{only}` in `[class.rdma-fast]`")));
    let config = format!(
        "[class.rdma-fast]\n{only}\n[class.rdma-shared]\n{}\n",
        only.replace("only", "except")
    );
    let directories = Directories::new(&[("2/rdma-fast.toml", &class)]);
    let file = directories.all[1].join("rdma-fast.toml");
    let config = Config::parse(Path::new("config.toml"), &config).unwrap();
    let host = shipped::host("rdma-shared");
    let devices = |file: &Path| {
        let class = shipped::source_of_file(file);
        let class = config.class(&class).unwrap();
        let found = discover::find_devices(&class, &host).devices;
        let names = found
            .iter()
            .map(|device| format!("{} {}", device.resource, device.id));
        names.collect::<Vec<_>>()
    };
    assert_eq!(devices(&file), ["rdma/hca_fast hca_fast"]);
    assert_eq!(
        devices(&root().join("classes/rdma-shared.toml")),
        ["rdma/hca_shared_devices_a hca_shared_devices_a"]
    );
}
