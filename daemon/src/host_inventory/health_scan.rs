//! Scans the host for the devices of all classes. Determines the health of each device from its
//! files, the kernel's log and health programs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use device_class::HostView;
use device_class::class::{DeviceClass, NameConflict, NameOwners};
use device_class::discover::{
    self, DeferredRule, FoundNode, HealthHistory, Inventory, KernelLogRecord,
};
use device_class::host::RealHost;
use device_class::name::{ClassName, DeviceId, ResourceName};
use device_class::template::Attributes;

use crate::host_inventory::Notifier;
use crate::host_inventory::classes::UnmountedClasses;
use crate::host_inventory::health_programs::HealthPrograms;
use crate::host_inventory::host_files;
use crate::host_inventory::kernel_log::KernelLog;
use crate::host_inventory::property_programs::PropertyPrograms;
use crate::host_inventory::response_check::ResponseCheck;

/// The devices of all classes that one scan found on the host.
#[derive(Debug, Default)]
pub struct HostScan<'a> {
    pub classes: Vec<ClassScan<'a>>,
    /// For each request variable and each resource name, the class that may use it.
    pub name_owners: NameOwners,
    /// One message for each device or class that was left out, with the reason.
    pub warnings: Vec<String>,
    /// The configuration errors that the scan found. Each error leaves out all devices of a class,
    /// or all devices of one resource of a class.
    pub class_errors: Vec<ClassError>,
    /// The classes with devices that have no final name yet. Such a device is not offered until a
    /// driver's program has reported the facts that determine its name.
    pub unnamed_classes: BTreeSet<ClassName>,
    /// The classes whose devices report faults in the kernel's log, if the log cannot be read. Such
    /// a device stays healthy as long as its other checks pass.
    pub classes_without_log: BTreeSet<ClassName>,
}

/// A configuration error of a class. Only a scan of the host can detect it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassError {
    pub class: ClassName,
    /// The error message, in one line. It contains the name of the class or of its file.
    pub message: String,
}

/// The devices of one class that a scan found.
#[derive(Debug)]
pub struct ClassScan<'a> {
    pub class: &'a DeviceClass,
    /// The devices of the class that can be offered. A device is left out if its resource name
    /// belongs to another class.
    pub inventory: Inventory,
    /// The device nodes that a container gets with every device of the class.
    pub control_nodes: Vec<FoundNode>,
}

/// The state that one scan passes to the next one: values that health checks compare over time, and
/// the programs that run in the background.
#[derive(Debug, Default)]
pub struct ScanState {
    classes: BTreeMap<ClassName, ClassScanState>,
    /// The classes that need a host path, although it is not mounted in this container. Each has
    /// the error message.
    pub(crate) unmounted_classes: Arc<UnmountedClasses>,
    /// The checks of device files that are repeated every second in the time between two scans.
    response_checks: Arc<Vec<ResponseCheck>>,
    /// The root directory of the host. If it is `None`, the kernel's log is not read and no
    /// programs are run.
    host_root: Option<PathBuf>,
    /// Notifies the host watcher when a program has ended, so that a scan evaluates its result.
    pub(crate) notifier: Option<Notifier>,
    /// Whether a scan waits until the programs that report facts have ended. Only the DRA driver
    /// waits, because the creation of a partition changes facts that such a program could
    /// overwrite.
    pub(crate) waits_for_driver_properties: bool,
}

/// The state of one class in [`ScanState`].
#[derive(Debug, Default)]
struct ClassScanState {
    health_history: HealthHistory,
    log: Option<KernelLog>,
    /// The log records that were read after the last scan. They are kept for the next scan.
    pending_records: Vec<KernelLogRecord>,
    /// The health rules that evaluate log records, each with the id of its device. Only devices
    /// that the last scan found are in the list.
    log_rules: Vec<(DeviceId, DeferredRule)>,
    health_programs: HealthPrograms,
    property_programs: PropertyPrograms,
}

/// The approximate maximum number of log records that are kept for the next scan. Further records
/// are dropped. Otherwise a driver that logs in a loop could fill the memory.
const MAX_PENDING_RECORDS: usize = 65_536;

impl ScanState {
    /// Returns the earliest time at which the health of a device can change without an event. This
    /// is possible because a health rule can have a minimum duration.
    pub(crate) fn next_due_time(&self) -> Option<Instant> {
        let classes = self.classes.values();
        classes
            .filter_map(|class| class.health_history.next_due_time())
            .min()
    }

    pub(crate) fn response_checks(&self) -> Arc<Vec<ResponseCheck>> {
        Arc::clone(&self.response_checks)
    }

    /// Returns whether the health of any device depends on the kernel's log.
    pub(crate) fn reads_kernel_log(&self) -> bool {
        self.classes.values().any(|class| class.log.is_some())
    }

    /// Reads the new records of the kernel's log, without waiting for more. Returns whether one of
    /// them concerns a device.
    pub(crate) fn poll_kernel_log(&mut self) -> bool {
        let mut has_relevant_record = false;
        for class in self.classes.values_mut() {
            has_relevant_record |= class.poll_kernel_log();
        }
        has_relevant_record
    }

    /// Creates an empty state for a single scan, or for a scan of a recorded host. A scan with this
    /// state neither reads the kernel's log nor runs programs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a state for a single scan. This scan reports the errors of the classes in
    /// `unmounted_classes`, which read a path that is not mounted.
    pub fn with_unmounted_classes(unmounted_classes: UnmountedClasses) -> Self {
        ScanState {
            unmounted_classes: Arc::new(unmounted_classes),
            ..Self::default()
        }
    }

    /// Creates an empty state for repeated scans of the host whose root directory is `host_root`. A
    /// scan with this state reads the kernel's log and runs programs.
    pub fn for_host(host_root: &Path) -> Self {
        ScanState {
            host_root: Some(host_root.to_owned()),
            ..Self::default()
        }
    }
}

impl ClassScanState {
    fn read_new_records(&mut self, host_root: &Path) -> io::Result<Vec<KernelLogRecord>> {
        let log = match self.log.take() {
            Some(log) => log,
            None => KernelLog::open(host_root)?,
        };
        let mut records = std::mem::take(&mut self.pending_records);
        records.extend(self.log.insert(log).read_new_records()?);
        Ok(records)
    }

    /// Reads the log records since the last call. Returns whether one of them concerns a device. An
    /// error is ignored here, because the next scan reads the log again and reports the error.
    fn poll_kernel_log(&mut self) -> bool {
        let Some(Ok(records)) = self.log.as_mut().map(KernelLog::read_new_records) else {
            return false;
        };
        let mut rules = self.log_rules.iter();
        let concerns_device = |(id, rule): &(DeviceId, DeferredRule)| {
            let mut records = records.iter();
            records.any(|record| record.concerns_device(id.as_str(), rule))
        };
        let has_relevant_record = rules.any(concerns_device);
        if self.pending_records.len() < MAX_PENDING_RECORDS {
            self.pending_records.extend(records);
        }
        has_relevant_record
    }
}

/// Scans the host for the devices of all classes. `scan_state` has the state of earlier scans, and
/// is updated. `now` is the time of this scan.
///
/// If devices of two classes have the same resource name, the first class gets it, because the
/// resource determines which variable the plugin sets. If two classes have the same request
/// variable, the host is scanned only for the first class. Otherwise the hook would refuse every
/// container that sets this variable.
pub fn scan_host<'a>(
    classes: &'a [DeviceClass],
    host: &dyn HostView,
    scan_state: &mut ScanState,
    now: Instant,
) -> HostScan<'a> {
    scan_state
        .classes
        .retain(|name, _| classes.iter().any(|class| class.name == *name));
    for class in scan_state.classes.values_mut() {
        class.property_programs.collect_result(now);
    }
    let mut scan = HostScan::default();
    let mut response_checks = Vec::new();
    for class in classes {
        let HostScan {
            name_owners,
            warnings,
            class_errors,
            unnamed_classes,
            classes_without_log,
            ..
        } = &mut scan;
        let mut report = |message: String| {
            let class = class.name.clone();
            class_errors.push(ClassError { class, message });
        };
        if let Err(conflict) = name_owners.claim_request_variable(class) {
            report(format!("{}: {conflict}", class.name));
            continue;
        }
        let mut inventory = discover::scan_devices(class, host);
        if let Some(message) = scan_state.unmounted_classes.get(&class.name) {
            if has_hardware(&inventory) {
                report(message.clone());
            }
            continue;
        }
        let class_state = scan_state.classes.entry(class.name.clone()).or_default();
        let notifier = scan_state.notifier.as_ref();
        let mut withheld_devices = BTreeSet::new();
        if let Some(host_root) = &scan_state.host_root {
            let programs = &mut class_state.property_programs;
            withheld_devices = programs.start_if_due(class, &inventory, host_root, now, notifier);
            // The host is opened again: the programs may have changed its files, and an open
            // `RealHost` does not notice this.
            if scan_state.waits_for_driver_properties
                && programs.wait_for_run(now)
                && let Ok(host) = RealHost::open(host_root)
            {
                inventory = discover::scan_devices(class, &host);
                withheld_devices.clear();
            }
            let faults = programs.faults().iter();
            warnings.extend(faults.map(|line| format!("{}: {line}", class.name)));
        }
        let mut log_records = Vec::new();
        if let Some(host_root) = &scan_state.host_root
            && class.spec.reads_kernel_log()
            && !inventory.devices.is_empty()
        {
            log_records = class_state
                .read_new_records(host_root)
                .unwrap_or_else(|error| {
                    classes_without_log.insert(class.name.clone());
                    warnings.push(format!(
                        "{}: faults that the kernel logs are not seen, {}/dev/kmsg cannot be read: \
                     {error}; a container has to be privileged (deploy/components/host-programs)",
                        class.name,
                        host_root.display()
                    ));
                    Vec::new()
                });
        }
        response_checks.extend(ResponseCheck::from_devices(class, &inventory, host));
        let log_rules = inventory.devices.iter().flat_map(|device| {
            let rules = device
                .deferred_checks
                .iter()
                .map(|deferred_check| &deferred_check.rule);
            let log_rules = rules.filter(|rule| matches!(rule, DeferredRule::NoLoggedFault { .. }));
            log_rules.map(|rule| (device.id.clone(), rule.clone()))
        });
        class_state.log_rules = log_rules.collect();
        let devices = &mut inventory.devices;
        // The health of partitioned devices is determined as well, because a partition that does
        // not exist yet has the health of its device.
        let partitioned_devices = inventory
            .partitioned_devices
            .iter_mut()
            .chain(&mut inventory.parts_only_devices);
        let all_devices = devices.iter_mut().chain(partitioned_devices);
        class_state
            .health_history
            .update_health_with_log(all_devices, now, &log_records);
        if !withheld_devices.is_empty() {
            // The log records are kept for the next scan. That scan may give a withheld device
            // another name. It is then a new device, and any of the records may concern it.
            log_records.drain(..log_records.len().saturating_sub(MAX_PENDING_RECORDS));
            class_state.pending_records = log_records;
        }
        if let Some(host_root) = &scan_state.host_root {
            let programs = &mut class_state.health_programs;
            let faults = programs.update_health(devices, host_root, now, notifier);
            warnings.extend(
                faults
                    .into_iter()
                    .map(|line| format!("{}: {line}", class.name)),
            );
        }
        if !withheld_devices.is_empty() {
            inventory
                .devices
                .retain(|device| !withheld_devices.contains(&device.id));
            unnamed_classes.insert(class.name.clone());
        }
        warnings.extend(
            inventory
                .warnings
                .iter()
                .map(|line| format!("{}: {line}", class.name)),
        );
        if !inventory.devices.is_empty() {
            let capabilities = class.spec.request.find_default_capabilities();
            let attributes = &inventory.host_attributes;
            let missing_nodes =
                discover::describe_missing_nodes(class, &capabilities, attributes, host);
            warnings.extend(
                missing_nodes
                    .into_iter()
                    .map(|line| format!("{}: {line}", class.name)),
            );
        }
        let control_nodes = find_control_nodes(class, &inventory.host_attributes, host);
        if let Err(reason) = &control_nodes {
            inventory.mark_all_unhealthy(reason);
        } else if !inventory.devices.is_empty()
            && let Some(reason) = host_files::describe_missing_file(class, host)
        {
            inventory.mark_all_unhealthy(&reason);
        }
        inventory.mark_mixed_devices_unhealthy(class);
        let mut conflicts: BTreeMap<ResourceName, (NameConflict, usize)> = BTreeMap::new();
        inventory.devices.retain(|device| {
            let claim = name_owners.claim_name(device.resource.as_str(), &class.name);
            let Err(conflict) = claim else {
                return true;
            };
            let entry = conflicts.entry(device.resource.clone());
            entry.or_insert((conflict, 0)).1 += 1;
            false
        });
        for (conflict, count) in conflicts.into_values() {
            let noun = if count == 1 { "device" } else { "devices" };
            report(format!(
                "{}: {count} {noun} left out: {conflict}",
                class.name
            ));
        }
        scan.classes.push(ClassScan {
            class,
            inventory,
            control_nodes: control_nodes.unwrap_or_default(),
        });
    }
    scan_state.response_checks = Arc::new(response_checks);
    scan
}

/// Returns whether the host has hardware of a class, even if none of its devices can be offered.
fn has_hardware(inventory: &Inventory) -> bool {
    let devices = [
        &inventory.devices,
        &inventory.partitioned_devices,
        &inventory.parts_only_devices,
    ];
    let has_device = devices.into_iter().any(|devices| !devices.is_empty());
    has_device || !inventory.hidden_ids.is_empty() || !inventory.warnings.is_empty()
}

/// Finds the control nodes of a class: the device nodes that a container gets with every device of
/// the class.
///
/// # Errors
/// Returns an error if a required control node is missing or unusable, because the hook would then
/// refuse every container with a device of the class.
fn find_control_nodes(
    class: &DeviceClass,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Vec<FoundNode>, String> {
    let capabilities = class.spec.request.find_default_capabilities();
    let nodes = discover::find_control_nodes(class, &capabilities, attributes, host)
        .map_err(|error| error.to_string())?;
    match nodes.iter().find_map(|node| node.number.unusable_reason()) {
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
            let (mut scan_state, start) = (ScanState::new(), Instant::now());
            for (seconds, healthy) in [(0, true), (31, false)] {
                let mut host = RecordedHost::default();
                host.add_file("/sys/x/beat", "7");
                host.add_file("/sys/x/p/beat", seconds.to_string());
                let now = start + Duration::from_secs(seconds);
                let scan = scan_host(&class, &host, &mut scan_state, now);
                let found = &scan.classes[0].inventory;
                assert!(found.devices[0].health.is_healthy(), "{:?}", found.devices);
                let whole = found
                    .partitioned_devices
                    .first()
                    .or(found.parts_only_devices.first())
                    .unwrap();
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
        let (mut scan_state, start) = (ScanState::new(), Instant::now());
        for (seconds, beat, healthy) in [
            (0, "7", true),
            (30, "7", true),
            (31, "7", false),
            (40, "8", true),
        ] {
            let mut host = RecordedHost::default();
            host.add_file("/sys/x/beat", beat);
            let now = start + Duration::from_secs(seconds);
            let scan = scan_host(&class, &host, &mut scan_state, now);
            let device = &scan.classes[0].inventory.devices[0];
            assert_eq!(device.health.is_healthy(), healthy, "{seconds}");
        }
    }
}
