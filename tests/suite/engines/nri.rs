//! A containerd of today and the plugin, through the engine's NRI socket: from the
//! first start to restarts, and beside other plugins.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use harness::cri::Pod;
use harness::cri::api::ContainerConfig;
use harness::demo_host::DemoHost;
use harness::demo_host::in_container;
use harness::engine_root::Generation;
use harness::nri::OtherPlugin;
use harness::probe::Report;
use harness::rootfs::Rootfs;
use nix::sys::signal::Signal;
use nix::sys::stat::{major, minor};
use nri_api::{ContainerAdjustment, Hook, Hooks, KeyValue};
use serde_json::{Value, json};

use super::cri::{Cri, How};
use super::ctr;
use super::nri_plugin::NriPlugin;
use crate::tree;

/// The engine with the plugin.
pub(super) fn with_plugin(generation: Generation) -> Result<Cri> {
    let engine = Cri::new(generation, How::Nri)?;
    NriPlugin::start(engine.machine(), "plugin")?;
    Ok(engine)
}

/// The engine, without a plugin. `None`: it cannot be run here.
fn stock_containerd(test: &str) -> Option<Cri> {
    stock_containerd_of(Generation::Forky, test)
}

fn stock_containerd_of(generation: Generation, test: &str) -> Option<Cri> {
    match ctr::missing(generation) {
        Some(reason) => {
            skip::report(test, &reason);
            None
        }
        None => Some(Cri::new(generation, How::Nri).unwrap()),
    }
}

/// A container that runs, of a pod of its own.
pub(super) struct Running<'a> {
    engine: &'a Cri,
    sandbox: String,
    id: String,
}

impl<'a> Running<'a> {
    fn start(engine: &'a Cri, number: u32, devices: Option<&str>) -> Result<Self> {
        let pod = Pod::new(number, Rootfs::Busybox).devices(devices);
        Self::of(engine, &pod, |_| {})
    }

    /// That of a pod, which the caller may change before.
    pub(super) fn of(
        engine: &'a Cri,
        pod: &Pod,
        change: impl FnOnce(&mut ContainerConfig),
    ) -> Result<Self> {
        let (config, sandbox) = engine.run_pod(pod)?;
        let mut asked = pod.container(0);
        change(&mut asked);
        let id = engine.client.create(&sandbox, &config, asked);
        let container = Self {
            engine,
            sandbox,
            id: id.as_ref().cloned().unwrap_or_default(),
        };
        engine.client.start(&id?)?;
        Ok(container)
    }

    /// The devices that it has.
    pub(super) fn devices(&self) -> Vec<usize> {
        let questions = in_container::questions().command().unwrap();
        let printed = self.engine.client.exec(&self.id, &questions);
        let report = Report::parse(&printed.unwrap()).unwrap();
        in_container::devices(&report).unwrap()
    }

    /// Its config.json, as containerd wrote it.
    fn spec(&self) -> Value {
        let bundle = format!("state/io.containerd.runtime.v2.task/k8s.io/{}", self.id);
        let file = self
            .engine
            .containerd
            .machine
            .path(&bundle)
            .join("config.json");
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    }

    /// The programs of its prestart hooks.
    fn hooks(&self) -> Vec<String> {
        let spec = self.spec();
        let hooks = spec["hooks"]["prestart"].as_array();
        let paths = hooks
            .into_iter()
            .flatten()
            .map(|hook| hook["path"].as_str().unwrap());
        paths
            .map(|path| path.rsplit('/').next().unwrap().to_owned())
            .collect()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.engine.client.remove_sandbox(&self.sandbox) {
            // Called while dropping: there is nobody to return it to.
            eprintln!("{error:#}");
        }
    }
}

/// The whole promise: no file of the engine is changed, nothing is restarted.
#[test]
fn a_stock_containerd_gives_devices_as_soon_as_the_plugin_runs() {
    let Some(engine) = stock_containerd("NRI, install") else {
        return;
    };
    let machine = engine.machine();
    let etc = machine.private.file("/etc");
    let before = tree::listing(&etc);
    let without = Running::start(&engine, 0, Some("npu-3")).unwrap();
    assert_eq!(without.devices(), [] as [usize; 0]);

    let plugin = NriPlugin::start(machine, "plugin").unwrap();
    // It tells which container was started too early.
    let log = plugin.log().unwrap();
    assert!(log.contains("started without the hook; restart their pods: main of default/test-0"));
    let asking = Running::start(&engine, 1, Some("npu-3,npu-5")).unwrap();
    assert_eq!(asking.devices(), [3, 5]);
    assert_eq!(asking.hooks(), ["boathook"]);
    let arguments = asking.spec()["hooks"]["prestart"][0]["args"].to_string();
    assert!(arguments.contains("--pod-name=test-1"), "{arguments}");
    let nothing = Running::start(&engine, 2, None).unwrap();
    assert_eq!(nothing.spec()["hooks"], Value::Null);
    tree::assert_unchanged(&etc, &before, "the engine's files");
}

#[test]
fn restarts_of_either_side_are_survived() {
    let Some(engine) = stock_containerd("NRI, restarts") else {
        return;
    };
    let machine = engine.machine();
    let plugin = NriPlugin::start(machine, "plugin").unwrap();
    let first = Running::start(&engine, 0, Some("npu-1")).unwrap();

    engine.containerd.restart().unwrap();
    plugin.wait_connections(2).unwrap();
    assert_eq!(first.devices(), [1]);
    let second = retry(|| Running::start(&engine, 1, Some("npu-2")));
    assert_eq!(second.devices(), [2]);

    plugin.signal(Signal::SIGKILL).unwrap();
    // The engine starts containers without a plugin that is gone; in Kubernetes
    // PreStartContainer comes before it and fails.
    let lost = Running::start(&engine, 2, Some("npu-3")).unwrap();
    assert_eq!(lost.devices(), [] as [usize; 0]);
    let plugin = NriPlugin::start(machine, "again").unwrap();
    assert!(
        plugin
            .log()
            .unwrap()
            .contains("restart their pods: main of default/test-2\n")
    );
    let third = Running::start(&engine, 3, Some("npu-3")).unwrap();
    assert_eq!(third.devices(), [3]);
}

/// `disable_connections`: the engine does not listen any more, and its old socket is
/// there. The plugin reports it, and is back as soon as the engine is.
#[test]
fn an_engine_that_disables_connections_is_named_and_waited_for() {
    let Some(engine) = stock_containerd("NRI, disable_connections") else {
        return;
    };
    let machine = engine.machine();
    let plugin = NriPlugin::start(machine, "plugin").unwrap();
    let file = "/etc/containerd/config.toml";
    let enabled = fs::read_to_string(machine.private.file(file)).unwrap();
    let table = "[plugins.\"io.containerd.nri.v1.nri\"]\ndisable_connections = true\n";
    machine.write(file, &format!("{enabled}{table}")).unwrap();
    engine.containerd.restart().unwrap();
    let without = retry(|| Running::start(&engine, 0, Some("npu-3")));
    assert_eq!(without.hooks(), [] as [&str; 0]);
    let log = plugin.log().unwrap();
    let reason = "NRI: cannot connect to /var/run/nri/nri.sock: ";
    assert_eq!(log.matches(reason).count(), 1, "{log}");
    assert!(
        log.contains("unless NRI or its connections are disabled"),
        "{log}"
    );
    assert_eq!(plugin.connections().unwrap(), 1);

    machine.write(file, &enabled).unwrap();
    engine.containerd.restart().unwrap();
    plugin.wait_connections(2).unwrap();
}

/// The engine waits 2 s for a plugin that hangs, drops it, and creates the container
/// without it (NRI before 0.10). The plugin connects again and reports it.
#[test]
fn a_plugin_that_hangs_in_a_request_or_is_killed_there_comes_back() {
    let Some(engine) = stock_containerd("NRI, slow plugin") else {
        return;
    };
    let machine = engine.machine();
    let plugin = NriPlugin::start(machine, "plugin").unwrap();
    plugin.signal(Signal::SIGSTOP).unwrap();
    let lost = Running::start(&engine, 0, Some("npu-3")).unwrap();
    assert_eq!(lost.hooks(), [] as [&str; 0]);
    plugin.signal(Signal::SIGCONT).unwrap();
    plugin.wait_connections(2).unwrap();
    assert!(
        plugin
            .log()
            .unwrap()
            .contains("restart their pods: main of default/test-0\n")
    );

    let second = killed_in_request(&engine, &plugin, || {
        Running::start(&engine, 1, Some("npu-3"))
    });
    let second = second.unwrap();
    assert_eq!(second.hooks(), [] as [&str; 0]);
    NriPlugin::start(machine, "again").unwrap();
    let third = Running::start(&engine, 2, Some("npu-3")).unwrap();
    assert_eq!(third.devices(), [3]);
}

/// What `create` returns if the plugin is killed while the engine waits for its answer. The
/// engine asks plugins in the order of their indices: when one before it has answered, the
/// stopped plugin is asked at once.
fn killed_in_request<T: Send>(
    engine: &Cri,
    plugin: &NriPlugin,
    create: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let socket = engine.machine().private.file("/run/nri/nri.sock");
    let before = OtherPlugin::start(&socket, "before", "10", ContainerAdjustment::default())?;
    plugin.signal(Signal::SIGSTOP)?;
    std::thread::scope(|scope| {
        let creating = scope.spawn(create);
        before.wait_answered()?;
        sleep(Duration::from_millis(200));
        plugin.signal(Signal::SIGKILL)?;
        creating.join().expect("the thread does not panic")
    })
}

/// With NRI 0.10 or later (containerd 2.2) device rules are kept in the spec, and a
/// request in which the plugin hangs or ends is refused: its judgement is missing.
#[test]
fn an_engine_with_nri_0_10_keeps_rules_and_misses_a_lost_plugin() {
    let Some(engine) = stock_containerd_of(Generation::Resolute, "NRI 0.10") else {
        return;
    };
    let machine = engine.machine();
    let plugin = NriPlugin::start(machine, "plugin").unwrap();
    let first = Running::start(&engine, 0, Some("npu-3")).unwrap();
    assert_eq!(first.devices(), [3]);
    let number = fs::metadata(machine.devices.node(3)).unwrap().rdev();
    let rule = json!({
        "allow": true, "type": "c", "access": "rw",
        "major": major(number), "minor": minor(number),
    });
    let rules = &first.spec()["linux"]["resources"]["devices"];
    assert!(rules.as_array().unwrap().contains(&rule), "{rules}");

    plugin.signal(Signal::SIGSTOP).unwrap();
    let refused = Running::start(&engine, 1, Some("npu-3")).err().unwrap();
    assert!(format!("{refused:#}").contains("boathook"), "{refused:#}");
    plugin.signal(Signal::SIGCONT).unwrap();
    plugin.wait_connections(2).unwrap();
    let second = Running::start(&engine, 2, Some("npu-2")).unwrap();
    assert_eq!(second.devices(), [2]);

    let refused = killed_in_request(&engine, &plugin, || {
        Running::start(&engine, 3, Some("npu-3")).map(drop)
    });
    refused.unwrap_err();
    NriPlugin::start(machine, "again").unwrap();
    let third = Running::start(&engine, 4, Some("npu-3")).unwrap();
    assert_eq!(third.devices(), [3]);
}

/// Another vendor's plugin that adjusts the same container, before Boathook's or after
/// it; and a second instance of Boathook's, as during a rolling update.
#[test]
fn other_plugins_do_not_get_in_the_way() {
    let Some(engine) = stock_containerd("NRI, other plugins") else {
        return;
    };
    let machine = engine.machine();
    let socket = machine.private.file("/run/nri/nri.sock");
    let adjusting = |name: &str| ContainerAdjustment {
        env: vec![KeyValue {
            key: name.into(),
            value: "yes".into(),
        }],
        hooks: Some(Hooks {
            prestart: vec![Hook {
                path: "/bin/true".into(),
                args: vec!["true".into()],
                ..Hook::default()
            }],
            create_runtime: Vec::new(),
        }),
        ..ContainerAdjustment::default()
    };
    let _early = OtherPlugin::start(&socket, "early", "10", adjusting("EARLY")).unwrap();
    let _late = OtherPlugin::start(&socket, "late", "95", adjusting("LATE")).unwrap();
    let plugin = NriPlugin::start(machine, "plugin").unwrap();
    let _second = NriPlugin::start(machine, "second").unwrap();
    let container = Running::start(&engine, 0, Some("npu-3")).unwrap();
    assert_eq!(container.hooks(), ["true", "boathook", "true"]);
    assert_eq!(container.devices(), [3]);
    let env = container.spec()["process"]["env"].to_string();
    assert!(
        env.contains("EARLY=yes") && env.contains("LATE=yes"),
        "{env}"
    );
    assert_eq!(plugin.connections().unwrap(), 1);
}

/// The image and the pod's author write annotations, labels and variables. None of
/// them becomes an argument of the hook, and no hook of config.json is theirs.
#[test]
fn a_pod_cannot_name_another_container() {
    let Some(engine) = stock_containerd("NRI, forged names") else {
        return;
    };
    let machine = engine.machine();
    NriPlugin::start(machine, "plugin").unwrap();
    let victim = Running::start(&engine, 0, Some("npu-3")).unwrap();
    let uid = Pod::new(0, Rootfs::Busybox).uid();
    let attacker = Pod::new(1, Rootfs::Busybox);
    let (mut config, sandbox) = engine.run_pod(&attacker).unwrap();
    let mut asked = attacker.container(0);
    asked.envs.push(harness::cri::api::KeyValue {
        key: DemoHost::VARIABLE.into(),
        value: "npu-3".into(),
    });
    for (key, value) in [
        ("io.kubernetes.pod.uid", &*uid),
        ("io.kubernetes.pod.name", "test-0"),
        ("io.kubernetes.cri.sandbox-uid", &*uid),
        ("devices.boathook.dev/dummy-npu", "npu-3"),
    ] {
        // A pod's annotations; the kubelet does not pass them on to containers.
        config.annotations.insert(key.into(), value.into());
        config.labels.insert(key.into(), value.into());
        asked.labels.insert(key.into(), value.into());
    }
    let id = engine.client.create(&sandbox, &config, asked).unwrap();
    engine.client.start(&id).unwrap();
    let attacker = Running {
        engine: &engine,
        sandbox,
        id,
    };
    assert_eq!(attacker.devices(), [] as [usize; 0]);
    let arguments = attacker.spec()["hooks"]["prestart"][0]["args"].to_string();
    assert!(arguments.contains("--pod-name=test-1"), "{arguments}");
    assert!(!arguments.contains(&uid), "{arguments}");
    assert_eq!(victim.devices(), [3]);
}

/// The engine answers a moment after it listens.
fn retry<T>(mut attempt: impl FnMut() -> Result<T>) -> T {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) if start.elapsed() > Duration::from_secs(20) => panic!("{error:#}"),
            Err(_) => sleep(Duration::from_millis(200)),
        }
    }
}
