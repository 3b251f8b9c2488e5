//! Plans that replace containerd's default handler, with containerd's own files and with the files
//! of distributions.

use runtime_config::{Engine, InstallOptions};

use super::{HostFiles, check, host, refusal};
use crate::options;

#[test]
fn containerd_loses_no_handler() {
    const MAIN: &str = "/etc/containerd/config.toml";
    const DROP_IN: &str = "/etc/containerd/conf.d/10-site.toml";
    const LATER: &str = "/etc/containerd/conf.d/99-site.toml";
    let v2 = |body: &str| format!("version = 2\n{}", tables("io.containerd.grpc.v1.cri", body));
    let v3 = |body: &str| {
        let imports = "imports = [\"/etc/containerd/conf.d/*.toml\"]\n";
        format!(
            "version = 3\n{imports}{}",
            tables("io.containerd.cri.v1.runtime", body)
        )
    };
    let handler = |shim: &str, options: &str| {
        format!(
            "default_runtime_name = \"mine\"\n[TABLE.runtimes.mine]\nruntime_type = \"{shim}\"\n\
             [TABLE.runtimes.mine.options]\n{options}\n"
        )
    };
    let runc = "io.containerd.runc.v2";
    let refused = |what: &str| refusal(Engine::Containerd, what);
    for (shim, options, configured, expected) in [
        (runc, "", None, "mine: runc".to_owned()),
        ("io.containerd.runc.v1", "", None, "mine: runc".into()),
        (
            runc,
            "BinaryName = \"/usr/bin/crun\"",
            None,
            "mine: /usr/bin/crun".into(),
        ),
        (
            runc,
            "BinaryName = '/a/\"/runsc'",
            None,
            refused("mine (/a/\"/runsc)"),
        ),
        (
            runc,
            "BinaryName = \"/b/sysbox-runc\"",
            None,
            refused("mine (/b/sysbox-runc)"),
        ),
        (
            runc,
            "BinaryName = \"/b/sysbox-runc\"",
            Some("/b/sysbox-runc"),
            "mine: /b/sysbox-runc".into(),
        ),
        (
            "io.containerd.runsc.v1",
            "",
            None,
            refused("mine (runtime_type io.containerd.runsc.v1)"),
        ),
        (
            "io.containerd.kata.v2",
            "",
            Some("/usr/bin/runc"),
            refused("mine (runtime_type"),
        ),
        (
            "io.containerd.runc.v1",
            "BinaryName = \"/usr/bin/runsc\"",
            None,
            refused("mine"),
        ),
        ("", "", None, refused("mine")),
    ] {
        for text in [v2(&handler(shim, options)), v3(&handler(shim, options))] {
            check(
                Engine::Containerd,
                &[(&[(MAIN, &text)], configured, &expected)],
            );
        }
    }
    let of_drop_in = v3(&handler("io.containerd.kata.v2", ""));
    let (plain, sandboxed) = (v3(""), refused("mine (runtime_type io.containerd.kata.v2)"));
    let own_shim = v2(
        "[TABLE.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n\
        runtime_path = \"/opt/kata/shim\"\n",
    );
    let old = v2("[TABLE.default_runtime]\nruntime_type = \"io.containerd.kata.v2\"\n");
    let unused = v2("[TABLE.default_runtime]\nruntime_type = \"\"\n");
    let unknown = v2("default_runtime_name = \"${RUNTIME}\"\n");
    let cases: [(HostFiles<'_>, &str); 9] = [
        (&[], "runc: runc"),
        (&[(MAIN, &plain), (DROP_IN, &of_drop_in)], &sandboxed),
        (&[(DROP_IN, &of_drop_in)], &sandboxed),
        (
            &[
                (MAIN, &plain),
                (LATER, &v3("default_runtime_name = \"runc\"\n")),
            ],
            "refused: /etc/containerd/conf.d/99-site.toml:4: this default runtime has precedence",
        ),
        (&[(MAIN, &own_shim)], &refused("runc (a shim of its own)")),
        (
            &[(MAIN, &old)],
            "refused: /etc/containerd/config.toml:3: default_runtime has precedence",
        ),
        (&[(MAIN, &unused)], "runc: runc"),
        (&[(MAIN, &unknown)], &refused("${RUNTIME}")),
        (&[(MAIN, "version = 2\n")], "runc: runc"),
    ];
    for (files, expected) in cases {
        check(Engine::Containerd, &[(files, None, expected)]);
    }
}

/// Returns a configuration of one version. `TABLE` in `body` stands for the table of containerd's
/// handlers.
fn tables(plugin: &str, body: &str) -> String {
    let table = format!("plugins.'{plugin}'.containerd");
    format!("[{table}]\n{}", body.replace("TABLE", &table))
}

#[test]
fn distributions_of_containerd_lose_no_handler() {
    let kata = "default_runtime_name = \"kata\"\n[TABLE.runtimes.kata]\n\
        runtime_type = \"io.containerd.kata.v2\"\n";
    let v2 = format!("version = 2\n{}", tables("io.containerd.grpc.v1.cri", kata));
    let k3s = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml";
    let imports =
        "imports = [\"/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml\"]";
    let v3 = format!(
        "version = 3\n{imports}\n{}",
        tables("io.containerd.cri.v1.runtime", kata)
    );
    for (engine, files) in [
        (Engine::K3s, &[(k3s, &*v3)] as HostFiles<'_>),
        (Engine::K0s, &[("/etc/k0s/containerd.d/10-site.toml", &v2)]),
        (
            Engine::K0s,
            &[
                (
                    "/etc/k0s/containerd.toml",
                    "version = 2\nimports = [\"/run/k0s/containerd-cri.toml\"]\n",
                ),
                ("/run/k0s/containerd-cri.toml", &v2),
            ],
        ),
    ] {
        check(
            engine,
            &[(files, None, &refusal(engine, "kata (runtime_type"))],
        );
    }
    // k0s has merged Boathook's handler into its file. This handler is not the former default
    // runtime.
    let ours = v2.replace("= \"kata\"", "= \"boathook\"");
    check(
        Engine::K0s,
        &[(&[("/etc/k0s/containerd.toml", &ours)], None, "runc: runc")],
    );
}

#[test]
fn with_a_base_spec_the_handler_calls_the_same_program() {
    const MAIN: &str = "/etc/containerd/config.toml";
    for (shim, is_accepted) in [
        ("io.containerd.runc.v2", true),
        ("io.containerd.kata.v2", false),
    ] {
        let handler = format!(
            "default_runtime_name = \"mine\"\n[TABLE.runtimes.mine]\nruntime_type = \"{shim}\"\n\
             [TABLE.runtimes.mine.options]\nBinaryName = \"/b/sysbox-runc\"\n"
        );
        let text = format!(
            "version = 2\n{}",
            tables("io.containerd.grpc.v1.cri", &handler)
        );
        let (_dir, host) = host(&[(MAIN, &text)]);
        let options = InstallOptions {
            set_default: true,
            base_spec: Some("{\"ociVersion\": \"1.2.0\"}".into()),
            ..options()
        };
        let now = Engine::Containerd.read_snapshot(&host, None).unwrap();
        let plan = Engine::Containerd.plan_install(&now, None, &options);
        assert_eq!(plan.is_ok(), is_accepted, "{shim}");
        if let Ok(plan) = plan {
            assert_eq!(plan.replaced_runtime, None);
            assert!(
                plan.to_string()
                    .contains("+BinaryName = \"/b/sysbox-runc\""),
                "{plan}"
            );
        }
    }
}
