//! Evaluates the health checks that depend on earlier scans, and sets the health of the devices.

use std::collections::BTreeMap;
use std::time::Instant;

use super::kernel_log::KernelLogRecord;
use super::{DeferredCheck, DeferredRule, Device, Health};

/// Identifies a check: the id of the device, the position of the check, and the file that the check
/// reads. A device that is combined from several devices has several checks with the same position,
/// which only the file distinguishes.
type CheckKey = (String, usize, String);

/// The results of earlier scans of a class, for those health checks whose outcome depends on them.
#[derive(Debug, Clone, Default)]
pub struct HealthHistory(BTreeMap<CheckKey, CheckState>);

#[derive(Debug, Clone)]
enum CheckState {
    /// True if the number reached the limit and has not fallen below `recovery_limit` since then.
    LimitReached(bool),
    /// The fault that the kernel has logged. `None` if there is none, or if it has been repaired.
    LoggedFault(Option<String>),
    /// The last number, and the time of the first scan that found this number.
    LastNumber(i64, Instant),
    /// The state of a check with `steady_for` in the class file. A changed outcome counts only
    /// after it has lasted for this time.
    Debounced {
        /// The fault in the outcome that counts now. `None` means that the check passed.
        confirmed_fault: Option<String>,
        /// The time of the first of those scans that have had the opposite outcome without a break.
        /// `None` if the last scan had the outcome that counts now.
        opposite_start_time: Option<Instant>,
        /// The time at which the opposite outcome begins to count, if all scans until then have it.
        due_time: Option<Instant>,
    },
}

impl HealthHistory {
    /// Returns the earliest time at which a changed outcome may have lasted long enough to change
    /// the health of a device. The caller should scan again at this time.
    pub fn next_due_time(&self) -> Option<Instant> {
        let due_times = self.0.values().filter_map(|state| match state {
            CheckState::Debounced { due_time, .. } => *due_time,
            _ => None,
        });
        due_times.min()
    }

    /// Sets the health of devices. `devices` are all devices that the scan at time `now` found. The
    /// health also depends on earlier scans, except for a new device. The history of a device that
    /// this scan did not find is deleted.
    pub fn update_health(&mut self, devices: &mut [Device], now: Instant) {
        self.update_health_with_log(devices, now, &[]);
    }

    /// Sets the health of devices as [`HealthHistory::update_health`] does, but also uses the
    /// kernel's log. `log` contains the log records since the previous scan. At the first scan, it
    /// contains all records that the kernel still has.
    pub fn update_health_with_log<'d>(
        &mut self,
        devices: impl IntoIterator<Item = &'d mut Device>,
        now: Instant,
        log: &[KernelLogRecord],
    ) {
        let mut states = BTreeMap::new();
        for device in devices {
            for deferred_check in &device.deferred_checks {
                let key = (
                    device.id.to_string(),
                    deferred_check.check_number,
                    deferred_check.source.clone(),
                );
                let previous_state = self.0.remove(&key);
                let (state, fault) = match &deferred_check.rule {
                    DeferredRule::NoLoggedFault {
                        line_prefix,
                        faults,
                        advice,
                    } => {
                        let mut fault = match previous_state {
                            Some(CheckState::LoggedFault(fault)) => fault,
                            _ => None,
                        };
                        for record in log {
                            if record.has_fault(line_prefix, faults) {
                                fault = Some(record.describe_fault(advice.as_deref()));
                            } else if record.ends_fault(line_prefix, faults)
                                || record.reports_repair(device.id.as_str())
                            {
                                fault = None;
                            }
                        }
                        (CheckState::LoggedFault(fault.clone()), fault)
                    }
                    rule => evaluate_deferred_check(previous_state, deferred_check, rule, now),
                };
                states.insert(key, state);
                if let (Some(reason), Health::Healthy) = (fault, &device.health) {
                    device.health = Health::Unhealthy { reason };
                }
            }
            if let (Some(reason), Health::Healthy) = (&device.whole_device_fault, &device.health) {
                let reason = reason.clone();
                device.health = Health::Unhealthy { reason };
            }
        }
        self.0 = states;
    }
}

/// Evaluates the result of one check by its rule and by the state after the previous scan. Returns
/// the state for the next scan. If the device is unhealthy, also returns the fault.
fn evaluate_deferred_check(
    previous_state: Option<CheckState>,
    deferred_check: &DeferredCheck,
    rule: &DeferredRule,
    now: Instant,
) -> (CheckState, Option<String>) {
    let source = &deferred_check.source;
    match rule {
        // These checks are evaluated elsewhere. `update_health_with_log` searches the kernel's log
        // before it calls this function, and its caller runs the programs.
        DeferredRule::NoLoggedFault { .. } | DeferredRule::Program { .. } => {
            (CheckState::LoggedFault(None), None)
        }
        DeferredRule::Limit {
            number,
            limit,
            recovery_limit,
        } => {
            let had_reached_limit = matches!(previous_state, Some(CheckState::LimitReached(true)));
            let fault = if number >= limit {
                Some(format!("{source} is {number}, not below {limit}"))
            } else if had_reached_limit && number >= recovery_limit {
                Some(format!(
                    "{source} is {number}, not yet below {recovery_limit}"
                ))
            } else {
                None
            };
            (CheckState::LimitReached(fault.is_some()), fault)
        }
        DeferredRule::Heartbeat {
            number,
            max_interval,
        } => {
            let change_time = match previous_state {
                Some(CheckState::LastNumber(previous_number, change_time))
                    if previous_number == *number =>
                {
                    change_time
                }
                _ => now,
            };
            let unchanged_duration = now.saturating_duration_since(change_time);
            let seconds = unchanged_duration.as_secs();
            let fault = (unchanged_duration > *max_interval).then(|| {
                format!("{source} has been {number} for {seconds} seconds; it should advance")
            });
            (CheckState::LastNumber(*number, change_time), fault)
        }
        DeferredRule::Debounced {
            fault,
            debounce_time,
        } => {
            let (mut confirmed_fault, mut opposite_start_time, mut due_time) =
                (fault.clone(), None, None);
            // The confirmed outcome counts until all scans during `steady_for` have had the
            // opposite outcome. Two faults with different texts, for example with different
            // numbers, are the same outcome.
            if let Some(CheckState::Debounced {
                confirmed_fault: previous_fault,
                opposite_start_time: previous_time,
                ..
            }) = previous_state
                && previous_fault.is_some() != fault.is_some()
            {
                let start_time = previous_time.unwrap_or(now);
                if now.saturating_duration_since(start_time) < *debounce_time {
                    (confirmed_fault, opposite_start_time) = (previous_fault, Some(start_time));
                    due_time = Some(start_time + *debounce_time);
                }
            }
            let fault = confirmed_fault.clone();
            let state = CheckState::Debounced {
                confirmed_fault,
                opposite_start_time,
                due_time,
            };
            (state, fault)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::super::scan_devices;
    use super::*;
    use crate::class::DeviceClass;
    use crate::host::RecordedHost;
    use crate::name::ClassName;

    /// A chip with these health checks.
    fn chip(checks: &str) -> DeviceClass {
        let text = format!(
            "version = 1\nresource = 'example.com/chip'\nrequest = {{ env = 'CHIPS' }}\n\
             discover = [{{ path = '/sys/chip{{index:number}}' }}]\n\
             [device]\nid = 'chip-{{index}}'\nhealth = [{checks}]\n"
        );
        let name = ClassName::try_from("chip".to_owned()).unwrap();
        DeviceClass::parse(name, Path::new("chip.toml"), &text).unwrap()
    }

    #[test]
    fn a_fault_in_the_kernels_log_lasts_until_the_device_is_repaired_or_replaced() {
        let class = chip(
            "{ kernel_log = 'drv: chip {index}: Err ', codes = [48, 79], advice = 'reset it' }",
        );
        let mut memory = HealthHistory::default();
        let mut healthy = |chips: &[&str], lines: &[&str]| -> Vec<bool> {
            let mut host = RecordedHost::default();
            for chip in chips {
                host.add_file(format!("/sys/{chip}/x"), "");
            }
            let lines: Vec<KernelLogRecord> = lines
                .iter()
                .map(|line| KernelLogRecord::parse(line.as_bytes()).unwrap())
                .collect();
            let mut found = scan_devices(&class, &host).devices;
            memory.update_health_with_log(&mut found, Instant::now(), &lines);
            found.iter().map(|chip| chip.health.is_healthy()).collect()
        };
        let both: &[&str] = &["chip0", "chip1"];
        // The first scan gets the faults that the kernel logged before the plugin started.
        assert_eq!(
            healthy(both, &["4,1,5,-;drv: chip 1: Err 79, off the bus"]),
            [true, false]
        );
        assert_eq!(healthy(both, &[]), [true, false]);
        // These records do not count: another number, a number that only begins with 48, a
        // record of a process, another device, and a name in a record of the kernel that a local
        // user can choose.
        let harmless = [
            "4,2,6,-;drv: chip 0: Err 13, of a program",
            "4,3,7,-;drv: chip 0: Err 480",
            "12,4,8,-;drv: chip 0: Err 48",
            "4,5,9,-;drv: chip 00: Err 48",
            "4,5,9,-;fs: cannot mount drv: chip 0: Err 48",
        ];
        assert_eq!(healthy(both, &harmless), [true, false]);
        assert_eq!(
            healthy(both, &["12,6,10,-;boathook: repaired chip-1"]),
            [true, true]
        );
        assert_eq!(
            healthy(both, &["4,7,11,-;drv: chip 0: Err 48"]),
            [false, true]
        );
        // A device that was missing from one scan was replaced, and its fault is forgotten.
        assert_eq!(healthy(&["chip1"], &[]), [true]);
        assert_eq!(healthy(both, &[]), [true, true]);
    }

    #[test]
    fn a_device_that_flickers_stays_what_it_was() {
        let checks = "{ file = 'link', equals = 'up', steady_for = 10 }, \
                      { file = 'power', equals = 'on' }";
        let (class, start) = (chip(checks), Instant::now());
        let mut memory = HealthHistory::default();
        // Seconds since the first scan, what two files say, and whether the device is healthy.
        for (seconds, link, power, healthy) in [
            // The outcome of the first scan counts immediately.
            (0, "down", "on", false),
            (1, "up", "on", false),
            (10, "up", "on", false),
            (11, "up", "on", true),
            (12, "down", "on", true),
            (21, "up", "on", true),
            (22, "down", "on", true),
            (31, "down", "on", true),
            (32, "down", "on", false),
            (33, "up", "on", false),
            (34, "down", "on", false),
            (35, "up", "on", false),
            (45, "up", "on", true),
            // The check of `power` has no grace period, and that of `link` has ended.
            (46, "down", "off", false),
            (47, "down", "on", true),
            (56, "down", "on", false),
        ] {
            let mut host = RecordedHost::default();
            host.add_file("/sys/chip0/link", link);
            host.add_file("/sys/chip0/power", power);
            let mut found = scan_devices(&class, &host).devices;
            memory.update_health(&mut found, start + Duration::from_secs(seconds));
            let health = &found[0].health;
            assert_eq!(health.is_healthy(), healthy, "at {seconds}: {health}");
        }
    }
}
