//! Facts that the drivers' programs report: what is read of their output, and what
//! discovery makes of it. The outputs are written after published ones of the branches that
//! their names have, with values of the recorded host.

use std::path::Path;

use device_class::DeviceClass;
use device_class::class::FactsProgram;
use device_class::config::Config;
use device_class::discover;
use device_class::facts::Facts;
use device_class::host::RecordedHost;

use crate::shipped::{class, root};

const GPU: &str = "GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10";

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The program of a class with these arguments.
fn program<'c>(class: &'c DeviceClass, arguments: &str) -> &'c FactsProgram {
    let is_it = |one: &&FactsProgram| one.command[1..].join(" ").starts_with(arguments);
    class.spec.facts.iter().find(is_it).unwrap()
}

fn printed(class: &DeviceClass, arguments: &str, file: &str) -> Facts {
    let output = read(&format!("testdata/nvidia-gpu/nvidia-smi/{file}"));
    Facts::of(program(class, arguments).facts(&output))
}

#[test]
fn the_xml_of_several_branches_is_read() {
    let class = class("nvidia-gpu");
    for (file, version) in [
        ("query-470.xml", "470.256.02"),
        ("query-535.xml", "535.261.03"),
        ("query-575.xml", "575.57.08"),
    ] {
        let facts = printed(&class, "-q", file);
        for (key, wanted) in [
            ("version", Some(version)),
            ("0000:17:00.0 11 0 device", Some("0")),
            ("0000:17:00.0 1 0 device", Some("1")),
            // A process, and not an instance.
            ("0000:17:00.0 1 7 device", None),
            ("0000:17:00.0 MIG mode", Some("Enabled")),
            ("0000:ca:00.0 MIG mode", None),
            ("0000:ca:00.0 brand", Some("NVIDIA")),
            ("0000:17:00.0 fb_memory_usage MiB", Some("143771")),
            ("0000:17:00.0 bar1_memory_usage MiB", Some("262144")),
        ] {
            assert_eq!(facts.first(key), wanted, "{file}: {key}");
        }
    }
}

#[test]
fn lists_of_instances_architectures_and_links_are_read() {
    let class = class("nvidia-gpu");
    let list = printed(&class, "-L", "list.txt");
    for (key, wanted) in [
        ("index", "0"),
        ("0 uuid", "MIG-5d0bd4f8-74b1-5a33-9b0d-3e6a8f1c2d40"),
        ("0 whole profile", "1g.18gb"),
        ("0+ profile", "1g.18gb.me"),
        ("1 whole profile", "3g.71gb"),
    ] {
        assert_eq!(list.first(&format!("{GPU} {key}")), Some(wanted), "{key}");
    }
    assert_eq!(list.first(&format!("{GPU} 1+ profile")), None);
    let old = printed(&class, "-L", "list-460.txt");
    let wanted = format!("MIG-{GPU}/7/0");
    assert_eq!(old.first(&format!("{GPU} 0 uuid")), Some(wanted.as_str()));
    let arch = printed(&class, "--query-gpu", "arch.csv");
    assert_eq!(arch.first("0000:ca:00.0 arch"), Some("9.0"));
    let links = printed(&class, "nvlink", "nvlink.txt");
    assert_eq!(links.all(&format!("{GPU} NVLink")), ["0000:ca:00.0"]);
}

/// What a program prints, and how many facts a class reads of it.
#[test]
fn garbage_and_hostile_names_are_no_facts() {
    let class = class("nvidia-gpu");
    let long = format!("GPU 0: x (UUID: GPU-{})\n", "a".repeat(5000));
    let many = format!("GPU 0: x (UUID: {GPU})\n").repeat(10_000);
    for (output, wanted) in [
        ("", 0),
        ("No devices were found\n", 0),
        ("\u{0}\u{1}\u{fffd}GPU\n", 0),
        ("GPU 0: x (UUID: GPU-1\u{1b}[2J)\n", 0),
        ("GPU 0: \u{1b}[2J (UUID: GPU-1)\n", 1),
        (long.as_str(), 0),
        (many.as_str(), 1),
    ] {
        let facts = Facts::of(program(&class, "-L").facts(output));
        let text = facts.text(&RecordedHost::default(), &[]);
        assert_eq!(text.lines().count() - 1, wanted, "{output:.40}");
        assert!(!text.contains('\u{1b}'), "{output:?}");
    }
}

fn devices(host: &str, config: &str) -> (Vec<String>, Vec<String>) {
    let config = Config::parse(Path::new("config.toml"), config).unwrap();
    let class = config
        .adapted(class("nvidia-gpu"), Path::new("nvidia-gpu.toml"))
        .unwrap();
    let found = discover::devices(&class, &RecordedHost::parse(host).unwrap());
    let devices = found.devices.iter();
    let devices = devices.map(|one| format!("{} {}", one.resource, one.id));
    (devices.collect(), found.warnings)
}

#[test]
fn old_facts_and_those_that_are_turned_off_are_not_used() {
    let host = read("testdata/nvidia-gpu/mig-facts/host.txt");
    let with = "nvidia.com/mig-1g.18gb.me MIG-5d0bd4f8-74b1-5a33-9b0d-3e6a8f1c2d40";
    let without = format!("nvidia.com/mig MIG-{GPU}-11-0");
    let off = "[class.nvidia-gpu]\nfacts = false\n";
    for (uptime, config, is_used, warnings) in [
        ("5000.25", "", true, 0),
        ("91000.00", "", true, 0),
        // More than a day.
        ("91400.00", "", false, 1),
        // Of an earlier boot.
        ("20.00", "", false, 1),
        ("5000.25", off, false, 0),
    ] {
        let host = host.replace("5000.25", uptime);
        let (devices, warned) = devices(&host, config);
        let has = |text: &str| devices.iter().any(|device| device == text);
        assert_eq!(has(with), is_used, "{uptime}: {devices:?}");
        assert_eq!(has(&without), !is_used, "{uptime}: {devices:?}");
        assert_eq!(warned.len(), warnings, "{uptime}: {warned:?}");
    }
    let (absent, warned) = devices(&host.replace("facts/nvidia-gpu", "facts/other"), "");
    assert!(absent.contains(&without) && warned.is_empty(), "{absent:?}");
}

/// NVML's count of GPUs leaves out those that the driver excludes.
#[test]
fn an_excluded_gpu_is_none_and_shifts_no_index() {
    let host = read("testdata/nvidia-gpu/mig-facts/host.txt");
    let class = class("nvidia-gpu");
    let found = discover::devices(&class, &RecordedHost::parse(&host).unwrap());
    let last = found.devices.last().unwrap();
    assert_eq!(last.id.as_str(), "GPU-b0f66a81-7f0c-4a6e-a7d9-5a3c9a1d2f77");
    assert_eq!(last.index.as_deref(), Some("1"));
    // And it is in MIG mode without an instance.
    assert!(
        last.health.to_string().contains("-mig 0"),
        "{}",
        last.health
    );
    let included = host.replace("Excluded:\t Yes", "Excluded:\t No");
    let found = discover::devices(&class, &RecordedHost::parse(&included).unwrap());
    assert_eq!(found.devices[0].index.as_deref(), Some("0"));
    assert_eq!(found.devices.len(), 4);
}

#[test]
fn a_mistake_in_a_class_is_named() {
    let class = |facts: &str| {
        let text = format!(
            "version = 1\nresource = 'x.com/x'\nrequest = {{ env = 'X' }}\n{facts}\n\
             [[discover]]\npath = '/dev/x{{n:number}}'\n[device]\nid = '{{n}}'\n"
        );
        let name = "x".to_owned().try_into().unwrap();
        let parsed = DeviceClass::parse(name, Path::new("x.toml"), &text);
        parsed.map(|_| ()).unwrap_err().to_string()
    };
    for (facts, reason) in [
        (
            "facts = [{ program = ['smi'], lines = [] }]",
            "begins with the absolute path",
        ),
        (
            "facts = [{ program = ['/smi'], lines = [{ line = '(' }] }]",
            "bad regex `(`",
        ),
        (
            "facts = [{ program = ['/smi'], lines = [{ line = 'x', facts = { a = '{b}' } }] }]",
            "`{b}` uses `b`, which no `line` sets",
        ),
        (
            "attributes = [{ name = 'a', fact = 'b' }]",
            "an attribute with `fact` has a `default`",
        ),
    ] {
        let found = class(facts);
        assert!(found.contains(reason), "{facts}: {found}");
    }
}
