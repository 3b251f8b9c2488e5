//! Keys in another case than in the documentation. The engines read them all the same, so such a
//! key could hide a runtime that isolates containers better. A file with one is refused.

use runtime_config::Engine;

use super::{check, planned};

/// The cases of refused files: the text, the line and the key in that line, and the key as it is
/// documented.
type RefusedKeys<'t> = &'t [(&'t str, usize, &'t str, &'t str)];

#[track_caller]
fn check_refused(engine: Engine, path: &str, cases: RefusedKeys<'_>) {
    for (text, line, found, documented) in cases {
        let expected = format!(
            "refused: {path}:{line}: the engine may read the key \"{found}\" as \"{documented}\""
        );
        // Without crun, podman's default runtime could not be determined.
        let files = [(path, *text), ("/usr/bin/crun", "")];
        check(engine, &[(&files, None, &expected)]);
    }
}

#[test]
fn docker_keys_in_another_case_are_refused() {
    let entry = |entry: &str| {
        format!("{{\"default-runtime\": \"mine\",\n\"runtimes\": {{\"mine\":\n{entry}}}}}")
    };
    let kata = "{\"path\": \"/usr/bin/kata-runtime\"}";
    let outer = format!("{{\"Default-Runtime\": \"mine\", \"runtimes\": {{\"mine\": {kata}}}}}");
    let list = format!("{{\"default-runtime\": \"runc\", \"Runtimes\": {{\"runc\": {kata}}}}}");
    let both = entry("{\"path\": \"runc\",\n\"PATH\": \"/usr/bin/kata-runtime\"}");
    check_refused(
        Engine::Docker,
        "/etc/docker/daemon.json",
        &[
            (
                &entry("{\"Path\": \"/usr/bin/kata-runtime\"}"),
                3,
                "Path",
                "path",
            ),
            (
                &entry("{\"\\u0050ath\": \"/usr/bin/kata-runtime\"}"),
                3,
                "Path",
                "path",
            ),
            (
                &entry("{\"RuntimeType\": \"io.containerd.kata.v2\"}"),
                3,
                "RuntimeType",
                "runtimeType",
            ),
            (
                &entry("{\"runtimetype\": \"io.containerd.kata.v2\"}"),
                3,
                "runtimetype",
                "runtimeType",
            ),
            (
                &entry(
                    "{\"runtimeType\": \"io.containerd.runc.v2\",\n\
                     \"Options\": {\"BinaryName\": \"/usr/bin/runsc\"}}",
                ),
                4,
                "Options",
                "options",
            ),
            (
                &entry(
                    "{\"runtimeType\": \"io.containerd.runc.v2\",\n\
                     \"options\": {\"binaryname\": \"/usr/bin/runsc\"}}",
                ),
                4,
                "binaryname",
                "BinaryName",
            ),
            (&outer, 1, "Default-Runtime", "default-runtime"),
            (&list, 1, "Runtimes", "runtimes"),
            (&both, 4, "PATH", "path"),
            // Go folds these two characters to ASCII letters.
            ("{\"runtime\u{17f}\": {}}", 1, "runtime\u{17f}", "runtimes"),
        ],
    );
    // The last one of two equal keys counts, but Go merges their objects.
    let twice = entry(
        "{\"runtimeType\": \"io.containerd.runc.v2\", \"options\": {\"BinaryName\": \
         \"/usr/bin/runsc\"},\n\"options\": {}}",
    );
    let found = planned(Engine::Docker, &[("/etc/docker/daemon.json", &twice)], None);
    let expected =
        "refused: /etc/docker/daemon.json:4: the key \"options\" is there twice: take one out";
    assert!(found.starts_with(expected), "{found}");
}

#[test]
fn podman_keys_in_another_case_are_refused() {
    let cases: RefusedKeys<'_> = &[
        ("[engine]\nRuntime = \"krun\"\n", 2, "Runtime", "runtime"),
        ("[Engine]\nruntime = \"krun\"\n", 1, "Engine", "engine"),
        (
            "[engine]\nruntime = \"runc\"\nRUNTIME = \"krun\"\n",
            3,
            "RUNTIME",
            "runtime",
        ),
        (
            "[engine]\nruntime = \"runc\"\n[engine.Runtimes]\nrunc = [\"/usr/bin/krun\"]\n",
            3,
            "Runtimes",
            "runtimes",
        ),
        (
            "[engine]\n\"runt\\u0049me\" = \"krun\"\n",
            2,
            "runtIme",
            "runtime",
        ),
    ];
    for path in [
        "/usr/share/containers/containers.conf",
        "/etc/containers/containers.conf",
        "/etc/containers/containers.conf.d/10-site.conf",
        "/etc/containers/containers.rootful.conf.d/10-site.conf",
    ] {
        check_refused(Engine::Podman, path, cases);
    }
}

#[test]
fn podman_files_that_only_newer_versions_read_name_no_runtime() {
    let crun = ("/usr/bin/crun", "");
    for dir in [
        "/usr/share/containers/containers.conf.d",
        "/usr/share/containers/containers.rootful.conf.d",
        "/etc/containers/containers.rootful.conf.d",
    ] {
        let path = format!("{dir}/10-site.conf");
        for (text, name) in [
            ("[engine]\nruntime = \"krun\"\n", "runtime"),
            (
                "[engine]\nruntimes.crun = [\"/usr/bin/krun\"]\n",
                "runtimes",
            ),
        ] {
            let expected = format!(
                "refused: {path}:2: not every version of podman reads this file, so what \"{name}\""
            );
            check(Engine::Podman, &[(&[(&path, text), crun], None, &expected)]);
        }
        check(
            Engine::Podman,
            &[(
                &[(&path, "[engine]\nnum_locks = 4096\n"), crun],
                None,
                "crun: /usr/bin/crun",
            )],
        );
    }
}

#[test]
fn crio_keys_in_another_case_are_refused() {
    let cases: RefusedKeys<'_> = &[
        (
            "[crio.runtime]\nDefault_Runtime = \"kata\"\n",
            2,
            "Default_Runtime",
            "default_runtime",
        ),
        (
            "[crio.runtime]\ndefault_runtime = \"runc\"\n[crio.runtime.runtimes.runc]\n\
             Runtime_Path = \"/usr/bin/kata-runtime\"\n",
            4,
            "Runtime_Path",
            "runtime_path",
        ),
        (
            "[crio.runtime.runtimes.runc]\nruntime_path = \"/usr/bin/runc\"\nRUNTIME_TYPE = \"vm\"\n",
            3,
            "RUNTIME_TYPE",
            "runtime_type",
        ),
        (
            "[CRIO.runtime]\ndefault_runtime = \"kata\"\n",
            1,
            "CRIO",
            "crio",
        ),
        (
            "[crio.Runtime]\ndefault_runtime = \"kata\"\n",
            1,
            "Runtime",
            "runtime",
        ),
        (
            "[crio.runtime.Runtimes.runc]\nruntime_path = \"/usr/bin/kata-runtime\"\n",
            1,
            "Runtimes",
            "runtimes",
        ),
    ];
    for path in ["/etc/crio/crio.conf", "/etc/crio/crio.conf.d/10-site.conf"] {
        check_refused(Engine::Crio, path, cases);
    }
}

#[test]
fn containerd_keys_in_another_case_are_refused() {
    for (version, plugin) in [
        (2, "io.containerd.grpc.v1.cri"),
        (3, "io.containerd.cri.v1.runtime"),
    ] {
        let with = |body: &str| {
            let table = format!("plugins.'{plugin}'.containerd");
            format!("version = {version}\n{}", body.replace("TABLE", &table))
        };
        let runc = "[TABLE.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n";
        let binary = with(&format!("{runc}options.binaryname = \"/usr/bin/runsc\"\n"));
        let options = with(&format!("{runc}Options.BinaryName = \"/usr/bin/runsc\"\n"));
        let path = with(&format!("{runc}RUNTIME_PATH = \"/usr/bin/shim\"\n"));
        let shim = with("[TABLE.runtimes.runc]\nRuntime_Type = \"io.containerd.kata.v2\"\n");
        let default = with("[TABLE]\nDEFAULT_RUNTIME_NAME = \"kata\"\n");
        let old = with("[TABLE.Default_Runtime]\nruntime_type = \"io.containerd.kata.v2\"\n");
        let imports = with("Imports = [\"/srv/*.toml\"]\n");
        let plugins = with("[TABLE]\ndefault_runtime_name = \"kata\"\n").replace("[p", "[P");
        check_refused(
            Engine::Containerd,
            "/etc/containerd/config.toml",
            &[
                (&binary, 4, "binaryname", "BinaryName"),
                (&options, 4, "Options", "options"),
                (&path, 4, "RUNTIME_PATH", "runtime_path"),
                (&shim, 3, "Runtime_Type", "runtime_type"),
                (&default, 3, "DEFAULT_RUNTIME_NAME", "default_runtime_name"),
                (&old, 2, "Default_Runtime", "default_runtime"),
                (&imports, 2, "Imports", "imports"),
                (&plugins, 2, "Plugins", "plugins"),
            ],
        );
    }
}
