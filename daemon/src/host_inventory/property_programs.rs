//! Runs the programs that report facts (properties of the driver): when the plugin starts, when the
//! devices change, and every five minutes. The programs run in a thread, so that no scan waits for
//! them. Until they end, scans use the facts of the last run since the node booted. If the running
//! programs could rename a device, the device is not offered until they end.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use device_class::DeviceClass;
use device_class::discover::{self, Device, Inventory, NameOrigin};
use device_class::host::{HostView, RealHost};
use device_class::name::DeviceId;
use injection_plan::facts::ReportedProperties;

use crate::host_inventory::{Notifier, host_program};

/// The time from the end of a run of the programs that report facts to the start of the next run.
const RUN_INTERVAL: Duration = Duration::from_secs(300);

/// The interval between runs while a fact says that a device is unhealthy. It is shorter, so that
/// the device is offered soon after it has recovered.
const UNHEALTHY_RUN_INTERVAL: Duration = Duration::from_secs(30);

/// The programs of one class that report facts, and the state of their runs.
#[derive(Debug, Default)]
pub(crate) struct PropertyPrograms {
    /// The device nodes that the host had when the last completed run started, and the time when
    /// this run ended. `None` means that no run has completed yet.
    last_run: Option<(BTreeSet<PathBuf>, Instant)>,
    current_run: Option<PropertyProgramRun>,
    faults: Vec<String>,
}

/// A run of all programs of a class that report facts. The programs run in a thread.
#[derive(Debug)]
struct PropertyProgramRun {
    /// The device nodes that the host had when the run started.
    nodes: BTreeSet<PathBuf>,
    /// The receiver of the run's faults. The thread sends them when the run ends.
    faults_receiver: Receiver<Vec<String>>,
}

impl PropertyPrograms {
    /// Starts a run of the programs if one is due, and notifies `notifier` when the run ends.
    /// Returns the devices that must not be offered yet, because the run may rename them.
    pub(crate) fn start_if_due(
        &mut self,
        class: &DeviceClass,
        inventory: &Inventory,
        host_root: &Path,
        now: Instant,
        notifier: Option<&Notifier>,
    ) -> BTreeSet<DeviceId> {
        if class.spec.property_programs.is_empty()
            || !class.settings.uses_driver_properties()
            || inventory.devices.is_empty()
        {
            return BTreeSet::new();
        }
        let nodes: BTreeSet<PathBuf> = inventory
            .devices
            .iter()
            .flat_map(list_device_nodes)
            .collect();
        let has_changed_nodes = self
            .last_run
            .as_ref()
            .is_none_or(|(previous_nodes, _)| *previous_nodes != nodes);
        let interval = if discover::is_unhealthy_by_driver_property(class, inventory) {
            UNHEALTHY_RUN_INTERVAL
        } else {
            RUN_INTERVAL
        };
        let is_due = |(_, end): &(_, Instant)| now.saturating_duration_since(*end) >= interval;
        // Runs never overlap. Each run replaces the facts file, and an earlier run that is slow
        // must not overwrite the facts of a later run.
        if self.current_run.is_none()
            && (has_changed_nodes || self.last_run.as_ref().is_some_and(is_due))
        {
            self.current_run = Some(PropertyProgramRun::start(
                class,
                host_root,
                nodes,
                notifier.cloned(),
            ));
        }
        let devices = inventory.devices.iter();
        let withheld_devices =
            devices.filter(|device| has_changed_nodes && self.may_be_renamed(device));
        withheld_devices.map(|device| device.id.clone()).collect()
    }

    /// Waits until the current run ends, and stores its result. Returns `false` if no run is in
    /// progress.
    pub(crate) fn wait_for_run(&mut self, now: Instant) -> bool {
        let Some(run) = self.current_run.take() else {
            return false;
        };
        self.faults = run
            .faults_receiver
            .recv()
            .unwrap_or_else(|_| vec!["facts cannot be renewed".to_owned()]);
        self.last_run = Some((run.nodes, now));
        true
    }

    /// Stores the result of the current run if the run has ended. A scan calls this function before
    /// it searches for devices. So the stored result and the facts that the scan reads are from the
    /// same run.
    pub(crate) fn collect_result(&mut self, now: Instant) {
        let Some(run) = &self.current_run else {
            return;
        };
        self.faults = match run.faults_receiver.try_recv() {
            Ok(faults) => faults,
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => vec!["facts cannot be renewed".to_owned()],
        };
        self.last_run = self.current_run.take().map(|run| (run.nodes, now));
    }

    /// Returns whether the next run may rename a device. The driver can give a new device the
    /// number of a removed device. Until the next run, the new device then has the facts of the
    /// removed one.
    fn may_be_renamed(&self, device: &Device) -> bool {
        let is_new = |(previous_nodes, _): &(BTreeSet<PathBuf>, _)| {
            !list_device_nodes(device).all(|node| previous_nodes.contains(&node))
        };
        match device.name_origin {
            NameOrigin::Files => false,
            // A partition may be renamed even before the first run of this process. The device may
            // have had other partitions when the facts were written, and a new partition can have
            // the number of an earlier one.
            NameOrigin::DriverProperties => self
                .last_run
                .as_ref()
                .map_or(device.part_of.is_some(), is_new),
            NameOrigin::Defaults => self.last_run.as_ref().is_none_or(is_new),
        }
    }

    /// Returns the faults of the last completed run, each as one line.
    pub(crate) fn faults(&self) -> &[String] {
        &self.faults
    }
}

fn list_device_nodes(device: &Device) -> impl Iterator<Item = PathBuf> {
    device.nodes.iter().map(|node| node.host_path.clone())
}

impl PropertyProgramRun {
    /// Starts a thread that runs the programs of the class and writes the facts file.
    fn start(
        class: &DeviceClass,
        host_root: &Path,
        nodes: BTreeSet<PathBuf>,
        notifier: Option<Notifier>,
    ) -> Self {
        let (class, host_root) = (class.clone(), host_root.to_owned());
        let (sender, faults_receiver) = mpsc::channel();
        thread::spawn(move || {
            let faults = run_property_programs(&class, &host_root);
            // Sending fails if the receiver was dropped because the class is no longer served.
            // Nobody needs the faults then.
            let _ = sender.send(faults);
            if let Some(notifier) = notifier {
                notifier.notify();
            }
        });
        PropertyProgramRun {
            nodes,
            faults_receiver,
        }
    }
}

/// Runs the programs of the class and writes the facts file. Returns one line for each fault. If a
/// program fails, the file keeps its earlier facts about devices that still exist.
fn run_property_programs(class: &DeviceClass, host_root: &Path) -> Vec<String> {
    let build_command = |program: &Path, arguments: &[String]| {
        host_program::build_command(host_root, program, arguments)
    };
    let reported_properties = ReportedProperties::run_programs(class, host_root, build_command);
    // The host is opened after the programs, because an open `RealHost` does not notice what they
    // changed.
    match RealHost::open(host_root) {
        Ok(host) => write_facts(&reported_properties, class, host_root, &host),
        Err(error) => vec![format!("facts cannot be renewed: {error}")],
    }
}

/// Writes the reported facts to the facts file of the class. Returns one line for each failed
/// program. If the file cannot be written, also returns a line about this error.
fn write_facts(
    reported_properties: &ReportedProperties,
    class: &DeviceClass,
    host_root: &Path,
    host: &dyn HostView,
) -> Vec<String> {
    let mut faults = reported_properties.faults.clone();
    // If the host has none of the programs, the file is not changed, because the administrator may
    // write it in another way.
    let has_no_program = reported_properties.programs.is_empty() && faults.is_empty();
    if !has_no_program && let Err(error) = reported_properties.write(class, host_root, host) {
        faults.push(format!("facts cannot be written: {error}"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use device_class::host::RecordedHost;

    use super::*;

    /// Waits until the run has ended, and returns whether there was one.
    fn finish(programs: &mut PropertyPrograms, now: Instant) -> bool {
        let ran = programs.current_run.is_some();
        let end = Instant::now() + Duration::from_secs(60);
        while programs.current_run.is_some() {
            assert!(Instant::now() < end, "the programs run for too long");
            thread::sleep(Duration::from_millis(5));
            programs.collect_result(now);
        }
        ran
    }

    /// The program is absent here, so nothing is written.
    #[test]
    fn programs_run_when_devices_change_and_every_five_minutes() {
        let text = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                    discover = [{ path = '/dev/x{n:number}' }]\n\
                    device = { id = 'x-{n}', nodes = ['/dev/x{n}'] }\n\
                    [[facts]]\nprogram = ['/no-such-program']\nlines = []\n";
        let name = "x".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap();
        let root = tempfile::tempdir().unwrap();
        let mut programs = PropertyPrograms::default();
        let start = Instant::now();
        let mut runs = |nodes: &str, after: Duration| {
            let host = RecordedHost::parse(nodes).unwrap();
            let inventory = discover::scan_devices(&class, &host);
            let now = start + after;
            let held_back = programs.start_if_due(&class, &inventory, root.path(), now, None);
            assert_eq!(held_back, BTreeSet::new(), "no name depends on facts");
            finish(&mut programs, now)
        };
        let one = "char /dev/x0 5:0\n";
        let two = "char /dev/x0 5:0\nchar /dev/x1 5:1\n";
        for (nodes, after, wanted) in [
            ("", Duration::ZERO, false),
            (one, Duration::ZERO, true),
            (one, Duration::ZERO, false),
            (one, RUN_INTERVAL, true),
            (one, RUN_INTERVAL, false),
            (two, RUN_INTERVAL, true),
            (one, RUN_INTERVAL, true),
        ] {
            assert_eq!(runs(nodes, after), wanted, "{after:?} {nodes}");
        }
    }

    /// The program is absent here, too.
    #[test]
    fn programs_run_sooner_while_a_fact_makes_a_device_unhealthy() {
        let text = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                    discover = [{ path = '/dev/x{n:number}', attributes = [\
                    { name = 'state', fact = '{n}', default = 'starting' }] }]\n\
                    device = { id = 'x-{n}', health = [{ value = '{state}', equals = 'up' }] }\n\
                    [[facts]]\nprogram = ['/no-such-program']\nlines = []\n";
        let name = "x".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap();
        let root = tempfile::tempdir().unwrap();
        let host = RecordedHost::parse("char /dev/x0 5:0\n").unwrap();
        let mut inventory = discover::scan_devices(&class, &host);
        for (healthy, rest) in [(false, UNHEALTHY_RUN_INTERVAL), (true, RUN_INTERVAL)] {
            if healthy {
                let state = "state".to_owned().try_into().unwrap();
                let attributes = &mut inventory.devices[0].attributes;
                attributes.insert(state, "up".to_owned());
            }
            let mut programs = PropertyPrograms::default();
            let start = Instant::now();
            let mut runs = |after: Duration| {
                let now = start + after;
                programs.start_if_due(&class, &inventory, root.path(), now, None);
                finish(&mut programs, now)
            };
            assert!(runs(Duration::ZERO));
            assert!(!runs(rest - Duration::from_secs(5)));
            assert!(runs(rest));
        }
    }

    /// A device is offered at once under a name of the last run of this boot. One that would be
    /// renamed by the next run is held back until that has ended.
    #[test]
    fn devices_whose_names_a_run_may_change_are_held_back() {
        let text = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                    discover = [{ path = '/dev/x{n:number}', attributes = [\
                    { name = 'serial', fact = '{n}', default = 'none-{n}' }] }]\n\
                    device = { id = '{serial}', nodes = ['/dev/x{n}'] }\n\
                    [[facts]]\nprogram = ['/no-such-program']\nlines = []\n";
        let name = "x".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap();
        let root = tempfile::tempdir().unwrap();
        let mut programs = PropertyPrograms::default();
        let now = Instant::now();
        let mut held_back = |facts: &str, count: usize| {
            let nodes = (0..count).map(|n| format!("char /dev/x{n} 5:{n}\n"));
            let nodes: String = nodes.collect();
            let facts = match facts {
                "" => String::new(),
                facts => format!("file /run/boathook/facts/x\n| boathook uptime\t7\n{facts}"),
            };
            let mut host = RecordedHost::parse(&format!("{nodes}{facts}")).unwrap();
            host.add_file("/proc/uptime", "9.00 1.00\n");
            let inventory = discover::scan_devices(&class, &host);
            let held_back = programs.start_if_due(&class, &inventory, root.path(), now, None);
            let held_back: Vec<String> = held_back.iter().map(ToString::to_string).collect();
            finish(&mut programs, now);
            held_back.join(" ")
        };
        // At the start the facts of the last run count.
        assert_eq!(held_back("| 0\ta\n", 2), "none-1");
        // A run has ended, and has not named the other one: it stays as it is.
        assert_eq!(held_back("| 0\ta\n", 2), "");
        // New devices, of which one may have the number of a device before.
        assert_eq!(held_back("| 0\ta\n| 2\tc\n", 4), "c none-3");
        assert_eq!(held_back("| 0\ta\n| 2\tc\n", 4), "");
        // One is gone, and the others keep their names.
        assert_eq!(held_back("| 0\ta\n| 2\tc\n", 3), "");
    }

    /// A device may have been divided in another way since the last run, and a part have the number
    /// of an earlier one.
    #[test]
    fn parts_are_held_back_until_the_first_run_has_ended() {
        let text = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                    discover = [{ path = '/dev/x{n:number}', attributes = [\
                    { name = 'serial', fact = '{n}', default = 'none-{n}' }] }]\n\
                    device = { id = '{serial}', nodes = ['/dev/x{n}'] }\n\
                    [[facts]]\nprogram = ['/no-such-program']\nlines = []\n";
        let name = "x".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap();
        let root = tempfile::tempdir().unwrap();
        let facts = "char /dev/x0 5:0\nchar /dev/x1 5:1\nfile /run/boathook/facts/x\n\
                     | boathook uptime\t7\n| 0\ta\n| 1\tb\n";
        let mut host = RecordedHost::parse(facts).unwrap();
        host.add_file("/proc/uptime", "9.00 1.00\n");
        let mut inventory = discover::scan_devices(&class, &host);
        inventory.devices[1].part_of = Some(inventory.devices[0].id.clone());
        let mut programs = PropertyPrograms::default();
        let now = Instant::now();
        for expected in [vec!["b"], vec![]] {
            let held_back = programs.start_if_due(&class, &inventory, root.path(), now, None);
            let held_back: Vec<&str> = held_back.iter().map(DeviceId::as_str).collect();
            assert_eq!(held_back, expected);
            finish(&mut programs, now);
        }
    }

    /// If a program fails, the earlier facts of this boot stay, however old they are, and the
    /// facts of the other programs are renewed.
    #[test]
    fn facts_are_kept_beside_a_program_that_fails() {
        let text = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                    discover = [{ count = 1 }]\ndevice = { id = 'x-{index}' }\n\
                    [[facts]]\nprogram = ['/sh', '-c', 'echo 0: new']\n\
                    lines = [{ line = '^0: (?<name>.+)$', facts = { '0' = '{name}' } }]\n\
                    [[facts]]\nprogram = ['/sh', '-c', 'exit 1']\nlines = []\n";
        let name = "x".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::write(root.join("sh"), "").unwrap();
        fs::set_permissions(root.join("sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let host = RealHost::open(root).unwrap();
        let reported = ReportedProperties::run_programs(&class, root, |_, arguments| {
            let mut command = Command::new("/bin/sh");
            command.args(arguments);
            command
        });
        let file = root.join("run/boathook/facts/x");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        // At the boot, and in an earlier boot.
        for (uptime, is_kept) in [("0", true), ("99999999999", false)] {
            fs::write(
                &file,
                format!("boathook uptime\t{uptime}\n0\told\n1\told\n"),
            )
            .unwrap();
            let faults = write_facts(&reported, &class, root, &host);
            assert_eq!(faults, ["/sh -c exit 1 failed (exit status: 1)"]);
            let text = fs::read_to_string(&file).unwrap();
            assert_eq!(text.contains("\n1\told\n"), is_kept, "{text}");
            assert!(text.contains("\n0\tnew\n"), "{text}");
        }
    }
}
