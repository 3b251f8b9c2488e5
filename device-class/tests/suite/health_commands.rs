//! Programs that report the health of devices: what is run, and what its output means.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use device_class::config::Config;
use device_class::discover::{self, Device, HealthCommand};
use device_class::host::RecordedHost;

use crate::shipped::recorded;
use crate::{parse, rows, shipped};

/// The devices of a shipped class, with its programs, on a host.
fn devices(class: &str, host: &str) -> Vec<Device> {
    let config = format!("[class.{class}]\nhealth_programs = true\n");
    let config = Config::parse(Path::new("config.toml"), &config).unwrap();
    let class = config.class(&shipped::source(class)).unwrap();
    discover::scan_devices(&class, &RecordedHost::parse(host).unwrap()).devices
}

/// The class of Ascend's NPUs, with programs, on the recorded 910B, which has this PCI id
/// instead of its own.
fn npus(pci_device: &str) -> Vec<Device> {
    let host = recorded("ascend-npu/910b").replace("0xd802", pci_device);
    let found = devices("ascend-npu", &host);
    // NPU 1 is divided: its parts are two of the four, and are not judged.
    assert_eq!(found.len(), 4, "{pci_device}");
    let judged = found
        .into_iter()
        .filter(|npu| !npu.deferred_checks.is_empty());
    judged.collect()
}

fn commands(device: &Device) -> Vec<HealthCommand> {
    let deferred_checks = device.deferred_checks.iter();
    let commands = deferred_checks
        .filter_map(|deferred_check| HealthCommand::from_deferred_check(deferred_check, device));
    commands.map(Result::unwrap).collect()
}

fn command(device: &Device) -> HealthCommand {
    let [command] = commands(device).try_into().unwrap();
    command
}

/// nvidia-smi has to reach each GPU, or the GPU of an instance, and a GPU that is shared must
/// not be in MIG mode (of others the facts tell that). `nvidia-smi --help-query-gpu` (550.163.01)
/// has `uuid` and `mig.mode.current`; what is not supported is printed with `N/A` (nvidia-smi(1)).
#[test]
fn nvidia_smi_is_asked_for_gpus_and_their_mig_mode() {
    let query = |gpu: &str, of: &str| {
        format!("/usr/bin/nvidia-smi -i {gpu} --query-gpu={of} --format=csv,noheader")
    };
    let (divided, undivided) = ("0000:17:00.0", "0000:ca:00.0");
    let instance = vec![query(divided, "uuid")];
    let whole = vec![query(undivided, "uuid")];
    let shared = vec![
        query(undivided, "mig.mode.current"),
        query(undivided, "uuid"),
    ];
    let failed = ExitStatus::from_raw(15 << 8);
    for (class, wanted) in [
        (
            "nvidia-gpu",
            vec![instance.clone(), instance, whole.clone()],
        ),
        // A divided GPU is not shared.
        ("gpu-share", vec![shared]),
    ] {
        let found = devices(class, &recorded("nvidia-gpu/mig"));
        let commands: Vec<Vec<HealthCommand>> = found.iter().map(commands).collect();
        let lines = commands.iter().map(|commands| {
            let line = |command: &HealthCommand| {
                format!(
                    "{} {}",
                    command.program.display(),
                    command.arguments.join(" ")
                )
            };
            let mut lines: Vec<String> = commands.iter().map(line).collect();
            lines.sort();
            lines
        });
        assert_eq!(lines.collect::<Vec<_>>(), wanted, "{class}");
        for command in commands.iter().flatten() {
            let asks_for_mode = command.arguments[2].ends_with("mig.mode.current");
            let fault = |text: &str| command.find_fault(ExitStatus::default(), text);
            for fine in ["Disabled\n", "[N/A]\n", "N/A\n", "GPU-b0f66a81\n"] {
                assert_eq!(fault(fine), None, "{class}: {command:?}");
            }
            let ill = fault("Enabled\n").unwrap_or_default();
            assert_eq!(
                ill.contains("switch the mode off with `nvidia-smi -i 0000:"),
                asks_for_mode,
                "{class}: {ill}"
            );
            let ill = command.find_fault(failed, "").unwrap();
            assert!(ill.contains("/usr/bin/nvidia-smi failed"), "{class}: {ill}");
        }
    }
}

/// The command of each NPU by its number, and why it is ill if npu-smi prints this.
fn judged_by_npu_smi(pci_device: &str, prints: &str) -> Vec<(String, String, Option<String>)> {
    let judged = npus(pci_device).into_iter().map(|npu| {
        let command = command(&npu);
        let fault = command.find_fault(ExitStatus::default(), prints);
        (npu.index.unwrap(), command.arguments.join(" "), fault)
    });
    judged.collect()
}

/// npu-smi names an NPU by card and chip. Where each card has one chip, the card's number
/// is that of the node.
#[test]
fn npu_smi_is_asked_for_a_card_with_one_chip() {
    for pci_device in ["0xd801", "0xd802"] {
        for (number, arguments, fault) in judged_by_npu_smi(pci_device, "Health Status : OK") {
            assert_eq!(arguments, format!("info -t health -i {number} -c 0"));
            assert_eq!(fault, None);
        }
        let ill = judged_by_npu_smi(pci_device, "Health Status : Critical");
        assert!(ill.iter().all(|(_, _, fault)| fault.is_some()), "{ill:?}");
    }
}

/// A table as `npu-smi info` prints it: for each chip a row with its card and health, and a
/// row with the number of its node. Processes are in another table.
fn npu_smi_info(chips: &[(u32, u32, &str)]) -> String {
    let mut text = "\
        +----------------------+----------+---------------------------+\n\
        | NPU     Name         | Health   | Power(W)     Temp(C)      |\n\
        | Chip    Device       | Bus-Id   | AICore(%)    Memory(MB)   |\n\
        +======================+==========+===========================+\n"
        .to_owned();
    for (at, (card, number, health)) in chips.iter().enumerate() {
        let chip = at % 2;
        text += &format!(
            "| {card}       310P3        | {health:<8} | NA           45           |\n\
             | {chip}       {number:<12} | 0000:01:00.0 | 0         1529 / 44280 |\n\
             +----------------------+----------+---------------------------+\n"
        );
    }
    text + "| NPU     Chip         | Process id | Process name |\n\
            +======================+==========+===========================+\n\
            | 2       0            | 4242       | python       |\n\
            | 2       10           | 4243       | python       |\n"
}

/// Cards with several chips: the row of a chip has the number of its node, which differs
/// from its card's.
#[test]
fn npu_smi_judges_the_chips_of_a_card_by_the_number_of_their_nodes() {
    let ill = |pci_device: &str, chips: &[(u32, u32, &str)]| {
        let judged = judged_by_npu_smi(pci_device, &npu_smi_info(chips)).into_iter();
        let ill = judged.filter_map(|(number, arguments, fault)| {
            assert_eq!(arguments, "info");
            fault.map(|fault| (number, fault))
        });
        ill.collect::<Vec<_>>()
    };
    for pci_device in ["0xd100", "0xd500", "0xd803"] {
        let fine = [(2, 0, "OK"), (2, 1, "OK"), (5, 10, "Warning")];
        assert_eq!(ill(pci_device, &fine), []);
        // The card with the number 0 is another one.
        for (chips, number, reason) in [
            (
                [(2, 0, "Alarm"), (2, 1, "OK"), (0, 10, "OK")],
                "0",
                "printed `Alarm`",
            ),
            (
                [(0, 0, "OK"), (0, 1, "OK"), (1, 10, "UNKNOWN")],
                "10",
                "printed `UNKNOWN`",
            ),
            // A chip that has left the bus has no row.
            (
                [(0, 0, "OK"), (0, 1, "OK"), (1, 2, "OK")],
                "10",
                "printed no match of `",
            ),
        ] {
            let ill = ill(pci_device, &chips);
            assert!(
                matches!(&ill[..], [(npu, fault)] if npu == number && fault.contains(reason)),
                "{pci_device}: {ill:?}"
            );
        }
    }
    assert!(npus("0xd999").is_empty());
}

/// `mx-smi -L` lists each GPU with its state; behind that of one that is not available stands why
/// ("Not Available(MetaX Sysfs File Unaccessible)" in a public test of a parser).
#[test]
fn mx_smi_says_which_gpus_are_available() {
    let found = devices("metax-gpu", &recorded("metax-gpu"));
    let fault = |at: usize, text: &str| command(&found[at]).find_fault(ExitStatus::default(), text);
    let list = "mx-smi  version: 2.2.9\n\
        GPU#0    MXC500      0000:0f:00.0   Available (UUID: GPU-e702f06b-bbd6-bc06)\n\
        GPU#1    MXC500      0000:8d:00.0   Not Available(MetaX Sysfs File Unaccessible)\n";
    assert_eq!(fault(0, list), None);
    let ill = fault(1, list).unwrap();
    assert!(ill.contains("--show-unavailable-reason"), "{ill}");
    assert!(fault(1, "mx-smi  version: 2.2.9\n").is_some());
}

/// The text of an attribute is no regular expression in one.
#[test]
fn an_attribute_in_a_regular_expression_stands_for_itself() {
    let text = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                discover = [{ path = '/dev/{name}' }]\n\
                [device]\nid = '{name}'\n\
                health = [{ program = ['/bin/x'], regex = '{name}=([a-z]+)', equals = 'ok' }]\n";
    let class = parse("x", text).unwrap();
    let config = Config::parse(Path::new("c"), "[class.x]\nhealth_programs = true\n").unwrap();
    let class = config.with_settings(class, Path::new("x.toml")).unwrap();
    let host = RecordedHost::parse("char /dev/x.1 1:1\n").unwrap();
    let found = discover::scan_devices(&class, &host).devices;
    let command = command(&found[0]);
    let fault = |text: &str| command.find_fault(ExitStatus::default(), text);
    assert_eq!(fault("xa1=sick\nx.1=ok\n"), None);
    assert!(fault("xa1=ok\nx.1=sick\n").is_some());
}

/// Health checks, and what is said of those that are wrong.
const CHECKS: &str = r"
program = ['/bin/x', '{index}'] | fine
program = ['/bin/x'], key = 'State', equals = 'OK', timeout = 5 | fine
program = ['/bin/x'], regex = '{index}: (.*)', equals = 'OK' | fine
program = ['/bin/x'], regex = '(.*)' | goes with
program = ['/bin/x'], regex = '(', equals = 'OK' | goes with
program = ['/bin/x'], regex = '.', key = 'State', equals = 'OK' | goes with
program = ['/bin/x'], regex = '{serial}', equals = 'OK' | `{serial}`
program = ['/bin/x'], key = 'State' | goes with
program = ['/bin/x'], below = 3 | goes with
program = ['/bin/x'], equals = 'a', not_equals = 'b' | goes with
program = ['/bin/x'], file = 'state' | goes with
program = ['/bin/x'], steady_for = 3 | goes with
program = [] | begins with the absolute path
program = ['x'] | begins with the absolute path
program = ['/bin/{index}'] | begins with the absolute path
program = ['/bin/x', '{serial}'] | `{serial}`
program = ['/bin/x'], timeout = 0 | 0 seconds
file = 'state', equals = 'OK', key = 'State' | go with `program`
";

#[test]
fn a_program_goes_with_what_it_prints_and_begins_with_a_path() {
    let parsed = |keys: &str| {
        let text = format!(
            "version = 1\nresource = 'x.com/x'\nrequest = {{ env = 'X' }}\n\
             discover = [{{ count = 1 }}]\n\
             [device]\nid = 'x-{{index}}'\nhealth = [{{ {keys} }}]\n"
        );
        parse("x", &text).map(|_| ())
    };
    for [keys, wanted] in rows(CHECKS) {
        let error = parsed(&keys).err();
        assert_eq!(error.is_none(), wanted == "fine", "{keys}: {error:?}");
        assert!(error.is_none_or(|error| error.contains(&wanted)), "{keys}");
    }
}

/// The layouts of hosts, with the path of nvidia-smi and the directories of its libraries that the
/// loader does not know.
const PLACES: &str = "
fedora | /usr/bin/nvidia-smi | none
bottlerocket | /usr/libexec/nvidia/tesla/bin/nvidia-smi
    | /x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla
cos-gpu-installer | /var/lib/nvidia/bin/nvidia-smi | /var/lib/nvidia/lib64
opt | /opt/nvidia/bin/nvidia-smi | /opt/nvidia/lib64
";

#[test]
fn a_health_program_is_found_where_those_for_containers_are() {
    for [layout, path, libraries] in rows(PLACES) {
        let tree = shipped::root().join(format!("testdata/nvidia-gpu/layouts/{layout}.txt"));
        let tree = std::fs::read_to_string(tree).unwrap();
        let host = format!(
            "{}{tree}",
            recorded("nvidia-gpu/headless").replace("file /usr/bin/nvidia-smi\n", "")
        );
        let device = &devices("nvidia-gpu", &host)[0];
        let command = commands(device).remove(0);
        assert_eq!(command.program, Path::new(&path), "{layout}");
        let found: Vec<String> = command
            .library_path
            .iter()
            .map(|directory| directory.display().to_string())
            .collect();
        let expected: Vec<&str> = libraries.split(' ').filter(|it| *it != "none").collect();
        assert_eq!(found, expected, "{layout}");
    }
}
