//! Tests of single changes: which attributes of a file they keep, and which changes are refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use runtime_config::{Change, Engine, HostRoot, LoadState, Plan, find_load_state};

use crate::tree::{self, host_with};
use crate::{apply, options};

fn plan(engine: Engine, host: &HostRoot) -> Plan {
    let now = engine.read_snapshot(host, None).unwrap();
    engine.plan_install(&now, None, &options()).unwrap()
}

#[test]
fn a_file_that_changed_after_the_plan_is_left_alone() {
    let (dir, host) = host_with("etc/docker/daemon.json", "{}");
    let plan = plan(Engine::Docker, &host);
    fs::write(dir.path().join("etc/docker/daemon.json"), "{}\n").unwrap();
    let before = tree::snapshot(dir.path());
    let error = apply(&host, &plan.changes).unwrap_err();
    let said = "changed after the plan was made";
    assert!(error.to_string().contains(said), "{error}");
    assert_eq!(tree::snapshot(dir.path()), before);
}

#[test]
fn a_file_keeps_its_mode_and_a_link_stays_a_link() {
    let (dir, host) = host_with("data/daemon.json", "{}");
    let (real, link) = (
        dir.path().join("data/daemon.json"),
        dir.path().join("etc/docker"),
    );
    fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
    fs::create_dir_all(&link).unwrap();
    let link = link.join("daemon.json");
    symlink("/data/daemon.json", &link).unwrap();
    apply(&host, &plan(Engine::Docker, &host).changes).unwrap();
    let text = fs::read_to_string(&real).unwrap();
    assert!(text.contains("boathook-runtime"), "{text}");
    let mode = fs::metadata(&real).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(link.is_symlink());
}

#[test]
fn nothing_of_a_killed_run_gets_in_the_way() {
    let (dir, host) = host_with("etc/crio/crio.conf", "");
    let plan = plan(Engine::Crio, &host);
    let drop_in = plan.changes.last().unwrap().path();
    let left = runtime_config::scratch_path(&dir.path().join(drop_in.strip_prefix("/").unwrap()));
    // CRI-O reads every file in crio.conf.d, so an incomplete file must never be there.
    assert_eq!(left.parent(), Some(dir.path().join("etc/crio").as_path()));
    fs::write(&left, "half a fi").unwrap();
    apply(&host, &plan.changes).unwrap();
    assert!(!left.exists());
}

#[test]
fn a_made_directory_that_someone_uses_is_kept() {
    let (dir, host) = host_with("etc/crio/crio.conf", "");
    let plan = plan(Engine::Crio, &host);
    apply(&host, &plan.changes).unwrap();
    fs::write(dir.path().join("etc/crio/hooks.d/theirs.json"), "{}").unwrap();
    let now = Engine::Crio
        .read_snapshot(&host, plan.record.as_ref())
        .unwrap();
    let undo = Engine::Crio.plan_undo(&now, plan.record.as_ref());
    apply(&host, &undo.changes).unwrap();
    let left = tree::files(dir.path()).into_keys();
    let wanted = ["etc/crio/crio.conf", "etc/crio/hooks.d/theirs.json"];
    assert!(left.eq(wanted.map(PathBuf::from)));
}

#[test]
fn a_plan_prints_as_a_diff() {
    let (_dir, host) = host_with("etc/containerd/config.toml", "version = 3\n");
    let text = plan(Engine::Containerd, &host).to_string();
    let begins = "mkdir /etc/containerd/conf.d\n--- /dev/null\n+++ /etc/containerd/conf.d/99-boathook.toml\n";
    assert!(text.starts_with(begins), "{text}");
    let added = "+imports = [\"/etc/containerd/conf.d/99-boathook.toml\"] # boathook: added\n version = 3\n";
    assert!(text.ends_with(added), "{text}");
}

#[test]
fn engines_are_found_by_files_of_the_host() {
    let cases = [
        ("usr/bin/crio", Engine::Crio),
        ("run/crio/crio.sock", Engine::Crio),
        ("usr/local/bin/containerd", Engine::Containerd),
        ("var/lib/rancher/k3s/data/current/bin/k3s", Engine::K3s),
        ("usr/local/bin/rke2", Engine::Rke2),
        ("usr/local/bin/k0s", Engine::K0s),
        ("snap/bin/microk8s", Engine::Microk8s),
        ("usr/bin/dockerd", Engine::Docker),
        ("usr/bin/podman", Engine::Podman),
    ];
    for (path, engine) in cases {
        let (_dir, host) = host_with(path, "");
        let found = Engine::ALL
            .into_iter()
            .filter(|e| e.detect(&host).is_some());
        assert_eq!(found.collect::<Vec<_>>(), [engine]);
    }
    for leftover in [
        "etc/crio/crio.conf",
        "etc/containerd/config.toml",
        "etc/docker/daemon.json",
        "var/lib/rancher/k3s/agent/x",
    ] {
        let (_dir, host) = host_with(leftover, "");
        let mut engines = Engine::ALL.iter();
        assert!(engines.all(|e| e.detect(&host).is_none()), "{leftover}");
    }
    assert_eq!("cri-o".parse::<Engine>().unwrap(), Engine::Crio);
    for (name, said) in [
        ("runc", "runc is a runtime, not an engine"),
        ("dokcer", "\"dokcer\""),
        ("dokcer", "docker, podman"),
    ] {
        let error = name.parse::<Engine>().unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_daemon_older_than_its_configuration_has_not_loaded_it() {
    let (dir, host) = host_with("etc/containerd/config.toml", "version = 2\n");
    let plan = plan(Engine::Containerd, &host);
    let record = plan.record.clone().unwrap();
    let state = || find_load_state(&host, Engine::Containerd, &record);
    assert_eq!(state(), LoadState::NotRunning);
    let socket = dir.path().join("run/containerd/containerd.sock");
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let first = UnixListener::bind(&socket).unwrap();
    // The kernel's coarse clock, which gives the times of files, ticks every few milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(20));
    apply(&host, &plan.changes).unwrap();
    assert_eq!(state(), LoadState::NotLoaded);
    drop(first);
    fs::remove_file(&socket).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let _second = UnixListener::bind(&socket).unwrap();
    assert_eq!(state(), LoadState::Loaded);
}

#[test]
fn the_runtimes_are_read_from_docker() {
    use std::io::{Read, Write};
    let (dir, host) = host_with("etc/docker/daemon.json", "{}");
    let record = plan(Engine::Docker, &host).record.unwrap();
    fs::create_dir(dir.path().join("run")).unwrap();
    let listener = UnixListener::bind(dir.path().join("run/docker.sock")).unwrap();
    // dockerd answers without the runtime, with another program for it, with the runtime as the
    // default, with a runtime of an earlier installation, and as the configuration has it.
    let path = "{\"path\": \"/opt/boathook/current/bin/boathook-runtime\"}";
    let answers = [
        "{\"Runtimes\": {\"runc\": {}}}".to_owned(),
        "{\"Runtimes\": {\"boathook\": {\"path\": \"/bin/runc\"}}}".to_owned(),
        format!("{{\"Runtimes\": {{\"boathook\": {path}}}, \"DefaultRuntime\": \"boathook\"}}"),
        format!("{{\"Runtimes\": {{\"boathook\": {path}, \"vendor\": {path}}}}}"),
        format!("{{\"Runtimes\": {{\"boathook\": {path}}}, \"DefaultRuntime\": \"runc\"}}"),
    ];
    let daemon = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 256];
            let read = stream.read(&mut request).unwrap();
            assert!(request[..read].starts_with(b"GET /info HTTP/1.0\r\n"));
            write!(stream, "HTTP/1.0 200 OK\r\n\r\n{answer}").unwrap();
        }
    });
    for _ in 0..4 {
        assert_eq!(
            find_load_state(&host, Engine::Docker, &record),
            LoadState::NotLoaded
        );
    }
    assert_eq!(
        find_load_state(&host, Engine::Docker, &record),
        LoadState::Loaded
    );
    daemon.join().unwrap();
    assert_eq!(
        find_load_state(&host, Engine::Docker, &record),
        LoadState::NotRunning
    );
}

#[test]
fn a_file_that_its_owner_reformatted_is_not_written_again() {
    let (dir, host) = host_with("etc/docker/daemon.json", "{}");
    let first = plan(Engine::Docker, &host);
    apply(&host, &first.changes).unwrap();
    let file = dir.path().join("etc/docker/daemon.json");
    let text = fs::read_to_string(&file).unwrap();
    let formatted: String = text.split_whitespace().collect();
    fs::write(&file, &formatted).unwrap();
    let now = Engine::Docker
        .read_snapshot(&host, first.record.as_ref())
        .unwrap();
    let again = Engine::Docker.plan_install(&now, first.record.as_ref(), &options());
    assert!(again.unwrap().is_empty());
}

#[test]
fn a_record_of_another_program_is_refused() {
    let (_dir, host) = host_with("opt/record.json", "{\"format\": 2}");
    let path = PathBuf::from("/opt/record.json");
    let error = runtime_config::InstallationRecord::load(&host, &path).unwrap_err();
    let said = "/opt/record.json is not valid";
    assert!(error.to_string().contains(said), "{error}");
    assert!(Change::MakeDir { path }.apply(&host).is_err());
}
