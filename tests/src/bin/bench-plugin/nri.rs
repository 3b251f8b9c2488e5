//! The plugin's answers to the container engine, with all classes of a release.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, bail};
use harness::binaries;
use harness::nri::{Created, FakeEngine, Plugin};
use nri_api::{Container, ContainerAdjustment, PodSandbox};

use crate::calls::Latency;
use crate::figures::Figures;

/// Requests that are timed.
const CALLS: usize = 2000;

/// The most that an answer may take, in milliseconds: the engine creates no other
/// container in that time.
const GOAL: f64 = 2.0;

pub(crate) fn measure(figures: &mut Figures) -> Result<()> {
    let root = tempfile::Builder::new().prefix("bh").tempdir()?;
    let at = |name: &str| root.path().join(name);
    for directory in ["classes", "host"] {
        fs::create_dir(at(directory))?;
    }
    let shipped = binaries::source_tree().join("device-class/classes");
    for entry in fs::read_dir(shipped)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some()) {
            fs::copy(&path, at("classes").join(name))?;
        }
    }
    let (classes, host) = (at("classes"), at("host"));
    let config = format!(
        "classes = [{classes:?}]\nhost_root = {host:?}\n[class.dummy-npu]\nenabled = true\n"
    );
    fs::write(at("config.toml"), config)?;
    let engine = FakeEngine::listen(&at("nri.sock"), "containerd", "v2.1.9")?;
    let mut process = Command::new(binaries::program("boathook-plugin")?)
        .args(["run", "--kubelet-dir"])
        .arg(at("kubelet"))
        .arg("--config")
        .arg(at("config.toml"))
        .arg("--nri")
        .arg(at("nri.sock"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let measured = engine.plugin().and_then(|plugin| compare(plugin, figures));
    process.kill()?;
    process.wait()?;
    measured
}

fn compare(mut plugin: Plugin, figures: &mut Figures) -> Result<()> {
    let key = "devices.boathook.dev/dummy-npu".to_owned();
    let allocated = Container {
        annotations: BTreeMap::from([(key, "npu-3,npu-5".to_owned())]),
        ..container("DUMMY_VISIBLE_DEVICES=npu-3,npu-5")
    };
    for (name, asking, has_hook) in [
        ("NRI, allocated", allocated, true),
        (
            "NRI, image asks",
            container("DUMMY_VISIBLE_DEVICES=all"),
            true,
        ),
        ("NRI, no request", container("LANG=C"), false),
    ] {
        let Latency { p50, p99 } = latency(&mut plugin, &asking, has_hook)?;
        figures.compare(&format!("{name}, p50"), p50, "ms", GOAL);
        figures.compare(&format!("{name}, p99"), p99, "ms", GOAL);
    }
    Ok(())
}

/// A container with the variables of a usual pod and this one.
fn container(variable: &str) -> Container {
    let usual = (0..40).map(|number| format!("SERVICE_{number}_PORT=tcp://10.0.0.{number}:80"));
    Container {
        id: "c".into(),
        name: "main".into(),
        env: usual.chain([variable.to_owned()]).collect(),
        ..Container::default()
    }
}

fn latency(plugin: &mut Plugin, asking: &Container, has_hook: bool) -> Result<Latency> {
    let pod = PodSandbox {
        name: "train-0".into(),
        uid: "00000000-0000-4000-8000-000000000001".into(),
        namespace: "default".into(),
        ..PodSandbox::default()
    };
    let warm_up = CALLS / 50;
    let mut times = Vec::with_capacity(CALLS);
    for number in 0..warm_up + CALLS {
        let since = Instant::now();
        let created = plugin.create(&pod, asking, ContainerAdjustment::default());
        let took = since.elapsed().as_secs_f64() * 1e3;
        match created {
            Created::Container(adjust) if adjust.hooks.is_some() == has_hook => {}
            other => bail!("{other:?}"),
        }
        if number >= warm_up {
            times.push(took);
        }
    }
    Ok(Latency::of(times))
}
