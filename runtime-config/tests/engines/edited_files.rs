//! Files that the administrator edits after an installation: the edits survive the next
//! installation and the undo.

use std::fs;
use std::path::Path;

use runtime_config::{Engine, HostRoot, InstallOptions, InstallationRecord};

use crate::tree::host_with;
use crate::{apply, options};

const DAEMON_JSON: &str = "etc/docker/daemon.json";

fn install(
    engine: Engine,
    host: &HostRoot,
    record: Option<&InstallationRecord>,
    set_default: bool,
) -> InstallationRecord {
    let options = InstallOptions {
        set_default,
        ..options()
    };
    let now = engine.read_snapshot(host, record).unwrap();
    let plan = engine.plan_install(&now, record, &options).unwrap();
    apply(host, &plan.changes).unwrap();
    plan.record.unwrap()
}

fn undo(engine: Engine, host: &HostRoot, record: &InstallationRecord) {
    let now = engine.read_snapshot(host, Some(record)).unwrap();
    apply(host, &engine.plan_undo(&now, Some(record)).changes).unwrap();
}

/// Makes a running Docker drop the runtime, as `uninstall --restart` does first. Returns the record
/// that is then on disk.
fn unload(host: &HostRoot, record: &InstallationRecord) -> InstallationRecord {
    let now = Engine::Docker.read_snapshot(host, Some(record)).unwrap();
    let plan = Engine::Docker.plan_runtime_unload(&now, Some(record));
    let plan = plan.unwrap().unwrap();
    apply(host, &plan.changes).unwrap();
    plan.record.unwrap()
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[test]
fn an_edited_daemon_json_survives_the_unloading_of_the_runtime() {
    let before = "{\n    \"debug\": true\n}\n";
    for old_text in [Some(before), Some("{\"default-runtime\": \"runc\"}"), None] {
        for is_edited in [true, false] {
            for is_installed_again in [true, false] {
                let case = format!("{old_text:?} {is_edited} {is_installed_again}");
                let (dir, host) = host_with(DAEMON_JSON, old_text.unwrap_or_default());
                let file = dir.path().join(DAEMON_JSON);
                if old_text.is_none() {
                    fs::remove_file(&file).unwrap();
                }
                let mut record = install(Engine::Docker, &host, None, true);
                if is_edited {
                    let edited = read(&file)
                        .unwrap()
                        .replacen('{', "{\"data-root\": \"/d\",", 1);
                    fs::write(&file, edited).unwrap();
                }
                // A run that is killed after the unloading is repeated.
                record = unload(&host, &unload(&host, &record));
                if is_installed_again {
                    record = install(Engine::Docker, &host, Some(&record), true);
                }
                undo(Engine::Docker, &host, &record);
                let text = read(&file);
                if !is_edited {
                    assert_eq!(text.as_deref(), old_text, "{case}");
                    continue;
                }
                let text = text.unwrap_or_else(|| panic!("{case}: the file is gone"));
                let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
                let members = json.as_object_mut().unwrap();
                assert_eq!(members.remove("data-root"), Some("/d".into()), "{case}");
                members.remove("runtimes");
                let expected: serde_json::Value =
                    serde_json::from_str(old_text.unwrap_or("{}")).unwrap();
                assert_eq!(json, expected, "{case}");
            }
        }
    }
}

/// Writes a file after an installation as `edit` returns it, and returns its text after a second
/// installation and an undo.
fn edit_and_undo(
    engine: Engine,
    (path, before): (&str, Option<&str>),
    set_default: bool,
    edit: impl Fn(String) -> String,
) -> Option<String> {
    let (dir, host) = host_with(path, before.unwrap_or_default());
    let file = dir.path().join(path);
    if before.is_none() {
        fs::remove_file(&file).unwrap();
    }
    let mut record = install(engine, &host, None, set_default);
    fs::write(&file, edit(read(&file).unwrap())).unwrap();
    let (copied_dir, copied_host) = host_with(path, &read(&file).unwrap());
    undo(engine, &copied_host, &record);
    for _ in 0..2 {
        record = install(engine, &host, Some(&record), set_default);
    }
    let installed = read(&file).unwrap();
    undo(engine, &host, &record);
    let text = read(&file);
    let undone_at_once = read(&copied_dir.path().join(path));
    assert_eq!(undone_at_once, text, "{installed}");
    text
}

const CONFIG_TOML: &str = "etc/containerd/config.toml";
const CRI_TABLE: &str = "[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"mine\"\n";

#[test]
fn plugins_that_are_added_to_a_configuration_keep_its_version() {
    for (before, expected) in [
        (None, "version = 2\n"),
        (Some(""), "version = 2\n"),
        (Some("root = \"/r\"\n"), "version = 2\nroot = \"/r\"\n"),
    ] {
        let edit = |text: String| text + CRI_TABLE;
        let file = (CONFIG_TOML, before);
        let left = edit_and_undo(Engine::Containerd, file, false, edit).unwrap();
        assert_eq!(left, format!("{expected}{CRI_TABLE}"), "{before:?}");
    }
}

#[test]
fn tables_that_are_added_to_a_template_keep_its_base() {
    let path = "var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl";
    let base = "{{ template \"base\" . }}\n";
    for added in ["[mine]\na = 1\n", "# mine\n"] {
        let edit = |text: String| text + added;
        let left = edit_and_undo(Engine::K3s, (path, None), false, edit).unwrap();
        assert_eq!(left, format!("{base}{added}"));
    }
    let left = edit_and_undo(Engine::K3s, (path, None), false, |text| text + "\n");
    assert_eq!(left, None);
}

#[test]
fn an_edited_list_of_imports_survives() {
    let edit = |text: String| text.replace("99-boathook.toml", "*.toml");
    let file = (CONFIG_TOML, Some("version = 3\n"));
    let left = edit_and_undo(Engine::Containerd, file, false, edit).unwrap();
    let expected = "imports = [\"/etc/containerd/conf.d/*.toml\"]\nversion = 3\n";
    assert_eq!(left, expected);
}

const WITH_DEFAULT: &str = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n\
    default_runtime_name = \"runc\"\n";

#[test]
fn a_file_that_an_undo_would_damage_stays() {
    let (dir, host) = host_with(CONFIG_TOML, WITH_DEFAULT);
    let file = dir.path().join(CONFIG_TOML);
    let record = install(Engine::Containerd, &host, None, true);
    let edited = read(&file).unwrap().replace(
        "default_runtime_name = \"boathook\" # boathook: added\n",
        "default_runtime_name = \"kata\"\n# a comment between the lines\n",
    );
    fs::write(&file, &edited).unwrap();
    undo(Engine::Containerd, &host, &record);
    assert_eq!(read(&file), Some(edited));
}
