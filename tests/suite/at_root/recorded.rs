//! Each recorded host is the root of the programs that a release contains. They agree with
//! each other, and with the golden files that the library's tests have of the same host.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::class_files;
use harness::privilege::missing_for_root;
use harness::recorded_host::RecordedHost;
use serde_json::Value;

use crate::runc::classes::{Case, cases};

/// Run with its root there. The recording has a /proc of its own, in which a process finds
/// itself all the same.
const SCRIPT: &str = r#"
    mount -t proc proc "$1/.proc"
    mkdir -p "$1/proc"
    ln -s ../.proc/self "$1/proc/self"
    cd "$1/output"
    run() { name=$1; shift; chroot .. "$@" >"$name" 2>"$name.errors" || true; }
    run list /boathook list --all --json
    run check /boathook check --json
    run plugin /boathook-plugin list --json
    for bundle in ../bundles/*; do
        run "${bundle##*/}" /boathook explain -v --bundle "/bundles/${bundle##*/}"
    done
"#;

#[test]
fn hook_and_plugin_agree_on_every_recorded_host() {
    let test = "hook_and_plugin_agree_on_every_recorded_host";
    if let Some(reason) = missing_for_root() {
        return skip::report(test, &reason);
    }
    let wrong: Vec<String> = cases().iter().flat_map(differences).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The differences on one host from the expected state.
fn differences(case: &Case) -> Vec<String> {
    let host = RecordedHost::with_own_numbers(&case.read("host.txt")).unwrap();
    let root = host.root();
    furnish(&root);
    let golden = case.read("plan.txt");
    let requests = requests(&golden);
    for (number, (request, _)) in requests.iter().enumerate() {
        let bundle = root.join(format!("bundles/{number}"));
        fs::create_dir_all(&bundle).unwrap();
        let env: Vec<&str> = request.split(' ').collect();
        let config = serde_json::json!({ "ociVersion": "1.0.2", "root": { "path": "rootfs" },
            // As outside pods trusted capabilities require.
            "process": { "env": env, "capabilities": { "bounding": ["CAP_SYS_ADMIN"] } } });
        fs::write(bundle.join("config.json"), config.to_string()).unwrap();
    }
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-euc", SCRIPT, "sh"])
        .arg(&root);
    Captured::run(&mut command).unwrap().success().unwrap();

    let mut wrong = Vec::new();
    let mut differ = |what: &str, found: &str, wanted: &str| {
        let lacks = |lines: &str, line: &&str| !lines.lines().any(|other| other == *line);
        let more = found.lines().filter(|line| lacks(wanted, line));
        let less = wanted.lines().filter(|line| lacks(found, line));
        wrong.extend(more.map(|line| format!("{}: {what}: + {line}", case.name())));
        wrong.extend(less.map(|line| format!("{}: {what}: - {line}", case.name())));
    };
    let hook = devices(&json(&root, "list")["devices"]);
    for ((class, id), seen) in devices(&json(&root, "plugin")["devices"]) {
        // A share is healthy as its device is.
        let (device, share) = id.split_once("::").unwrap_or((&id, ""));
        let by_hook = hook.get(&(class.clone(), device.to_owned()));
        let by_hook = by_hook.map_or(String::new(), |seen| match share {
            "" => seen.clone(),
            _ => seen.replacen(device, &id, 1),
        });
        differ("plugin and hook", &seen, &by_hook);
    }
    // Without the health: the golden inventory is that before files are looked for.
    let known = |line: &str| line.split("  ").take(3).collect::<Vec<_>>().join("  ");
    let own = hook.iter().filter(|((class, _), _)| *class == case.class);
    let own: Vec<String> = own.map(|(_, seen)| known(seen)).collect();
    let inventory = case.read("inventory.txt");
    let recorded = inventory
        .lines()
        .filter(|line| !line.starts_with("warning: "));
    let recorded: Vec<String> = recorded.map(known).collect();
    differ("devices", &own.join("\n"), &recorded.join("\n"));
    let check = checked(&json(&root, "check")["findings"]);
    differ(
        "check and list",
        &check.join("\n"),
        &healthy(&hook).join("\n"),
    );
    for (number, (request, plan)) in requests.iter().enumerate() {
        let found = read(&root, &number.to_string());
        let refusal = read(&root, &format!("{number}.errors"));
        match plan.split_once(": ") {
            Some(("refused", reason)) if refusal.contains(reason.trim_end()) => {}
            _ if plan.trim_end() == "no request" && found.starts_with("no request") => {}
            _ => differ(
                request,
                &without_capabilities(&without_authority(&found)),
                &without_own(&without_authority(plan), request),
            ),
        }
    }
    wrong
}

/// Returns the number of healthy devices of each class in the list.
fn healthy(listed: &BTreeMap<(String, String), String>) -> Vec<String> {
    let mut classes: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for ((class, _), seen) in listed {
        let (healthy, all) = classes.entry(class).or_default();
        *all += 1;
        *healthy += usize::from(seen.ends_with("  healthy"));
    }
    let lines = classes.iter().map(|(class, (healthy, all))| match healthy {
        0 => format!("class {class}: none of the devices"),
        _ => format!("class {class}: {healthy} of {all} devices healthy"),
    });
    lines.collect()
}

/// The same as `boathook check` has it, which may say of a class without a healthy device
/// that its containers would be refused.
fn checked(findings: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for finding in findings.as_array().unwrap() {
        let [subject, text] = ["subject", "text"].map(|key| finding[key].as_str().unwrap());
        if text.starts_with("0 of ") || text.contains("would be refused") {
            lines.push(format!("{subject}: none of the devices"));
        } else if text.ends_with("devices healthy") {
            lines.push(format!("{subject}: {text}"));
        }
    }
    lines
}

/// What an installation has: the programs, and all classes, with those that are alternatives
/// of others.
fn furnish(root: &Path) {
    for name in ["boathook", "boathook-plugin"] {
        binaries::copy(&binaries::program(name).unwrap(), &root.join(name)).unwrap();
    }
    for directory in [".proc", "output", "bundles", "etc/boathook/classes.d"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    class_files::copy_all(&root.join("etc/boathook/classes.d")).unwrap();
}

/// The requests of a golden plan, and what follows each.
fn requests(plan: &str) -> Vec<(&str, &str)> {
    let parts = plan.split("$ ").skip(1);
    parts.map(|part| part.split_once('\n').unwrap()).collect()
}

fn without_authority(plan: &str) -> String {
    let lines = plan.trim_end().lines();
    let kept: Vec<&str> = lines
        .filter(|line| !line.starts_with("  authorized by"))
        .collect();
    kept.join("\n")
}

/// Without the answer whether the container has a capability, which a golden plan leaves open.
fn without_capabilities(plan: &str) -> String {
    let lines = plan.lines().map(|line| match line.split_once(", which ") {
        Some((need, _)) if line.starts_with("  needs ") => need,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Without the variables that the container sets itself, which it keeps.
fn without_own(plan: &str, request: &str) -> String {
    let own = || request.split(' ').filter_map(|word| word.split_once('='));
    let is_own = |line: &&str| {
        let variable = line.trim_start().strip_prefix("env ").unwrap_or_default();
        let (name, _) = variable.trim_start().split_once('=').unwrap_or_default();
        own().any(|(other, _)| other == name)
    };
    let kept: Vec<&str> = plan.lines().filter(|line| !is_own(line)).collect();
    kept.join("\n")
}

fn read(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join("output").join(name)).unwrap()
}

fn json(root: &Path, name: &str) -> Value {
    let said = || read(root, name) + &read(root, &format!("{name}.errors"));
    serde_json::from_str(&read(root, name)).unwrap_or_else(|error| panic!("{error}: {}", said()))
}

/// A line for each device, as in the golden files, by class and id.
fn devices(listed: &Value) -> BTreeMap<(String, String), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let device = |device: &Value| {
        let health = match device["healthy"].as_bool() {
            Some(true) => "healthy".to_owned(),
            _ => format!("unhealthy: {}", text(&device["reason"])),
        };
        let numa = device["numa"]
            .as_u64()
            .map_or("none".to_owned(), |node| node.to_string());
        let (class, id) = (text(&device["class"]), text(&device["id"]));
        let seen = format!("{id}  {}  numa {numa}  {health}", text(&device["resource"]));
        ((class, id), seen)
    };
    listed.as_array().unwrap().iter().map(device).collect()
}
