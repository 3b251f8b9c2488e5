//! Vendors are known to class files, which say where their facts are from, and
//! to nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use device_class::discover;
use device_class::host::RecordedHost;
use device_class::load::ClassSource;

use crate::rows;
use crate::shipped::{self, root};

/// Every class file says in its first comment where its facts are from.
#[test]
fn every_class_names_its_source() {
    for source in shipped::sources() {
        let file = root().join(format!("classes/{}.toml", source.name));
        let text = std::fs::read_to_string(file).unwrap();
        let comment = text.lines().take_while(|line| line.starts_with('#'));
        let comment = comment.collect::<Vec<_>>().join(" ");
        let made_up = source.name.as_str() == "dummy-npu";
        let said = ["Source", "Documentation/"]
            .iter()
            .any(|word| comment.contains(word));
        assert!(said || made_up, "{}", source.name);
    }
}

/// With a version in one table and without it in another, a container would get two files of one
/// name where an older driver has left its libraries.
#[test]
fn a_library_has_one_version_in_all_tables() {
    for source in shipped::sources() {
        let class = source.parse().unwrap();
        let mut versions = BTreeMap::new();
        for edits in &class.spec.edits {
            let version = edits.library_version.as_ref().map(ToString::to_string);
            for library in &edits.libraries {
                let soname = library.soname.template().to_string();
                let first = versions.entry(soname.clone()).or_insert(version.clone());
                assert_eq!(*first, version, "{}: {soname}", class.name);
            }
        }
    }
}

/// A container that requests nothing does not pay for the parsing of a class.
#[test]
fn no_class_is_parsed_for_a_container_without_its_variable() {
    for source in shipped::sources() {
        let is_usual = |name: &str| ["PATH", "HOME", "HOSTNAME", "TERM", "LANG"].contains(&name);
        assert!(!source.may_be_requested(is_usual), "{}", source.name);
    }
}

/// Every class has a heading in the comparison with its vendor's stack, and every heading a class.
#[test]
fn every_class_is_compared_with_its_vendors_stack() {
    let file = root().join("../docs/vendors.md");
    let text = std::fs::read_to_string(file).unwrap();
    let headings = text.lines().filter_map(|line| line.strip_prefix("### "));
    let names: BTreeSet<&str> = headings.flat_map(|names| names.split(", ")).collect();
    let sources = shipped::sources();
    let classes: BTreeSet<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    let is_of = |heading: &str, class: &str| match heading.strip_suffix('*') {
        Some(start) => class.starts_with(start),
        None => heading == class,
    };
    let without_heading: Vec<_> = classes
        .iter()
        .filter(|class| !names.iter().any(|name| is_of(name, class)))
        .collect();
    assert!(
        without_heading.is_empty(),
        "without a heading: {without_heading:?}"
    );
    let without_class: Vec<_> = names
        .iter()
        .filter(|name| **name != "all" && !classes.iter().any(|class| is_of(name, class)))
        .collect();
    assert!(without_class.is_empty(), "no class: {without_class:?}");
}

/// Classes of accelerators, with their PCI vendor and device, and with the drivers by which they are
/// known to be given to virtual machines. With vfio-pci, their own driver, the first two are not.
const GIVEN_TO_VIRTUAL_MACHINES: &str = "
google-tpu | 0x1ae0 | 0x0063 | pci-stub pciback
ibm-spyre | 0x1014 | 0x06a7 | pci-stub pciback
mobilint-npu | 0x209f | 0x0000 | vfio-pci pci-stub pciback
";

#[test]
fn vfio_pci_is_the_driver_of_some_accelerators() {
    for [name, vendor, device, given] in rows(GIVEN_TO_VIRTUAL_MACHINES) {
        let class = shipped::class(&name);
        let directory = "/sys/bus/pci/devices/00aa:01:00.0";
        let function =
            format!("file {directory}/vendor\n| {vendor}\nfile {directory}/device\n| {device}\n");
        for driver in ["no driver", "any", "vfio-pci", "pci-stub", "pciback"] {
            let link = match driver {
                "no driver" => String::new(),
                _ => format!("link {directory}/driver ../../drivers/{driver}\n"),
            };
            let host = RecordedHost::parse(&format!("{function}{link}")).unwrap();
            let reports = discover::describe_unclaimed_hardware(&class, &host);
            let are_intended: Vec<bool> = reports.iter().map(|report| report.is_intended).collect();
            let is_given = given.split(' ').any(|given| given == driver);
            let expected = match driver {
                "no driver" => vec![false],
                _ => vec![true; usize::from(is_given)],
            };
            assert_eq!(are_intended, expected, "{name}: {driver}");
            for report in reports {
                assert!(
                    report.text.contains(&format!("({driver})")),
                    "{}",
                    report.text
                );
            }
        }
    }
}

/// What a class file may say is said by class files alone: no vendor has a
/// line of Rust.
#[test]
fn no_vendor_is_named_in_the_code() {
    // What the shipped classes say of resources (vendors' domains), and the
    // first words of their names. What is no vendor's is said here, so that a
    // new class must be thought of.
    // `pi` is also a binary prefix; "raspberry" below stands for the board.
    const NO_VENDORS: [&str; 28] = [
        "boathook", "can", "dummy", "dvb", "fuse", "gpio", "gpu", "hca", "i2c", "input",
        "kubevirt", "kvm", "npu", "pci", "pi", "rdma", "serial", "sgx", "sound", "spi", "sriov",
        "tpm", "tun", "usb", "v4l2", "vfio", "vhost", "wwan",
    ];
    let sources = shipped::sources();
    let mut words: BTreeSet<String> = BTreeSet::new();
    for class in sources.iter().map(ClassSource::parse) {
        let class = class.unwrap();
        let resource = class.spec.resource.to_string();
        let labels: Vec<&str> = resource.split('/').next().unwrap().split('.').collect();
        let domain = labels[labels.len().saturating_sub(2)];
        let name = class.name.as_str().split('-').next().unwrap();
        words.extend([domain, name].map(str::to_owned));
    }
    for more in [
        "mellanox",
        "radeon",
        "geforce",
        "cuda",
        "davinci",
        "edgetpu",
        "felica",
        "alibaba",
        "fpgaconf",
        "opae",
        "raspberry",
        "rocm",
    ] {
        words.insert(more.into());
    }
    words.retain(|word| !NO_VENDORS.contains(&word.as_str()));
    assert!(words.len() > 10, "{words:?}");
    let mut faults = Vec::new();
    let workspace = std::fs::read_to_string(root().join("../Cargo.toml")).unwrap();
    let workspace: toml::Table = workspace.parse().unwrap();
    let crates = workspace["workspace"]["members"].as_array().unwrap();
    let crates = crates.iter().map(|member| member.as_str().unwrap());
    // The interface that the webhook takes over is its vendor's.
    let exempt = root().join("../cluster/src/webhook/api.rs");
    for file in crates
        .filter(|member| !member.starts_with("tests"))
        .flat_map(|member| rust_files(&root().join("..").join(member).join("src")))
        .filter(|file| *file != exempt)
    {
        let text = std::fs::read_to_string(&file).unwrap();
        // Tests may speak of what they please.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let line = line.to_ascii_lowercase();
            let parts: BTreeSet<&str> = line.split(|c: char| !c.is_ascii_alphanumeric()).collect();
            // Short words are parts of others; long ones also stand within names.
            let named = |word: &&String| {
                parts.contains(word.as_str()) || (word.len() > 4 && line.contains(word.as_str()))
            };
            for word in words.iter().filter(named) {
                faults.push(format!("{}:{}: {word}", file.display(), number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            files.extend(rust_files(&path));
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "fixture.rs" {
            files.push(path);
        }
    }
    files
}
