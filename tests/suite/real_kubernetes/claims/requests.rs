//! Requests of claims, and the devices of their pods.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{by_template, devices, manifests, rolled_out};
use crate::real_kubernetes::engine::WITHOUT_ALL_CAPABILITIES;
use crate::real_kubernetes::node::Node;
use crate::real_kubernetes::overlay::Overlay;
use crate::real_kubernetes::pod::{Pod, REPORT, claimed, container};

pub(super) fn one_pod(node: &Node) -> Result<()> {
    by_template("with-one", "one").run(node)?.number(1)?;
    by_template("with-two", "two").run(node)?.number(2)?;
    Pod::new(Overlay::Cdi, "with-none", 0).run(node)?.number(0)
}

pub(super) fn shared(node: &Node) -> Result<()> {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "shared"}, "spec": devices("dummy-npu", 1),
    });
    node.apply(&claim.to_string())?;
    let pod =
        |name| Pod::new(Overlay::Cdi, name, 0).claiming(json!({"resourceClaimName": "shared"}));
    let mut side = container("side", 0, REPORT);
    side["resources"] = claimed();
    side["restartPolicy"] = "Always".into();
    side["command"][2] = format!("{REPORT}; trap 'exit 0' TERM; sleep 100000 & wait").into();
    let first = pod("first")
        .that_stays()
        .specified("initContainers", json!([side]));
    let first = first.start(node)?;
    let second = pod("second").that_stays().start(node)?;
    let side = node.devices_of("first", "side")?;
    node.delete_pods(&["first", "second"])?;
    node.kubectl(&["delete", "resourceclaim", "shared"])?;
    first.number(1)?;
    ensure!(
        first == second && first == side,
        "they have {first:?}, {second:?} and {side:?}"
    );
    Ok(())
}

pub(super) fn by_limit(node: &Node) -> Result<()> {
    for wanted in [1, 2] {
        Pod::new(Overlay::Cdi, &format!("limit-{wanted}"), wanted)
            .run(node)?
            .number(wanted)?;
    }
    Ok(())
}

/// The names of another's claim.
pub(super) fn forged(node: &Node) -> Result<()> {
    by_template("holder", "one")
        .that_stays()
        .start(node)?
        .number(1)?;
    let names = node.shell(
        "grep -ho '\"name\": *\"[^\"]*\"' /run/cdi/boathook.dev-claim-*.json | cut -d'\"' -f4",
    )?;
    let name = names
        .lines()
        .next()
        .context("no name in the specification")?;
    let forged = Pod::new(Overlay::Cdi, "forged", 0)
        .annotation("cdi.k8s.io/boathook", &format!("boathook.dev/claim={name}"))
        .annotation("devices.boathook.dev/dummy-npu", "npu-3")
        .variable("0");
    let opened = forged.run(node)?.opened;
    node.delete_pods(&["holder"])?;
    ensure!(opened.is_empty(), "it has {opened:?}");
    Ok(())
}

/// Prints the nodes of all classes that are in the container.
const NODES: &str = "cd /dev; ls -d dummy-npu* held* sided* shared* carved* 2>/dev/null || true";

/// A pod with a claim of its own, both with this name.
fn claiming(node: &Node, name: &str, spec: &Value) -> Result<Pod> {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name}, "spec": {"devices": spec},
    });
    node.apply(&claim.to_string())?;
    let pod = Pod::new(Overlay::Cdi, name, 0).claiming(json!({"resourceClaimName": name}));
    let script = format!("{NODES}; {REPORT}; trap 'exit 0' TERM; sleep 100000 & wait");
    Ok(pod.with("/spec/containers/0/command/2", script))
}

fn end(node: &Node, name: &str) -> Result<()> {
    node.delete_pods(&[name])?;
    node.kubectl(&["delete", "resourceclaim", name]).map(drop)
}

/// Starts it, and gives the nodes that its container has.
fn nodes_of(node: &Node, pod: &Pod) -> Result<BTreeSet<String>> {
    pod.start(node)?;
    let printed = node.kubectl(&["logs", &pod.name])?;
    let is_of_report = |line: &str| line.starts_with("node ") || line.starts_with("variable");
    let nodes = printed.lines().take_while(|line| !is_of_report(line));
    Ok(nodes.map(str::to_owned).collect())
}

/// Returns the devices that a pod gets by such a claim. The pod is deleted afterwards.
fn given(node: &Node, name: &str, spec: &Value) -> Result<BTreeSet<String>> {
    let nodes = nodes_of(node, &claiming(node, name, spec)?)?;
    end(node, name)?;
    Ok(nodes)
}

fn begin(nodes: &BTreeSet<String>, with: &str) -> usize {
    nodes.iter().filter(|name| name.starts_with(with)).count()
}

fn is_index(class: &str, index: u32) -> Value {
    let expression = format!(
        "device.attributes['boathook.dev'].class == '{class}' && device.attributes['boathook.dev'].index == {index}"
    );
    json!([{"cel": {"expression": expression}}])
}

pub(super) fn two_classes(node: &Node) -> Result<()> {
    let requests = json!({"requests": [
        {"name": "npus", "exactly": {"deviceClassName": "dummy-npu", "count": 2}},
        {"name": "held", "exactly": {"deviceClassName": "held"}},
    ]});
    let nodes = given(node, "two-classes", &requests)?;
    let counts = ["dummy-npu", "held"].map(|class| begin(&nodes, class));
    ensure!(counts == [2, 1] && nodes.len() == 3, "it has {nodes:?}");
    Ok(())
}

/// Parameters of a request that was not taken are not looked at.
pub(super) fn first_available(node: &Node) -> Result<()> {
    let requests = json!({
        "requests": [{"name": "any", "firstAvailable": [
            {"name": "best", "deviceClassName": "dummy-npu", "selectors": is_index("dummy-npu", 99)},
            {"name": "next", "deviceClassName": "sided", "count": 2},
        ]}],
        "config": [{"requests": ["any/best"], "opaque":
            {"driver": "boathook.dev", "parameters": {"nonsense": true}}}],
    });
    let nodes = given(node, "first-available", &requests)?;
    ensure!(
        begin(&nodes, "sided") == 2 && nodes.len() == 2,
        "it has {nodes:?}"
    );
    Ok(())
}

pub(super) fn constraints(node: &Node) -> Result<()> {
    let side = "boathook.dev/side";
    let same = json!({
        "requests": [
            {"name": "one", "exactly": {"deviceClassName": "sided", "selectors": is_index("sided", 3)}},
            {"name": "other", "exactly": {"deviceClassName": "sided"}},
        ],
        "constraints": [{"requests": ["one", "other"], "matchAttribute": side}],
    });
    let nodes = given(node, "same-side", &same)?;
    let right = ["sided2", "sided3"].map(str::to_owned);
    ensure!(nodes == BTreeSet::from(right), "it has {nodes:?}");
    let different = json!({
        "requests": [{"name": "both", "exactly": {"deviceClassName": "sided", "count": 2}}],
        "constraints": [{"requests": ["both"], "distinctAttribute": side}],
    });
    let nodes = given(node, "both-sides", &different)?;
    let left = nodes.iter().filter(|name| name.as_str() < "sided2");
    ensure!(nodes.len() == 2 && left.count() == 1, "it has {nodes:?}");
    Ok(())
}

/// Of four shares a claim has three, so that another with two waits.
pub(super) fn shares(node: &Node) -> Result<()> {
    let wanting = |shares: u32| {
        json!({"requests": [{"name": "some", "exactly": {
            "deviceClassName": "shared", "capacity": {"requests": {"shares": shares}},
        }}]})
    };
    let first = claiming(node, "three-shares", &wanting(3))?;
    let nodes = nodes_of(node, &first)?;
    let one = given(node, "one-share", &wanting(1))?;
    let waits = claiming(node, "two-shares", &wanting(2))?;
    node.apply(&waits.text())?;
    node.until("it cannot be scheduled", || {
        Ok(node.described("two-shares")?.contains("FailedScheduling"))
    })?;
    end(node, "three-shares")?;
    let more = nodes_of(node, &waits)?;
    end(node, "two-shares")?;
    let wanted = BTreeSet::from(["shared".to_owned()]);
    ensure!(
        [&nodes, &one, &more] == [&wanted; 3],
        "they have {nodes:?}, {one:?} and {more:?}"
    );
    Ok(())
}

pub(super) fn admin(node: &Node) -> Result<()> {
    let label = "resource.kubernetes.io/admin-access=true";
    node.kubectl(&["label", "namespace", "default", label])?;
    let all = json!({"requests": [{"name": "all", "exactly": {
        "deviceClassName": "sided", "allocationMode": "All", "adminAccess": true,
    }}]});
    let one = json!({"requests": [{"name": "one", "exactly": {"deviceClassName": "sided"}}]});
    let holder = claiming(node, "owner", &one)?;
    let held = nodes_of(node, &holder)?;
    let seen = given(node, "monitor", &all)?;
    // Its end took nothing from the holder.
    let still = node.kubectl(&["exec", "owner", "--", "sh", "-c", NODES])?;
    end(node, "owner")?;
    ensure!(
        seen.len() == 4 && held.len() == 1 && seen.is_superset(&held),
        "{seen:?} and {held:?}"
    );
    ensure!(still.lines().eq(&held), "it has {still} of {held:?}");
    Ok(())
}

/// The scheduler allocates 32 devices to a claim, so several claims divide them, as docs/dra.md has it.
pub(super) fn admin_of_many(node: &Node) -> Result<()> {
    let label = "resource.kubernetes.io/admin-access=true";
    node.kubectl(&["label", "--overwrite", "namespace", "default", label])?;
    let request = |condition: &str| {
        let expression = condition.replace("index", "device.attributes[\"boathook.dev\"].index");
        json!({"requests": [{"name": "some", "exactly": {
            "deviceClassName": "dummy-npu", "allocationMode": "All", "adminAccess": true,
            "selectors": [{"cel": {"expression": expression}}],
        }}]})
    };
    let holder = by_template("owner", "one").that_stays().start(node)?;
    let all = claiming(node, "all-at-once", &request("index >= 0"))?;
    node.apply(&all.text())?;
    node.until("it cannot be scheduled", || {
        Ok(node.described("all-at-once")?.contains("FailedScheduling"))
    })?;
    end(node, "all-at-once")?;
    let halves = ["first-half", "second-half"];
    let first = claiming(node, halves[0], &request("index < 32"))?;
    claiming(node, halves[1], &request("index >= 32 && index < 64"))?;
    let claims = halves.map(|name| json!({"name": name, "resourceClaimName": name}));
    let names = halves.map(|name| json!({"name": name}));
    let pod = first
        .specified("resourceClaims", json!(claims))
        .with("/spec/containers/0/resources", json!({"claims": names}));
    let nodes = nodes_of(node, &pod)?;
    let opened = node.devices_of(halves[0], "main")?.opened;
    end(node, halves[0])?;
    node.kubectl(&["delete", "resourceclaim", halves[1]])?;
    node.delete_pods(&["owner"])?;
    ensure!(
        begin(&nodes, "dummy-npu") == 64 && nodes.len() == 64,
        "it has {nodes:?}"
    );
    ensure!(
        opened.len() == 64 && opened.is_superset(&holder.opened),
        "it opened {opened:?}"
    );
    Ok(())
}

/// Other claims get their devices meanwhile.
pub(super) fn wrong_parameters(node: &Node) -> Result<()> {
    let wrong = json!({
        "requests": [{"name": "one", "exactly": {"deviceClassName": "sided"}}],
        "config": [{"opaque": {"driver": "boathook.dev", "parameters": {"capabilitys": ["x"]}}}],
    });
    node.apply(&claiming(node, "wrong", &wrong)?.text())?;
    node.until("an event names the field", || {
        let events = node.described("wrong")?;
        Ok(events.contains("FailedPrepareDynamicResources") && events.contains("capabilitys"))
    })?;
    by_template("right", "one").run(node)?.number(1)?;
    end(node, "wrong")
}

/// A program of the host makes the parts, in the host's namespaces. The driver's container is
/// privileged, so that it can run the program.
pub(super) fn parts(node: &Node) -> Result<()> {
    if !node.engine.can_run_privileged_containers()? {
        println!("parts: not tried, {WITHOUT_ALL_CAPABILITIES}");
        return Ok(());
    }
    let serve = "serve = \"dra\"";
    node.apply(&manifests(node, &["dra", "dra-host-programs"], serve)?)?;
    rolled_out(node)?;
    let on_host =
        || -> Result<String> { Ok(node.shell("ls /dev/shm/carve")?.trim().replace('\n', " ")) };
    let of = |class: &str, count: usize| devices(class, count)["devices"].clone();
    let halves = given(node, "halves", &of("carved-half", 2))?;
    let made = on_host()?;
    let whole = given(node, "whole", &of("carved", 1))?;
    let left = on_host()?;
    node.apply(&manifests(node, &["dra"], serve)?)?;
    rolled_out(node)?;
    let parts = ["carved0", "carved1"].map(str::to_owned);
    ensure!(halves == BTreeSet::from(parts), "it has {halves:?}");
    ensure!(made == "carved carved0 carved1", "there is {made}");
    ensure!(
        whole == BTreeSet::from(["carved".to_owned()]),
        "it has {whole:?}"
    );
    ensure!(left == "carved", "there is {left}");
    Ok(())
}
