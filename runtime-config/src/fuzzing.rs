//! The fuzz target for changes of configuration files. `tests/fuzz` calls it.

use std::path::Path;

use crate::change::Change;
use crate::engine_properties::Engine;
use crate::options::InstallOptions;
use crate::plan::Plan;
use crate::snapshot::Snapshot;

/// Plans an installation for an engine whose main configuration file has the text `text`. Panics if
/// the result does not parse, if a second installation changes something, or if an undo does not
/// restore the text. The undo is tested with and without a record.
pub fn install_and_undo(engine: Engine, text: &str) {
    let mut original_snapshot = Snapshot::default();
    original_snapshot.set_text(Path::new(main_file_path(engine)), Some(text.to_owned()));
    // A text that contains Boathook's name looks like an earlier installation. The plan would first
    // remove it, and the undo would not restore it.
    if text.contains("boathook") {
        return;
    }
    for set_default in [false, true] {
        let options = InstallOptions {
            hook_path: "/opt/boathook/bin/boathook-hook".into(),
            runtime_path: "/opt/boathook/bin/boathook-runtime".into(),
            set_default,
            real_runtime_path: None,
            additional_names: Vec::new(),
            base_spec: None,
        };
        let Ok(plan) = engine.plan_install(&original_snapshot, None, &options) else {
            continue;
        };
        let record = plan.record.as_ref();
        let installed_snapshot = apply_plan(&original_snapshot, &plan);
        for (path, text) in installed_snapshot.existing_files() {
            let is_valid = match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => {
                    serde_json::from_str::<serde_json::Value>(text.trim_start_matches('\u{feff}'))
                        .is_ok()
                }
                Some("toml" | "conf") => toml_edit::Document::parse(text).is_ok(),
                _ => true,
            };
            assert!(is_valid, "{}: {text:?}", path.display());
        }
        let second_plan = engine.plan_install(&installed_snapshot, record, &options);
        assert!(
            second_plan
                .unwrap_or_else(|error| panic!("{error}"))
                .is_empty()
        );
        let undone_snapshot = apply_plan(
            &installed_snapshot,
            &engine.plan_undo(&installed_snapshot, record),
        );
        assert_equal_files(&undone_snapshot, &original_snapshot);
        // In JSON, no comments mark the parts that Boathook added. So an undo without a record is
        // not exact (see `docker::remove_boathook_entries`).
        if engine != Engine::Docker {
            let undone_snapshot = apply_plan(
                &installed_snapshot,
                &engine.plan_undo(&installed_snapshot, None),
            );
            assert_equal_files(&undone_snapshot, &original_snapshot);
        }
    }
}

fn main_file_path(engine: Engine) -> &'static str {
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

fn apply_plan(snapshot: &Snapshot, plan: &Plan) -> Snapshot {
    let mut files = snapshot.clone();
    for change in &plan.changes {
        match change {
            Change::Write {
                path,
                old_text,
                new_text,
                ..
            } => {
                assert_eq!(files.get_text(path), old_text.as_deref());
                files.set_text(path, Some(new_text.clone()));
            }
            Change::Remove { path, old_text, .. } => {
                assert_eq!(files.get_text(path), Some(old_text.as_str()));
                files.set_text(path, None);
            }
            Change::MakeDir { .. } | Change::RemoveDir { .. } => {}
        }
    }
    files
}

fn assert_equal_files(snapshot: &Snapshot, expected: &Snapshot) {
    let files: Vec<_> = snapshot.existing_files().collect();
    let expected_files: Vec<_> = expected.existing_files().collect();
    assert_eq!(files, expected_files);
}
