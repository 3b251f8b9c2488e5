//! What the process counts, in the Prometheus text format, version 0.0.4.

mod histogram;
mod text;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use device_class::name::ResourceName;

use crate::catalog::Inventory;
use histogram::Histogram;
use text::Text;

/// All counts of the process.
#[derive(Debug, Default)]
pub struct Metrics(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    resources: BTreeMap<ResourceName, ResourceCounts>,
    discovery: Histogram,
    class_errors: usize,
}

#[derive(Debug, Default)]
struct ResourceCounts {
    allocated: u64,
    refused: u64,
    latency: Histogram,
    registered: u64,
    failed: u64,
    streams: u64,
}

impl Metrics {
    /// An Allocate call was answered, with a yes or a no, after so long.
    pub fn allocated(&self, resource: &ResourceName, given: bool, took: Duration) {
        self.count(resource, |counts| {
            *(if given {
                &mut counts.allocated
            } else {
                &mut counts.refused
            }) += 1;
            counts.latency.observe(took);
        });
    }

    /// A registration was accepted or failed.
    pub fn registered(&self, resource: &ResourceName, accepted: bool) {
        self.count(resource, |counts| {
            *(if accepted {
                &mut counts.registered
            } else {
                &mut counts.failed
            }) += 1;
        });
    }

    /// So many ListAndWatch streams of a resource are open.
    pub fn streams(&self, resource: &ResourceName, open: usize) {
        self.count(resource, |counts| counts.streams = open as u64);
    }

    /// A look at the host took so long.
    pub fn discovered(&self, took: Duration) {
        self.counts().discovery.observe(took);
    }

    /// So many class files, or directories of them, can't be used.
    pub fn class_errors(&self, count: usize) {
        self.counts().class_errors = count;
    }

    /// A resource is served no more; its gauges end, its counts stay.
    pub fn withdrawn(&self, resource: &ResourceName) {
        self.count(resource, |counts| counts.streams = 0);
    }

    /// The resources of the inventory that no kubelet listens to.
    pub fn unheard(&self, inventory: &Inventory) -> Vec<ResourceName> {
        let counts = self.counts();
        let heard = |name: &ResourceName| counts.resources.get(name).is_some_and(|c| c.streams > 0);
        inventory
            .keys()
            .filter(|name| !heard(name))
            .cloned()
            .collect()
    }

    /// The page for Prometheus, of a process with so many asynchronous tasks.
    pub fn page(&self, inventory: &Inventory, tasks: usize) -> String {
        let counts = self.counts();
        let mut text = Text::default();
        text.family("boathook_devices", "gauge", "Devices that are advertised.");
        for (name, resource) in inventory {
            let healthy = resource
                .devices()
                .iter()
                .filter(|device| device.is_healthy())
                .count();
            let unhealthy = resource.devices().len() - healthy;
            for (health, count) in [("healthy", healthy), ("unhealthy", unhealthy)] {
                text.sample(
                    "",
                    &[("resource", name.as_str()), ("health", health)],
                    count as u64,
                );
            }
        }
        let two = |text: &mut Text, of: fn(&ResourceCounts) -> [(&str, u64); 2]| {
            for (name, counts) in &counts.resources {
                for (result, count) in of(counts) {
                    text.sample(
                        "",
                        &[("resource", name.as_str()), ("result", result)],
                        count,
                    );
                }
            }
        };
        text.family("boathook_allocations_total", "counter", "Allocate calls.");
        two(&mut text, |c| [("ok", c.allocated), ("refused", c.refused)]);
        text.family(
            "boathook_registrations_total",
            "counter",
            "Registrations at the kubelet.",
        );
        two(&mut text, |c| {
            [("accepted", c.registered), ("failed", c.failed)]
        });
        text.family(
            "boathook_streams",
            "gauge",
            "ListAndWatch streams that are open.",
        );
        for (name, counts) in &counts.resources {
            text.sample("", &[("resource", name.as_str())], counts.streams);
        }
        text.family(
            "boathook_allocation_seconds",
            "histogram",
            "Time to answer Allocate.",
        );
        for (name, counts) in &counts.resources {
            counts
                .latency
                .write(&mut text, &[("resource", name.as_str())]);
        }
        text.family(
            "boathook_discovery_seconds",
            "histogram",
            "Time of a look at the host.",
        );
        counts.discovery.write(&mut text, &[]);
        text.family(
            "boathook_class_errors",
            "gauge",
            "Class files that can't be used.",
        );
        text.sample("", &[], counts.class_errors);
        text.family(
            "boathook_tasks",
            "gauge",
            "Asynchronous tasks that are alive.",
        );
        text.sample("", &[], tasks as u64);
        text.into()
    }

    fn count(&self, resource: &ResourceName, count: impl FnOnce(&mut ResourceCounts)) {
        let mut counts = self.counts();
        if !counts.resources.contains_key(resource) {
            counts
                .resources
                .insert(resource.clone(), ResourceCounts::default());
        }
        if let Some(counts) = counts.resources.get_mut(resource) {
            count(counts);
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::catalog::fixture::{device, resource, sick};

    #[test]
    fn a_page_has_every_family_with_its_samples() {
        let npus = Arc::new(resource(vec![device("a"), device("b"), sick("c", "cold")]));
        let name = npus.name.clone();
        let inventory = Inventory::from([(name.clone(), npus)]);
        let metrics = Metrics::default();
        assert_eq!(metrics.unheard(&inventory), [name.clone()].as_slice());
        metrics.allocated(&name, true, Duration::from_micros(300));
        metrics.allocated(&name, false, Duration::from_secs(100));
        metrics.registered(&name, true);
        metrics.streams(&name, 1);
        assert_eq!(metrics.unheard(&inventory), [].as_slice());
        let page = metrics.page(&inventory, 7);
        for line in [
            "# TYPE boathook_devices gauge",
            r#"boathook_devices{resource="dummy.com/npu",health="healthy"} 2"#,
            r#"boathook_devices{resource="dummy.com/npu",health="unhealthy"} 1"#,
            r#"boathook_allocations_total{resource="dummy.com/npu",result="refused"} 1"#,
            r#"boathook_registrations_total{resource="dummy.com/npu",result="accepted"} 1"#,
            r#"boathook_streams{resource="dummy.com/npu"} 1"#,
            r#"boathook_allocation_seconds_bucket{resource="dummy.com/npu",le="0.00025"} 0"#,
            r#"boathook_allocation_seconds_bucket{resource="dummy.com/npu",le="0.0005"} 1"#,
            r#"boathook_allocation_seconds_bucket{resource="dummy.com/npu",le="+Inf"} 2"#,
            r#"boathook_allocation_seconds_count{resource="dummy.com/npu"} 2"#,
            r#"boathook_discovery_seconds_bucket{le="+Inf"} 0"#,
            "boathook_tasks 7",
        ] {
            assert!(
                page.lines().any(|written| written == line),
                "{line}\n{page}"
            );
        }
    }

    /// Dashboards and alerts may only ask for what there is.
    #[test]
    fn what_is_deployed_asks_for_families_that_exist() {
        let page = Metrics::default().page(&Inventory::new(), 0);
        let families: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        let asked = concat!(
            include_str!("../../../deploy/monitoring/grafana-dashboard.json"),
            include_str!("../../../deploy/monitoring/prometheus-rules.yaml"),
        );
        let words = asked.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names: Vec<&str> = words.filter(|word| word.starts_with("boathook_")).collect();
        assert!(names.len() > 10);
        for name in names {
            let parts = ["_bucket", "_sum", "_count"];
            let family = parts
                .iter()
                .find_map(|part| name.strip_suffix(part))
                .unwrap_or(name);
            assert!(families.contains(&family), "{name}");
        }
    }
}
