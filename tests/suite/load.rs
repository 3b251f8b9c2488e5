//! Hundreds of containers, twenty at a time, on a machine that is busy otherwise.
//!
//! Each requests eight devices of a pool, and a probe inside it reports which devices it
//! has and which of the pool it may open. None may fail, have a device that another
//! one was given, or leave anything on the machine.
//!
//! The short run starts 40 under runc; with `BOATHOOK_LOAD=long` (`make load`) 500 are
//! started under runc, on each cgroup version, and 500 by containerd's CRI.

mod cri;
mod figures;
mod pool;
mod runc;
mod stress;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use figures::Figures;
use pool::{Lease, Pool};

/// The number of containers that run at the same time.
const AT_A_TIME: usize = 20;

/// The number of devices that each of them has.
const DEVICES: usize = 8;

/// Whether the long run was requested.
fn long() -> bool {
    std::env::var("BOATHOOK_LOAD").is_ok_and(|value| value == "long")
}

/// Starts `count` containers, each by `try_one`, which checks it and gives the time
/// that its start took.
fn run(
    name: &str,
    count: usize,
    scratch: &Path,
    try_one: impl Fn(&Lease) -> Result<Duration> + Sync,
) {
    let pool = Pool::new();
    let next = AtomicUsize::new(0);
    let (times, failures) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let stress = stress::Stress::start(scratch);
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let lease = pool.lease();
                    match try_one(&lease).with_context(|| format!("container {number}")) {
                        Ok(time) => lock(&times).push(time),
                        Err(error) => lock(&failures).push(format!("{error:#}")),
                    }
                }
            });
        }
    });
    let failures: Vec<String> = failures.into_inner().unwrap();
    eprintln!(
        "{name}: {}",
        Figures::from_times(times.into_inner().unwrap())
    );
    drop(stress);
    assert!(
        failures.is_empty(),
        "{} of {count} failed; the first: {}",
        failures.len(),
        failures[0]
    );
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap()
}
