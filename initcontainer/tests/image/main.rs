//! The image, built without a registry from binaries that are there, and run
//! against a host root by a Docker of its own.

// Helper functions of tests are no `#[test]`s, so clippy.toml's leave for
// tests does not reach them.
#![allow(clippy::unwrap_used)]

mod docker;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use docker::Docker;

/// All of the image together, in bytes.
const MAX_SIZE: u64 = 12 << 20;

/// The directory of the programs that were built with this test; `None`, with
/// a word on the reason, when one is missing.
fn release() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_BIN_EXE_boathook-init"))
        .parent()
        .unwrap();
    for name in ["boathook", "boathook-runtime", "boathook-plugin"] {
        if !dir.join(name).exists() {
            skip::report(
                "the image",
                &format!("{name} was not built (cargo build --workspace --bins)"),
            );
            return None;
        }
    }
    Some(dir.to_path_buf())
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
    missing_files_are_reported(&docker, &host);
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

const CLASS: &str = r#"
version = 1
resource = "x.example/chip"
request = { env = "CHIPS" }
discover = [{ count = 1 }]
device = { id = "chip" }
edits = [{ files = ["/usr/lib/chip/firmware"] }]
"#;

/// By the DaemonSet's second container, whose user has no right on the host.
fn missing_files_are_reported(docker: &Docker, host: &Path) {
    let class = host.join("etc/boathook/classes.d/chip.toml");
    fs::create_dir_all(class.parent().unwrap()).unwrap();
    fs::write(&class, CLASS).unwrap();
    let reports = docker.dir().join("reports");
    fs::create_dir(&reports).unwrap();
    fs::set_permissions(&reports, Permissions::from_mode(0o777)).unwrap();
    let mounts = [
        format!("--volume={}:/host:ro", host.display()),
        format!("--volume={}:/reports", reports.display()),
    ];
    docker.run(&[
        "run",
        "--detach",
        "--name=check-files",
        "--network=none",
        "--read-only",
        "--user=65534:65534",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        &mounts[0],
        &mounts[1],
        "--entrypoint=/boathook/bin/boathook-plugin",
        "boathook:test",
        "check-files",
        "--host-root=/host",
        "--report=/reports/files.json",
    ]);
    let began = Instant::now();
    let report = loop {
        if let Ok(report) = fs::read_to_string(reports.join("files.json")) {
            break report;
        }
        let log = docker.run(&["logs", "check-files"]);
        assert!(began.elapsed() < Duration::from_secs(20), "{log}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(
        report.contains("\"chip\"") && report.contains("/usr/lib/chip/firmware"),
        "{report}"
    );
    docker.run(&["stop", "--time=10", "check-files"]);
    let ended = docker.run(&["inspect", "--format={{.State.ExitCode}}", "check-files"]);
    assert_eq!(ended.trim(), "0");
    docker.run(&["rm", "check-files"]);
    fs::remove_dir_all(class.parent().unwrap()).unwrap();
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
            "install --engine docker --source {release} --no-classes --restart {more}"
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
