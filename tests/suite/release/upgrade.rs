//! Two versions of the packages, one after the other, on a private copy of this machine's root.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::binaries;
use harness::bundle::Bundle;
use harness::captured::Captured;
use harness::cgroup_parent::CgroupParent;
use harness::demo_host::DemoHost;
use harness::demo_host::in_container::node;
use harness::private_host::PrivateHost;
use harness::rootfs::Rootfs;
use harness::scratch;
use serde_json::Value;
use tempfile::TempDir;

use super::{CLUSTER_PROGRAMS, DEB_LEVEL, PROGRAMS, printed};

/// Lists what is enabled of the package.
const ENABLED: &str = "find /etc/systemd/system -name 'boathook-*'";

pub(crate) const OLD: &str = "0.9.1";
pub(crate) const NEW: &str = "0.9.2";

/// A format of packages, and its commands. `PACKAGE` is the path of a package.
struct Format {
    name: &'static str,
    /// The command without which the packages cannot be made.
    maker: &'static str,
    install: &'static str,
    upgrade: &'static str,
    remove: &'static str,
}

const FORMATS: [Format; 2] = [
    Format {
        name: "deb",
        maker: "dpkg-deb",
        install: "dpkg --install PACKAGE",
        upgrade: "dpkg --install PACKAGE",
        remove: "dpkg --remove boathook",
    },
    Format {
        name: "rpm",
        maker: "rpmbuild",
        install: "rpm --install --nodeps PACKAGE",
        upgrade: "rpm --upgrade --nodeps PACKAGE",
        remove: "rpm --erase boathook",
    },
];

/// The packages of two versions. Their hooks differ by the last bytes.
pub(crate) struct Packages {
    files: TempDir,
    /// The programs that can be run. The others have some bytes alone.
    runnable_programs: &'static [&'static str],
}

impl Packages {
    /// The scripts of the packages run `boathook-init`, and containers the others.
    pub(super) fn new() -> Self {
        Self::with_programs(&["boathook-init", "boathook-hook", "boathook-runtime"])
    }

    /// Its services run `boathook` as well.
    pub(crate) fn with_tool() -> Self {
        Self::with_programs(&["boathook", "boathook-init"])
    }

    fn with_programs(runnable_programs: &'static [&'static str]) -> Self {
        let packages = Self {
            files: scratch::directory("upgrade").unwrap(),
            runnable_programs,
        };
        for version in [OLD, NEW] {
            packages.make(version);
        }
        packages
    }

    fn make(&self, version: &str) {
        let programs = self.files.path().join(format!("programs-{version}"));
        fs::create_dir(&programs).unwrap();
        let header = fs::read(binaries::program("boathook").unwrap()).unwrap();
        for name in PROGRAMS.iter().chain(&CLUSTER_PROGRAMS) {
            let file = programs.join(name);
            fs::write(&file, [&header[..64], version.as_bytes()].concat()).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for name in self.runnable_programs {
            let mut strip = Command::new("strip");
            strip.arg("-o").arg(programs.join(name));
            printed(strip.arg(binaries::program(name).unwrap()));
            let mut program = File::options().append(true).open(programs.join(name));
            program
                .as_mut()
                .unwrap()
                .write_all(version.as_bytes())
                .unwrap();
        }
        let mut dist = Command::new(binaries::source_tree().join("scripts/dist"));
        dist.arg(self.directory(version))
            .arg(format!("amd64={}", programs.display()))
            .env("BOATHOOK_VERSION", version)
            .env("SOURCE_DATE_EPOCH", "1750000000")
            .env("BOATHOOK_DIST", binaries::program("boathook-dist").unwrap())
            .env(DEB_LEVEL.0, DEB_LEVEL.1);
        printed(&mut dist);
    }

    fn directory(&self, version: &str) -> PathBuf {
        self.files.path().join(version)
    }

    /// Returns the package of a version, or `None` if this machine cannot make it.
    pub(crate) fn find(&self, version: &str, extension: &str) -> Option<PathBuf> {
        let entries = fs::read_dir(self.directory(version)).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths.find(|path| path.extension().is_some_and(|e| e == extension))
    }
}

/// A machine of its own with a package manager, in which Docker is configured.
struct Machine(PrivateHost);

impl Machine {
    fn new() -> Self {
        let machine = Self(PrivateHost::with_root(Some(Path::new("/")), &[]).unwrap());
        // It is enough for the installer to find Docker.
        machine.run("mkdir -p /etc/docker && echo {} >/etc/docker/daemon.json");
        machine.run("touch /usr/bin/dockerd");
        // Without this file dpkg does not index all manual pages of the machine each time.
        machine.run("rm -f /var/lib/man-db/auto-update");
        machine
    }

    fn run(&self, line: &str) -> String {
        let mut shell = self.0.command("/bin/sh");
        printed(shell.args(["-euc", line]))
    }

    fn read(&self, path: &str) -> String {
        let bytes = fs::read(self.0.file(path)).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns what `boathook check` finds about versions. The package's own programs cannot run.
    fn version_findings(&self) -> Vec<String> {
        let mut check = self.0.command(binaries::program("boathook").unwrap());
        let checked = Captured::run(check.args(["check", "--json"])).unwrap();
        let document: Value = serde_json::from_str(&checked.stdout).unwrap();
        let findings = document["findings"].as_array().unwrap().iter();
        let findings = findings.filter(|finding| finding["subject"] == "version");
        let texts = findings.map(|finding| finding["text"].as_str().unwrap().to_owned());
        texts.collect()
    }

    fn installed_version(&self) -> String {
        self.run("readlink /opt/boathook/current").trim().to_owned()
    }
}

fn with_package(command: &str, package: &Path) -> String {
    command.replace("PACKAGE", &package.display().to_string())
}

/// One test, because the packages take long to make.
#[test]
fn an_upgrade_of_the_package_reaches_the_engines() {
    const TEST: &str = "an upgrade of the package";
    if let Some(reason) = harness::privilege::missing_for_engines() {
        return skip::report(TEST, &reason);
    }
    let packages = Packages::new();
    for format in &FORMATS {
        let found = [OLD, NEW].map(|version| packages.find(version, format.name));
        let [Some(old), Some(new)] = found else {
            skip::report(TEST, &format!("{} needs {}", format.name, format.maker));
            continue;
        };
        upgrade_own_installation(format, &old, &new);
        upgrade_under_a_container(format, &old, &new);
        upgrade_in_other_directories(format, &old, &new);
        keep_other_installation(format, &old, &new);
        keep_other_installation_at_removal(format, &old);
        survive_a_failing_service_and_a_refusal(format, &old, &new);
    }
}

fn upgrade_own_installation(format: &Format, old: &Path, new: &Path) {
    let machine = Machine::new();
    machine.run(&with_package(format.install, old));
    // A package installs nothing in /opt by itself.
    assert!(!machine.0.file("/opt/boathook").exists());
    machine.run("boathook-init install --engine docker --set-default --classes none");
    let configuration = machine.read("/etc/docker/daemon.json");
    assert!(configuration.contains("default-runtime"), "{configuration}");
    assert_eq!(machine.installed_version(), OLD);

    // A program that runs meanwhile, as a service would.
    let wait = "/opt/boathook/current/bin/boathook-init wait";
    machine.run(&format!(
        "{wait} </dev/null >/dev/null 2>&1 & echo $! >/root/pid"
    ));
    assert_eq!(machine.version_findings(), [""; 0]);
    machine.run(&with_package(format.upgrade, new));
    assert_eq!(machine.installed_version(), NEW, "{}", format.name);
    let pid = machine.read("/root/pid");
    let earlier = format!(
        "process {} runs an earlier /opt/boathook/{OLD}/bin/boathook-init",
        pid.trim()
    );
    let status = machine.run("boathook-init status && exit 1 || true");
    assert!(
        status.contains(&format!("{earlier}: restart its service")),
        "{status}"
    );
    assert_eq!(machine.version_findings(), [earlier]);
    machine.run(&format!("kill {pid}"));
    let hook = machine.read("/opt/boathook/current/bin/boathook-hook");
    assert!(hook.ends_with(NEW), "{}", format.name);
    assert_eq!(machine.read("/etc/docker/daemon.json"), configuration);
    // The options of the installation stay, among them the choice of class files.
    assert_eq!(machine.run("ls /opt/boathook/current/classes.d"), "");
    let status = machine.run("boathook-init status");
    let line = format!("boathook {NEW} is installed; kept beside it: {OLD}\n");
    assert!(status.starts_with(&line), "{status}");

    machine.run("systemctl enable boathook-follow.service boathook-cdi.service");
    assert!(machine.run(ENABLED).contains("boathook-follow.service"));
    machine.run(format.remove);
    assert_eq!(machine.run(ENABLED), "");
    assert!(!machine.0.file("/opt/boathook").exists());
    assert_eq!(machine.read("/etc/docker/daemon.json"), "{}\n");
}

/// A container that runs keeps its device, and an exec in it works. The next container gets its device
/// from the new hook: the earlier one is not there any more.
fn upgrade_under_a_container(format: &Format, old: &Path, new: &Path) {
    let Some(runc) = harness::runc::program() else {
        return skip::report("an upgrade under a container", "needs runc");
    };
    let host = DemoHost::new().unwrap();
    host.write_config(&format!("[runtime]\npath = {runc:?}\n"))
        .unwrap();
    let machine = Machine::new();
    machine.run(&format!(
        "mkdir -p /etc/boathook && cp {} /etc/boathook/config.toml",
        host.config_file().display()
    ));
    machine.run(&with_package(format.install, old));
    machine.run("boathook-init install --engine docker --classes none");
    let parent = CgroupParent::new();
    let bundle = || {
        let builder = Bundle::builder(Rootfs::Busybox).env(DemoHost::VARIABLE, "npu-3");
        let builder = builder.args(["sleep", "1000"]);
        builder.cgroups_path(parent.unique_child()).build().unwrap()
    };
    let runtime = |arguments: &str| {
        machine.run(&format!(
            "/opt/boathook/current/bin/boathook-runtime --root /root/state {arguments} \
             </dev/null >/root/output 2>&1 || {{ cat /root/output >&2; exit 1; }}; cat /root/output"
        ))
    };
    let start = |bundle: &Bundle| {
        let directory = bundle.directory().display();
        runtime(&format!(
            "run --detach --bundle {directory} {}",
            bundle.id()
        ));
    };
    let open_device = |bundle: &Bundle| {
        let open = format!("exec {} sh -c ': <{} && echo opened'", bundle.id(), node(3));
        assert_eq!(runtime(&open), "opened\n", "{}", format.name);
        let other = format!("exec {} ls /dev", bundle.id());
        assert!(!runtime(&other).contains("dummy-npu4"), "{}", format.name);
    };
    let (first, second) = (bundle(), bundle());
    start(&first);
    open_device(&first);

    machine.run(&with_package(format.upgrade, new));
    assert_eq!(machine.installed_version(), NEW, "{}", format.name);
    open_device(&first);
    machine.run(&format!("mv /opt/boathook/{OLD} /root/earlier"));
    open_device(&first);
    start(&second);
    open_device(&second);
    for container in [&first, &second] {
        runtime(&format!("delete --force {}", container.id()));
    }
    // Without the new hook there would have been no device.
    machine.run(&format!("rm /opt/boathook/{NEW}/bin/boathook-hook"));
    let start_again = format!(
        "! /opt/boathook/current/bin/boathook-runtime --root /root/state run --detach \
         --bundle {} {} </dev/null >/root/output 2>&1",
        second.directory().display(),
        second.id()
    );
    machine.run(&start_again);
    assert!(machine.read("/root/output").contains("boathook-hook"));
}

/// The scripts of the package find an installation that is not in /opt.
fn upgrade_in_other_directories(format: &Format, old: &Path, new: &Path) {
    let machine = Machine::new();
    machine.run(&with_package(format.install, old));
    let directories = "--prefix /srv/boathook --config-dir /srv/etc/boathook";
    machine.run(&format!(
        "boathook-init install --engine docker {directories}"
    ));
    machine.run(&with_package(format.upgrade, new));
    let version = machine.run("readlink /srv/boathook/current");
    assert_eq!(version.trim(), NEW, "{}", format.name);
    machine.run("boathook-init status");
    machine.run(format.remove);
    for directory in [
        "/opt/boathook",
        "/etc/boathook",
        "/srv/boathook",
        "/srv/etc",
    ] {
        assert!(!machine.0.file(directory).exists(), "{directory}");
    }
    assert!(!machine.0.file("/var/lib/boathook.toml").exists());
    assert_eq!(machine.read("/etc/docker/daemon.json"), "{}\n");
}

/// The package leaves an installation of an archive alone, and `status` names the difference.
fn keep_other_installation(format: &Format, old: &Path, new: &Path) {
    let machine = Machine::new();
    machine.run(&with_package(format.install, old));
    machine.run("cp -r /usr/lib/boathook /root/archive");
    machine.run("boathook-init install --engine docker --source /root/archive");
    machine.run(&with_package(format.upgrade, new));
    assert_eq!(machine.installed_version(), OLD);
    let status = machine.run("boathook-init status || true");
    let line = format!(
        "the package has boathook {NEW}, but engines call {OLD}: run boathook-init upgrade"
    );
    assert!(status.contains(&line), "{status}");

    machine.run("boathook-init upgrade");
    assert_eq!(machine.installed_version(), NEW);
    machine.run("boathook-init status");
}

/// The removal of the package leaves an installation of an archive alone.
fn keep_other_installation_at_removal(format: &Format, package: &Path) {
    let machine = Machine::new();
    machine.run(&with_package(format.install, package));
    machine.run("cp -r /usr/lib/boathook /root/archive");
    machine.run("boathook-init install --engine docker --source /root/archive");
    // A unit in /etc is not the package's.
    machine.run("cp /usr/lib/systemd/system/boathook-follow.service /etc/systemd/system");
    machine.run("systemctl enable boathook-follow.service boathook-cdi.service");
    machine.run(format.remove);
    assert_eq!(machine.installed_version(), OLD, "{}", format.name);
    assert!(
        machine
            .0
            .file("/opt/boathook/current/bin/boathook-hook")
            .exists()
    );
    let enabled = machine.run(ENABLED);
    assert!(
        enabled.contains("wants/boathook-follow.service"),
        "{enabled}"
    );
    assert!(!enabled.contains("boathook-cdi.service"), "{enabled}");
}

/// A program in the place of systemctl, by which no service starts.
const FAILING_SYSTEMCTL: &str = "mkdir -p /run/systemd/system; rm /usr/bin/systemctl; \
    printf '#!/bin/sh\necho $1 >>/root/calls\n[ ${1%%%%-*} != try ]\n' >/usr/bin/systemctl; \
    chmod 755 /usr/bin/systemctl";

/// The package is configured nevertheless, and each service is restarted once at most.
fn survive_a_failing_service_and_a_refusal(format: &Format, old: &Path, new: &Path) {
    let machine = Machine::new();
    machine.run(FAILING_SYSTEMCTL);
    machine.run(&with_package(format.install, old));
    machine.run("mkdir /root/own && boathook-init install --engine none --own-classes /root/own");
    machine.run("mv /root/own /root/away");
    let upgrade = format!("({}) 2>&1", with_package(format.upgrade, new));
    let text = machine.run(&upgrade);
    for line in [
        "the installed version stays;",
        "see systemctl status boathook-follow.service",
        "run systemctl restart boathook-plugin.service",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(machine.installed_version(), OLD, "{}", format.name);

    machine.run("mv /root/away /root/own; boathook-init upgrade");
    assert_eq!(machine.installed_version(), NEW, "{}", format.name);

    let machine = Machine::new();
    machine.run(FAILING_SYSTEMCTL);
    machine.run(&with_package(format.install, old));
    machine.run("boathook-init install --engine none; rm /root/calls");
    machine.run(&with_package(format.upgrade, new));
    assert_eq!(machine.installed_version(), NEW, "{}", format.name);
    let restarts = machine.run("grep -c try-restart /root/calls");
    assert_eq!(restarts.trim(), "1", "{}", format.name);
}
