//! The device scan: from classes and a host to resources.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device_class::HostView;
use device_class::class::{Claims, DeviceClass};
use device_class::config::Config;
use device_class::discover::{self, HealthHistory};
use device_class::kernel_log::Line;
use device_class::name::{ClassName, ResourceName};
use device_class::prepare::Preparation;

use super::Inventory;
use super::engine_devices::control_nodes;
use super::found::{Found, undivided};
use super::health_programs::HealthPrograms;
use super::host_files;
use super::kernel_log::KernelLog;
use super::resource::{Resource, Terms};
use crate::file_check::FileReport;
use kubelet_api::MAX_MESSAGE;

/// The result of a device scan.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The resources and their devices.
    pub(crate) inventory: Inventory,
    /// The omitted devices and classes, a line each with the reason.
    pub(crate) warnings: Vec<String>,
}

/// How long the first report may take: both containers of the pod start at once.
const FIRST_REPORT: Duration = Duration::from_secs(60);

/// What earlier scans read of each class's devices, and what another process found.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    classes: BTreeMap<ClassName, ClassMemory>,
    /// The newest report of missing libraries and files.
    file_report: FileReport,
    /// Since when there is no report.
    unreported: Option<Instant>,
    /// The root below which the kernel's log is; `None`: it is not read.
    host_root: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct ClassMemory {
    health: HealthHistory,
    log: Option<KernelLog>,
    programs: HealthPrograms,
}

impl Memory {
    /// For a single scan, and one of a recorded host.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// With the kernel's log of a host.
    pub(crate) fn of_host(root: &Path) -> Self {
        Memory {
            host_root: Some(root.to_owned()),
            ..Self::default()
        }
    }

    /// Reads what `check-files` reported; the previous report is kept if it cannot be read.
    pub(super) fn read_report(&mut self, file: &Path, now: Instant) -> Result<(), String> {
        let unread = |why: String| {
            let file = file.display();
            Err(format!("missing libraries are not seen, {file} {why}"))
        };
        match FileReport::read(file) {
            Ok(Some(report)) => {
                self.file_report = report;
                self.unreported = None;
                Ok(())
            }
            Ok(None) => {
                let since = *self.unreported.get_or_insert(now);
                match now.duration_since(since) < FIRST_REPORT {
                    true => Ok(()),
                    false => {
                        unread("does not exist; is `boathook-plugin check-files` running?".into())
                    }
                }
            }
            Err(error) => unread(format!("cannot be read: {error}")),
        }
    }

    /// Which library or file of the class is missing on the host, if that is known.
    fn missing_files(
        &self,
        class: &DeviceClass,
        config: &Config,
        host: &dyn HostView,
    ) -> Option<String> {
        match host_files::are_visible(host) {
            true => discover::missing(class, config, host),
            false => self.file_report.missing(&class.name).map(str::to_owned),
        }
    }
}

impl ClassMemory {
    fn new_lines(&mut self, host_root: &Path) -> io::Result<Vec<Line>> {
        let log = match self.log.take() {
            Some(log) => log,
            None => KernelLog::open(host_root)?,
        };
        self.log.insert(log).new_lines()
    }
}

/// Scans for the devices of every class. A resource belongs to the first class
/// that has a device of it, since its name decides which variable is set. Of two
/// classes with the same variable only the first is scanned: the hook refuses a
/// container that sets it.
///
/// `memory` holds what earlier scans read, for health checks over time; `now` is
/// the time of this scan.
pub(crate) fn scan(
    classes: &[DeviceClass],
    config: &Config,
    host: &dyn HostView,
    memory: &mut Memory,
    now: Instant,
) -> Scan {
    memory
        .classes
        .retain(|name, _| classes.iter().any(|class| class.name == *name));
    let mut found: BTreeMap<ResourceName, Found> = BTreeMap::new();
    let mut warnings = Vec::new();
    let mut claims = Claims::default();
    for class in classes {
        if let Err(claimed) = claims.env(class) {
            warnings.push(format!("{}: {claimed}", class.name));
            continue;
        }
        let mut inventory = discover::look(class, host);
        let remembered = memory.classes.entry(class.name.clone()).or_default();
        let mut log = Vec::new();
        if let Some(root) = &memory.host_root
            && class.spec.reads_kernel_log()
            && !inventory.devices.is_empty()
        {
            log = remembered.new_lines(root).unwrap_or_else(|error| {
                warnings.push(format!(
                    "{}: faults that the kernel logs are not seen, {}/dev/kmsg cannot be read: \
                     {error}; a container has to be privileged (deploy/components/host-programs)",
                    class.name,
                    root.display()
                ));
                Vec::new()
            });
        }
        let devices = &mut inventory.devices;
        remembered.health.judge_with(devices, now, &log);
        if let Some(root) = &memory.host_root {
            let unrun = remembered.programs.judge(devices, root, now);
            warnings.extend(
                unrun
                    .into_iter()
                    .map(|line| format!("{}: {line}", class.name)),
            );
        }
        warnings.extend(
            inventory
                .warnings
                .iter()
                .map(|line| format!("{}: {line}", class.name)),
        );
        let control_nodes = control_nodes(class, &inventory.host_attributes, host);
        if let Err(reason) = &control_nodes {
            inventory.refuse(reason);
        } else if !inventory.devices.is_empty()
            && let Some(reason) = memory.missing_files(class, config, host)
        {
            inventory.refuse(&reason);
        }
        inventory.refuse_mixed(class);
        let count_resource = class.spec.count_resource();
        let terms = Arc::new(Terms::of(class, control_nodes.unwrap_or_default()));
        for device in inventory.devices {
            let preparation = match Preparation::before_start(class, &device) {
                Ok(preparation) => preparation.map(Arc::new),
                Err(error) => {
                    warnings.push(format!("{}: {}: {error}", class.name, device.id));
                    continue;
                }
            };
            if let Err(claimed) = claims.claim(device.resource.as_str(), &class.name) {
                warnings.push(format!("{}: {}: {claimed}", class.name, device.id));
                continue;
            }
            if let Some(name) = &count_resource {
                match claims.claim(name.as_str(), &class.name) {
                    Ok(()) => found
                        .entry(name.clone())
                        .or_insert_with(|| Found::new(Arc::new(Terms::of_count(class))))
                        .add(undivided(&device), class, None),
                    Err(claimed) => warnings.push(format!("{}: {claimed}", class.name)),
                }
            }
            found
                .entry(device.resource.clone())
                .or_insert_with(|| Found::new(Arc::clone(&terms)))
                .add(device, class, preparation);
        }
    }
    let full = found.iter().filter(|(_, found)| found.left_out > 0);
    warnings.extend(full.map(|(name, found)| {
        format!(
            "{name}: {} devices left out, the kubelet accepts no list of more than \
             {MAX_MESSAGE} bytes; use fewer replicas or shorter ids",
            found.left_out
        )
    }));
    let inventory = found.into_iter().map(|(name, found)| {
        let resource = Resource::new(name.clone(), found.terms, found.devices);
        (name, Arc::new(resource))
    });
    Scan {
        inventory: inventory.collect(),
        warnings,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use device_class::host::RecordedHost;

    use super::*;
    use crate::service::allocate::{container, containers_of_a_call};

    /// Two instances of two profiles, and a whole GPU.
    #[test]
    fn devices_that_differ_are_unhealthy_under_one_name() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../device-class"));
        let file = root.join("classes/nvidia-gpu.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let name = "nvidia-gpu".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, &file, &text).unwrap();
        let host = std::fs::read_to_string(root.join("testdata/nvidia-gpu/mig/host.txt")).unwrap();
        let host = RecordedHost::parse(&host).unwrap();
        for (config, healthy) in [
            ("", 3),
            ("[class.nvidia-gpu]\nresource = 'nvidia.com/gpu'\n", 0),
        ] {
            let config = Config::parse(Path::new("config.toml"), config).unwrap();
            let class = config.adapted(class.clone(), &file).unwrap();
            let mut memory = Memory::new();
            let scan = scan(&[class], &config, &host, &mut memory, Instant::now());
            let devices = scan.inventory.values().flat_map(|one| one.devices());
            let found = devices.filter(|device| device.is_healthy()).count();
            assert_eq!(found, healthy);
        }
    }

    /// As the vendor's plugin (gpushare-device-plugin, allocate.go): …_POD is the sum over
    /// the containers of a call, …_CONTAINER the container's own part.
    #[test]
    fn a_gpus_shares_bring_the_variables_of_the_vendors_plugin() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../device-class"));
        let file = root.join("classes/gpu-share.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let name = "gpu-share".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, &file, &text).unwrap();
        let host = std::fs::read_to_string(root.join("testdata/gpu-share/host.txt")).unwrap();
        let host = RecordedHost::parse(&host).unwrap();
        let scan = scan(
            &[class],
            &Config::default(),
            &host,
            &mut Memory::new(),
            Instant::now(),
        );
        let of = |name: &str| {
            let mut resources = scan.inventory.values();
            resources
                .find(|resource| resource.name.as_str() == name)
                .unwrap()
        };
        let resource = of("aliyun.com/gpu-mem");
        let gpu = resource.devices()[0].hardware();
        let share = |number| format!("{gpu}::{number}");
        let first: Vec<String> = (0..5).map(share).collect();
        let second: Vec<String> = (5..8).map(share).collect();
        let answers = containers_of_a_call(resource, &[&first, &second]).unwrap();
        for (answer, own) in answers.iter().zip(["5", "3"]) {
            let envs: BTreeMap<&str, &str> = answer
                .envs
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            let wanted = [
                ("ALIYUN_COM_GPU_MEM_CONTAINER", own),
                ("ALIYUN_COM_GPU_MEM_DEV", "80"),
                // The number of the node.
                ("ALIYUN_COM_GPU_MEM_IDX", "1"),
                ("ALIYUN_COM_GPU_MEM_POD", "8"),
                ("GPU_SHARE_VISIBLE_DEVICES", gpu.as_str()),
            ];
            assert_eq!(envs, wanted.into());
        }
        // The vendor's plugin names one GPU for all containers of a pod.
        let mut others = resource.devices().iter().map(|device| device.hardware());
        let other = others.find(|other| *other != gpu).unwrap();
        let error = container(resource, &[share(0), format!("{other}::0")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "aliyun.com/gpu-mem: shares of 2 devices requested for one container, which may have \
             shares of one device only"
        );
        // As the vendor's plugin writes it to the node: the number of GPUs.
        let count = of("aliyun.com/gpu-count");
        let gpus: BTreeSet<_> = resource.devices().iter().map(|d| d.hardware()).collect();
        assert_eq!(count.devices().len(), gpus.len());
        let error = container(count, &[gpu.to_string()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "aliyun.com/gpu-count is the number of devices of the class gpu-share and cannot be \
             allocated; request the class's other resource"
        );
    }

    #[test]
    fn shares_are_separate_devices_and_allocate_returns_their_number() {
        let text = "version = 1\nresource = 'x.com/mem'\nrequest = { env = 'X' }\n\
                    device = { id = 'x-{index}' }\n[[discover]]\ncount = 2\n\
                    [sharing]\nreplicas = 3\ncount_env = 'X_COUNT'\n";
        let name = "x".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap();
        let scan = scan(
            &[class],
            &Config::default(),
            &RecordedHost::default(),
            &mut Memory::new(),
            Instant::now(),
        );
        let resource = scan.inventory.values().next().unwrap();
        let ids: Vec<&str> = resource.devices().iter().map(|d| d.id.as_str()).collect();
        assert_eq!(
            ids,
            ["x-0::0", "x-0::1", "x-0::2", "x-1::0", "x-1::1", "x-1::2"]
        );
        assert_eq!(resource.devices()[4].hardware().as_str(), "x-1");
        let asked = ["x-0::2".to_owned(), "x-1::0".to_owned()];
        let answer = container(resource, &asked).unwrap();
        assert_eq!(answer.envs["X"], "x-0,x-1");
        assert_eq!(
            answer.annotations["devices.boathook.dev/x"],
            "x-0::2,x-1::0"
        );
        assert_eq!(answer.envs["X_COUNT"], "2");
    }

    #[test]
    fn a_counter_that_stops_makes_the_device_unhealthy() {
        let text = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                    discover = [{ path = '/sys/x' }]\n\
                    device = { id = 'x', health = [{ file = 'beat', changes_within = 30 }] }\n";
        let name = "x".to_owned().try_into().unwrap();
        let class = [DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap()];
        let (mut memory, start) = (Memory::new(), Instant::now());
        for (seconds, beat, healthy) in [
            (0, "7", true),
            (30, "7", true),
            (31, "7", false),
            (40, "8", true),
        ] {
            let mut host = RecordedHost::default();
            host.add_file("/sys/x/beat", beat);
            let now = start + Duration::from_secs(seconds);
            let scan = scan(&class, &Config::default(), &host, &mut memory, now);
            let resource = scan.inventory.values().next().unwrap();
            assert_eq!(
                resource.devices()[0].health.is_healthy(),
                healthy,
                "{seconds}"
            );
        }
    }

    #[test]
    fn a_report_that_does_not_come_is_logged() {
        let file = Path::new("/nonexistent/files.json");
        let (mut memory, start) = (Memory::new(), Instant::now());
        for (seconds, logged) in [(0, false), (59, false), (60, true), (90, true)] {
            let read = memory.read_report(file, start + Duration::from_secs(seconds));
            assert_eq!(read.is_err(), logged, "{seconds}: {read:?}");
        }
    }
}
