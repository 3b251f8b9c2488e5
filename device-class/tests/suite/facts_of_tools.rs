//! Facts in outputs of vendors' tools that were published: what the classes read of them, and
//! which outputs tell nothing.
//!
//! Where they were published, as of November 2026: `xpu-smi/q-5.0.21.txt` in ZStack's zstacklib
//! (gpu/kunlunxin.py), `q-oam.txt` and the host `p800` in reports of FlagOS's P800 (lines of the
//! output), `m-5.0.21.txt` in a test of a serving project for the P800, `table-4.0.txt` in the
//! README of zxw3221/xpu-container-toolkit; `hy-smi/bus.txt` in notes of a sglang deployment on
//! BW1000, with a serial number of HYGON-AI/hcu-container-toolkit's documents in the form that its
//! patterns have; `mx-smi/list-2.2.9.txt` in DaoCloud's and others' checks of nodes. `m-4.33.txt`
//! is written after the fields that a sampler for the K200 names.

use device_class::DeviceClass;
use device_class::class::PropertyProgram;
use device_class::discover;
use device_class::driver_properties::DriverProperties;
use device_class::host::RecordedHost;
use device_class::template::Attributes;

use crate::rows;
use crate::shipped::{class, read};

/// The program of a class with this command.
fn program<'c>(class: &'c DeviceClass, command: &str) -> &'c PropertyProgram {
    let is_it = |one: &&PropertyProgram| {
        let words = one.command.iter().map(ToString::to_string);
        words.collect::<Vec<_>>().join(" ") == command
    };
    class.spec.property_programs.iter().find(is_it).unwrap()
}

/// Reads the facts of a class from an output: keys and values.
fn read_facts(class: &DeviceClass, command: &str, file: &str) -> Vec<(String, String)> {
    let program = program(class, command);
    let output = read(file);
    assert!(!program.is_unsupported_output(&output), "{command}: {file}");
    program.parse_properties(&output, &Attributes::new())
}

/// A command, its output, and the keys and values in it.
const XPUS: &str = "
xpu-smi -q | q-5.0.21.txt
    | 0 bdf 0000:01:00.0, 0 uuid GPU-420716f2-9928-5108-a5b2-e6b7cf36b37c
xpu-smi -q | q-oam.txt
    | 2 bdf 0000:16:00.0, 2 uuid GPU-b3509946-0bc6-5744-bd7c-a0b87dadef02,
    3 bdf 0000:1c:00.0, 3 uuid GPU-09d75c76-1b13-5686-a3d2-a9647e48f619
xpu-smi -m | m-5.0.21.txt | 0000:03:00.0 index 0, 0000:05:00.0 index 1
xpu_smi | table-4.0.txt
    | 0 bdf 0000:01:00.0, 0 index 0, 1 bdf 0000:06:00.0, 1 index 1
";

/// The node of an XPU has another number than the driver, which the toolkit's variable means.
#[test]
fn nodes_and_numbers_of_xpu_smi_are_read() {
    let class = class("kunlunxin-xpu");
    let [q, m, table] =
        ["xpu-smi -q", "xpu-smi -m", "xpu_smi"].map(|command| format!("/usr/local/bin/{command}"));
    for [command, file, wanted] in rows(XPUS) {
        let command = format!("/usr/local/bin/{command}");
        let found = read_facts(&class, &command, &format!("kunlunxin-xpu/xpu-smi/{file}"));
        let found = found.iter().map(|(key, value)| format!("{key} {value}"));
        assert_eq!(found.collect::<Vec<_>>().join(", "), wanted, "{file}");
    }
    // Of two chips with one address it tells no node.
    let old = read("kunlunxin-xpu/xpu-smi/m-4.33.txt");
    assert!(program(&class, &m).is_unsupported_output(&old));
    for nothing in [
        "xpu-smi: invalid option -- 'q'\n",
        "Usage: xpu-smi [options]\n",
    ] {
        assert!(
            program(&class, &q).is_unsupported_output(nothing),
            "{nothing}"
        );
    }
    let new = "| XPU-SMI 5.0.21     Driver Version: 5.0.21.47     XPU-RT Version: 10.2 |\n";
    assert!(program(&class, &table).is_unsupported_output(new));
}

/// hy-smi counts in an order of its own. The number that follows an address is not the one by
/// which the toolkit names a DCU.
#[test]
fn numbers_and_serial_numbers_of_hy_smi_are_read() {
    let class = class("hygon-dcu");
    let command = "/opt/hyhal/bin/hy-smi --showbus --showserial";
    let found =
        DriverProperties::from_pairs(read_facts(&class, command, "hygon-dcu/hy-smi/bus.txt"));
    for (key, wanted) in [
        ("0000:05:00.0 number", Some("0")),
        ("0000:2b:00.0 number", Some("1")),
        ("0000:9e:00.0 number", Some("7")),
        ("0 serial", Some("TPXS300002100601")),
        ("1 serial", None),
    ] {
        assert_eq!(found.first_value(key), wanted, "{key}");
    }
    // As older versions have it.
    let old = "DCU[1]\t\t: PCI Bus: 0000:33:00.0\nDCU[1]\t\t: Serial Number: TCUM640016050701\n";
    let found = program(&class, command).parse_properties(old, &Attributes::new());
    let wanted = [
        ("0000:33:00.0 number", "1"),
        ("1 serial", "TCUM640016050701"),
    ];
    assert_eq!(
        found,
        wanted.map(|(key, value)| (key.to_owned(), value.to_owned()))
    );
}

/// The ids of the vendor's plugin, by which its exporter looks for pods.
#[test]
fn uuids_of_mx_smi_are_ids() {
    let class = class("metax-gpu");
    let found = read_facts(
        &class,
        "/opt/mxdriver/bin/mx-smi -L",
        "metax-gpu/mx-smi/list-2.2.9.txt",
    );
    let uuid = "GPU-e702f06b-bbd6-bc06-5196-90a5554a24ba";
    assert_eq!(found[0], ("0000:08:00.0 uuid".to_owned(), uuid.to_owned()));
    assert_eq!(found.len(), 2, "{found:?}");
    let mut host = read("metax-gpu/host.txt").replace("0000:0f:00.0", "0000:08:00.0")
        + "file /proc/uptime\n| 5000.25 1.0\nfile /run/boathook/facts/metax-gpu\n\
           | boathook uptime\t4900\n";
    for (key, value) in found {
        host += &format!("| {key}\t{value}\n");
    }
    let found = discover::find_devices(&class, &RecordedHost::parse(&host).unwrap());
    let ids = found.devices.iter().map(|one| one.id.as_str());
    // The second one has no facts.
    assert_eq!(ids.collect::<Vec<_>>(), [uuid, "0000:8d:00.0"]);
    assert!(
        found.devices[0]
            .aliases
            .contains(&"0000:08:00.0".to_owned())
    );
}
