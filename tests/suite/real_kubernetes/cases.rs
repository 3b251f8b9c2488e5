//! The cases of each overlay, in their order.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use harness::binaries;
use serde_json::json;

use super::daemons::Daemon;
use super::node::{Node, list_objects};
use super::overlay::Overlay;
use super::pod::{Pod, REPORT, container};

/// Something to try.
pub(super) type Case = fn(&Node, Overlay) -> Result<()>;

/// In the order of the table.
pub(super) const CASES: &[(&str, Case)] = &[
    ("pods with 0, 1 and 2 devices", numbers),
    ("the example of deploy/examples", example),
    ("a class of the administrator's own, with a rule", own_class),
    ("a variable that asks for all, and for another's", variables),
    ("forged annotations", annotations),
    ("an init container's devices", init_container),
    ("a sidecar's devices", sidecar),
    ("hostUsers: false", user_namespace),
    ("a container is killed, and started again", container_again),
    ("30 pods, and the plugin killed meanwhile", plugin_killed),
    ("the kubelet is restarted", kubelet_restarted),
    ("the engine is restarted", engine_restarted),
    ("a rolling update", rolling_update),
];

/// The cases that are tried with an installation by the chart.
pub(super) const CHART_CASES: &[(&str, Case)] = &[
    ("pods with 0, 1 and 2 devices", numbers),
    ("the pod of helm test", helm_test),
];

fn numbers(node: &Node, overlay: Overlay) -> Result<()> {
    for wanted in [0, 1, 2] {
        let pod = Pod::new(overlay, &format!("with-{wanted}"), wanted);
        pod.run(node)?.number(wanted)?;
    }
    Ok(())
}

/// As a newcomer runs it.
fn example(node: &Node, overlay: Overlay) -> Result<()> {
    let file = binaries::source_tree().join("deploy/examples/dummy-npu.yaml");
    let text = std::fs::read_to_string(file)?;
    let class = overlay.runtime_class();
    let class = class.map_or(String::new(), |class| {
        format!("\n  runtimeClassName: {class}")
    });
    node.apply(&text.replacen("\nspec:", &format!("\nspec:{class}"), 1))?;
    node.until("the example has ended", || {
        Ok(node.phase("dummy-npu")? == "Succeeded")
    })?;
    let printed = node.kubectl(&["logs", "dummy-npu"])?;
    node.delete_pods(&["dummy-npu"])?;
    let nodes = printed
        .lines()
        .filter(|line| line.contains(" dummy-npu") || line.contains("/dummy-npu"));
    ensure!(nodes.count() == 2, "it printed {printed}");
    Ok(())
}

fn own_class(node: &Node, overlay: Overlay) -> Result<()> {
    let script = "test $(head -c 8 /dev/hwrng | wc -c) = 8 && ls -l /dev/hwrng";
    let pod = Pod::new(overlay, "own-class", 0)
        .with(
            "/spec/containers/0/command/2",
            format!("{REPORT}; {script}"),
        )
        .with(
            "/spec/containers/0/resources/limits",
            json!({"example.com/rng": 1}),
        );
    pod.run(node)?.number(0)
}

/// An image or a user may set the variable to anything.
fn variables(node: &Node, overlay: Overlay) -> Result<()> {
    let held = Pod::new(overlay, "holder", 1).that_stays().start(node)?;
    held.number(1)?;
    let theirs = held.opened.iter().next().context("it has one")?;
    for (devices, value) in [
        (0, "all".to_owned()),
        (0, format!("npu-{theirs}")),
        (1, "all".to_owned()),
        (1, format!("npu-{theirs}")),
    ] {
        let pod = Pod::new(overlay, &format!("asks-with-{devices}"), devices).variable(&value);
        let opened = pod.run(node).with_context(|| value.clone())?.opened;
        ensure!(
            opened.len() == devices && !opened.contains(theirs),
            "with {devices} devices and {value} it has {opened:?}"
        );
    }
    node.delete_pods(&["holder"])
}

fn annotations(node: &Node, overlay: Overlay) -> Result<()> {
    let forged = |pod: Pod| {
        pod.annotation("devices.boathook.dev/dummy-npu", "npu-3,npu-4,npu-5")
            .annotation(
                "cdi.k8s.io/boathook",
                "dummy.com.pods.boathook.dev/npu=npu-3",
            )
            .annotation(
                "io.kubernetes.cri-o.Devices",
                "/dev/null:/dev/dummy-npu3:rwm",
            )
    };
    for devices in [0, 1] {
        let name = format!("forged-with-{devices}");
        forged(Pod::new(overlay, &name, devices))
            .run(node)?
            .number(devices)?;
    }
    Ok(())
}

/// The kubelet gives an init container's devices to those that follow.
fn init_container(node: &Node, overlay: Overlay) -> Result<()> {
    let pod = Pod::new(overlay, "follows", 1)
        .specified("initContainers", json!([container("first", 2, REPORT)]))
        .that_stays();
    let main = pod.start(node)?;
    let first = node.devices_of("follows", "first")?;
    first.number(2)?;
    main.number(1)?;
    ensure!(
        main.opened.is_subset(&first.opened),
        "{main:?} after {first:?}"
    );
    node.delete_pods(&["follows"])
}

/// A sidecar keeps its own devices.
fn sidecar(node: &Node, overlay: Overlay) -> Result<()> {
    let mut sidecar = container("sidecar", 1, REPORT);
    sidecar["restartPolicy"] = "Always".into();
    sidecar["command"][2] = format!("{REPORT}; trap 'exit 0' TERM; sleep 100000 & wait").into();
    let pod = Pod::new(overlay, "several", 1)
        .specified(
            "initContainers",
            json!([container("first", 2, REPORT), sidecar]),
        )
        .that_stays();
    let main = pod.start(node)?;
    let sidecar = node.devices_of("several", "sidecar")?;
    node.devices_of("several", "first")?.number(2)?;
    main.number(1)?;
    sidecar.number(1)?;
    ensure!(
        main.opened.is_disjoint(&sidecar.opened),
        "both have {main:?}"
    );
    node.delete_pods(&["several"])
}

/// The pod requests two devices, and has to open both.
fn helm_test(node: &Node, overlay: Overlay) -> Result<()> {
    const NAMESPACE: &str = "--namespace=boathook-system";
    let pod = overlay.test_pod()?;
    let name = pod["metadata"]["name"].as_str().context("it has a name")?;
    node.apply(&pod.to_string())?;
    node.until("the pod of helm test has ended", || {
        let phase = "jsonpath={.status.phase}";
        let phase = node.kubectl(&[NAMESPACE, "get", "pod", name, "-o", phase])?;
        Ok(["Succeeded", "Failed"].contains(&&*phase))
    })?;
    let printed = node.kubectl(&[NAMESPACE, "logs", name])?;
    let lines: Vec<&str> = printed.lines().collect();
    let is_of_device = |line: &&str| line.starts_with("/dev/dummy-npu") && line.ends_with(" works");
    ensure!(
        lines.len() == 2 && lines.iter().all(is_of_device),
        "it printed {printed}"
    );
    node.kubectl(&[NAMESPACE, "delete", "pod", name]).map(drop)
}

fn user_namespace(node: &Node, overlay: Overlay) -> Result<()> {
    let script = format!("{REPORT}; test $(awk '{{print $2}}' /proc/self/uid_map) != 0");
    let pod = Pod::new(overlay, "users", 2)
        .with("/spec/containers/0/command/2", script)
        .specified("hostUsers", false);
    pod.run(node)?.number(2)
}

/// Its new container has the devices of the one before.
fn container_again(node: &Node, overlay: Overlay) -> Result<()> {
    let once = format!("{REPORT}; sleep 2; exit 1");
    let pod = Pod::new(overlay, "again", 1)
        .with("/spec/containers/0/command/2", once)
        .specified("restartPolicy", "OnFailure");
    let first = pod.start(node)?;
    node.until("it was started again", || {
        let count = "jsonpath={.status.containerStatuses[0].restartCount}";
        Ok(node.kubectl(&["get", "pod", "again", "-o", count])? == "1")
    })?;
    let second = node.reported("again")?;
    node.delete_pods(&["again"])?;
    first.number(1)?;
    ensure!(first == second, "first {first:?}, then {second:?}");
    Ok(())
}

/// None may run without its devices, and none may have another's.
fn plugin_killed(node: &Node, overlay: Overlay) -> Result<()> {
    const PODS: usize = 30;
    let names: Vec<String> = (0..PODS).map(|number| format!("many-{number}")).collect();
    let pods = names
        .iter()
        .map(|name| Pod::new(overlay, name, 2).that_stays());
    let manifests: Vec<String> = pods.map(|pod| pod.text()).collect();
    node.apply(&list_objects(&manifests))?;
    let running = "jsonpath={range .items[?(@.status.phase==\"Running\")]}x{end}";
    node.until("a third of the pods run", || {
        Ok(node
            .kubectl(&["get", "pods", "-l", "test=yes", "-o", running])?
            .len()
            > PODS / 3)
    })?;
    node.signal("boathook-plugin", "KILL")?;
    let mut given = BTreeSet::new();
    for name in &names {
        let devices = node.reported(name)?;
        devices.number(2).with_context(|| name.clone())?;
        given.extend(devices.opened);
    }
    ensure!(given.len() == 2 * PODS, "some have the same device");
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    node.delete_pods(&names)?;
    node.until_devices()
}

fn kubelet_restarted(node: &Node, overlay: Overlay) -> Result<()> {
    keeps_its_devices(node, overlay, || node.restart(Daemon::Kubelet, "TERM"))
}

fn engine_restarted(node: &Node, overlay: Overlay) -> Result<()> {
    keeps_its_devices(node, overlay, || node.restart(node.engine.daemon(), "TERM"))
}

/// The same programs under another tag, as in an upgrade.
fn rolling_update(node: &Node, overlay: Overlay) -> Result<()> {
    node.make_next("boathook")?;
    keeps_its_devices(node, overlay, || {
        node.kubectl(&[
            "--namespace=boathook-system",
            "set",
            "image",
            "daemonset/boathook",
            "install=boathook:next",
            "plugin=boathook:next",
        ])?;
        node.rolled_out()
    })
}

/// A pod that runs keeps its devices meanwhile, and another one gets others afterwards.
fn keeps_its_devices(node: &Node, overlay: Overlay, event: impl Fn() -> Result<()>) -> Result<()> {
    let before = Pod::new(overlay, "before", 2).that_stays().start(node)?;
    before.number(2)?;
    event()?;
    node.until_devices()?;
    let mut opened = String::new();
    // A kubelet that was restarted does not know the pod at once.
    node.until("the pod can be entered", || {
        opened = node.kubectl(&["exec", "before", "--", "sh", "-c", REPORT])?;
        Ok(true)
    })?;
    let mut nodes = opened.lines().filter(|line| line.starts_with("node "));
    ensure!(nodes.by_ref().count() == 2, "it has {opened}");
    let after = Pod::new(overlay, "after", 62).run(node)?;
    node.delete_pods(&["before"])?;
    after.number(62)?;
    if after.opened.is_disjoint(&before.opened) {
        return Ok(());
    }
    bail!(
        "{:?} were given twice",
        after.opened.intersection(&before.opened)
    )
}
