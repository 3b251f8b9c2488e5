//! The release in `$BOATHOOK_RELEASE`, which `make dist` made: installed in clean
//! roots as in README.md, on engines, and run for another architecture.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::binaries;
use harness::clean_root::Distribution;
use harness::scratch;

use super::clean::{Clean, Daemon, release};
use super::{VERSION, printed};
use crate::documentation::block;

const DISTRIBUTIONS: [Distribution; 3] = [
    Distribution::Debian,
    Distribution::Ubuntu22,
    Distribution::Ubuntu24,
];

/// The time that it may take from the archive to a device in a container.
const FIRST_DEVICE: Duration = Duration::from_secs(120);

#[test]
#[ignore = "long: make test-dist"]
fn docker_has_a_device_by_the_readme() {
    for distribution in DISTRIBUTIONS {
        let test = format!("README: Docker on {distribution:?}");
        let Some(clean) = Clean::new(&test, distribution.root()) else {
            continue;
        };
        let _daemon = clean.start_docker();
        let began = Instant::now();
        let output = clean.run_section("### Docker");
        assert_in_time(&test, began);
        assert_is_a_device(&output);
        clean.run("boathook-init uninstall --restart");
        assert!(!clean.has_path("/opt/boathook"));
    }
}

#[test]
#[ignore = "long: make test-dist"]
fn podman_has_a_device_by_the_readme() {
    for distribution in DISTRIBUTIONS {
        let test = format!("README: podman on {distribution:?}");
        let Some(clean) = Clean::new(&test, distribution.root()) else {
            continue;
        };
        clean.prepare_podman();
        let began = Instant::now();
        let output = clean.run_section("### podman");
        assert_in_time(&test, began);
        assert_is_a_device(&output);
    }
}

fn assert_in_time(test: &str, began: Instant) {
    let elapsed = began.elapsed();
    println!("{test}: {} s", elapsed.as_secs_f32());
    assert!(elapsed < FIRST_DEVICE, "{test}: {elapsed:?}");
}

/// The last line is that of `ls -l` for a character device.
fn assert_is_a_device(output: &str) {
    let last = output.lines().last().unwrap();
    assert!(
        last.starts_with('c') && last.ends_with("/dev/fuse"),
        "{output}"
    );
}

#[test]
#[ignore = "long: make test-dist"]
fn the_debian_package_installs_and_leaves_nothing() {
    for distribution in DISTRIBUTIONS {
        let test = format!("README: the package on {distribution:?}");
        let Some(clean) = Clean::new(&test, distribution.root()) else {
            continue;
        };
        clean.write("/etc/docker/daemon.json", "{}");
        let output = clean.run_section("### Debian, Ubuntu, Fedora and derivatives");
        assert!(output.contains("/opt/boathook"), "{output}");
        let programs = clean.run("command -v boathook-init; boathook --version");
        let wanted = format!("/usr/bin/boathook-init\nboathook {VERSION}\n");
        assert_eq!(programs, wanted);
        assert!(clean.has_path("/usr/share/bash-completion/completions/boathook"));
        clean.run("dpkg -r boathook");
        let config = fs::read_to_string(clean.file("/etc/docker/daemon.json"));
        assert_eq!(config.unwrap(), "{}");
        assert_nothing_left(&clean);
    }
}

fn assert_nothing_left(clean: &Clean) {
    for left in [
        "/opt/boathook",
        "/usr/lib/boathook",
        "/usr/bin/boathook",
        "/etc/boathook",
    ] {
        assert!(!clean.has_path(left), "{left}");
    }
}

#[test]
#[ignore = "long: make test-dist"]
fn the_rpm_package_installs_and_leaves_nothing() {
    // A root of Fedora cannot be made from Debian's packages: this is Debian's, with
    // the machine's own rpm, whose scripts run in it.
    let Some(clean) = Clean::new("the RPM package", Distribution::Debian.root()) else {
        return;
    };
    clean.write("/etc/docker/daemon.json", "{}");
    let rpm = |arguments: &[&str]| printed(clean.rpm().args(arguments));
    let package = release().join(format!("boathook-{VERSION}-1.x86_64.rpm"));
    // /bin/sh belongs to a package of another format.
    rpm(&["--install", "--nodeps", package.to_str().unwrap()]);
    assert_eq!(rpm(&["--verify", "--nodeps", "boathook"]), "");
    clean.run("boathook-init install --engine docker");
    assert!(clean.has_path("/opt/boathook/current/bin/boathook"));
    rpm(&["--erase", "boathook"]);
    assert_nothing_left(&clean);
}

#[test]
#[ignore = "long: make test-dist"]
fn docker_loads_and_runs_the_image() {
    let Some(clean) = Clean::new("the image: docker load", Distribution::Debian.root()) else {
        return;
    };
    let _daemon = clean.start_docker();
    let output = clean.run(&format!(
        "docker load --input boathook-{VERSION}-image.tar\n\
         docker run --rm boathook:{VERSION} --version\n\
         docker run --rm --entrypoint /boathook/bin/boathook-plugin boathook:{VERSION} --version"
    ));
    let versions = format!("boathook-init {VERSION}\nboathook-plugin {VERSION}\n");
    assert!(output.ends_with(&versions), "{output}");
}

#[test]
#[ignore = "long: make test-dist"]
fn containerd_imports_and_runs_the_image() {
    let Some(clean) = Clean::new("the image: ctr", Distribution::Debian.root()) else {
        return;
    };
    let (root, state) = (clean.path("containerd"), clean.path("containerd-run"));
    let log = fs::File::create(clean.path("containerd.log")).unwrap();
    let mut command = clean.command("containerd");
    command.arg("--root").arg(root).arg("--state").arg(state);
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    let _daemon = Daemon::start(command, || {
        let mut version = clean.command("ctr");
        version.arg("version");
        version
    });
    let name = format!("docker.io/library/boathook:{VERSION}");
    let cgroup = clean.cgroup().display().to_string();
    // The rest of the section needs a cluster.
    let section = block("README.md", "### Kubernetes");
    let import = section.lines().next().unwrap();
    assert!(import.starts_with("ctr "), "{section}");
    let output = clean.run(&format!(
        "{import}\n\
         ctr --namespace k8s.io images check name=={name}\n\
         ctr --namespace k8s.io run --rm --cgroup {cgroup}/ctr {name} try \
         /boathook/bin/boathook-init --version"
    ));
    assert!(output.contains("complete"), "{output}");
    assert!(
        output.ends_with(&format!("boathook-init {VERSION}\n")),
        "{output}"
    );
}

#[test]
#[ignore = "long: make test-dist"]
fn the_release_can_be_published() {
    let mut status = Command::new("git");
    status.args(["status", "--porcelain"]);
    let changed = printed(status.current_dir(binaries::source_tree()));
    if !changed.is_empty() {
        return skip::report("publish", "the tree has changes that are not committed");
    }
    let has_archive = |architecture: &&str| {
        let name = format!("boathook-{VERSION}-linux-{architecture}.tar.gz");
        release().join(name).exists()
    };
    let architectures: Vec<&str> = ["amd64", "arm64"].into_iter().filter(has_archive).collect();
    let dir = scratch::directory("publish").unwrap();
    let mut publish = Command::new(binaries::source_tree().join("scripts/publish"));
    publish.args(["--dry-run", "--registry", "registry.example/boathook"]);
    publish.arg("--release").arg(release());
    publish.arg("--out").arg(dir.path().join("published"));
    publish.env("ARCHES", architectures.join(" "));
    publish.env("BOATHOOK_DIST", binaries::program("boathook-dist").unwrap());
    let output = printed(&mut publish);
    assert!(output.ends_with("nothing was published\n"), "{output}");
}

#[test]
#[ignore = "long: make test-dist"]
fn the_programs_for_arm64_run() {
    let archive = release().join(format!("boathook-{VERSION}-linux-arm64.tar.gz"));
    if !archive.exists() {
        return skip::report("arm64", "the release has no archive of it");
    }
    let qemu = Path::new("/usr/bin/qemu-aarch64-static");
    if !qemu.exists() {
        return skip::report(
            "arm64",
            "needs qemu-aarch64-static (package qemu-user-static)",
        );
    }
    let dir = scratch::directory("arm64").unwrap();
    let mut tar = Command::new("tar");
    printed(tar.arg("-xzf").arg(&archive).arg("-C").arg(dir.path()));
    let top = dir.path().join(format!("boathook-{VERSION}-linux-arm64"));
    let under_qemu = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(qemu);
        command.arg(top.join("bin").join(program)).args(arguments);
        command
    };
    for program in [
        "boathook",
        "boathook-hook",
        "boathook-init",
        "boathook-plugin",
    ] {
        let version = printed(&mut under_qemu(program, &["--version"]));
        assert_eq!(version, format!("{program} {VERSION}\n"));
    }
    let config = dir.path().join("config.toml");
    fs::write(
        &config,
        format!("classes = [{:?}]\n", top.join("classes.d")),
    )
    .unwrap();
    let config = format!("--config={}", config.display());
    let listed = printed(&mut under_qemu(
        "boathook",
        &[&config, "list", "--json", "dummy-npu"],
    ));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["devices"].as_array().unwrap().len(), 64);
    assert_installs_its_own_kind_only(&top, &under_qemu);
}

/// The installer uses the programs beside it, and refuses those of this machine.
fn assert_installs_its_own_kind_only(top: &Path, under_qemu: &dyn Fn(&str, &[&str]) -> Command) {
    let host: PathBuf = top.join("host");
    fs::create_dir(&host).unwrap();
    let host_root = format!("--host-root={}", host.display());
    let install = [host_root.as_str(), "install", "--engine=none"];
    // /proc/self/exe is qemu's.
    let source = format!("--source={}", top.display());
    printed(under_qemu("boathook-init", &install).arg(source));
    assert!(
        host.join("opt/boathook/current/bin/boathook-runtime")
            .exists()
    );
    let here = binaries::program("boathook").unwrap();
    let source = format!("--source={}", here.parent().unwrap().display());
    let output = under_qemu("boathook-init", &install)
        .args([source.as_str(), "--classes=none"])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && message.contains("x86_64"),
        "{message}"
    );
}
