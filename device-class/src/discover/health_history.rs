//! Health that one scan cannot show: it requires earlier scans.

use std::collections::BTreeMap;
use std::time::Instant;

use super::kernel_log::KernelLine;
use super::{Device, Health, OverTime, Reading};

/// Which check of which device; where a device is made of several, what the
/// check read distinguishes them.
type Key = (String, usize, String);

/// What earlier scans found of a class's devices.
#[derive(Debug, Clone, Default)]
pub struct HealthHistory(BTreeMap<Key, Remembered>);

#[derive(Debug, Clone)]
enum Remembered {
    /// It was too high and has not fallen low enough since.
    TooHigh(bool),
    /// A fault that the kernel has logged and that was not repaired since.
    Logged(Option<String>),
    /// A number, and when it last changed.
    Beat(i64, Instant),
    /// What counts, and since when each scan has shown something else.
    Steady {
        counts: Option<String>,
        otherwise: Option<Instant>,
        /// The time when the new outcome will count, if it lasts.
        due: Option<Instant>,
    },
}

impl HealthHistory {
    /// Returns the time when the next outcome counts that has not lasted long enough yet.
    pub fn next_due(&self) -> Option<Instant> {
        let due = self.0.values().filter_map(|remembered| match remembered {
            Remembered::Steady { due, .. } => *due,
            _ => None,
        });
        due.min()
    }

    /// Judges devices by this look, taken at `now`, and by those before it. A
    /// device that is gone is forgotten; what is new is judged by this look
    /// alone.
    pub fn judge(&mut self, devices: &mut [Device], now: Instant) {
        self.judge_with(devices, now, &[]);
    }

    /// The same, with what the kernel has logged since the look before; at the
    /// first look, with all that it remembers.
    pub fn judge_with<'d>(
        &mut self,
        devices: impl IntoIterator<Item = &'d mut Device>,
        now: Instant,
        log: &[KernelLine],
    ) {
        let mut seen = BTreeMap::new();
        for device in devices {
            for reading in &device.readings {
                let key = (device.id.to_string(), reading.check, reading.of.clone());
                let before = self.0.remove(&key);
                let (after, fault) = match &reading.rule {
                    OverTime::Unlogged {
                        line,
                        faults,
                        advice,
                    } => {
                        let mut fault = match before {
                            Some(Remembered::Logged(fault)) => fault,
                            _ => None,
                        };
                        for logged in log {
                            if logged.has_fault(line, faults) {
                                fault = Some(logged.reason(advice.as_deref()));
                            } else if logged.ends_fault(line, faults)
                                || logged.is_repair_of(device.id.as_str())
                            {
                                fault = None;
                            }
                        }
                        (Remembered::Logged(fault.clone()), fault)
                    }
                    rule => compare(before, reading, rule, now),
                };
                seen.insert(key, after);
                if let (Some(reason), Health::Healthy) = (fault, &device.health) {
                    device.health = Health::Unhealthy { reason };
                }
            }
            if let (Some(reason), Health::Healthy) = (&device.only_in_parts, &device.health) {
                let reason = reason.clone();
                device.health = Health::Unhealthy { reason };
            }
        }
        self.0 = seen;
    }
}

/// What is remembered after a reading, and what is wrong with it.
fn compare(
    before: Option<Remembered>,
    reading: &Reading,
    rule: &OverTime,
    now: Instant,
) -> (Remembered, Option<String>) {
    let of = &reading.of;
    match rule {
        // Judged by the kernel's log, and by those who run programs.
        OverTime::Unlogged { .. } | OverTime::Program { .. } => (Remembered::Logged(None), None),
        OverTime::Recovers {
            number,
            limit,
            recovers_below,
        } => {
            let was_too_high = matches!(before, Some(Remembered::TooHigh(true)));
            let fault = match number >= limit {
                true => Some(format!("{of} is {number}, not below {limit}")),
                false if was_too_high && number >= recovers_below => {
                    Some(format!("{of} is {number}, not yet below {recovers_below}"))
                }
                false => None,
            };
            (Remembered::TooHigh(fault.is_some()), fault)
        }
        OverTime::Advances { number, within } => {
            let changed = match before {
                Some(Remembered::Beat(known, changed)) if known == *number => changed,
                _ => now,
            };
            let still = now.saturating_duration_since(changed);
            let seconds = still.as_secs();
            let fault = (still > *within).then(|| {
                format!("{of} has been {number} for {seconds} seconds; it should advance")
            });
            (Remembered::Beat(*number, changed), fault)
        }
        OverTime::Steady { fault, lasting } => {
            let (mut counts, mut otherwise, mut due) = (fault.clone(), None, None);
            // What counted before does until each scan has shown otherwise for long enough. A
            // fault with other words, such as another number, is the same outcome.
            if let Some(Remembered::Steady {
                counts: known,
                otherwise: since,
                ..
            }) = before
                && known.is_some() != fault.is_some()
            {
                let since = since.unwrap_or(now);
                if now.saturating_duration_since(since) < *lasting {
                    (counts, otherwise) = (known, Some(since));
                    due = Some(since + *lasting);
                }
            }
            let fault = counts.clone();
            let remembered = Remembered::Steady {
                counts,
                otherwise,
                due,
            };
            (remembered, fault)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::super::look;
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
            let lines: Vec<KernelLine> = lines
                .iter()
                .map(|line| KernelLine::parse(line.as_bytes()).unwrap())
                .collect();
            let mut found = look(&class, &host).devices;
            memory.judge_with(&mut found, Instant::now(), &lines);
            found.iter().map(|chip| chip.health.is_healthy()).collect()
        };
        let both: &[&str] = &["chip0", "chip1"];
        // Before the plugin started.
        assert_eq!(
            healthy(both, &["4,1,5,-;drv: chip 1: Err 79, off the bus"]),
            [true, false]
        );
        assert_eq!(healthy(both, &[]), [true, false]);
        // Other numbers, numbers that only begin so, lines that are not the kernel's, and
        // names in its lines, which a local user can choose.
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
        // Replaced.
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
            // What is seen first counts at once.
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
            // Another check has no grace period, and that of this one has ended.
            (46, "down", "off", false),
            (47, "down", "on", true),
            (56, "down", "on", false),
        ] {
            let mut host = RecordedHost::default();
            host.add_file("/sys/chip0/link", link);
            host.add_file("/sys/chip0/power", power);
            let mut found = look(&class, &host).devices;
            memory.judge(&mut found, start + Duration::from_secs(seconds));
            let health = &found[0].health;
            assert_eq!(health.is_healthy(), healthy, "at {seconds}: {health}");
        }
    }
}
