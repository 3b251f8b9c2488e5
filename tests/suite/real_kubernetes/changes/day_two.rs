//! The commands of docs/day-two.md, as somebody runs them who has read the page.

use std::fs;

use anyhow::{Context, Result, ensure};
use harness::binaries;

use crate::real_kubernetes::engine::WITHOUT_ALL_CAPABILITIES;
use crate::real_kubernetes::node::{BUSYBOX, NAME, Node};
use crate::real_kubernetes::overlay::Overlay;
use crate::real_kubernetes::pod::Pod;

const SYSTEM: &str = "-n boathook-system";

/// The minimum number of the page's commands, so that a change of its form is noticed.
const MIN_COMMANDS: usize = 12;

/// Returns the page's commands of kubectl, from its blocks and from its sentences.
fn read_commands() -> Result<Vec<String>> {
    let page = fs::read_to_string(binaries::source_tree().join("docs/day-two.md"))?;
    let mut commands = Vec::new();
    let mut is_in_block = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_in_block = !is_in_block;
        } else if is_in_block {
            let command = line.split(" # ").next().unwrap_or_default();
            commands.push(command.trim_end().to_owned());
        } else {
            commands.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    // `kubectl exec` alone names a command that the page has elsewhere.
    commands.retain(|command| command.starts_with("kubectl ") && command != "kubectl exec");
    commands.sort();
    commands.dedup();
    ensure!(commands.len() >= MIN_COMMANDS, "{commands:?}");
    Ok(commands)
}

/// Runs the page's commands with the names of this node, of Boathook's pod on it, and of a pod with a
/// device. Skips those that contain one of `left_out`.
pub(super) fn run_commands(node: &Node, left_out: &[&str]) -> Result<()> {
    let mut left_out = left_out.to_vec();
    if !node.engine.can_run_privileged_containers()? {
        println!("kubectl debug: not tried, {WITHOUT_ALL_CAPABILITIES}");
        left_out.push("--profile=sysadmin");
    }
    let mut system_pod = String::new();
    // The pod of before a rollout may still end.
    node.until("Boathook has one pod", || {
        let path = "jsonpath={.items[*].metadata.name}";
        system_pod = node.kubectl(&["-n", "boathook-system", "get", "pods", "-o", path])?;
        Ok(system_pod.split_whitespace().count() == 1)
    })?;
    Pod::new(Overlay::Cdi, "asked-about", 1)
        .that_stays()
        .start(node)?;
    for command in read_commands()? {
        if left_out.iter().any(|part| command.contains(part)) {
            continue;
        }
        let is_of_system = command.contains(SYSTEM);
        let pod = if is_of_system {
            system_pod.as_str()
        } else {
            "asked-about"
        };
        let placeholders = [
            ("POD", pod),
            ("NODE", NAME),
            // No registry is there to ask for the newest image.
            ("--image=busybox", &format!("--image={BUSYBOX}")),
        ];
        let words = command.split(' ').map(|word| {
            let mut word = word.to_owned();
            // NODE is also the title of a column.
            if !word.starts_with("custom-columns=") {
                for (placeholder, value) in placeholders {
                    word = word.replace(placeholder, value);
                }
            }
            word
        });
        let words: Vec<String> = words.collect();
        let printed = node
            .shell(&format!("{} </dev/null 2>&1", words.join(" ")))
            .with_context(|| command.clone())?;
        ensure!(!printed.is_empty(), "{command} prints nothing");
        println!("day-two.md: {command}");
    }
    node.delete_pods(&["asked-about"])?;
    node.shell("kubectl get pods -o name | grep debugger | xargs -r kubectl delete --now")
        .map(drop)
}

pub(super) fn commands(node: &Node) -> Result<()> {
    run_commands(node, &[])
}
