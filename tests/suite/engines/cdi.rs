//! CDI specifications, as engines read them. Readers are strict: a file with a field
//! or a version that does not fit has no devices for them.

use std::fs;
use std::process::Command;

use anyhow::Result;
use harness::binaries;
use harness::demo_host::{VendorLibrary, in_container};
use harness::engine_root::Generation;
use harness::image::Image;
use harness::loader;
use harness::rootfs::Rootfs;

use super::engine::printed;
use super::machine::Machine;
use super::podman;

/// The directory in which engines look for generated specifications (as /var/run/cdi).
const DIRECTORY: &str = "/run/cdi";

/// Why a container cannot request the files of a class by CDI.
pub(super) const NO_FILES_ALONE: &str = "no CDI device stands for a class's files alone";

/// Why the hook does not refuse a device.
pub(super) const ENGINE_REFUSES: &str = "the engine itself refuses names that no specification has";

const IMAGE: &str = "boathook-test-cdi";

/// Writes the specifications of the machine's devices.
pub(crate) fn generate(machine: &Machine, options: &[&str]) -> Result<()> {
    let mut command = machine.private.command(binaries::program("boathook")?);
    command.args(["cdi", "generate", "--all", "--output", DIRECTORY]);
    printed(command.args(options)).map(drop)
}

/// podman without Boathook's configuration.
struct Podman {
    machine: Machine,
    parent: String,
}

impl Podman {
    fn new(options: &[&str]) -> Result<Self> {
        let (machine, parent) = podman::unconfigured(Generation::OfThisMachine)?;
        generate(&machine, options)?;
        let mut import = podman::plain(&machine);
        let image = Image::new(Rootfs::Glibc)?;
        printed(import.arg("import").arg(image.layer()).arg(IMAGE))?;
        Ok(Podman { machine, parent })
    }

    /// Runs a command in a new container.
    fn run(&self, options: &[&str], command: &[String]) -> Result<String> {
        let mut run: Command = podman::plain(&self.machine);
        run.args(["run", "--rm", "--network", "none", &self.parent]);
        printed(run.args(options).arg(IMAGE).args(command))
    }

    /// Returns the devices of the host that a new container has.
    fn devices(&self, options: &[&str]) -> Result<Vec<usize>> {
        in_container::devices_by(|asked| self.run(options, asked))
    }
}

fn podman_or_skip(options: &[&str]) -> Option<Podman> {
    if let Some(reason) = podman::missing(Generation::OfThisMachine) {
        skip::report("CDI devices of podman", &reason);
        return None;
    }
    Some(Podman::new(options).unwrap())
}

#[test]
fn names_mean_devices_and_nothing_else_counts() {
    let Some(podman) = podman_or_skip(&[]) else {
        return;
    };
    for (options, devices) in [
        (&["--device=dummy.com/npu=npu-3"][..], &[3][..]),
        (&["--device=dummy.com/npu=3"], &[3]),
        (
            &["--device=dummy.com/npu=1", "--device=dummy.com/npu=npu-7"],
            &[1, 7],
        ),
        // Only root's specification grants devices, whatever an image sets.
        (
            &[
                "--device=dummy.com/npu=3",
                "--env=DUMMY_VISIBLE_DEVICES=all",
                "--annotation=devices.boathook.dev/dummy-npu=npu-1",
                "--annotation=cdi.k8s.io/boathook=dummy.com/npu=npu-2",
            ],
            &[3],
        ),
        // The hook is not configured, so nothing else asks it.
        (&["--env=DUMMY_VISIBLE_DEVICES=all"], &[]),
        (
            &["--annotation=cdi.k8s.io/boathook=dummy.com/npu=npu-2"],
            &[],
        ),
    ] {
        assert_eq!(podman.devices(options).unwrap(), devices, "{options:?}");
    }
}

#[test]
fn a_device_that_is_gone_stops_the_container() {
    let Some(podman) = podman_or_skip(&[]) else {
        return;
    };
    let devices = |name| podman.devices(&[&format!("--device=dummy.com/npu={name}")]);
    let message = format!("{:#}", devices("npu-64").unwrap_err());
    assert!(message.contains("npu-64"), "{message}");

    fs::remove_file(podman.machine.devices.node(3)).unwrap();
    devices("npu-3").unwrap_err();
    // The others are not affected, and the next file does not have it.
    assert_eq!(devices("npu-4").unwrap(), [4]);
    // A class whose nodes are optional keeps the name.
    generate(&podman.machine, &[]).unwrap();
    assert!(devices("npu-3").unwrap().is_empty());
}

#[test]
fn the_plain_form_needs_no_hook() {
    let Some(podman) = podman_or_skip(&["--form", "plain"]) else {
        return;
    };
    let device = "--device=dummy.com/npu=npu-3";
    assert_eq!(podman.devices(&[device]).unwrap(), [3]);
    let library = VendorLibrary::dummy_npu();
    let printed = podman.run(&[device], &loader::command(&[library.wanted()]));
    let loaded = loader::parse(&printed.unwrap()).unwrap();
    let path = format!("/usr/lib/boathook/lib/{}", library.soname());
    let expected = loader::Loaded::Found {
        soname: library.soname(),
        path: path.into(),
        answer: library.version,
    };
    assert_eq!(loaded, [expected]);
}

#[test]
fn a_foreign_file_of_the_same_kind_is_kept_and_named() {
    let Some(podman) = podman_or_skip(&[]) else {
        return;
    };
    let foreign = podman.machine.private.file("/run/cdi/vendor.yaml");
    fs::write(&foreign, "cdiVersion: 0.5.0\nkind: dummy.com/npu\n").unwrap();
    let message = format!("{:#}", generate(&podman.machine, &[]).unwrap_err());
    assert!(message.contains("/run/cdi/vendor.yaml"), "{message}");
    assert!(foreign.exists());
}
