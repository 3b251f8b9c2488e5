//! containerd in roots that are mounted as platforms mount theirs: what is installed there gives a pod
//! its device. The tests of the installer compare every file (`initcontainer/tests/install/directories.rs`).

use std::fs;

use anyhow::{Context, Result};
use harness::cri::{Pod, Record};
use harness::engine_root::Generation;
use harness::rootfs::Rootfs;
use harness::{binaries, scratch};

use super::cri::{Container, Cri, How};
use super::ctr;
use super::engine::printed;
use super::machine::Machine;

/// The root under which the chart mounts directories of the host into the init container.
const HOST: &str = "/run/init/host";

/// A platform, with the places for programs, configuration and CDI specifications there.
struct Platform {
    name: &'static str,
    /// Commands that change directories before they are mounted.
    layout: &'static str,
    /// Directories that can be written to, with further options of their mounts. The root cannot,
    /// except where the list is empty.
    writable: &'static [(&'static str, &'static str)],
    /// A directory that cannot be written to.
    read_only: &'static str,
    programs: &'static str,
    configuration: &'static str,
    /// The directory of which containerd reads CDI specifications.
    specifications: &'static str,
    /// Whether the init container of the DaemonSet installs, and not boathook-init on the host.
    by_init_container: bool,
}

const PLATFORMS: [Platform; 6] = [
    Platform {
        name: "Container-Optimized OS",
        layout: "mkdir -p /home/kubernetes/bin",
        writable: &[
            ("/etc", ""),
            ("/var", ",noexec"),
            ("/home/kubernetes/bin", ""),
        ],
        read_only: "/opt",
        programs: "/home/kubernetes/bin/boathook",
        configuration: "/home/kubernetes/bin/boathook-config/boathook",
        specifications: "/var/run/cdi",
        by_init_container: true,
    },
    Platform {
        name: "Talos",
        layout: "mkdir -p /etc/cni /etc/kubernetes",
        writable: &[
            ("/var", ""),
            ("/opt", ""),
            ("/etc/cni", ""),
            ("/etc/kubernetes", ""),
        ],
        read_only: "/etc",
        programs: "/var/lib/boathook",
        configuration: "/var/lib/boathook-config/boathook",
        specifications: "/var/cdi/dynamic",
        by_init_container: true,
    },
    Platform {
        name: "Bottlerocket",
        layout: "",
        writable: &[("/etc", ""), ("/var", ""), ("/opt", "")],
        read_only: "/usr",
        programs: "/opt/boathook",
        configuration: "/etc/boathook",
        specifications: "/var/run/cdi",
        by_init_container: true,
    },
    Platform {
        name: "Flatcar",
        layout: "",
        writable: &[("/etc", ""), ("/var", ""), ("/opt", "")],
        read_only: "/usr/local",
        programs: "/opt/boathook",
        configuration: "/etc/boathook",
        specifications: "/var/run/cdi",
        by_init_container: false,
    },
    Platform {
        name: "Fedora CoreOS",
        layout: "rm -r /opt /usr/local; mkdir -p /var/opt /var/usrlocal/bin; \
                 ln -s var/opt /opt; ln -s ../var/usrlocal /usr/local",
        writable: &[("/etc", ""), ("/var", "")],
        read_only: "/usr",
        programs: "/opt/boathook",
        configuration: "/etc/boathook",
        specifications: "/var/run/cdi",
        by_init_container: false,
    },
    Platform {
        name: "NixOS",
        layout: "rm -r /opt /usr/local; mkdir -p /nix/store; mount --bind /nix/store /nix/store; \
                 mount -o remount,bind,ro /nix/store",
        writable: &[],
        read_only: "/nix/store",
        programs: "/opt/boathook",
        configuration: "/etc/boathook",
        specifications: "/var/run/cdi",
        by_init_container: false,
    },
];

#[test]
fn a_pod_has_its_device_on_each_platform() {
    if let Some(reason) = ctr::missing(Generation::Forky) {
        return skip::report("containerd on imitated platforms", &reason);
    }
    for platform in &PLATFORMS {
        platform.try_pod().with_context(|| platform.name).unwrap();
    }
}

/// The engine calls the wrapper runtime where the chart has put it, and the wrapper finds its
/// configuration by the record of the directories.
#[test]
fn a_pod_has_its_device_by_a_handler_where_opt_is_read_only() {
    if let Some(reason) = ctr::missing(Generation::Forky) {
        return skip::report("a handler where /opt is read-only", &reason);
    }
    let platform = &PLATFORMS[0];
    assert_eq!(platform.read_only, "/opt");
    let (machine, record) = platform.machine().unwrap();
    platform.install(&machine, "containerd").unwrap();
    let engine = Cri::start(machine, record, How::BinaryName).unwrap();
    let pod = Pod::new(scratch::number(), Rootfs::Busybox).devices(Some("npu-3"));
    let container = Container::run_in_pod(&engine, pod, |_| {}).unwrap();
    assert_eq!(container.devices(), [3]);
}

impl Platform {
    /// Makes a machine that is mounted as the platform is, and the kubelet's record on it.
    fn machine(&self) -> Result<(Machine, Record)> {
        let machine = Machine::new(Generation::Forky, "runc")?;
        let record = Record::new(&machine.path("checkpoint"));
        let given = machine.path("given.toml");
        let config = fs::read_to_string(machine.devices.config_file())? + &record.config();
        fs::write(&given, config)?;
        fs::remove_dir_all(machine.private.file("/etc/boathook"))?;
        let directories = format!("cdi_spec_dirs = [{:?}]\n", self.specifications);
        Cri::configure(&machine, &directories)?;
        self.mount(&machine)?;
        Ok((machine, record))
    }

    fn try_pod(&self) -> Result<()> {
        let (machine, record) = self.machine()?;
        self.install(&machine, "none")?;
        self.write_specifications(&machine)?;
        self.check_hook(&machine)?;

        let engine = Cri::start(machine, record, How::Cdi)?;
        let pod = Pod {
            by_cdi: true,
            ..Pod::new(scratch::number(), Rootfs::Busybox).devices(Some("npu-3"))
        };
        // The plugin's names have a kind of their own.
        let container = Container::run_in_pod(&engine, pod, |asked| {
            if self.by_init_container {
                asked.cdi_devices[0].name = "dummy.com.pods.boathook.dev/npu=npu-3".to_owned();
            }
        })?;
        assert_eq!(container.devices(), [3], "{}", self.name);
        drop(container);
        if !self.by_init_container {
            let machine = engine.machine();
            let mut uninstall = machine.private.command(binaries::program("boathook-init")?);
            printed(uninstall.arg("uninstall"))?;
            let left = machine.private.file(self.programs).exists();
            assert!(!left, "{}", self.name);
        }
        Ok(())
    }

    /// Mounts the machine as the platform is mounted.
    fn mount(&self, machine: &Machine) -> Result<()> {
        let mut lines = format!("set -e; {}", self.layout);
        for (directory, options) in self.writable {
            lines += &format!("\nmount --rbind {directory} {directory}");
            if !options.is_empty() {
                lines += &format!("\nmount -o remount,bind{options} {directory}");
            }
        }
        if !self.writable.is_empty() {
            lines += "\nmount -o remount,bind,ro /";
        }
        lines += &format!("\n! touch {}/file", self.read_only);
        let mut shell = machine.private.command("sh");
        printed(shell.args(["-c", &lines])).map(drop)
    }

    /// Installs Boathook for an engine, or for none, which is enough for CDI.
    fn install(&self, machine: &Machine, engine: &str) -> Result<()> {
        let init = binaries::program("boathook-init")?;
        let source = init.parent().context("a program in no directory")?;
        let install = format!(
            "{} install --engine {engine} --classes none --source {} --config {}",
            init.display(),
            source.display(),
            machine.path("given.toml").display()
        );
        let (programs, configuration) = (self.programs, self.configuration);
        let lines = if self.by_init_container {
            format!(
                "mkdir -p {programs} {configuration} {HOST}/var/lib {}
                 mount --bind /var/lib {HOST}/var/lib
                 for dir in {programs} {configuration} /etc/containerd; do
                     mkdir -p {HOST}$dir; mount --bind $dir {HOST}$dir
                 done
                 {install} --host-root {HOST} --prefix {programs} --config-dir {configuration}",
                self.specifications
            )
        } else {
            install
        };
        let mut shell = machine.private.command("unshare");
        printed(shell.args(["--mount", "sh", "-ec", &lines])).map(drop)
    }

    /// Writes the CDI specifications: in a cluster the plugin does, which runs on then, and on a host
    /// the administrator.
    fn write_specifications(&self, machine: &Machine) -> Result<()> {
        let (programs, configuration) = (self.programs, self.configuration);
        if !self.by_init_container {
            let mut generate = machine
                .private
                .command(format!("{programs}/current/bin/boathook"));
            generate.args(["cdi", "generate", "--all"]);
            return printed(&mut generate).map(drop);
        }
        let mut plugin = machine
            .private
            .command(binaries::program("boathook-plugin")?);
        plugin
            .args(["run", "--cdi", self.specifications, "--config"])
            .arg(format!("{configuration}/config.toml"))
            .arg("--kubelet-dir")
            .arg(machine.path("kubelet"))
            .arg(format!("--hook={programs}/current/bin/boathook-hook"))
            .arg(format!("--hook-config={configuration}/config.toml"));
        let ready = || self.read_specifications(machine).is_ok();
        machine.start("plugin", &mut plugin, ready).map(drop)
    }

    fn read_specifications(&self, machine: &Machine) -> Result<String> {
        let line = format!("cat {}/*", self.specifications);
        printed(machine.private.command("sh").args(["-c", &line]))
    }

    /// Checks that containerd will call the hook that was installed.
    fn check_hook(&self, machine: &Machine) -> Result<()> {
        let text = self.read_specifications(machine)?;
        let text = text.replace([' ', '\n', '\t'], "");
        let hook = format!("\"path\":\"{}/current/bin/boathook-hook\"", self.programs);
        assert!(text.contains(&hook), "{}: {:.2000}", self.name, text);
        let config = format!("{}/config.toml", self.configuration);
        let is_named = text.contains(&config) || self.configuration == "/etc/boathook";
        assert!(is_named, "{}: {:.2000}", self.name, text);
        Ok(())
    }
}
