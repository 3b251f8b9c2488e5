//! The parts of shipped classes, by what their vendors' tools print. The outputs are written
//! after published ones.

use device_class::class::PropertyProgram;
use device_class::discover::{self, DeviceDivision, PartAction, PossiblePart};
use device_class::driver_properties::DriverProperties;
use device_class::host::RecordedHost;
use device_class::template::Attributes;

use crate::shipped::{class, read};

/// A recorded host, with the facts of these outputs for a path of these attributes.
fn divisible(
    name: &str,
    host: &str,
    known: &[(&str, &str)],
    outputs: &[(&str, &str)],
) -> (Vec<DeviceDivision>, Vec<String>) {
    let class = class(name);
    let name = |(name, value): &(&str, &str)| {
        ((*name).to_owned().try_into().unwrap(), (*value).to_owned())
    };
    let known: Attributes = known.iter().map(name).collect();
    let mut facts = Vec::new();
    for (argument, output) in outputs {
        let is_it =
            |one: &&PropertyProgram| one.command.iter().any(|text| text.to_string() == *argument);
        let program = class.spec.property_programs.iter().find(is_it).unwrap();
        facts.extend(program.parse_properties(&read(output), &known));
    }
    let mut host = RecordedHost::parse(host).unwrap();
    let path = device_class::driver_properties::properties_file_path(&class.name);
    let before = device_class::HostView::read(&host, &path, 1 << 20).unwrap_or_default();
    let before = String::from_utf8(before).unwrap();
    let head = "boathook uptime\t4900\n".to_owned();
    let start = if before.is_empty() { head } else { before };
    let more = DriverProperties::from_pairs(facts).to_file_text(&host, &[]);
    let more: Vec<&str> = more
        .lines()
        .filter(|line| !line.starts_with("boathook"))
        .collect();
    host.add_file(&path, start + &more.join("\n") + "\n");
    let inventory = discover::find_devices(&class, &host);
    discover::list_divisible_devices(&class, &inventory, &host)
}

fn named<'d>(one: &'d DeviceDivision, profile: &str, placement: u16) -> &'d PossiblePart {
    let mut parts = one.parts.iter();
    let is_it = |part: &&PossiblePart| part.profile == profile && part.placement() == placement;
    parts
        .find(is_it)
        .unwrap_or_else(|| panic!("{profile} {placement}: {one:?}"))
}

fn commands(steps: &[PartAction]) -> Vec<String> {
    let text = |step: &PartAction| match step {
        PartAction::Run {
            command,
            library_path,
        } => {
            let libraries = library_path
                .iter()
                .map(|path| format!("{} ", path.display()));
            libraries.collect::<String>() + &command.join(" ")
        }
        PartAction::Write(file, text) => format!("{} {text}", file.display()),
    };
    steps.iter().map(text).collect()
}

#[test]
fn a_gpu_in_mig_mode_has_the_instances_that_nvidia_smi_tells() {
    let smi = |name: &str| format!("nvidia-gpu/nvidia-smi/{name}");
    let [profiles, places, instances] =
        ["mig-profiles.txt", "mig-places.txt", "mig-instances.txt"].map(smi);
    let outputs = [
        ("-lgip", &*profiles),
        ("-lgipp", &places),
        ("-lgi", &instances),
    ];
    let host = read("nvidia-gpu/mig-facts/host.txt");
    let (found, warnings) = divisible("nvidia-gpu", &host, &[], &outputs);
    assert_eq!(warnings, [""; 0]);
    let [one] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(one.parts.len(), 7 + 7 + 2 + 1);
    // The GPU as such is of no use, and what is not made yet is sound.
    assert!(!one.whole_device.health.is_healthy() && one.whole_device.has_healthy_parts());
    let engines = ["decoders", "encoders", "jpeg", "ofa"].map(|name| one.counters[name]);
    assert_eq!((engines, one.counters.len()), ([7, 0, 7, 1], 4 + 8));
    // Both that are made are known, and media engines are there once.
    let media = named(one, "1g.18gb+me", 6);
    let large = named(one, "3g.71gb", 0);
    let ids = [media, large].map(|part| part.existing_id.as_ref().unwrap().as_str());
    let wanted = [
        "MIG-5d0bd4f8-74b1-5a33-9b0d-3e6a8f1c2d40",
        "MIG-0a8b6d51-2f64-5b0f-8c77-d9e2a4b61f05",
    ];
    assert_eq!(ids, wanted);
    assert_eq!(
        one.parts
            .iter()
            .filter(|part| part.existing_id.is_some())
            .count(),
        2
    );
    assert_eq!(
        (media.consumed_counters["ofa"], large.slots.clone()),
        (1, 0..4)
    );
    let gpu = "GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10";
    let smi = |rest: &str| format!("/usr/bin/nvidia-smi mig -i {gpu} {rest}");
    assert_eq!(commands(&large.creation_steps), [smi("-cgi 9:0 -C")]);
    assert_eq!(
        commands(&large.removal_steps),
        [smi("-dci -gi 1"), smi("-dgi -gi 1")]
    );
    // An nvidia-smi in a directory of its own gets the search path of the libraries there.
    let elsewhere = host.clone()
        + "file /opt/nvidia/bin/nvidia-smi\nfile /opt/nvidia/lib64/libnvidia-ml.so.1\n";
    let elsewhere = elsewhere.replace("file /usr/bin/nvidia-smi\n", "");
    let (found, _) = divisible("nvidia-gpu", &elsewhere, &[], &outputs);
    let made = commands(&named(&found[0], "3g.71gb", 0).creation_steps);
    let program = "/opt/nvidia/lib64 /opt/nvidia/bin/nvidia-smi";
    assert_eq!(made, [format!("{program} mig -i {gpu} -cgi 9:0 -C")]);
    // The driver has no number for what is not made, and 0 could be another's.
    assert!(named(one, "7g.141gb", 0).removal_steps.is_empty());
}

#[test]
fn an_npu_has_the_virtual_ones_that_npu_smi_tells() {
    let outputs = [
        ("template-info", "ascend-npu/npu-smi/templates.txt"),
        ("info-vnpu", "ascend-npu/npu-smi/instances.txt"),
    ];
    let known = [("number", "1"), ("1", "1"), ("2", "0")];
    let host = "file /proc/uptime\n| 5000.25 39000.10\nchar /dev/davinci_manager 238:0\n\
        file /sys/bus/pci/devices/0000:01:00.0/device\n| 0xd802\n\
        char /dev/davinci1 236:1\nchar /dev/vdavinci117 237:117\n";
    let (found, warnings) = divisible("ascend-npu", host, &known, &outputs);
    assert_eq!(warnings, [""; 0]);
    let [one] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(one.whole_device.id.as_str(), "Ascend910-1");
    assert_eq!(one.parts.len(), 3 * 8);
    let all = ["aicore", "memory", "vpc", "jpegd"].map(|name| one.counters[name]);
    assert_eq!(all, [20, 32, 9, 24]);
    let made = named(one, "vir10_3c_16g", 1);
    assert_eq!(made.existing_id.as_ref().unwrap().as_str(), "Ascend910-117");
    assert_eq!(
        (
            made.consumed_counters["aicore"],
            made.consumed_counters["vpc"]
        ),
        (10, 4)
    );
    let next = named(one, "vir05_1c_8g", 2);
    let smi = "/usr/local/sbin/npu-smi set -t";
    let wanted = format!("{smi} create-vnpu -i 1 -c 0 -f vir05_1c_8g -v 118");
    assert_eq!(commands(&next.creation_steps), [wanted]);
    let wanted = format!("{smi} destroy-vnpu -i 1 -c 0 -v 118");
    assert_eq!(commands(&next.removal_steps), [wanted]);
}

#[test]
fn a_gpu_has_the_partitions_of_each_mode_that_excludes_the_others() {
    let host = read("amd-gpu-parts/host.txt");
    let (found, warnings) = divisible("amd-gpu-parts", &host, &[], &[]);
    assert_eq!(warnings, [""; 0]);
    // In another memory mode the driver has other modes, of which one is always set.
    let wholes: Vec<&str> = found
        .iter()
        .map(|one| one.whole_device.id.as_str())
        .collect();
    assert_eq!(wholes, ["0000:05:00.0", "0000:15:00.0"]);
    for one in &found {
        assert_eq!(one.parts.len(), 2 + 4 + 8);
        assert_eq!(one.counters.len(), 8 + 2 + 4);
        assert!(one.parts.iter().all(|part| part.is_grouped));
    }
    let made = found[1].parts.iter().filter_map(|part| {
        let id = part.existing_id.as_ref()?;
        Some((part.profile.as_str(), part.placement(), id.as_str()))
    });
    let wanted = [
        ("dpx", 0, "0000:15:00.0-dpx-0"),
        ("dpx", 1, "0000:15:00.0-dpx-1"),
    ];
    assert_eq!(made.collect::<Vec<_>>(), wanted);
    let file = "/sys/bus/pci/devices/0000:05:00.0/current_compute_partition";
    let one = named(&found[0], "cpx", 7);
    assert_eq!(commands(&one.creation_steps), [format!("{file} CPX")]);
    assert_eq!(commands(&one.removal_steps), [format!("{file} SPX")]);
    // What the scheduler could allocate beside each other.
    let takes = |profile: &str, count: u16| {
        let parts =
            (0..count).map(|place| named(&found[0], profile, place).consumed_counters.clone());
        parts.collect::<Vec<_>>()
    };
    let fit = |taken: &[std::collections::BTreeMap<String, u64>]| {
        found[0].counters.iter().all(|(name, amount)| {
            taken.iter().filter_map(|one| one.get(name)).sum::<u64>() <= *amount
        })
    };
    for (profile, count) in [("dpx", 2), ("qpx", 4), ("cpx", 8)] {
        assert!(fit(&takes(profile, count)), "{profile}");
    }
    for (a, b) in [("dpx", "qpx"), ("dpx", "cpx"), ("qpx", "cpx")] {
        assert!(
            !fit(&[takes(a, 1), takes(b, 2)[1..].to_vec()].concat()),
            "{a} {b}"
        );
    }
    let mut older = host.replace("SPX, DPX, QPX, CPX", "SPX, CPX");
    let (found, _) = divisible("amd-gpu-parts", &older, &[], &[]);
    // The other one is in a mode that it does not name.
    assert_eq!((found.len(), found[0].parts.len()), (1, 2));
    older = host.replace("SPX, DPX, QPX, CPX", "SPX, TPX, CPX");
    assert_eq!(
        divisible("amd-gpu-parts", &older, &[], &[]).0[0]
            .parts
            .len(),
        3 + 6
    );
}

#[test]
fn a_network_card_has_functions_unless_they_are_the_hosts() {
    let host = read("sriov-vfio-parts/host.txt");
    let (found, warnings) = divisible("sriov-vfio-parts", &host, &[], &[]);
    let wanted = "0000:5e:00.0: is not divided: its part 0000:5e:01.0 is none of a profile";
    assert!(
        warnings.len() == 1 && warnings[0].starts_with(wanted),
        "{warnings:?}"
    );
    let cards = found
        .iter()
        .map(|one| (one.whole_device.id.as_str(), one.parts.len()));
    let cards: Vec<_> = cards.collect();
    assert_eq!(cards, [("0000:3b:00.1", 4), ("0000:3b:00.0", 8)]);
    for one in &found {
        assert!(!one.whole_device.health.is_healthy() && one.whole_device.has_healthy_parts());
    }
    let made = found[1]
        .parts
        .iter()
        .filter_map(|part| part.existing_id.as_ref());
    assert_eq!(
        made.map(|id| id.as_str()).collect::<Vec<_>>(),
        ["0000:3b:01.1"]
    );
    let at = "/sys/bus/pci/devices/0000:3b:00.1";
    let wanted = [
        format!("{at}/sriov_drivers_autoprobe 0"),
        format!("{at}/sriov_numvfs 4"),
        format!("{at}/virtfn3/driver_override vfio-pci"),
        "/sys/bus/pci/drivers_probe 0000:3b:01.4".to_owned(),
    ];
    assert_eq!(commands(&named(&found[0], "vf", 3).creation_steps), wanted);
}

/// A card of two chips: the table of `npu-smi info` tells which node is which.
#[test]
fn a_chip_of_several_on_a_card_has_virtual_ones() {
    for (pci, table, card, places) in [
        ("0xd500", "info-310p-22.txt", "3", 8),
        ("0xd803", "info-910c-25.txt", "0", 8),
    ] {
        let outputs = [
            ("info", &*format!("ascend-npu/npu-smi/{table}")),
            ("template-info", "ascend-npu/npu-smi/templates.txt"),
            ("info-vnpu", "ascend-npu/npu-smi/vnpu-none.txt"),
        ];
        let host = format!(
            "file /proc/uptime\n| 5000.25 39000.10\nchar /dev/davinci_manager 238:0\n\
             file /sys/bus/pci/devices/0000:86:00.0/device\n| {pci}\n\
             char /dev/davinci0 236:0\nchar /dev/davinci1 236:1\n"
        );
        let (found, warnings) =
            divisible("ascend-npu", &host, &[("1", card), ("2", "1")], &outputs);
        assert_eq!(warnings, [""; 0]);
        // The facts are those of the second chip.
        let [one] = &found[..] else {
            panic!("{pci}: {found:?}")
        };
        assert!(
            one.whole_device.id.as_str().ends_with("-1"),
            "{pci}: {}",
            one.whole_device.id
        );
        assert_eq!(one.parts.len(), 3 * places, "{pci}");
        let part = named(one, "vir05_1c_8g", 2);
        let smi = "/usr/local/sbin/npu-smi set -t";
        let wanted = format!("{smi} create-vnpu -i {card} -c 1 -f vir05_1c_8g -v 118");
        assert_eq!(commands(&part.creation_steps), [wanted]);
        let wanted = format!("{smi} destroy-vnpu -i {card} -c 1 -v 118");
        assert_eq!(commands(&part.removal_steps), [wanted]);
    }
}
