//! The image, built without a registry from binaries that are there, and run
//! against a host root by a Docker of its own.

// Helper functions of tests are no `#[test]`s, so clippy.toml's leave for
// tests does not reach them.
#![allow(clippy::unwrap_used)]

mod docker;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use docker::Docker;

/// All of the image together, in bytes.
const MAX_SIZE: u64 = 12 << 20;

/// The directory of the programs as a release has them (`make programs`); `None`, with
/// a word on the reason, when one is missing.
fn release() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_BIN_EXE_boathook-init")).with_file_name("programs");
    for name in ["boathook", "boathook-runtime", "boathook-plugin"] {
        if !dir.join(name).exists() {
            skip::report(
                "the image",
                &format!("{name} was not built (make programs)"),
            );
            return None;
        }
    }
    Some(dir)
}

#[test]
fn the_image_installs_on_a_host() {
    let Some(release) = release() else { return };
    let Some(docker) = Docker::start() else {
        return;
    };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let context = docker.dir().join("image");
    let gathered = Command::new(repository.join("image-files"))
        .arg(release)
        .arg(&context)
        .status();
    assert!(gathered.unwrap().success());
    let dockerfile = repository.join("Dockerfile.prebuilt");
    let (dockerfile, context) = (dockerfile.to_str().unwrap(), context.to_str().unwrap());
    docker.run(&[
        "build",
        "--tag",
        "boathook:test",
        "--file",
        dockerfile,
        context,
    ]);

    let host = docker.dir().join("target");
    fs::create_dir_all(host.join("etc/containerd")).unwrap();
    let mount = format!("{}:/host", host.display());
    let run = [
        "run",
        "--rm",
        "--network=none",
        "--read-only",
        "--volume",
        &mount,
        "boathook:test",
    ];
    let init = |arguments: &[&str]| docker.run(&[&run[..], arguments].concat());
    let said = init(&["install", "--host-root=/host", "--engine=containerd"]);
    assert!(said.contains("+++ /etc/containerd/config.toml"), "{said}");
    let installed = Command::new(host.join("opt/boathook/current/bin/boathook"))
        .arg("--version")
        .output();
    assert!(installed.unwrap().status.success());
    assert!(init(&["status", "--host-root=/host"]).contains("containerd  yes"));
    init(&["uninstall", "--host-root=/host"]);
    let left: Vec<_> = fs::read_dir(&host)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["etc"]);
    assert_eq!(fs::read_dir(host.join("etc")).unwrap().count(), 1);

    let size = docker.run(&["image", "inspect", "--format={{.Size}}", "boathook:test"]);
    let size: u64 = size.trim().parse().unwrap();
    println!("image: {:.1} MB", size as f64 / f64::from(1 << 20));
    // A debug build's programs are many times larger.
    assert!(cfg!(debug_assertions) || size <= MAX_SIZE, "{size} bytes");
}

#[test]
fn docker_has_the_runtime_as_long_as_it_is_installed() {
    let Some(docker) = Docker::start() else {
        return;
    };
    let (host, release) = (docker.dir().join("host"), docker.dir().join("release"));
    fs::create_dir(host.join("proc")).unwrap();
    fs::create_dir(&release).unwrap();
    let program = env!("CARGO_BIN_EXE_boathook-init");
    for name in initcontainer::payload::PROGRAMS {
        fs::copy(program, release.join(name)).unwrap();
    }
    let init = |arguments: &str| {
        let line = format!(
            "mount --make-rprivate / && mount -t proc none {host}/proc && \
             exec {program} --host-root {host} {arguments}",
            host = host.display(),
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &line]).output().unwrap()
    };
    let install = |more: &str| {
        let release = release.display();
        let output = init(&format!(
            "install --engine docker --source {release} --classes=none --restart {more}"
        ));
        assert!(output.status.success(), "{output:?}");
    };
    let format = "{{.DefaultRuntime}}{{range $name, $_ := .Runtimes}} {{$name}}{{end}}";
    let runtimes = || docker.run(&["info", "--format", format]);
    let is_listed = |text: &str| {
        text.split_whitespace()
            .skip(1)
            .any(|name| name == "boathook")
    };

    install("");
    assert!(
        runtimes().starts_with("runc ") && is_listed(&runtimes()),
        "{}",
        runtimes()
    );
    assert!(init("status").status.success());
    install("--set-default");
    assert!(runtimes().starts_with("boathook "), "{}", runtimes());
    assert!(init("status").status.success());

    let config = docker.dir().join(docker::CONFIG);
    let installed = fs::read_to_string(&config).unwrap();
    let output = init("uninstall");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("as its default runtime") && message.contains("--restart"),
        "{message}"
    );
    assert_eq!(fs::read_to_string(&config).unwrap(), installed);

    let output = init("uninstall --restart");
    assert!(output.status.success(), "{output:?}");
    assert!(
        runtimes().starts_with("runc ") && !is_listed(&runtimes()),
        "{}",
        runtimes()
    );
    assert_eq!(fs::read_to_string(&config).unwrap(), "{}");
    assert!(!host.join("opt").exists());
}
