//! Plans with `--set-default`: the runtime that was the default is called, or the plan is refused.

mod containerd;
mod key_case;

use std::fs;
use std::path::Path;

use runtime_config::{Engine, HostRoot, InstallOptions, find_common_runtime};

use crate::{apply, options};

/// The files of a host.
type HostFiles<'t> = &'t [(&'t str, &'t str)];

/// Returns the planned replacement as text: the replaced runtime and the program that
/// `boathook-runtime` calls, or the refusal.
fn planned(engine: Engine, files: HostFiles<'_>, configured: Option<&str>) -> String {
    let (_dir, host) = host(files);
    let options = InstallOptions {
        set_default: true,
        real_runtime_path: configured.map(Into::into),
        ..options()
    };
    let now = engine.read_snapshot(&host, None).unwrap();
    match engine.plan_install(&now, None, &options) {
        Ok(plan) => {
            let replaced = plan.replaced_runtime.unwrap();
            let program = replaced.program.as_deref().unwrap_or(Path::new("runc"));
            format!("{}: {}", replaced.name, program.display())
        }
        Err(error) => format!("refused: {error}"),
    }
}

fn host(files: HostFiles<'_>) -> (tempfile::TempDir, HostRoot) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let host = HostRoot::open(dir.path()).unwrap();
    (dir, host)
}

/// Checks a table of cases: the files, the configured runtime, and the beginning of the expected
/// text.
#[track_caller]
fn check(engine: Engine, cases: &[(HostFiles<'_>, Option<&str>, &str)]) {
    for (files, configured, expected) in cases {
        let found = planned(engine, files, *configured);
        assert!(
            found.starts_with(expected),
            "{engine} {files:?} {configured:?}: {found}, not {expected}"
        );
    }
}

fn refusal(engine: Engine, name: &str) -> String {
    format!("refused: {engine}: the default runtime is {name}")
}

#[test]
fn docker_loses_no_runtime() {
    const JSON: &str = "/etc/docker/daemon.json";
    let entry = |entry: &str| {
        format!("{{\"default-runtime\": \"mine\", \"runtimes\": {{\"mine\": {entry}}}}}")
    };
    let named = |name: &str| format!("{{\"default-runtime\": \"{name}\"}}");
    let by = |path: &str| entry(&format!("{{\"path\": \"{path}\"}}"));
    let refused = |what: &str| refusal(Engine::Docker, &format!("mine ({what})"));
    for (text, configured, expected) in [
        ("{}".to_owned(), None, "runc: runc".to_owned()),
        (named("runc"), None, "runc: runc".into()),
        (named("io.containerd.runc.v2"), None, "runc: runc".into()),
        (by("/usr/bin/crun"), None, "mine: /usr/bin/crun".into()),
        (by("/opt/bin/runc"), None, "mine: /opt/bin/runc".into()),
        (by("runc"), None, "mine: runc".into()),
        // A program that is not found has no known path.
        (by("crun"), None, refused("crun")),
        (by("crun"), Some("/opt/crun"), "mine: /opt/crun".into()),
        (by("/usr/bin/runsc"), None, refused("/usr/bin/runsc")),
        (by("sysbox-runc"), None, refused("sysbox-runc")),
        (
            by("/usr/bin/krun"),
            Some("/usr/bin/runc"),
            refused("/usr/bin/krun"),
        ),
        (
            by("/usr/bin/krun"),
            Some("/usr/bin/krun"),
            "mine: /usr/bin/krun".into(),
        ),
        (
            by("sysbox-runc"),
            Some("/usr/bin/sysbox-runc"),
            "mine: /usr/bin/sysbox-runc".into(),
        ),
        (
            entry(
                "{\"runtimeType\": \"io.containerd.runc.v2\", \"options\": {\"BinaryName\": \"/a/crun\"}}",
            ),
            None,
            "mine: /a/crun".into(),
        ),
        (
            entry("{\"runtimeType\": \"io.containerd.kata.v2\"}"),
            Some("/usr/bin/runc"),
            refused("io.containerd.kata.v2"),
        ),
        (
            named("io.containerd.runsc.v1"),
            None,
            refusal(Engine::Docker, "io.containerd.runsc.v1"),
        ),
        (named("runsc"), None, refusal(Engine::Docker, "runsc")),
        (
            entry("{}"),
            None,
            refused("an entry without path and runtimeType"),
        ),
        (
            "{\"default-runtime\": \"runc\", \"runtimes\": {\"runc\": {}}}".into(),
            None,
            "runc: runc".into(),
        ),
    ] {
        check(Engine::Docker, &[(&[(JSON, &text)], configured, &expected)]);
    }
}

#[test]
fn docker_with_an_option_for_the_default_runtime_is_refused() {
    const UNIT: &str = "/lib/systemd/system/docker.service";
    const PACKAGED: &str = "[Service]\nEnvironmentFile=-/etc/default/docker\n\
        ExecStart=/usr/sbin/dockerd -H fd:// $DOCKER_OPTS\n";
    let drop_in = "/etc/systemd/system/docker.service.d/a.conf";
    let option = "[Service]\nExecStart=\nExecStart=dockerd --default-runtime runsc\n";
    let process = [
        ("/proc/70/status", "Uid:\t0\t0\t0\t0\n"),
        ("/proc/70/comm", "dockerd\n"),
        ("/proc/70/cmdline", "dockerd\0--default-runtime=crun\0"),
    ];
    let refused = |value: &str, source: &str| {
        format!("refused: docker: dockerd has --default-runtime={value} in {source}, and")
    };
    let defaults = (
        "/etc/default/docker",
        "DOCKER_OPTS=\"--default-runtime=runc\"\n",
    );
    let init_script = ("/etc/init.d/docker", "");
    let elsewhere = "[Service]\nExecStart=dockerd --default-runtime=a --config-file=/srv/d.json\n";
    let accepted = "runc: runc".to_owned();
    let cases: [(HostFiles<'_>, String); 9] = [
        (&[(UNIT, PACKAGED)], accepted.clone()),
        (
            &[(UNIT, PACKAGED), (drop_in, option)],
            refused("runsc", drop_in),
        ),
        (&[(UNIT, option)], refused("runsc", UNIT)),
        (
            &[(UNIT, PACKAGED), defaults],
            refused("runc", "/etc/default/docker"),
        ),
        // Docker's own unit does not read this file.
        (
            &[(UNIT, "[Service]\nExecStart=dockerd\n"), defaults],
            accepted.clone(),
        ),
        (
            &[init_script, defaults],
            refused("runc", "/etc/default/docker"),
        ),
        (&[defaults], accepted),
        (&process, refused("crun", "the command line of process 70")),
        // Its file is the one that is configured.
        (&[(UNIT, elsewhere)], refused("a", UNIT)),
    ];
    for (files, expected) in &cases {
        check(Engine::Docker, &[(files, None, expected)]);
    }
}

#[test]
fn crio_loses_no_runtime() {
    const MAIN: &str = "/etc/crio/crio.conf";
    const DROP_IN: &str = "/etc/crio/crio.conf.d/10-crio.conf";
    let with = |body: &str| format!("[crio.runtime]\n{body}\n");
    let crun = with(
        "default_runtime = \"crun\"\n[crio.runtime.runtimes.crun]\nruntime_path = \"/c/crun\"",
    );
    let kata = with(
        "default_runtime = \"kata\"\n[crio.runtime.runtimes.kata]\nruntime_type = \"vm\"\n\
        runtime_path = \"/c/runc\"",
    );
    let sysbox = with(
        "default_runtime = \"sysbox-runc\"\n[crio.runtime.runtimes.sysbox-runc]\n\
        runtime_path = \"/c/sysbox-runc\"",
    );
    let bare = with("default_runtime = \"crun\"");
    let refused = |what: &str| refusal(Engine::Crio, what);
    let unit = (
        "/usr/lib/systemd/system/crio.service",
        "[Service]\nExecStart=crio --default-runtime=kata\n",
    );
    let cases: [(HostFiles<'_>, &str); 9] = [
        (&[], "runc: runc"),
        (&[(MAIN, &crun)], "crun: /c/crun"),
        (
            &[(DROP_IN, &bare), ("/usr/bin/crun", "")],
            "crun: /usr/bin/crun",
        ),
        (&[(DROP_IN, &bare)], &refused("crun")),
        (
            &[(MAIN, &crun), (DROP_IN, &kata)],
            &refused("kata (runtime_type vm)"),
        ),
        (&[(MAIN, &kata), (DROP_IN, &crun)], "crun: /c/crun"),
        (&[(MAIN, &sysbox)], &refused("sysbox-runc (/c/sysbox-runc)")),
        (
            &[("/etc/crio/crio.conf.d/99-site.conf", &crun)],
            "refused: /etc/crio/crio.conf.d/99-site.conf:2: this default runtime has precedence",
        ),
        (
            &[unit],
            "refused: crio: --default-runtime=kata in /usr/lib/systemd/system/crio.service",
        ),
    ];
    for (files, expected) in cases {
        check(Engine::Crio, &[(files, None, expected)]);
    }
}

#[test]
fn podman_loses_no_runtime() {
    const MAIN: &str = "/etc/containers/containers.conf";
    let named = |name: &str| format!("[engine]\nruntime = \"{name}\"\n");
    let listed =
        "[engine]\nruntime = \"mine\"\n[engine.runtimes]\nmine = [\"/a/crun\", \"/b/crun\"]\n";
    let krun = "[engine]\nruntime = \"mine\"\n[engine.runtimes]\nmine = [\"/a/krun\"]\n";
    let refused = |what: &str| refusal(Engine::Podman, what);
    let crun = ("/usr/bin/crun", "");
    let cases: [(HostFiles<'_>, &str); 8] = [
        (
            &[],
            "refused: podman: which runtime is its default cannot be determined",
        ),
        (&[crun, ("/usr/bin/runc", "")], "crun: /usr/bin/crun"),
        (&[("/usr/sbin/runc", "")], "runc: runc"),
        (&[(MAIN, &named("runc")), crun], "runc: runc"),
        (&[(MAIN, listed), ("/b/crun", "")], "mine: /b/crun"),
        (
            &[(MAIN, krun), ("/a/krun", ""), crun],
            &refused("mine (/a/krun)"),
        ),
        (&[(MAIN, &named("kata")), crun], &refused("kata")),
        (
            &[
                (
                    "/etc/containers/containers.conf.d/99-site.conf",
                    "[engine]\nruntime = \"crun\"\n",
                ),
                crun,
            ],
            "refused: /etc/containers/containers.conf.d/99-site.conf:2: this default runtime has",
        ),
    ];
    for (files, expected) in cases {
        check(Engine::Podman, &[(files, None, expected)]);
    }
}

#[test]
fn one_program_is_called_for_all_engines() {
    let replaced = |engine: Engine, files: HostFiles<'_>| {
        let (_dir, host) = host(files);
        let options = InstallOptions {
            set_default: true,
            ..options()
        };
        let now = engine.read_snapshot(&host, None).unwrap();
        let plan = engine.plan_install(&now, None, &options).unwrap();
        (engine, plan.replaced_runtime.unwrap())
    };
    let docker = |path: &str| {
        let text = format!(
            "{{\"default-runtime\": \"mine\", \"runtimes\": {{\"mine\": {{\"path\": \"{path}\"}}}}}}"
        );
        replaced(Engine::Docker, &[("/etc/docker/daemon.json", &text)])
    };
    let podman = replaced(Engine::Podman, &[("/usr/bin/crun", "")]);
    for (first, expected) in [
        (docker("/usr/bin/crun"), Some("/usr/bin/crun")),
        (docker("/opt/crun"), None),
        (docker("runc"), None),
    ] {
        let both = [first, podman.clone()];
        let found = find_common_runtime(both.iter().map(|(engine, one)| (*engine, one)));
        match expected {
            Some(path) => assert_eq!(found.unwrap(), Some(Path::new(path))),
            None => {
                let message = found.unwrap_err().to_string();
                assert!(message.contains("podman /usr/bin/crun), and"), "{message}");
            }
        }
    }
    let runc = [docker("runc"), docker("/opt/runc")];
    let found = find_common_runtime(runc.iter().map(|(engine, one)| (*engine, one)));
    assert_eq!(found.unwrap(), Some(Path::new("/opt/runc")));
}

/// JSON has no marks, and the user may change the file while Boathook's runtime is the default.
#[test]
fn the_default_runtime_comes_back_in_a_file_that_was_edited() {
    for (before, restored) in [
        (
            "{\"default-runtime\": \"crun\", \"runtimes\": {\"crun\": {\"path\": \"/c/crun\"}}}",
            true,
        ),
        ("{\"runtimes\": {\"crun\": {\"path\": \"/c/crun\"}}}", false),
    ] {
        let (dir, host) = host(&[("/etc/docker/daemon.json", before)]);
        let options = InstallOptions {
            set_default: true,
            ..options()
        };
        let now = Engine::Docker.read_snapshot(&host, None).unwrap();
        let plan = Engine::Docker.plan_install(&now, None, &options).unwrap();
        apply(&host, &plan.changes).unwrap();
        let file = dir.path().join("etc/docker/daemon.json");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("\"default-runtime\": \"boathook\""), "{text}");
        fs::write(&file, text.replacen('{', "{\"debug\": true, ", 1)).unwrap();
        let record = plan.record.as_ref();
        let now = Engine::Docker.read_snapshot(&host, record).unwrap();
        let release = Engine::Docker
            .plan_runtime_unload(&now, record)
            .unwrap()
            .unwrap();
        let default = if restored { "crun" } else { "runc" };
        let default = format!("\"default-runtime\": \"{default}\"");
        assert!(release.to_string().contains(&default), "{release}");
        apply(&host, &Engine::Docker.plan_undo(&now, record).changes).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            json["default-runtime"].as_str(),
            restored.then_some("crun"),
            "{text}"
        );
        assert_eq!(json["debug"], true);
        assert!(json["runtimes"]["boathook"].is_null(), "{text}");
    }
}
