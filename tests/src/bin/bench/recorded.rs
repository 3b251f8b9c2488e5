//! Containers that request a device of a real driver. The hosts are the recorded ones of
//! `device-class/testdata`, with all classes that are shipped.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use harness::binaries;
use harness::bundle::{Bundle, BundleBuilder, HookCommand, Stage};
use harness::cgroup_view::CgroupView;
use harness::figure::{Figure, median};
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;
use harness::runc::{self, Runc};
use harness::scratch;

use crate::crowd;
use crate::filesystem::FileSystem;
use crate::inside::{self, Bundles};
use crate::kind::Kind;
use crate::rounds;
use crate::specification::Specification;
use crate::workload::empty_hook;

const STAGE: Stage = Stage::CreateRuntime;

/// A container's request for a device of one class, on a recorded host that has the driver.
struct Case {
    name: &'static str,
    class: &'static str,
    record: &'static str,
    request: &'static [(&'static str, &'static str)],
    /// The goal in milliseconds for the time that the hook itself runs.
    own_time: Option<f64>,
}

const CASES: [Case; 4] = [
    Case {
        name: "nvidia-gpu, all capabilities",
        class: "nvidia-gpu",
        record: "h200",
        request: &[
            ("NVIDIA_VISIBLE_DEVICES", "0"),
            ("NVIDIA_DRIVER_CAPABILITIES", "all"),
        ],
        own_time: Some(6.0),
    },
    Case {
        name: "nvidia-gpu, compute and utility",
        class: "nvidia-gpu",
        record: "h200",
        request: &[
            ("NVIDIA_VISIBLE_DEVICES", "0"),
            ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
        ],
        own_time: Some(4.0),
    },
    Case {
        name: "amd-gpu",
        class: "amd-gpu",
        record: "xgmi",
        request: &[("AMD_VISIBLE_DEVICES", "0")],
        own_time: None,
    },
    Case {
        name: "ascend-npu",
        class: "ascend-npu",
        record: "910b",
        request: &[("ASCEND_VISIBLE_DEVICES", "0")],
        own_time: None,
    },
];

/// The kinds of container that are measured for each case.
const KINDS: [Kind; 6] = [
    Kind::NoHook,
    Kind::EmptyHook,
    Kind::ReferenceWork,
    Kind::Wrapper,
    Kind::ThinCdi,
    Kind::PlainCdi,
];

/// Measures each case with all kinds of container, and the time of the hook alone.
pub(crate) fn measure(view: CgroupView, rounds: usize) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for case in &CASES {
        let measured = measure_case(case, view, rounds).with_context(|| case.name)?;
        figures.extend(measured);
    }
    Ok(figures)
}

/// Returns the name of each case, and the time that each hook takes for it.
pub(crate) fn own_times<const HOOKS: usize>(
    hooks: &[PathBuf; HOOKS],
    view: CgroupView,
    rounds: usize,
) -> Result<Vec<(&'static str, [f64; HOOKS])>> {
    let cases = CASES.iter().map(|case| {
        let times = Driver::new(case)?.own_times(hooks, view, rounds);
        Ok((case.name, times.with_context(|| case.name)?))
    });
    cases.collect()
}

fn measure_case(case: &Case, view: CgroupView, rounds: usize) -> Result<Vec<Figure>> {
    let driver = Driver::new(case)?;
    driver.check(view)?;
    let wrapped = Runc::new(view)?.behind_wrapper(&driver.wrapper_config);
    let times = rounds::run(&KINDS, |kind| driver.bundle(kind), &wrapped, rounds)?;
    let name = case.name;
    let added = |kind| times.added(kind, Kind::NoHook);
    let time = |what: &str, kind, goal| {
        Figure::time(
            &format!("{name}: added by {what}, {view}"),
            added(kind),
            goal,
        )
    };
    let wrapper = added(Kind::Wrapper) / added(Kind::ReferenceWork);
    let thin = added(Kind::ThinCdi) / added(Kind::PlainCdi);
    let hook = [binaries::program("boathook-hook")?];
    let [own] = driver.own_times(&hook, view, rounds)?;
    let crowd = crowd::measure(|kind| driver.bundle(kind), view)?;
    Ok(vec![
        time("an empty hook", Kind::EmptyHook, None),
        time("boathook", Kind::ReferenceWork, None),
        time("boathook-runtime", Kind::Wrapper, None),
        time("thin CDI", Kind::ThinCdi, None),
        time("plain CDI", Kind::PlainCdi, None),
        Figure::new(
            &format!("{name}: wrapper against the hook, {view}"),
            wrapper,
            "x",
            Some(1.5),
        ),
        Figure::new(
            &format!("{name}: thin CDI against plain CDI, {view}"),
            thin,
            "x",
            Some(1.0),
        ),
        Figure::new(
            &format!(
                "{name}: {} at once, against as many without devices, {view}",
                crowd::SIZE
            ),
            crowd,
            "x",
            Some(1.3),
        ),
        Figure::time(&format!("{name}: own time, {view}"), own, case.own_time),
        Figure::time(
            &format!("{name}: boathook explain, {view}"),
            driver.planning_time(rounds)?,
            None,
        ),
    ])
}

/// The recorded host of a case, written as files into a directory.
struct Driver {
    host: RecordedHost,
    request: &'static [(&'static str, &'static str)],
    thin: Specification,
    plain: Specification,
    /// The path of the configuration for the wrapper around runc.
    wrapper_config: PathBuf,
}

impl Driver {
    fn new(case: &Case) -> Result<Self> {
        let (class, record) = (case.class, case.record);
        let testdata = binaries::source_tree().join("device-class/testdata");
        let record = testdata.join(class).join(record).join("host.txt");
        let host = RecordedHost::bare(&fs::read_to_string(record)?)?;
        host.install_all_shipped_classes()?;
        let runtime = runc::program().context("no runc on this machine")?;
        host.write_config(&format!("[runtime]\npath = {runtime:?}\n"))?;
        let wrapper_config = host.path().join("wrapper.toml");
        fs::copy(host.config_file(), &wrapper_config)?;
        host.write_config("")?;
        let [thin, plain] =
            ["thin", "plain"].map(|form| Specification::generate(&host, class, "0", form));
        Ok(Self {
            thin: thin?,
            plain: plain?,
            request: case.request,
            wrapper_config,
            host,
        })
    }

    fn bundle(&self, kind: Kind) -> Result<Bundle> {
        let builder = Bundle::builder(Rootfs::Glibc);
        let boathook = || HookCommand::boathook(STAGE, &self.host.config_file());
        match kind {
            Kind::NoHook => builder,
            Kind::EmptyHook => builder.hook(STAGE, HookCommand::new(&empty_hook()?)),
            Kind::ReferenceWork => self.request(builder.hook(STAGE, boathook()?)),
            Kind::Wrapper => self.request(builder),
            Kind::ThinCdi => self.thin.apply(builder, &self.host)?,
            Kind::PlainCdi => self.plain.apply(builder, &self.host)?,
            Kind::NoRequest | Kind::SpecCarried => bail!("{kind} has no request"),
        }
        .build()
    }

    fn request(&self, builder: BundleBuilder) -> BundleBuilder {
        let variables = self.request.iter();
        variables.fold(builder, |builder, (key, value)| builder.env(key, value))
    }

    /// Fails if a container does not get its device nodes and libraries, so that nothing wrong is
    /// measured.
    fn check(&self, view: CgroupView) -> Result<()> {
        let runc = Runc::new(view)?;
        let bundle = self.bundle(Kind::ReferenceWork)?;
        let container = runc.create(&bundle)?;
        container.start()?;
        let devices = container.output(&["ls", "/dev"])?;
        let ours = ["nvidiactl", "kfd", "davinci_manager"];
        ensure!(
            devices.lines().any(|line| ours.contains(&line)),
            "the container has no device of the driver: {devices}"
        );
        Ok(())
    }

    /// Returns the time of each hook with the root file system on a tmpfs, minus the time of a
    /// program that does nothing. Runs of the hooks alternate.
    fn own_times<const HOOKS: usize>(
        &self,
        hooks: &[PathBuf; HOOKS],
        view: CgroupView,
        rounds: usize,
    ) -> Result<[f64; HOOKS]> {
        let tmpfs = FileSystem::tmpfs()?;
        let make_bundle = |hook: Option<&Path>, times: &Path| {
            let config = self.host.config_file();
            let command = match hook {
                Some(hook) => HookCommand::boathook_at(hook, STAGE, &config),
                None => HookCommand::new(&empty_hook()?),
            };
            let timed = HookCommand::new(&binaries::program("timed")?);
            let timed = timed.arg(&times.to_string_lossy());
            let builder = Bundle::builder(Rootfs::Glibc)
                .parent(tmpfs.path())
                .hook(STAGE, command.behind(timed));
            match hook {
                Some(_) => self.request(builder).build(),
                None => builder.build(),
            }
        };
        inside::own_times(hooks, make_bundle, view, rounds, Bundles::Deleted)
    }

    /// Returns the time of `boathook explain`, which computes a plan without applying it.
    fn planning_time(&self, rounds: usize) -> Result<f64> {
        let bundle = self.bundle(Kind::ReferenceWork)?;
        let mut command = std::process::Command::new(binaries::program("boathook")?);
        command.arg("--config").arg(self.host.config_file());
        command
            .args(["explain", "--bundle"])
            .arg(bundle.directory());
        let output = scratch::directory("explain")?;
        let mut times = Vec::new();
        for _ in 0..rounds {
            let file = fs::File::create(output.path().join("text"))?;
            times.push(harness::figure::time(command.stdout(file))?);
        }
        Ok(median(times))
    }
}
