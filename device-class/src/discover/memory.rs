//! Health that one look can't tell: it takes the looks before.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use super::{Device, Health, OverTime, Reading};

/// What earlier looks saw of a class's devices.
#[derive(Debug, Clone, Default)]
pub struct HealthMemory(BTreeMap<(String, PathBuf), Remembered>);

#[derive(Debug, Clone)]
struct Remembered {
    number: i64,
    changed: Instant,
    /// It was too high and has not fallen low enough since.
    too_high: bool,
}

impl HealthMemory {
    /// Judges devices by this look, taken at `now`, and by those before it. A
    /// device that is gone is forgotten.
    pub fn judge(&mut self, devices: &mut [Device], now: Instant) {
        let mut seen = BTreeMap::new();
        for device in devices {
            for reading in &device.readings {
                let key = (device.id.to_string(), reading.path.clone());
                let before = self.0.remove(&key);
                let (after, fault) = compare(before, reading, now);
                seen.insert(key, after);
                if let (Some(reason), Health::Healthy) = (fault, &device.health) {
                    device.health = Health::Unhealthy { reason };
                }
            }
        }
        self.0 = seen;
    }
}

/// What is remembered after a reading, and what is wrong with it.
fn compare(
    before: Option<Remembered>,
    reading: &Reading,
    now: Instant,
) -> (Remembered, Option<String>) {
    let Reading { path, number, rule } = reading;
    let was_too_high = before.as_ref().is_some_and(|before| before.too_high);
    let changed = match before {
        Some(before) if before.number == *number => before.changed,
        _ => now,
    };
    let mut after = Remembered {
        number: *number,
        changed,
        too_high: false,
    };
    let path = path.display();
    let fault = match rule {
        OverTime::Recovers { limit, again_below } => {
            after.too_high = number >= limit || (was_too_high && number >= again_below);
            after
                .too_high
                .then(|| format!("{path} is {number}, not below {again_below} again"))
        }
        OverTime::AdvancesWithin(within) => {
            let still = now.saturating_duration_since(changed);
            let seconds = still.as_secs();
            (still > *within).then(|| {
                format!("{path} has been {number} for {seconds} seconds; it should advance")
            })
        }
    };
    (after, fault)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::super::devices;
    use super::*;
    use crate::class::DeviceClass;
    use crate::host::RecordedHost;
    use crate::name::ClassName;

    /// One look: seconds since the first, the heat, the heartbeat, and whether
    /// the device is healthy.
    type Look = (u64, &'static str, &'static str, bool);

    #[test]
    fn a_device_recovers_and_a_heart_beats() {
        let text = r#"
            version = 1
            resource = "example.com/chip"
            request = { env = "CHIPS" }
            discover = [{ path = "/sys/chip{index:number}" }]
            [device]
            id = "chip-{index}"
            health = [
              { file = "heat", below = 100, again_below = 80 },
              { file = "beat", advances_within = 30 },
            ]
        "#;
        let name = ClassName::try_from("chip".to_owned()).unwrap();
        let class = DeviceClass::parse(name, Path::new("chip.toml"), text).unwrap();
        let looks: &[Look] = &[
            (0, "99", "1", true),
            (10, "100", "2", false),
            (20, "90", "3", false),
            (30, "79", "4", true),
            (40, "90", "5", true),
            (70, "90", "5", true),
            (71, "90", "5", false),
            (72, "90", "6", true),
            (73, "90", "", false),
            (74, "90", "6", true),
        ];
        let start = Instant::now();
        let mut memory = HealthMemory::default();
        for (seconds, heat, beat, healthy) in looks {
            let mut host = RecordedHost::default();
            host.add_file("/sys/chip0/heat", *heat);
            host.add_file("/sys/chip0/beat", *beat);
            let mut found = devices(&class, &host).devices;
            memory.judge(&mut found, start + Duration::from_secs(*seconds));
            let health = &found[0].health;
            assert_eq!(health.is_healthy(), *healthy, "at {seconds}: {health}");
        }
    }
}
