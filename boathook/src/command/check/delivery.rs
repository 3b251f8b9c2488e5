//! Checks by which means engines call the hook for containers of pods: a CDI specification or a
//! runtime handler.

use device_class::collect_by_insertion;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use device_class::config::{Config, InstalledDirectories};
use host_files::rooted_path::read_own_text;
use injection_plan::cdi::SpecificationOwner;
use injection_plan::cdi::directory::is_generated;
use runtime_config::Engine;
use serde_json::Value;

use super::missing_nodes::report_missing_nodes;
use crate::command::finding::{Finding, Severity};
use crate::command::launcher::is_cluster_node;

const SUBJECT: &str = "delivery";
/// The size limit of a CDI specification in bytes. Larger files are ignored.
const MAX_SPECIFICATION_BYTES: u64 = 16 << 20;

pub(super) const CDI_SPEC_DIRS: [&str; 2] = ["run/cdi", "etc/cdi"];

const CDI_DELIVERY_ADVICE: &str = "containerd 2.0 and later and CRI-O bring the hook by CDI, without a file \
                      of theirs being changed: deploy boathook-plugin with --delivery=cdi \
                      (docs/engines.md)";

/// Returns the findings about how the hook reaches the containers of pods. On a host that is not a
/// cluster node, checks only the specifications of `boathook cdi generate`, whose device names
/// users give with `--device`.
pub(super) fn check_delivery(config: &Config, directories: &InstalledDirectories) -> Vec<Finding> {
    let host_root = &config.host_root;
    // `boathook-init` writes a record of each engine that it configures into this directory.
    let state_dir = directories.state_dir();
    let record_dir = host_root.join(state_dir.strip_prefix("/").unwrap_or(&state_dir));
    let specifications = read_specifications(host_root);
    let mut findings = Vec::new();
    for (path, text) in &specifications {
        let Ok(specification) = serde_json::from_str(text) else {
            continue;
        };
        findings.extend(report_missing_hook(host_root, path, &specification));
        findings.extend(report_missing_nodes(host_root, path, &specification));
    }
    let is_cluster_node = is_cluster_node(config);
    // On a cluster node, only the plugin's specifications are counted, because the kubelet gives
    // engines only CDI device names from these specifications.
    let specification_count = specifications
        .keys()
        .filter_map(|path| path.file_name()?.to_str())
        .filter(|name| !is_cluster_node || SpecificationOwner::Plugin.owns_file(name))
        .count();
    let handler_engines: Vec<&str> = Engine::ALL
        .into_iter()
        .filter(|engine| {
            let record_path = record_dir.join(format!("{engine}.json"));
            *engine != Engine::Docker && *engine != Engine::Podman && record_path.is_file()
        })
        .map(Engine::name)
        .collect();
    let ok_finding = |text: String| Finding::new(Severity::Ok, SUBJECT, text);
    if !is_cluster_node {
        if specification_count > 0 {
            let text = format!(
                "{specification_count} files with names for `--device` (`boathook cdi list`)"
            );
            findings.push(Finding::new(Severity::Ok, "CDI names", text));
        }
        return findings;
    }
    match (specification_count, handler_engines.as_slice()) {
        (0, []) => {
            let text = "nothing brings the hook to pods";
            findings.push(Finding::new(Severity::Warning, SUBJECT, text).with_fix(CDI_DELIVERY_ADVICE));
        }
        (0, names) => {
            let text = format!("by the runtime handler of {}", names.join(", "));
            findings.push(ok_finding(text).with_fix(CDI_DELIVERY_ADVICE));
        }
        (specification_count, []) => findings.push(ok_finding(format!("by CDI: {specification_count} specifications"))),
        (specification_count, names) => findings.push(ok_finding(format!(
            "by CDI: {specification_count} specifications; and by the runtime handler of {}, for pods that \
             name it",
            names.join(", ")
        ))),
    }
    findings
}

fn read_specifications(host_root: &Path) -> BTreeMap<PathBuf, String> {
    let directories = CDI_SPEC_DIRS.map(|directory| host_root.join(directory));
    let entries = directories
        .iter()
        .filter_map(|path| fs::read_dir(path).ok());
    let entries = entries.flatten().flatten();
    collect_by_insertion(entries.filter_map(|entry| {
        let text = read_own_text(&entry.path(), MAX_SPECIFICATION_BYTES).ok()?;
        let is_generated_file = is_generated(&entry.file_name().to_string_lossy(), &text);
        is_generated_file.then(|| (entry.path(), text))
    }))
}

/// Returns a finding if a CDI specification refers to a hook program that does not exist. Engines
/// cannot start a container that gets a device of this specification.
fn report_missing_hook(
    host_root: &Path,
    specification_path: &Path,
    specification: &Value,
) -> Option<Finding> {
    let devices = specification["devices"].as_array()?;
    let hook_programs = devices
        .iter()
        .filter_map(|device| device["containerEdits"]["hooks"][0]["path"].as_str());
    let program_exists = |hook: &&str| host_root.join(hook.trim_start_matches('/')).is_file();
    let missing_program = hook_programs
        .into_iter()
        .find(|hook| !program_exists(hook))?;
    let text = format!(
        "{} names the hook {missing_program}, which does not exist",
        specification_path.display()
    );
    let finding = Finding::new(Severity::Error, SUBJECT, text);
    Some(finding.with_fix("install it with `boathook-init install --engine none`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_cdi_or_a_handler_or_nothing() {
        let host = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let text = format!("host_root = {:?}\n", host.path());
        let config = Config::parse(Path::new("config.toml"), &text).unwrap();
        let lines = || -> Vec<String> {
            let findings = check_delivery(&config, &InstalledDirectories::default());
            let to_line = |finding: &Finding| format!("{:?}: {}", finding.severity, finding.text);
            findings.iter().map(to_line).collect()
        };
        assert_eq!(lines(), [] as [&str; 0]);
        // Without a kubelet nothing is said of pods.
        write("opt/boathook/state/containerd.json", "{}");
        assert_eq!(lines(), [] as [&str; 0]);
        let people = r#"{"kind": "x.com/npu", "devices": []}"#;
        write("run/cdi/boathook-x.com-npu.json", people);
        assert_eq!(
            lines(),
            ["Ok: 1 files with names for `--device` (`boathook cdi list`)"]
        );
        // Engines refuse a device whose node is gone.
        let device = r#"{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/npu0"}]}}"#;
        write(
            "run/cdi/boathook-x.com-npu.json",
            &people.replace("[]", &format!("[{device}]")),
        );
        let [missing_node, _] = &*lines() else {
            panic!("{:?}", lines());
        };
        let words = "lists devices whose device nodes do not exist on this host: `0` (/dev/npu0)";
        assert!(missing_node.contains(words), "{missing_node}");
        // A node with a number is created by the engine.
        let created = device.replace("/dev/npu0\"", "/dev/npu0\", \"major\": 240, \"minor\": 0");
        write(
            "run/cdi/boathook-x.com-npu.json",
            &people.replace("[]", &format!("[{created}]")),
        );
        assert_eq!(lines().len(), 1);
        write(
            "run/cdi/boathook-x.com-npu.json",
            &people.replace("[]", &format!("[{device}]")),
        );
        write("dev/npu0", "");
        assert_eq!(lines().len(), 1);
        for file in [
            "opt/boathook/state/containerd.json",
            "run/cdi/boathook-x.com-npu.json",
        ] {
            fs::remove_file(host.path().join(file)).unwrap();
        }
        fs::create_dir_all(host.path().join("var/lib/kubelet/device-plugins")).unwrap();
        assert_eq!(lines(), ["Warning: nothing brings the hook to pods"]);
        write("opt/boathook/state/containerd.json", "{}");
        assert_eq!(lines(), ["Ok: by the runtime handler of containerd"]);
        assert!(
            check_delivery(&config, &InstalledDirectories::default())[0]
                .fix
                .is_some()
        );

        let specification = r#"{"kind": "x.com.pods.boathook.dev/npu", "devices":
            [{"containerEdits": {"hooks": [{"path": "/opt/hook"}]}}]}"#;
        write(
            "run/cdi/boathook-x.com.pods.boathook.dev-npu.json",
            specification,
        );
        let [missing, by_cdi] = &*lines() else {
            panic!("{:?}", lines());
        };
        assert!(missing.starts_with("Error: "), "{missing}");
        assert!(missing.ends_with("names the hook /opt/hook, which does not exist"));
        assert!(by_cdi.starts_with("Ok: by CDI: 1 specifications; and by "));
        write("opt/hook", "");
        fs::remove_file(host.path().join("opt/boathook/state/containerd.json")).unwrap();
        assert_eq!(lines(), ["Ok: by CDI: 1 specifications"]);
        let for_people = specification.replace(".pods.boathook.dev", "");
        write("run/cdi/boathook-x.com-npu.json", &for_people);
        assert_eq!(lines(), ["Ok: by CDI: 1 specifications"]);
    }
}
