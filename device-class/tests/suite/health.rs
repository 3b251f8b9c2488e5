//! The health of the shipped classes' devices over time, and their recovery.

use std::iter;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use device_class::discover::{self, Health, HealthHistory, KernelLogRecord};
use device_class::host::{HostRecorder, RecordedHost};
use device_class::{DeviceClass, HostView};

use crate::{rows, shipped};

/// Recorded hosts, which are named by their class, one of their devices and a directory. Then
/// looks: seconds since the first, a file and what it says from then on, and what the device's
/// health is said to be.
const CASES: &str = "
tenstorrent | 0 | /sys/class/tenstorrent/tenstorrent!0
0 | tt_heartbeat | 100 | healthy
60 | tt_heartbeat | 100 | healthy
61 | tt_heartbeat | 100 | has been 100 for 61 seconds; it should advance
70 | tt_heartbeat | 101 | healthy
# The chip was reset, and counts from 0 again.
80 | tt_heartbeat | 1 | healthy
90 | tt_heartbeat | 4294967295 | tt_heartbeat is `4294967295`
95 | tt_heartbeat |  | is not a number
99 | tt_heartbeat | 2 | healthy

coral-edgetpu/pcie | 0 | /sys/class/apex/apex_0
0 | temp | 50000 | healthy
10 | temp | 104799 | healthy
20 | temp | 104800 | temp is 104800, not below 104800
# Cooler, but not cool.
30 | temp | 96000 | not yet below 95000
40 | temp | 94999 | healthy
45 | temp | 96000 | healthy
50 | status | DEAD | status is `DEAD`
60 | status | ALIVE | healthy

intel-fpga-af/opae | 0 | /sys/class/fpga/intel-fpga-dev.0/intel-fpga-port.0
0 | afu_id | d8424dc4a4a3c413f89e433683f9040b | healthy
10 | afu_id | ffffffffffffffffffffffffffffffff | afu_id is `ffffffff
20 | afu_id | f7df405cbd7acf7222f144b0b93acd18 | healthy

# unhealthyInterfaceID in the vendor's plugin.
intel-fpga-region/opae intel-fpga-regiondevel/opae | 0 | /sys/class/fpga/intel-fpga-dev.0
0 | intel-fpga-fme.0/pr/interface_id | ce48969398f05f33946d560708be108a | healthy
10 | intel-fpga-fme.0/pr/interface_id | ffffffffffffffffffffffffffffffff
    | interface_id is `ffffffff
20 | intel-fpga-fme.0/pr/interface_id | ce48969398f05f33946d560708be108a | healthy

intel-fpga-region/dfl intel-fpga-regiondevel/dfl | 0
    | /sys/class/fpga_region/region0/dfl-fme.0/dfl-fme-region.1/fpga_region/region1
0 | compat_id | ce48969398f05f33946d560708be108a | healthy
10 | compat_id | ffffffffffffffffffffffffffffffff | compat_id is `ffffffff
20 | compat_id | ce48969398f05f33946d560708be108a | healthy

# Once its firmware is loaded, it has other ids, and a new number and node.
coral-edgetpu/usb | 1 | /sys/bus/usb/devices/2-10
0 | idVendor | 1a6e | its firmware is not loaded: run `dfu-util
10 | devnum | 15 | its firmware is not loaded: run `dfu-util
10 | idProduct | 9302 | its firmware is not loaded: run `dfu-util
10 | idVendor | 18d1 | healthy
20 | devnum | 16 | /dev/bus/usb/002/016 does not exist
21 | devnum | 15 | healthy
";

/// Looks at a device of a recorded host again and again.
fn fall_ill_and_recover(of_host: &str, index: &str, directory: &str, looks: &[[String; 4]]) {
    let name = of_host.split('/').next().unwrap();
    let (class, mut host) = (shipped::class(name), shipped::host(of_host));
    let start = Instant::now();
    let mut memory = HealthHistory::default();
    for [seconds, file, says, wanted] in looks {
        // Written where the links of the recording lead.
        let path = Path::new(directory).join(file);
        host.add_file(host.canonicalize(&path).unwrap(), says.as_str());
        let mut found = discover::find_devices(&class, &host).devices;
        let since = Duration::from_secs(seconds.parse().unwrap());
        memory.update_health(&mut found, start + since);
        let mut found = found.iter();
        let device = found.find(|device| device.index.as_deref() == Some(index));
        let health = device.unwrap().health.to_string();
        let of = format!("{of_host} at {seconds}: {health}");
        match wanted.as_str() {
            "healthy" => assert_eq!(health, "healthy", "{of}"),
            words => assert!(
                health.starts_with("unhealthy: ") && health.contains(words),
                "{of}"
            ),
        }
    }
}

#[test]
fn devices_fall_ill_and_recover() {
    for case in CASES.split("\n\n") {
        let (head, looks) = case.split_once("\n0 | ").unwrap();
        let [[hosts, index, directory]] = rows(head).try_into().unwrap();
        for of_host in hosts.split(' ') {
            let looks = rows(&format!("0 | {looks}"));
            fall_ill_and_recover(of_host, &index, &directory, &looks);
        }
    }
}

/// Recorded hosts, which are named by their class, the directory of a device's PCI function, and
/// the device's name. Without a directory it is in /sys/bus/pci/devices by this name.
const ON_THE_PCI_BUS: &str = "
nvidia-gpu/h200 |  | 0000:17:00.0
gpu-share |  | 0000:17:00.0
amd-gpu/mixed |  | 0000:03:00.0
xilinx-fpga |  | 0000:e3:00.1
xilinx-card |  | 0000:e3:00.1
amd-ma35 |  | 0000:41:00.0
intel-gpu |  | 0000:00:02.0
gaudi |  | 0000:19:00.0
hygon-dcu |  | 0000:33:00.0
metax-gpu |  | 0000:0f:00.0
mthreads-gpu |  | 0000:b2:00.0
rebellions-npu |  | 0000:18:00.0
tenstorrent |  | 0000:01:00.0
qualcomm-ai100 |  | 0000:01:00.0
";

/// As above, of classes whose drivers do not always show where a device is on the bus.
const PERHAPS_ON_THE_PCI_BUS: &str = "
ascend-npu/910c | /sys/bus/pci/devices/0000:9d:00.0 | Ascend910-0
kunlunxin-xpu/p800 |  | 0000:16:00.0
cambricon-mlu |  | 0000:0f:00.0
enflame-gcu | /sys/bus/pci/devices/0000:11:00.0 | gcu-0
furiosa-rngd | /sys/bus/pci/devices/0000:3a:00.0 | npu0
hailo | /sys/bus/pci/devices/0000:01:00.0 | hailo-0000:01:00.0
biren-gpu/svi | /sys/bus/pci/devices/0000:11:00.0 | card_0
coral-edgetpu/pcie | /sys/bus/pci/devices/0000:02:00.0 | apex-0000:02:00.0
google-tpu | /sys/bus/pci/devices/0000:00:04.0 | 0000:00:04
pci-function | /sys/bus/pci/drivers/vfio-pci/0000:17:00.0 | 0000:17:00.0
sriov-vfio | /sys/bus/pci/drivers/vfio-pci/0000:3b:02.1 | 0000:3b:02.1
ibm-spyre | /sys/bus/pci/drivers/vfio-pci/0000:17:00.0 | 0000:17:00.0
intel-qat | /sys/bus/pci/drivers/vfio-pci/0000:6b:00.1 | 0000:6b:00.1
";

/// A device of a recorded host, whose PCI configuration space is the file `config`.
struct PciDevice {
    class: DeviceClass,
    host: RecordedHost,
    name: String,
    config: PathBuf,
}

impl PciDevice {
    fn new([of_host, directory, name]: [String; 3]) -> PciDevice {
        let class = shipped::class(of_host.split('/').next().unwrap());
        let host = shipped::host(&of_host);
        let directory = match directory.as_str() {
            "" => format!("/sys/bus/pci/devices/{name}"),
            _ => directory,
        };
        // The recording has links, so the file is at the path to which they lead.
        let config = host.canonicalize(&Path::new(&directory).join("config"));
        PciDevice {
            config: config.unwrap_or_else(|error| panic!("{of_host}: {error}")),
            class,
            host,
            name,
        }
    }

    /// Scans the host, and returns what the device's health is said to be at `time`.
    fn health(&self, memory: &mut HealthHistory, time: Instant) -> Health {
        let mut found = discover::scan_devices(&self.class, &self.host).devices;
        memory.update_health(&mut found, time);
        let device = found.into_iter().find(|found| {
            let aliases = found.aliases.iter().map(String::as_str);
            let mut names = iter::once(found.id.as_str()).chain(aliases);
            names.any(|name| name == self.name)
        });
        device.unwrap().health
    }
}

/// The configuration space of a PCI device that is gone reads as all ones. A reset
/// looks so too, for a moment.
#[test]
fn devices_that_fall_off_the_bus_are_unhealthy() {
    let tables = [ON_THE_PCI_BUS, PERHAPS_ON_THE_PCI_BUS];
    for row in tables.into_iter().flat_map(rows) {
        let mut device = PciDevice::new(row);
        let start = Instant::now();
        let mut memory = HealthHistory::default();
        let answer = [0xde, 0x10, 0x35, 0x23, 0x06, 0x04, 0x10, 0x00];
        for (seconds, bytes, healthy) in [
            (0, answer, true),
            (10, [0xff; 8], true),
            (31, [0xff; 8], false),
            (35, answer, false),
            (60, answer, true),
        ] {
            device.host.add_file(&device.config, bytes);
            let health = device.health(&mut memory, start + Duration::from_secs(seconds));
            assert_eq!(
                health.is_healthy(),
                healthy,
                "{} {seconds}: {health}",
                device.class.name
            );
            let advised = health.to_string().contains("on the PCI bus");
            assert_eq!(advised, !healthy, "{health}");
        }
    }
}

/// A host that is itself a container may lack the file, and so may a driver's directory.
#[test]
fn a_device_without_a_configuration_space_is_healthy() {
    for row in rows(PERHAPS_ON_THE_PCI_BUS) {
        let mut device = PciDevice::new(row);
        device.host.remove(&device.config);
        // Each real host has this file.
        device
            .host
            .add_file("/proc/devices", "Character devices:\n");
        let health = device.health(&mut HealthHistory::default(), Instant::now());
        assert!(health.is_healthy(), "{}: {health}", device.class.name);
    }
}

/// Xid errors of a GPU, as the kernel logs them: fatal ones count until the GPU is
/// repaired, those of programs never.
#[test]
fn faults_in_the_kernels_log_are_those_of_the_device_that_they_name() {
    for (class, host) in [
        ("nvidia-gpu", "nvidia-gpu/h200"),
        ("gpu-share", "gpu-share"),
    ] {
        let (class, host) = (shipped::class(class), shipped::host(host));
        let mut memory = HealthHistory::default();
        let mut ill = |record: &str| -> Vec<String> {
            let lines = [KernelLogRecord::parse(record.as_bytes()).unwrap()];
            let mut found = discover::scan_devices(&class, &host).devices;
            memory.update_health_with_log(&mut found, Instant::now(), &lines);
            let ill = found.iter().filter(|found| !found.health.is_healthy());
            ill.map(|found| found.attributes[&"bdf".to_owned().try_into().unwrap()].clone())
                .collect()
        };
        let xid = |pci: &str, number: u32| {
            format!("4,1,2,-;NVRM: Xid (PCI:{pci}): {number}, pid=1234, name=train, a reason")
        };
        assert_eq!(ill(&xid("0000:17:00", 31)), [""; 0]);
        assert_eq!(ill(&xid("0000:99:00", 79)), [""; 0]);
        assert_eq!(ill(&xid("0000:17:00", 79)), ["0000:17:00.0"]);
        let repaired = "12,3,4,-;boathook: repaired GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10";
        assert_eq!(ill(repaired), [""; 0]);
    }
}

/// As the driver logs what concerns one instance (NVIDIA, "MIG User Guide").
#[test]
fn a_fault_of_an_instance_is_not_that_of_another() {
    let (class, host) = (
        shipped::class("nvidia-gpu"),
        shipped::host("nvidia-gpu/mig-facts"),
    );
    let ill = |place: &str, number: u32| -> Vec<String> {
        let record =
            format!("4,1,2,-;NVRM: Xid (PCI:0000:17:00{place}): {number}, pid=7, a reason");
        let lines = [KernelLogRecord::parse(record.as_bytes()).unwrap()];
        let mut found = discover::scan_devices(&class, &host).devices;
        HealthHistory::default().update_health_with_log(&mut found, Instant::now(), &lines);
        let ill = found.iter().filter(|found| !found.health.is_healthy());
        let told = ill.filter(|found| found.health.to_string().contains("repaired"));
        told.map(|found| found.id.to_string()).collect()
    };
    let first = "MIG-0a8b6d51-2f64-5b0f-8c77-d9e2a4b61f05";
    let second = "MIG-5d0bd4f8-74b1-5a33-9b0d-3e6a8f1c2d40";
    assert_eq!(ill(" GPU-I:01", 95), [first]);
    assert_eq!(ill(" GPU-I:11 GPU-CI:00", 95), [second]);
    assert_eq!(ill(" GPU-I:01", 94), [""; 0]);
    let mut both = ill("", 79);
    both.sort();
    assert_eq!(both, [first, second]);
}

/// KFD is what ROCm computes with: it lists a partition of a GPU, and has a node of its own.
/// A whole GPU is given whether or not it lists that (k8s-device-plugin, amdgpu.go), but
/// after those that ROCm's toolkit counts (container-toolkit, amdgpu.go).
#[test]
fn a_partition_of_an_amd_gpu_is_given_while_kfd_has_it() {
    let (class, mut host) = (shipped::class("amd-gpu"), shipped::host("amd-gpu/mixed"));
    let listed = Path::new("/sys/class/kfd/kfd/topology/nodes/2/properties");
    let ids = |host: &RecordedHost| -> Vec<String> {
        let found = discover::find_devices(&class, host).devices;
        found.iter().map(|found| found.id.to_string()).collect()
    };
    let missing = |host: &RecordedHost| discover::find_refusal_reason(&class, host);
    let ids_of = |slots: &[&str]| {
        slots
            .iter()
            .map(|s| format!("0000:{s}:00.0"))
            .collect::<Vec<_>>()
    };
    // KFD does not list the second one.
    assert_eq!(ids(&host), ids_of(&["03", "83", "c3", "04"]));
    assert_eq!(missing(&host), None);
    host.add_file(listed, "simd_count 304\ndrm_render_minor 0\n");
    assert_eq!(ids(&host).len(), 4);
    let mut divided = shipped::host("amd-gpu/mi300x-cpx");
    let parts = ids(&divided);
    let listed = Path::new("/sys/class/kfd/kfd/topology/nodes/3/properties");
    divided.add_file(listed, "simd_count 304\ndrm_render_minor 0\n");
    assert_eq!(ids(&divided).len(), parts.len() - 1);
    // Video needs only the GPU's own nodes.
    host.remove(Path::new("/dev/kfd"));
    assert_eq!(missing(&host), None);
}

/// Each card's nodes while one of its ports is active; as with the vendor's plugin, which
/// has requiredRdmaDevices, only while the nodes that all programs need are there.
#[test]
fn an_rdma_card_comes_and_goes_with_its_port() {
    let (class, mut host) = (shipped::class("rdma-shared"), shipped::host("rdma-shared"));
    let nodes = |host: &RecordedHost| -> Vec<String> {
        let found = discover::find_devices(&class, host).devices;
        let nodes = found.iter().flat_map(|found| &found.nodes);
        nodes
            .map(|node| node.host_path.display().to_string())
            .collect()
    };
    let first = ["uverbs0", "umad0", "issm0"].map(|name| format!("/dev/infiniband/{name}"));
    let second = ["uverbs1", "umad1"].map(|name| format!("/dev/infiniband/{name}"));
    let both = [&first[..], &second[..]].concat();
    let port = "/sys/class/infiniband/mlx5_1/ports/1/state";
    assert_eq!(nodes(&host), first);
    for (state, wanted) in [
        ("4: ACTIVE\n", &both[..]),
        ("2: INIT\n", &first),
        ("4: ACTIVE\n", &both),
    ] {
        host.add_file(port, state);
        assert_eq!(nodes(&host), wanted, "{state}");
    }
    host.remove(Path::new("/dev/infiniband/rdma_cm"));
    assert!(discover::find_devices(&class, &host).devices.is_empty());
}

/// Each word of a configuration space is read from the device.
#[test]
fn of_a_configuration_space_only_what_is_compared_is_read() {
    let host = shipped::host("nvidia-gpu/h200-virtual");
    let recording = HostRecorder::new(&host);
    let _ = discover::find_devices(&shipped::class("nvidia-gpu"), &recording);
    let read = recording.to_string();
    assert!(read.contains("0000:00:06.0/config\n| (not\n"), "{read}");
}
