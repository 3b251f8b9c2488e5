//! Pods that arrive at a kubelet while something happens to its plugin.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use super::{Allocation, FakeKubelet};

/// The pause between the end of a pod and the next one.
const PERIOD: Duration = Duration::from_millis(5);

/// The number of pods that the kubelet admitted, and the reasons for which it refused others.
#[derive(Debug)]
pub struct Arrivals {
    pub admitted_count: usize,
    /// Why the kubelet refused the others.
    pub refusals: Vec<String>,
    /// The time in which all arrived.
    pub elapsed: Duration,
}

impl FakeKubelet {
    /// Lets pods that request a device arrive, one after the other, while `action` runs.
    pub fn let_pods_arrive(&self, resource: &str, action: impl FnOnce()) -> Arrivals {
        let is_over = AtomicBool::new(false);
        let start = Instant::now();
        scope(|threads| {
            let pods = threads.spawn(|| {
                let (mut admitted_count, mut refusals) = (0, Vec::new());
                while !is_over.load(Ordering::Relaxed) {
                    let mut pod = Allocation::new(resource, 1);
                    pod.pod_uid = format!("pod-{}", admitted_count + refusals.len());
                    let uid = pod.pod_uid.clone();
                    match self.allocate(pod) {
                        Ok(_) => admitted_count += 1,
                        Err(reason) => refusals.push(reason),
                    }
                    self.end_pod(&uid);
                    sleep(PERIOD);
                }
                Arrivals {
                    admitted_count,
                    refusals,
                    elapsed: start.elapsed(),
                }
            });
            // Also after a panic, or the other thread would never end.
            let over = EndOfArrivals(&is_over);
            action();
            drop(over);
            pods.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }
}

/// Ends the arrivals when it is dropped.
struct EndOfArrivals<'flag>(&'flag AtomicBool);

impl Drop for EndOfArrivals<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
