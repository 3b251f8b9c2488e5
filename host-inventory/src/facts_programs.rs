//! Runs the programs that report driver facts of a class. A scan waits for them the first
//! time, and whenever the devices have changed. They also run every five minutes in a
//! thread, without delaying the scans.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use device_class::DeviceClass;
use device_class::discover::{self, Inventory};
use device_class::host::{HostView, RealHost};
use injection_plan::facts::ReportedFacts;

use crate::host_program;

/// The time from the end of the programs to their next start.
const REST: Duration = Duration::from_secs(300);

/// The same while a fact makes a device unhealthy, so that the device is used soon after it is
/// ready.
const REST_AT_FAULT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct FactsPrograms {
    /// The device nodes when the programs ran last, and the time when the programs ended.
    /// `None` means that they have not run yet.
    last: Option<(BTreeSet<String>, Instant)>,
    under_way: Option<JoinHandle<Vec<String>>>,
    faults: Vec<String>,
}

impl FactsPrograms {
    /// Runs the programs if they are due. Returns whether the scan has to be repeated,
    /// because the devices have changed and the programs have reported new facts.
    pub(crate) fn renew(
        &mut self,
        class: &DeviceClass,
        inventory: &Inventory,
        root: &Path,
        host: &dyn HostView,
        now: Instant,
    ) -> bool {
        if class.spec.facts.is_empty()
            || !class.settings.uses_facts()
            || inventory.devices.is_empty()
        {
            return false;
        }
        if let Some(ended) = self.under_way.take_if(|running| running.is_finished()) {
            self.faults = ended.join().unwrap_or_default();
            self.last = self.last.take().map(|(nodes, _)| (nodes, now));
        }
        let nodes: BTreeSet<_> = inventory
            .devices
            .iter()
            .flat_map(|device| &device.nodes)
            .map(|node| node.host.display().to_string())
            .collect();
        let changed = self.last.as_ref().is_none_or(|(known, _)| *known != nodes);
        let rest = if discover::is_unhealthy_by_facts(class, inventory) {
            REST_AT_FAULT
        } else {
            REST
        };
        let is_due = |(_, ended): &(_, Instant)| now.saturating_duration_since(*ended) >= rest;
        if changed {
            // The thread reports facts of the earlier devices. It must not write its file
            // after the run for the present devices, so this waits for the thread.
            if let Some(running) = self.under_way.take() {
                let _ = running.join();
            }
            self.faults = run(class, root, host);
            self.last = Some((nodes, Instant::now()));
        } else if self.under_way.is_none() && self.last.as_ref().is_some_and(is_due) {
            let (class, root) = (class.clone(), root.to_owned());
            self.under_way = Some(thread::spawn(move || match RealHost::open(&root) {
                Ok(host) => run(&class, &root, &host),
                Err(error) => vec![format!("facts cannot be renewed: {error}")],
            }));
        }
        changed
    }

    /// Returns the faults of the last run, one line each.
    pub(crate) fn faults(&self) -> &[String] {
        &self.faults
    }
}

/// Runs the programs, writes their facts, and returns the faults of both, one line each. If
/// a program fails, earlier facts of devices that the host still has stay.
fn run(class: &DeviceClass, root: &Path, host: &dyn HostView) -> Vec<String> {
    let start =
        |program: &Path, arguments: &[String]| host_program::command(root, program, arguments);
    write(
        &ReportedFacts::run_programs(class, root, start),
        class,
        root,
        host,
    )
}

/// Writes the facts that the programs reported. Returns the faults of the programs and of
/// writing, one line each.
fn write(
    reported: &ReportedFacts,
    class: &DeviceClass,
    root: &Path,
    host: &dyn HostView,
) -> Vec<String> {
    let mut faults = reported.faults.clone();
    // If the host has no such program, the file may be written by other means, so it is left
    // alone.
    let is_absent = reported.programs.is_empty() && faults.is_empty();
    if !is_absent && let Err(error) = reported.write(class, root, host) {
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
        let mut programs = FactsPrograms::default();
        let mut renew = |nodes: &str, after: Duration| {
            let host = RecordedHost::parse(nodes).unwrap();
            let inventory = discover::look(&class, &host);
            let now = Instant::now() + after;
            let again = programs.renew(&class, &inventory, root.path(), &host, now);
            (again, programs.under_way.is_some())
        };
        let one = "char /dev/x0 5:0\n";
        let two = "char /dev/x0 5:0\nchar /dev/x1 5:1\n";
        assert_eq!(renew("", Duration::ZERO), (false, false));
        assert_eq!(renew(one, Duration::ZERO), (true, false));
        assert_eq!(renew(one, Duration::ZERO), (false, false));
        assert_eq!(renew(one, REST), (false, true));
        assert_eq!(renew(two, Duration::ZERO), (true, false));
        assert_eq!(renew(one, Duration::ZERO), (true, false));
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
        let mut inventory = discover::look(&class, &host);
        for (healthy, rest) in [(false, REST_AT_FAULT), (true, REST)] {
            if healthy {
                let state = "state".to_owned().try_into().unwrap();
                let attributes = &mut inventory.devices[0].attributes;
                attributes.insert(state, "up".to_owned());
            }
            let mut programs = FactsPrograms::default();
            let mut renew = |after: Duration| {
                let now = Instant::now() + after;
                programs.renew(&class, &inventory, root.path(), &host, now);
                programs.under_way.is_some()
            };
            assert!(!renew(Duration::ZERO));
            assert!(!renew(rest - Duration::from_secs(5)));
            assert!(renew(rest));
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
        let reported = ReportedFacts::run_programs(&class, root, |_, arguments| {
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
            let faults = write(&reported, &class, root, &host);
            assert_eq!(faults, ["/sh -c exit 1 failed (exit status: 1)"]);
            let text = fs::read_to_string(&file).unwrap();
            assert_eq!(text.contains("\n1\told\n"), is_kept, "{text}");
            assert!(text.contains("\n0\tnew\n"), "{text}");
        }
    }
}
