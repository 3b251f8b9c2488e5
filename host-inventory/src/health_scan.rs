//! Scans the host for the devices of all classes, and determines the health of each device
//! from files, the kernel's log and health programs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use device_class::HostView;
use device_class::class::{DeviceClass, NameConflict, NameOwners};
use device_class::discover::{self, FoundNode, HealthHistory, Inventory, KernelLine, OverTime};
use device_class::host::RealHost;
use device_class::name::{ClassName, DeviceId, ResourceName};
use device_class::template::Attributes;

use crate::Notifier;
use crate::classes::UnmountedClasses;
use crate::facts_programs::FactsPrograms;
use crate::health_programs::HealthPrograms;
use crate::host_files;
use crate::kernel_log::KernelLog;
use crate::quick_look::ByteCheck;

/// The result of a device scan.
#[derive(Debug, Default)]
pub struct HostScan<'a> {
    pub classes: Vec<ClassScan<'a>>,
    /// The class that owns each request variable and each resource.
    pub claims: NameOwners,
    /// The omitted devices and classes, each with the reason, in one line.
    pub warnings: Vec<String>,
    /// The classes of which all devices, or those of one resource, are left out because of a
    /// mistake in the configuration.
    pub class_errors: Vec<ClassError>,
    /// The classes of which devices are held back until the driver's programs have reported facts
    /// on which their names depend.
    pub unnamed: BTreeSet<ClassName>,
}

/// A mistake in the configuration of a class that only a scan shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassError {
    pub class: ClassName,
    /// The reason, in one line, with the name of the class or its file.
    pub message: String,
}

/// The result of a scan for one class.
#[derive(Debug)]
pub struct ClassScan<'a> {
    pub class: &'a DeviceClass,
    /// The devices of the class, without devices whose resource belongs to another class.
    pub inventory: Inventory,
    /// The nodes that a container gets with any device of the class.
    pub control_nodes: Vec<FoundNode>,
}

/// The values that earlier scans read of each class's devices, for health checks that
/// compare a value over time.
#[derive(Debug, Default)]
pub struct ScanMemory {
    classes: BTreeMap<ClassName, ClassMemory>,
    /// The classes that read a path that is not mounted.
    pub(crate) unmounted: Arc<UnmountedClasses>,
    /// The files that are read between two scans.
    byte_checks: Arc<Vec<ByteCheck>>,
    /// The root directory of the host. `None` means that neither the kernel's log is read
    /// nor programs are run.
    host_root: Option<PathBuf>,
    /// Notified when a program has reported something that a scan has to judge.
    pub(crate) notifier: Option<Notifier>,
    /// Whether a scan waits until programs that report driver facts have ended.
    pub(crate) waits_for_facts: bool,
}

#[derive(Debug, Default)]
struct ClassMemory {
    health: HealthHistory,
    log: Option<KernelLog>,
    /// Records that were read between two scans.
    unjudged: Vec<KernelLine>,
    /// The checks of the last scan that records can change.
    log_checks: Vec<(DeviceId, OverTime)>,
    programs: HealthPrograms,
    facts: FactsPrograms,
}

/// The largest number of records that are kept for the next scan.
const MAX_UNJUDGED: usize = 65_536;

impl ScanMemory {
    /// Returns the time when a scan can first find that a change has lasted long enough.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let classes = self.classes.values();
        classes.filter_map(|class| class.health.next_due()).min()
    }

    /// Returns the files that are read between two scans.
    pub(crate) fn byte_checks(&self) -> Arc<Vec<ByteCheck>> {
        Arc::clone(&self.byte_checks)
    }

    /// Whether a class's devices depend on the kernel's log.
    pub(crate) fn reads_kernel_log(&self) -> bool {
        self.classes.values().any(|class| class.log.is_some())
    }

    /// Reads the kernel's log without waiting, and returns whether it concerns a device.
    pub(crate) fn has_news(&mut self) -> bool {
        let mut has_news = false;
        for class in self.classes.values_mut() {
            has_news |= class.has_news();
        }
        has_news
    }

    /// Returns an empty memory for a single scan or for a recorded host. The kernel's log is
    /// not read, and no programs are run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty memory for a single scan of classes of which some read a path that is
    /// not mounted.
    pub fn with_unmounted(unmounted: UnmountedClasses) -> Self {
        ScanMemory {
            unmounted: Arc::new(unmounted),
            ..Self::default()
        }
    }

    /// Returns an empty memory for repeated scans of the host whose root directory is `root`.
    /// Scans with it read the kernel's log and run programs.
    pub fn of_host(root: &Path) -> Self {
        ScanMemory {
            host_root: Some(root.to_owned()),
            ..Self::default()
        }
    }
}

impl ClassMemory {
    fn new_lines(&mut self, host_root: &Path) -> io::Result<Vec<KernelLine>> {
        let log = match self.log.take() {
            Some(log) => log,
            None => KernelLog::open(host_root)?,
        };
        let mut lines = std::mem::take(&mut self.unjudged);
        lines.extend(self.log.insert(log).new_lines()?);
        Ok(lines)
    }

    /// Reads the records since the last call, and returns whether one of them concerns a
    /// device. A failure is reported by the next scan.
    fn has_news(&mut self) -> bool {
        let Some(Ok(lines)) = self.log.as_mut().map(KernelLog::new_lines) else {
            return false;
        };
        let mut checks = self.log_checks.iter();
        let concerns = |(id, rule): &(DeviceId, OverTime)| {
            let mut lines = lines.iter();
            lines.any(|line| line.concerns(id.as_str(), rule))
        };
        let has_news = checks.any(concerns);
        if self.unjudged.len() < MAX_UNJUDGED {
            self.unjudged.extend(lines);
        }
        has_news
    }
}

/// Scans for the devices of every class. A resource belongs to the first class that has a
/// device of it, because the resource decides which variable the plugin sets. If two classes
/// have the same variable, only the first class is scanned, because the hook refuses
/// containers that set a variable of two classes.
///
/// `memory` has the values of earlier scans, and is updated. `now` is the time of this scan.
pub fn scan_host<'a>(
    classes: &'a [DeviceClass],
    host: &dyn HostView,
    memory: &mut ScanMemory,
    now: Instant,
) -> HostScan<'a> {
    memory
        .classes
        .retain(|name, _| classes.iter().any(|class| class.name == *name));
    for class in memory.classes.values_mut() {
        class.facts.collect(now);
    }
    let mut scan = HostScan::default();
    let mut byte_checks = Vec::new();
    for class in classes {
        let HostScan {
            claims,
            warnings,
            class_errors,
            unnamed,
            ..
        } = &mut scan;
        let mut report = |message: String| {
            let class = class.name.clone();
            class_errors.push(ClassError { class, message });
        };
        if let Err(claimed) = claims.claim_request_variable(class) {
            report(format!("{}: {claimed}", class.name));
            continue;
        }
        let mut inventory = discover::look(class, host);
        if let Some(message) = memory.unmounted.get(&class.name) {
            if has_hardware(&inventory) {
                report(message.clone());
            }
            continue;
        }
        let remembered = memory.classes.entry(class.name.clone()).or_default();
        let notifier = memory.notifier.as_ref();
        let mut held = BTreeSet::new();
        if let Some(root) = &memory.host_root {
            let programs = &mut remembered.facts;
            held = programs.renew(class, &inventory, root, now, notifier);
            // The host is opened again, because a view of it does not notice later changes.
            if memory.waits_for_facts
                && programs.wait(now)
                && let Ok(host) = RealHost::open(root)
            {
                inventory = discover::look(class, &host);
                held.clear();
            }
            let faults = programs.faults().iter();
            warnings.extend(faults.map(|line| format!("{}: {line}", class.name)));
        }
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
        byte_checks.extend(ByteCheck::read_all(class, &inventory, host));
        let each = inventory.devices.iter().flat_map(|device| {
            let readings = device.readings.iter();
            let logged = readings.filter(|one| matches!(one.rule, OverTime::Unlogged { .. }));
            logged.map(|one| (device.id.clone(), one.rule.clone()))
        });
        remembered.log_checks = each.collect();
        let devices = &mut inventory.devices;
        // Devices that are divided into parts are checked as well: a part that is not created
        // yet has the health of its device.
        let divided = inventory.divided.iter_mut().chain(&mut inventory.replaced);
        let all = devices.iter_mut().chain(divided);
        remembered.health.judge_with(all, now, &log);
        if !held.is_empty() {
            // A device that is held back gets another name, and is then a new one, which all
            // these records may concern.
            log.drain(..log.len().saturating_sub(MAX_UNJUDGED));
            remembered.unjudged = log;
        }
        if let Some(root) = &memory.host_root {
            let programs = &mut remembered.programs;
            let faults = programs.update_health(devices, root, now, notifier);
            warnings.extend(
                faults
                    .into_iter()
                    .map(|line| format!("{}: {line}", class.name)),
            );
        }
        if !held.is_empty() {
            inventory
                .devices
                .retain(|device| !held.contains(&device.id));
            unnamed.insert(class.name.clone());
        }
        warnings.extend(
            inventory
                .warnings
                .iter()
                .map(|line| format!("{}: {line}", class.name)),
        );
        if !inventory.devices.is_empty() {
            let (defaults, known) = (
                class.spec.request.capabilities_by_default(),
                &inventory.host_attributes,
            );
            let missing = discover::find_missing_nodes(class, &defaults, known, host);
            let missing = missing.into_iter();
            warnings.extend(missing.map(|line| format!("{}: {line}", class.name)));
        }
        let control_nodes = control_nodes(class, &inventory.host_attributes, host);
        if let Err(reason) = &control_nodes {
            inventory.refuse(reason);
        } else if !inventory.devices.is_empty()
            && let Some(reason) = host_files::find_missing(class, host)
        {
            inventory.refuse(&reason);
        }
        inventory.refuse_mixed(class);
        let mut conflicts: BTreeMap<ResourceName, (NameConflict, usize)> = BTreeMap::new();
        inventory.devices.retain(|device| {
            let claimed = claims.claim_name(device.resource.as_str(), &class.name);
            let Err(claimed) = claimed else {
                return true;
            };
            let conflict = conflicts.entry(device.resource.clone());
            conflict.or_insert((claimed, 0)).1 += 1;
            false
        });
        for (claimed, count) in conflicts.into_values() {
            let devices = if count == 1 { "device" } else { "devices" };
            report(format!(
                "{}: {count} {devices} left out: {claimed}",
                class.name
            ));
        }
        scan.classes.push(ClassScan {
            class,
            inventory,
            control_nodes: control_nodes.unwrap_or_default(),
        });
    }
    memory.byte_checks = Arc::new(byte_checks);
    scan
}

/// Returns whether the host has hardware of a class, even if no device of it can be offered.
fn has_hardware(inventory: &Inventory) -> bool {
    let devices = [&inventory.devices, &inventory.divided, &inventory.replaced];
    let has_device = devices.into_iter().any(|devices| !devices.is_empty());
    has_device || !inventory.hidden.is_empty() || !inventory.warnings.is_empty()
}

/// Returns the control nodes, which a container gets together with any device of the class.
///
/// # Errors
/// Returns an error if a required control node is missing or unusable. The hook would refuse
/// a container with a device of the class.
fn control_nodes(
    class: &DeviceClass,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Vec<FoundNode>, String> {
    let capabilities = class.spec.request.capabilities_by_default();
    let nodes = discover::control_nodes(class, &capabilities, attributes, host)
        .map_err(|error| error.to_string())?;
    match nodes.iter().find_map(|node| node.number.unfit()) {
        Some(reason) => Err(reason.to_owned()),
        None => Ok(nodes),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use device_class::host::RecordedHost;

    use super::*;

    #[test]
    fn a_device_that_is_divided_is_judged_too() {
        for keeps in [true, false] {
            let text = format!(
                "version = 1\nresource = 'x.com/x'\nrequest = {{ env = 'X' }}\n\
                 discover = [{{ path = '/sys/{{x}}', attributes = [{{ name = 'part', value = '', \
                 default = '' }}] }}, {{ path = '/sys/{{x}}/{{part}}', \
                 additional = true, part_of = 'x', keeps_whole = {keeps}, \
                 require = [{{ value = '{{part}}', equals = 'p' }}] }}]\n\
                 [device]\nid = 'x{{part}}'\nhealth = [{{ file = 'beat', changes_within = 30 }}]\n"
            );
            let name = "x".to_owned().try_into().unwrap();
            let class = [DeviceClass::parse(name, "x.toml".as_ref(), &text).unwrap()];
            let (mut memory, start) = (ScanMemory::new(), Instant::now());
            for (seconds, healthy) in [(0, true), (31, false)] {
                let mut host = RecordedHost::default();
                host.add_file("/sys/x/beat", "7");
                host.add_file("/sys/x/p/beat", seconds.to_string());
                let now = start + Duration::from_secs(seconds);
                let scan = scan_host(&class, &host, &mut memory, now);
                let found = &scan.classes[0].inventory;
                assert!(found.devices[0].health.is_healthy(), "{:?}", found.devices);
                let whole = found.divided.first().or(found.replaced.first()).unwrap();
                assert_eq!(whole.health.is_healthy(), healthy, "{keeps} {seconds}");
            }
        }
    }

    #[test]
    fn a_counter_that_stops_makes_the_device_unhealthy() {
        let text = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                    discover = [{ path = '/sys/x' }]\n\
                    device = { id = 'x', health = [{ file = 'beat', changes_within = 30 }] }\n";
        let name = "x".to_owned().try_into().unwrap();
        let class = [DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap()];
        let (mut memory, start) = (ScanMemory::new(), Instant::now());
        for (seconds, beat, healthy) in [
            (0, "7", true),
            (30, "7", true),
            (31, "7", false),
            (40, "8", true),
        ] {
            let mut host = RecordedHost::default();
            host.add_file("/sys/x/beat", beat);
            let now = start + Duration::from_secs(seconds);
            let scan = scan_host(&class, &host, &mut memory, now);
            let device = &scan.classes[0].inventory.devices[0];
            assert_eq!(device.health.is_healthy(), healthy, "{seconds}");
        }
    }
}
