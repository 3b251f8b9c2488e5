//! Under runc, with the hook in config.json.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use harness::bundle::Bundle;
use harness::demo_host::DemoHost;
use harness::probe::Report;
use harness::rootfs::Rootfs;
use harness::{leftovers, scratch};

use super::pool::Lease;
use super::{long, pool, run};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(containers_beside_a_load);

fn containers_beside_a_load(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    pool::put_in(&host);
    let scratch = scratch::directory("load").unwrap();
    let before = logs_of_the_machine();
    let name = format!("runc, {}", lab.runc.view());
    let count = if long() { 500 } else { 20 };
    run(&name, count, scratch.path(), |lease| {
        start(lab, &host, lease)
    });
    assert_eq!(logs_of_the_machine(), before);
    assert_eq!(host.logged_problems(), "");
}

/// Returns the files that a hook leaves on a machine if it is given no place of its own.
fn logs_of_the_machine() -> Vec<String> {
    let entries = fs::read_dir("/run/boathook").into_iter().flatten();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().path().display().to_string();
    entries.map(name).collect()
}

fn start(lab: &Lab, host: &DemoHost, lease: &Lease) -> Result<Duration> {
    let bundle = Bundle::with_hook(Rootfs::Glibc, &host.config_file())?
        .env(DemoHost::VARIABLE, &lease.request())
        .args(lease.questions().command()?)
        .build()?;
    let begin = Instant::now();
    let container = lab.runc.create(&bundle)?;
    container.start()?;
    let time = begin.elapsed();
    lease.check(&Report::parse(&container.wait()?)?)?;
    let left = leftovers::find_leftovers(&lab.runc, &bundle)?;
    ensure!(left.is_empty(), "it leaves {left:?}");
    Ok(time)
}
