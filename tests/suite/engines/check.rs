//! The check of each case, for any engine.

use std::collections::BTreeSet;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use harness::demo_host::{DemoHost, VendorLibrary, in_container};
use harness::loader::{self, Loaded};
use harness::probe::{Kind, Report};
use harness::rootfs::Rootfs;

use super::case::Case;
use super::engine::{ContainerSettings, Engine, Running};

/// The hook's directory in a container.
const INJECTED_DIR: &str = "/usr/lib/boathook";

/// Fails if an engine does not what a case demands.
pub(super) type Check = fn(&dyn Engine) -> Result<()>;

/// Every case with its name, in the order of the table.
pub(super) const CASES: [(Case, &str, Check); 16] = [
    (Case::OneDevice, "one device", |engine| {
        gets(engine, &asking("npu-3"), &[3])
    }),
    (Case::TwoDevices, "two devices", |engine| {
        gets(engine, &asking("npu-3,npu-7"), &[3, 7])
    }),
    (Case::AllDevices, "all devices", |engine| {
        gets(engine, &asking("all"), &[0, 1, 2, 3, 4, 5, 6, 7])
    }),
    (Case::NoneOfThem, "none", |engine| {
        gets(engine, &asking("none"), &[])
    }),
    (Case::Unset, "unset", is_left_alone),
    (Case::UnknownDevice, "unknown device refused", is_refused),
    (Case::Glibc, "glibc image", |engine| {
        loads_the_library(engine, Rootfs::Glibc)
    }),
    (Case::Busybox, "busybox image", |engine| {
        gets(engine, &with_image(Rootfs::Busybox), &[3])
    }),
    (
        Case::GlibcWithoutCache,
        "image without ld.so.cache",
        |engine| loads_the_library(engine, Rootfs::GlibcWithoutCache),
    ),
    (Case::ReadOnly, "read-only rootfs", has_a_read_only_root),
    (Case::OrdinaryUser, "non-root user", is_an_ordinary_user),
    (
        Case::UserNamespace,
        "user namespace",
        is_in_a_user_namespace,
    ),
    (Case::Exec, "exec", has_them_in_every_exec),
    (Case::Restart, "restart", has_them_after_a_restart),
    (
        Case::TwentyAtOnce,
        "20 containers at once",
        twenty_get_theirs,
    ),
    (Case::WritableLayer, "writable layer", leaves_little),
];

fn asking(devices: &str) -> ContainerSettings {
    ContainerSettings::new(Rootfs::Glibc, Some(devices))
}

fn with_image(image: Rootfs) -> ContainerSettings {
    ContainerSettings::new(image, Some("npu-3"))
}

/// The container opens these of the host's devices, and has no node of any
/// other.
fn gets(engine: &dyn Engine, wanted: &ContainerSettings, devices: &[usize]) -> Result<()> {
    let report = look(&*engine.start(wanted)?)?;
    check_devices(&report, devices)?;
    let kind = report.path(INJECTED_DIR)?.kind;
    ensure!(kind == Kind::Directory, "{INJECTED_DIR} is {kind:?}");
    Ok(())
}

fn is_left_alone(engine: &dyn Engine) -> Result<()> {
    let report = look(&*engine.start(&ContainerSettings::new(Rootfs::Glibc, None))?)?;
    check_devices(&report, &[])?;
    let kind = report.path(INJECTED_DIR)?.kind;
    ensure!(kind == Kind::Missing, "{INJECTED_DIR} is {kind:?}");
    Ok(())
}

fn is_refused(engine: &dyn Engine) -> Result<()> {
    let Err(error) = engine.start(&asking("npu-64")) else {
        bail!("it started");
    };
    let told = format!("{error:#}");
    for word in ["boathook: ", "dummy-npu", "npu-64"] {
        ensure!(
            told.contains(word),
            "no `{word}` in what the user is told: {told}"
        );
    }
    Ok(())
}

fn loads_the_library(engine: &dyn Engine, image: Rootfs) -> Result<()> {
    let container = engine.start(&with_image(image))?;
    check_devices(&look(&*container)?, &[3])?;
    let library = VendorLibrary::dummy_npu();
    let printed = container.exec(&loader::command(&[library.wanted()]))?;
    let expected = Loaded::Found {
        soname: library.soname(),
        path: format!("{INJECTED_DIR}/lib/{}", library.soname()).into(),
        answer: library.version,
    };
    let loaded = loader::parse(&printed)?;
    ensure!(loaded == [expected], "{loaded:?}");
    Ok(())
}

fn has_a_read_only_root(engine: &dyn Engine) -> Result<()> {
    let wanted = ContainerSettings {
        readonly: true,
        ..asking("npu-3")
    };
    let report = look(&*engine.start(&wanted)?)?;
    let root = report.mount_at("/").context("no root is mounted")?;
    ensure!(root.has_option("ro"), "{root:?}");
    check_devices(&report, &[3])
}

fn is_an_ordinary_user(engine: &dyn Engine) -> Result<()> {
    let wanted = ContainerSettings {
        user: Some(1000),
        ..asking("npu-3")
    };
    let report = look(&*engine.start(&wanted)?)?;
    ensure!(report.uid == 1000, "it runs as {}", report.uid);
    check_devices(&report, &[3])
}

fn is_in_a_user_namespace(engine: &dyn Engine) -> Result<()> {
    let wanted = ContainerSettings {
        user_namespace: true,
        ..asking("npu-3")
    };
    let container = engine.start(&wanted)?;
    // Of its first process: youki's exec stays outside of the namespace.
    let map = container.exec(&["cat", "/proc/1/uid_map"].map(str::to_string))?;
    let first: Vec<&str> = map.split_whitespace().take(2).collect();
    ensure!(
        first.first() == Some(&"0") && first.get(1) != Some(&"0"),
        "{map}"
    );
    check_devices(&look(&*container)?, &[3])
}

fn has_them_in_every_exec(engine: &dyn Engine) -> Result<()> {
    let container = engine.start(&asking("npu-3"))?;
    for _ in 0..3 {
        check_devices(&look(&*container)?, &[3])?;
    }
    Ok(())
}

fn has_them_after_a_restart(engine: &dyn Engine) -> Result<()> {
    let container = engine.start(&asking("npu-3"))?;
    for _ in 0..2 {
        container.restart()?;
        check_devices(&look(&*container)?, &[3])?;
    }
    Ok(())
}

fn twenty_get_theirs(engine: &dyn Engine) -> Result<()> {
    thread::scope(|scope| {
        let containers: Vec<_> = (0..20)
            .map(|number| {
                let device = number % DemoHost::NODES;
                scope.spawn(move || gets(engine, &asking(&format!("npu-{device}")), &[device]))
            })
            .collect();
        for container in containers {
            let Ok(result) = container.join() else {
                bail!("a container's thread panicked");
            };
            result?;
        }
        Ok(())
    })
}

/// Directories to mount on, what the loader reads, and a link that is named like the library;
/// nothing that is named like a device.
fn leaves_little(engine: &dyn Engine) -> Result<()> {
    let container = engine.start(&asking("npu-3"))?;
    look(&*container)?;
    let changes = container.changes()?;
    let changed: BTreeSet<&str> = changes
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(_, path)| path)
        .collect();
    let expected = [
        "/etc",
        "/etc/ld.so.cache",
        "/etc/ld.so.conf.d",
        "/etc/ld.so.conf.d/00-boathook.conf",
        "/usr",
        "/usr/lib",
        "/usr/lib/boathook",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu/libdummy-npu.so.1",
    ];
    let more: Vec<_> = changed
        .iter()
        .filter(|path| !expected.contains(path) && !is_the_engines_own(path))
        .collect();
    ensure!(more.is_empty(), "{more:?}");
    ensure!(changed.contains("/usr/lib/boathook"), "{changes}");
    Ok(())
}

/// Whether engines put the file into every container, with or without a hook.
fn is_the_engines_own(path: &str) -> bool {
    let own = ["/etc/mtab", "/run", "/run/.containerenv", "/run/secrets"];
    own.contains(&path)
}

/// Returns the report of a probe in the container about the devices.
fn look(container: &dyn Running) -> Result<Report> {
    let questions = in_container::questions().path(INJECTED_DIR);
    Report::parse(&container.exec(&questions.command()?)?)
}

fn check_devices(report: &Report, devices: &[usize]) -> Result<()> {
    let present = in_container::devices(report)?;
    ensure!(present == devices, "{present:?} instead of {devices:?}");
    Ok(())
}
