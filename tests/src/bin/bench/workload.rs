//! The reference work of the benchmarks: 5 device nodes, 40 libraries with a soname link each, and
//! the loader cache, in a root file system with glibc.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use harness::binaries;
use harness::bundle::{Bundle, BundleBuilder, HookCommand, Stage};
use harness::cgroup_view::CgroupView;
use harness::compile::{self, Libc};
use harness::demo_host::{DemoHost, VendorLibrary};
use harness::loader::{self, LibraryCall, Loaded};
use harness::probe::{Access, Questions};
use harness::reference_work::ReferenceWork;
use harness::rootfs::Rootfs;
use harness::runc::{self, Runc};

use crate::kind::Kind;
use crate::specification::Specification;

const VARIABLE: &str = ReferenceWork::VARIABLE;

/// A host with a class that requests the reference work.
pub(crate) struct Workload {
    host: ReferenceWork,
    thin: Specification,
    plain: Specification,
    /// The path of the configuration for the wrapper around runc.
    wrapper_config: PathBuf,
}

impl Workload {
    pub(crate) fn new() -> Result<Self> {
        let host = ReferenceWork::new()?;
        let config = |runtime: &Path| format!("[runtime]\npath = {runtime:?}\n");
        let runtime = runc::program().context("no runc on this machine")?;
        host.write_config(&config(&runtime))?;
        let wrapper_config = host.root().join("wrapper.toml");
        std::fs::copy(host.config_file(), &wrapper_config)?;
        host.write_config(&config(&fake_runtime()?))?;
        Self::on(host, wrapper_config)
    }

    pub(crate) fn with_size(nodes: usize, libraries: usize) -> Result<Self> {
        let host = ReferenceWork::with_size(nodes, libraries)?;
        let config = host.config_file();
        Self::on(host, config)
    }

    fn on(host: ReferenceWork, wrapper_config: PathBuf) -> Result<Self> {
        let [thin, plain] =
            ["thin", "plain"].map(|form| Specification::generate(&host, "bench", "all", form));
        Ok(Self {
            thin: thin?,
            plain: plain?,
            host,
            wrapper_config,
        })
    }

    /// Returns a runc that is called through the wrapper.
    pub(crate) fn wrapped(&self, view: CgroupView) -> Result<Runc> {
        Ok(Runc::new(view)?.behind_wrapper(&self.wrapper_config))
    }

    /// Returns the path of the configuration of hook and wrapper.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.host.config_file()
    }

    pub(crate) fn bundle(&self, kind: Kind) -> Result<Bundle> {
        let builder = Bundle::builder(Rootfs::Glibc);
        let stage = Stage::CreateRuntime;
        let boathook = || HookCommand::boathook(stage, &self.host.config_file());
        match kind {
            Kind::NoHook => builder,
            Kind::EmptyHook => builder.hook(stage, HookCommand::new(&empty_hook()?)),
            Kind::NoRequest => builder.hook(stage, boathook()?),
            Kind::ReferenceWork => builder.hook(stage, boathook()?).env(VARIABLE, "all"),
            Kind::SpecCarried => self.carried(builder)?,
            Kind::Wrapper => builder.env(VARIABLE, "all"),
            Kind::ThinCdi => self.thin.apply(builder, &self.host)?,
            Kind::PlainCdi => self.plain.apply(builder, &self.host)?,
        }
        .build()
    }

    /// Creates a bundle in `parent` whose hook appends the time that it runs to the file `times`.
    /// Without `hook`, the hook is the program that does nothing.
    pub(crate) fn timed_bundle(
        &self,
        hook: Option<&Path>,
        times: &Path,
        parent: &Path,
    ) -> Result<Bundle> {
        let stage = Stage::CreateRuntime;
        let command = match hook {
            Some(hook) => HookCommand::boathook_at(hook, stage, &self.host.config_file()),
            None => HookCommand::new(&empty_hook()?),
        };
        let timed = HookCommand::new(&binaries::program("timed")?).arg(&times.to_string_lossy());
        let builder = Bundle::builder(Rootfs::Glibc)
            .parent(parent)
            .hook(stage, command.behind(timed));
        match hook {
            Some(_) => builder.env(VARIABLE, "all").build(),
            None => builder.build(),
        }
    }

    /// Adds the device nodes and libraries of the work as mounts, nodes and rules of config.json,
    /// as an engine with CDI does. Links and the loader cache are missing, because config.json
    /// cannot express them.
    fn carried(&self, builder: BundleBuilder) -> Result<BundleBuilder> {
        const OPTIONS: [&str; 5] = ["ro", "nosuid", "nodev", "rbind", "rprivate"];
        let mut builder = builder;
        for index in 0..ReferenceWork::NODES {
            let number = self.host.device(index).number();
            let path = format!("/dev/dummy-npu{index}");
            builder = builder.char_device(path, number, "rw");
        }
        for library in self.host.libraries() {
            let source = DemoHost::libraries(&self.host).join(library.file_name());
            let target = format!("/usr/lib/bench/{}", library.file_name());
            builder = builder.mount("bind", &source, &target, &OPTIONS);
        }
        Ok(builder)
    }

    /// Fails if a container does not receive the whole work, so that nothing wrong is measured.
    pub(crate) fn check(&self, view: CgroupView) -> Result<()> {
        for way in Kind::WAYS {
            self.check_way(way, view)
                .with_context(|| format!("with {way}"))?;
        }
        Ok(())
    }

    fn check_way(&self, way: Kind, view: CgroupView) -> Result<()> {
        let runc = match way {
            Kind::Wrapper => self.wrapped(view)?,
            _ => Runc::new(view)?,
        };
        let bundle = self.bundle(way)?;
        let container = runc.create(&bundle)?;
        container.start()?;

        let nodes: Vec<_> = (0..ReferenceWork::NODES)
            .map(|index| format!("/dev/dummy-npu{index}"))
            .collect();
        let questions = nodes
            .iter()
            .fold(Questions::new(), |questions, node| questions.path(node));
        let report = container.probe(&questions)?;
        for node in &nodes {
            if report.path(node)?.read != Access::Granted {
                bail!("on {view} the container cannot open {node}");
            }
        }
        let wanted: Vec<LibraryCall> = self
            .host
            .libraries()
            .iter()
            .map(VendorLibrary::wanted)
            .collect();
        let printed = container.output(&loader::command(&wanted))?;
        let found = loader::parse(&printed)?
            .iter()
            .filter(|one| matches!(one, Loaded::Found { .. }))
            .count();
        let all = wanted.len();
        if found != all {
            bail!("on {view} the container finds {found} of {all} libraries");
        }
        Ok(())
    }
}

pub(crate) fn empty_hook() -> Result<PathBuf> {
    empty_hook_of(Libc::Glibc)
}

/// Returns the hook that does nothing, a static program with the C library `libc`.
pub(crate) fn empty_hook_of(libc: Libc) -> Result<PathBuf> {
    compile::program("empty-hook.c", libc, &["-static"])
}

/// Returns a program that takes the place of a runtime and ends at once.
pub(crate) fn fake_runtime() -> Result<PathBuf> {
    compile::program("fake-runtime.c", Libc::Glibc, &["-static"])
}
