//! The fuzz target for the edits of configuration files. `tests/fuzz` calls it.

use std::path::Path;

use crate::change::Change;
use crate::facts::Engine;
use crate::options::Options;
use crate::plan::Plan;
use crate::snapshot::Snapshot;

/// Plans an installation for an engine whose main configuration file has the text `text`, and
/// checks that the result parses, that a second installation changes nothing, and that an undo,
/// with and without a record, restores the text.
pub fn install_and_undo(engine: Engine, text: &str) {
    let mut original = Snapshot::default();
    original.set(Path::new(main_file(engine)), Some(text.to_owned()));
    // Text with Boathook's name looks like an earlier installation. It would be removed first, so
    // the undo would not restore it.
    if text.contains("boathook") {
        return;
    }
    for set_default in [false, true] {
        let options = Options {
            hook: "/opt/boathook/bin/boathook-hook".into(),
            runtime: "/opt/boathook/bin/boathook-runtime".into(),
            set_default,
            real_runtime: None,
            more_names: Vec::new(),
            base_spec: None,
        };
        let Ok(plan) = engine.plan_install(&original, None, &options) else {
            continue;
        };
        let record = plan.record.as_ref();
        let installed = apply_plan(&original, &plan);
        for (path, text) in installed.present() {
            let valid = match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => {
                    serde_json::from_str::<serde_json::Value>(text.trim_start_matches('\u{feff}'))
                        .is_ok()
                }
                Some("toml" | "conf") => toml_edit::Document::parse(text).is_ok(),
                _ => true,
            };
            assert!(valid, "{}: {text:?}", path.display());
        }
        let again = engine.plan_install(&installed, record, &options);
        assert!(again.unwrap_or_else(|error| panic!("{error}")).is_empty());
        let undone = apply_plan(&installed, &engine.plan_undo(&installed, record));
        assert_equal_files(&undone, &original);
        // JSON has no comments for marks, so an undo without a record is not exact (see
        // `docker::strip`).
        if engine != Engine::Docker {
            let undone = apply_plan(&installed, &engine.plan_undo(&installed, None));
            assert_equal_files(&undone, &original);
        }
    }
}

fn main_file(engine: Engine) -> &'static str {
    match engine {
        Engine::Containerd => "/etc/containerd/config.toml",
        Engine::Microk8s => "/var/snap/microk8s/current/args/containerd-template.toml",
        Engine::K3s => "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl",
        Engine::Rke2 => "/var/lib/rancher/rke2/agent/etc/containerd/config.toml.tmpl",
        Engine::K0s => "/etc/k0s/containerd.toml",
        Engine::Crio => "/etc/crio/crio.conf",
        Engine::Docker => "/etc/docker/daemon.json",
        Engine::Podman => "/etc/containers/containers.conf",
    }
}

fn apply_plan(files: &Snapshot, plan: &Plan) -> Snapshot {
    let mut files = files.clone();
    for change in &plan.changes {
        match change {
            Change::Write {
                path,
                before,
                after,
                ..
            } => {
                assert_eq!(files.text(path), before.as_deref());
                files.set(path, Some(after.clone()));
            }
            Change::Remove { path, before, .. } => {
                assert_eq!(files.text(path), Some(before.as_str()));
                files.set(path, None);
            }
            Change::MakeDir { .. } | Change::RemoveDir { .. } => {}
        }
    }
    files
}

fn assert_equal_files(now: &Snapshot, then: &Snapshot) {
    let (now, then): (Vec<_>, Vec<_>) = (now.present().collect(), then.present().collect());
    assert_eq!(now, then);
}
