//! Facts that the drivers' programs report: what is read of their output, and what
//! discovery makes of it. The outputs are written after published ones of the branches that
//! their names have, with values of the recorded host.

use std::path::Path;

use device_class::DeviceClass;
use device_class::class::PropertyProgram;
use device_class::config::Config;
use device_class::discover::{self, NameOrigin};
use device_class::driver_properties::DriverProperties;
use device_class::host::RecordedHost;
use device_class::template::Attributes;

use crate::rows;
use crate::shipped::{class, host, read, recorded, source};

const GPU: &str = "GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10";

/// The program of a class with these arguments.
fn program<'c>(class: &'c DeviceClass, arguments: &str) -> &'c PropertyProgram {
    let is_it = |one: &&PropertyProgram| {
        let command = one.command[1..].iter().map(ToString::to_string);
        let command: Vec<String> = command.collect();
        command.join(" ").starts_with(arguments)
    };
    class.spec.property_programs.iter().find(is_it).unwrap()
}

fn printed(class: &DeviceClass, arguments: &str, file: &str) -> DriverProperties {
    let output = read(&format!("nvidia-gpu/nvidia-smi/{file}"));
    DriverProperties::from_pairs(
        program(class, arguments).parse_properties(&output, &Attributes::new()),
    )
}

/// Reads the facts of another class from a recorded output: keys and values.
fn read_facts(class: &DeviceClass, arguments: &str, file: &str) -> Vec<(String, String)> {
    program(class, arguments).parse_properties(&read(file), &Attributes::new())
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
            ("0000:ca:00.0 MIG mode", Some("N/A")),
            ("0000:ca:00.0 brand", Some("NVIDIA")),
            ("0000:17:00.0 fb_memory_usage MiB", Some("143771")),
            ("0000:17:00.0 bar1_memory_usage MiB", Some("262144")),
            ("0000:17:00.0 11 0 fb_memory_usage MiB", Some("16384")),
            ("0000:17:00.0 1 0 fb_memory_usage MiB", Some("71936")),
            ("0000:17:00.0 11 0 multiprocessor count", Some("16")),
            ("0000:17:00.0 1 0 multiprocessor count", Some("60")),
            ("0000:17:00.0 1 0 copy_engine count", Some("3")),
            ("0000:17:00.0 1 0 encoder count", Some("0")),
            ("0000:17:00.0 1 0 decoder count", Some("3")),
            ("0000:17:00.0 1 0 ofa count", Some("0")),
            ("0000:17:00.0 1 0 jpg count", Some("3")),
        ] {
            assert_eq!(facts.first_value(key), wanted, "{file}: {key}");
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
        assert_eq!(
            list.first_value(&format!("{GPU} {key}")),
            Some(wanted),
            "{key}"
        );
    }
    assert_eq!(list.first_value(&format!("{GPU} 1+ profile")), None);
    let old = printed(&class, "-L", "list-460.txt");
    let wanted = format!("MIG-{GPU}/7/0");
    assert_eq!(
        old.first_value(&format!("{GPU} 0 uuid")),
        Some(wanted.as_str())
    );
    // The branch 470, which has no such option.
    let unknown = "Field \"compute_cap\" is not a valid field to query.\n\n";
    assert!(program(&class, "--query-gpu").is_unsupported_output(unknown));
    let arch = printed(&class, "--query-gpu", "arch.csv");
    assert_eq!(arch.first_value("0000:ca:00.0 arch"), Some("9.0"));
    // As printed on a virtual machine with one H200.
    assert!(program(&class, "nvlink").is_unsupported_output("\n"));
    let links = printed(&class, "nvlink", "nvlink.txt");
    let wanted = ["0000:ca:00.0 0", "0000:ca:00.0 1"];
    assert_eq!(links.values(&format!("{GPU} NVLink")), wanted);
}

/// The first row of each chip has its card and model; the second, where a card may have
/// several, the number of its node.
#[test]
fn chips_and_templates_of_npu_smi_are_read() {
    let host = RecordedHost::parse("").unwrap();
    let class = class("ascend-npu");
    for (file, version, chip, model, address) in [
        ("info-910b-23.txt", "23.0.rc2", "card 1", "910B4", "02:00.0"),
        ("info-310p-22.txt", "22.0.4", "device 1", "310P3", "86:00.0"),
        (
            "info-910c-25.txt",
            "25.5.1",
            "device 1",
            "Ascend910",
            "9f:00.0",
        ),
    ] {
        let facts = DriverProperties::from_pairs(read_facts(
            &class,
            "info",
            &format!("ascend-npu/npu-smi/{file}"),
        ));
        assert_eq!(facts.first_value("version"), Some(version), "{file}");
        assert_eq!(
            facts.first_value(&format!("{chip} model")),
            Some(model),
            "{file}"
        );
        let address = format!("0000:{address}");
        let bdf = facts.values(&format!("{chip} bdf"));
        assert_eq!(bdf, [address], "{file}");
        assert_eq!(facts.first_value("device 4711 model"), None, "a process");
    }
    for (file, chips) in [
        ("map-23.txt", ["0 0", "1 0"]),
        ("map-25.txt", ["0 0", "0 1"]),
    ] {
        let facts = read_facts(&class, "info -m", &format!("ascend-npu/npu-smi/{file}"));
        assert_eq!(
            DriverProperties::from_pairs(facts.clone()).values("chips"),
            chips,
            "{file}"
        );
        let parts = program(&class, "info -t info-vnpu -i {1}");
        let commands = discover::build_property_commands(parts, &facts, &host);
        let ends = commands.iter().map(|(command, _)| command[4..].join(" "));
        let ends: Vec<_> = ends.collect();
        let wanted = chips.map(|chip| format!("-i {}", chip.replace(' ', " -c ")));
        assert_eq!(ends, wanted, "{file}");
    }
    let parts = program(&class, "info -t info-vnpu -i {1}");
    assert!(discover::build_property_commands(parts, &[], &host).is_empty());
    for (file, template) in [
        ("vnpu-23.txt", Some("vir10_3c_16g")),
        ("vnpu-none.txt", None),
    ] {
        let facts = DriverProperties::from_pairs(read_facts(
            &class,
            "info -t info-vnpu -i {1}",
            &format!("ascend-npu/npu-smi/{file}"),
        ));
        assert!(
            !facts.is_empty()
                && !parts.is_unsupported_output(&read(&format!("ascend-npu/npu-smi/{file}")))
        );
        assert_eq!(facts.first_value("117 template"), template, "{file}");
    }
    let vm = "The vnpu is not in docker mode, does not support querying info-vnpu.\n";
    assert!(
        parts.is_unsupported_output(vm)
            && parts.parse_properties(vm, &Attributes::new()).is_empty()
    );
}

/// With them the resource is the vendor's; the administrator's list, which this host has
/// for the first part, still counts.
#[test]
fn parts_of_an_npu_are_named_by_their_template() {
    let host = read("ascend-npu/910b/host.txt")
        + "file /proc/uptime\n| 5000.25 1.0\nfile /run/boathook/facts/ascend-npu\n\
           | boathook uptime\t4900\n| 116 template\tvir05_1c_8g\n\
           | 117 template\tvir10_3c_16g_nm\n| card 0 model\t910B4\n";
    let found = discover::find_devices(&class("ascend-npu"), &RecordedHost::parse(&host).unwrap());
    let resources = found.devices.iter().map(|one| one.resource.to_string());
    let wanted =
        ["", "-2c", "-10c.3cpu.16g.ndvpp", ""].map(|sort| format!("huawei.com/Ascend910{sort}"));
    assert_eq!(resources.collect::<Vec<_>>(), wanted);
}

#[test]
fn serial_numbers_of_hl_smi_are_read() {
    let class = class("gaudi");
    let output = read_facts(&class, "-Q", "gaudi/hl-smi/list-1.17.csv");
    let facts = DriverProperties::from_pairs(output.clone());
    assert_eq!(facts.first_value("version"), Some("1.17.0-28a11ca"));
    assert_eq!(facts.first_value("0000:19:00.0 module"), Some("2"));
    let mut host = read("gaudi/host.txt")
        + "file /proc/uptime\n| 5000.25 1.0\nfile /run/boathook/facts/gaudi\n\
           | boathook uptime\t4900\n";
    for (key, value) in output {
        host += &format!("| {key}\t{value}\n");
    }
    let found = discover::find_devices(&class, &RecordedHost::parse(&host).unwrap());
    let serial = "AM50016189".to_owned();
    assert!(found.devices[0].aliases.contains(&serial), "{found:?}");
    for garbage in [
        "2, N/A, 0000:19:00.0, 1.17.0\n",
        "module_id, serial, bus_id, driver_version\n",
        "2, AM1, 0000:19:00.0\n",
        "2, A\u{1b}[2J, 0000:19:00.0, 1.17.0\n",
        "Driver not loaded\n",
    ] {
        assert!(
            program(&class, "-Q")
                .parse_properties(garbage, &Attributes::new())
                .is_empty(),
            "{garbage}"
        );
    }
}

/// A host with the driver's program and without facts; of one without the program nothing
/// is to be said.
#[test]
fn facts_that_nobody_has_asked_for_are_missed() {
    let host = read("nvidia-gpu/mig-facts/host.txt");
    let absent = host.replace("facts/nvidia-gpu", "facts/other");
    let noted = |host: &str, config: &str| {
        let config = Config::parse(Path::new("config.toml"), config).unwrap();
        let class = config.with_settings(class("nvidia-gpu"), Path::new("nvidia-gpu.toml"));
        discover::describe_due_run(&class.unwrap(), &RecordedHost::parse(host).unwrap())
    };
    let note = "what /usr/bin/nvidia-smi reports is not known yet: run `boathook facts nvidia-gpu`";
    assert_eq!(noted(&absent, "").as_deref(), Some(note));
    let without = absent.replace("file /usr/bin/nvidia-smi\n", "");
    // A driver in a directory of its own.
    let elsewhere = without.clone() + &read("nvidia-gpu/layouts/opt.txt");
    let note_elsewhere = note.replace("/usr/bin", "/opt/nvidia/bin");
    let directories = "[class.nvidia-gpu]\nprogram_directories = [\"/opt/nvidia/bin\"]\n";
    assert_eq!(noted(&elsewhere, directories), Some(note_elsewhere));
    let off = "[class.nvidia-gpu]\nfacts = false\n";
    for (host, config) in [(&host, ""), (&without, ""), (&absent, off)] {
        assert_eq!(noted(host, config), None);
    }
    let old = "what /usr/bin/nvidia-smi reported is 24 hours old: run `boathook facts nvidia-gpu`";
    for (uptime, note) in [("91000.00", None), ("91400.00", Some(old)), ("20.00", None)] {
        let host = host.replace("5000.25", uptime);
        assert_eq!(noted(&host, "").as_deref(), note, "{uptime}");
        assert_eq!(noted(&host, off), None);
    }
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
        let facts = DriverProperties::from_pairs(
            program(&class, "-L").parse_properties(output, &Attributes::new()),
        );
        let text = facts.to_file_text(&RecordedHost::default(), &[]);
        assert_eq!(text.lines().count() - 2, wanted, "{output:.40}");
        assert!(!text.contains('\u{1b}'), "{output:?}");
    }
}

fn devices(host: &str, config: &str) -> (Vec<String>, Vec<String>) {
    let config = Config::parse(Path::new("config.toml"), config).unwrap();
    let class = config
        .with_settings(class("nvidia-gpu"), Path::new("nvidia-gpu.toml"))
        .unwrap();
    let found = discover::find_devices(&class, &RecordedHost::parse(host).unwrap());
    let devices = found.devices.iter();
    let devices = devices.map(|one| format!("{} {}", one.resource, one.id));
    (devices.collect(), found.warnings)
}

#[test]
fn facts_of_an_earlier_boot_and_those_that_are_turned_off_are_not_used() {
    let host = read("nvidia-gpu/mig-facts/host.txt");
    let with = "nvidia.com/mig-1g.18gb.me MIG-5d0bd4f8-74b1-5a33-9b0d-3e6a8f1c2d40";
    let without = format!("nvidia.com/mig MIG-{GPU}-11-0");
    let off = "[class.nvidia-gpu]\nfacts = false\n";
    for (uptime, config, is_used, warnings) in [
        ("5000.25", "", true, 0),
        // Nobody ran a program for a day, or for a year.
        ("91400.00", "", true, 0),
        ("31540000.00", "", true, 0),
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
        let said = "it is of an earlier boot; run `boathook facts nvidia-gpu`";
        assert!(warned.iter().all(|it| it.contains(said)), "{warned:?}");
    }
    let (absent, warned) = devices(&host.replace("facts/nvidia-gpu", "facts/other"), "");
    assert!(absent.contains(&without) && warned.is_empty(), "{absent:?}");
}

/// `host.txt` of `mig-facts` with other directories of instances, and with these facts beside
/// those that are kept of the earlier ones.
fn devices_after(host: &str, new: &[(&str, &str)], failed: bool) -> Vec<String> {
    let class = class("nvidia-gpu");
    let recorded = RecordedHost::parse(host).unwrap();
    let (earlier, _) = DriverProperties::read_since_boot(&class, &recorded);
    let pairs = new.iter();
    let pairs = pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let mut facts = DriverProperties::from_pairs(pairs);
    discover::keep_earlier_properties(&mut facts, earlier, &class, &recorded, failed, |_| false);
    let text: String = facts.to_file_text(&recorded, &[]);
    let text: String = text.lines().map(|line| format!("| {line}\n")).collect();
    let start = host.find("file /run/boathook/facts").unwrap();
    let end = host[start + 1..].find("\nfile ").unwrap() + start + 2;
    let head = "file /run/boathook/facts/nvidia-gpu\n";
    let host = format!("{}{head}{text}{}", &host[..start], &host[end..]);
    devices(&host, "").0
}

/// A GPU fell off the bus: nvidia-smi prints what it knows of the GPUs before it, and fails;
/// or succeeds, and says nothing of this one.
#[test]
fn instances_keep_their_names_while_a_program_cannot_reach_a_gpu() {
    let host = read("nvidia-gpu/mig-facts/host.txt");
    let (before, _) = devices(&host, "");
    assert!(
        before[0].contains("mig-1g.18gb.me MIG-5d0bd4f8"),
        "{before:?}"
    );
    let other = [
        ("0000:ca:00.0 MIG mode", "Enabled"),
        ("0000:ca:00.0 brand", "NVIDIA"),
        ("GPU-b0f66a81-7f0c-4a6e-a7d9-5a3c9a1d2f77 index", "1"),
    ];
    assert_eq!(devices_after(&host, &[], true), before);
    assert_eq!(devices_after(&host, &other, true), before);
    assert_eq!(devices_after(&host, &other, false), before);
    // However long the program fails.
    let late = host.replace("5000.25", "500000.25");
    assert_eq!(devices_after(&late, &other, true), before);
}

/// No instance gets the name of another one.
#[test]
fn an_instance_that_has_changed_does_not_keep_a_name() {
    let host = read("nvidia-gpu/mig-facts/host.txt");
    let of_part = |instance: &str| format!("nvidia.com/mig MIG-{GPU}-{instance}");
    // The first instance was removed: the second one is now the device 0.
    let gone = host
        .lines()
        .filter(|line| !line.contains("gi11/") && !line.contains("| DeviceFileMinor: 10"))
        .map(|line| format!("{line}\n"))
        .collect::<String>();
    let after = devices_after(&gone, &[("0000:17:00.0 1 0 device", "0")], true);
    assert_eq!(after[0], of_part("1-0"), "{after:?}");
    // It was removed and made again, and the program could not tell it in between.
    let after = devices_after(&gone, &[], true);
    assert!(
        after[0].ends_with("MIG-0a8b6d51-2f64-5b0f-8c77-d9e2a4b61f05"),
        "{after:?}"
    );
    let class = class("nvidia-gpu");
    let recorded = RecordedHost::parse(&gone).unwrap();
    let (earlier, _) = DriverProperties::read_since_boot(&class, &recorded);
    let mut facts = DriverProperties::default();
    discover::keep_earlier_properties(&mut facts, earlier, &class, &recorded, true, |_| false);
    assert_eq!(facts.first_value("0000:17:00.0 11 0 device"), None);
    assert_eq!(facts.first_value(&format!("{GPU} 0 uuid")), None);
    assert_eq!(facts.first_value("0000:17:00.0 1 0 device"), Some("1"));
}

/// NVML's count of GPUs leaves out those that the driver excludes.
#[test]
fn an_excluded_gpu_is_none_and_shifts_no_index() {
    let host = read("nvidia-gpu/mig-facts/host.txt");
    let class = class("nvidia-gpu");
    let found = discover::find_devices(&class, &RecordedHost::parse(&host).unwrap());
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
    let found = discover::find_devices(&class, &RecordedHost::parse(&included).unwrap());
    assert_eq!(found.devices[0].index.as_deref(), Some("0"));
    assert_eq!(found.devices.len(), 4);
}

/// What a class file has, and what is wrong with it.
const MISTAKES: &str = r"
facts = [{ program = ['smi'], lines = [] }] | begins with the absolute path
facts = [{ program = ['/smi'], lines = [{ line = '(' }] }] | bad regex `(`
facts = [{ program = ['/smi'], lines = [{ line = 'x', facts = { a = '{b}' } }] }]
    | `{b}` uses `b`, which no `line` sets
attributes = [{ name = 'a', fact = 'b' }] | an attribute with `fact` has a `default`
";

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
    for [facts, reason] in rows(MISTAKES) {
        let found = class(&facts);
        assert!(found.contains(&reason), "{facts}: {found}");
    }
}

/// A program that has not run yet keeps only those devices from being offered whose names depend
/// on it.
#[test]
fn devices_whose_names_depend_on_facts_are_marked() {
    for (name, recording, wanted) in [
        ("nvidia-gpu", "nvidia-gpu/h200", [2, 0, 0]),
        // Two instances on one GPU, and a whole one.
        ("nvidia-gpu", "nvidia-gpu/mig-facts", [1, 2, 0]),
        ("nvidia-gpu", "nvidia-gpu/mig", [1, 0, 2]),
        ("metax-gpu", "metax-gpu", [0, 0, 2]),
        ("gaudi", "gaudi", [2, 0, 0]),
    ] {
        let host = RecordedHost::parse(&recorded(recording)).unwrap();
        let devices = discover::scan_devices(&class(name), &host).devices;
        let count = |naming| {
            devices
                .iter()
                .filter(|one| one.name_origin == naming)
                .count()
        };
        let counts = [
            NameOrigin::Files,
            NameOrigin::DriverProperties,
            NameOrigin::Defaults,
        ]
        .map(count);
        assert_eq!(counts, wanted, "{recording}");
    }
    let config = "[class.metax-gpu]\nfacts = false\n";
    let config = Config::parse(Path::new("config.toml"), config).unwrap();
    let class = config.class(&source("metax-gpu")).unwrap();
    let devices = discover::scan_devices(&class, &host("metax-gpu")).devices;
    assert!(
        devices
            .iter()
            .all(|one| one.name_origin == NameOrigin::Files)
    );
}
