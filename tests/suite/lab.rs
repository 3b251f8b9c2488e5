//! The environment of a test in real containers.

use harness::bundle::{Bundle, BundleBuilder, HookCommand, Stage};
use harness::captured::Captured;
use harness::cgroup_view::CgroupView;
use harness::compile::Libc;
use harness::demo_host::HostDirectory;
use harness::leftovers;
use harness::privilege;
use harness::probe::{Questions, Report};
use harness::rootfs::Rootfs;
use harness::runc::{Container, Runc};

/// Makes each function that is named, which takes a [`Lab`], a test on each
/// cgroup version. Where containers cannot be run it is skipped, with the
/// reason.
macro_rules! on_each_cgroup_version {
    ($($name:ident),+ $(,)?) => {
        $(
            mod $name {
                use harness::cgroup_view::CgroupView;

                use $crate::lab::with_lab;

                #[test]
                fn cgroup_v1() {
                    with_lab(module_path!(), CgroupView::V1, super::$name);
                }

                #[test]
                fn cgroup_v2() {
                    with_lab(module_path!(), CgroupView::V2, super::$name);
                }
            }
        )+
    };
}
pub(crate) use on_each_cgroup_version;

/// A runtime of the test's own.
pub(crate) struct Lab {
    pub(crate) runc: Runc,
}

/// Runs a test's body where containers can be run on this cgroup version.
pub(crate) fn with_lab(test: &str, view: CgroupView, body: fn(&Lab)) {
    if let Some(reason) = privilege::missing_for_runc(view) {
        return skip::report(&format!("{test} ({view})"), &reason);
    }
    body(&Lab {
        runc: Runc::new(view).unwrap(),
    });
}

impl Lab {
    /// Runs a bundle whose command must succeed, checks that nothing is left of
    /// it, and returns its output.
    pub(crate) fn run(&self, bundle: &Bundle) -> String {
        let ran = self.runc.run(bundle).and_then(Captured::success).unwrap();
        self.assert_nothing_left(bundle);
        ran.stdout
    }

    /// Starts a bundle's container, runs ldconfig in it as a package manager does, and
    /// then this command; returns the output of the command.
    pub(crate) fn exec_after_ldconfig(&self, bundle: &Bundle, command: &[String]) -> String {
        let running = self.start(bundle);
        running.output(&["/sbin/ldconfig"]).unwrap();
        running.output(command).unwrap()
    }

    pub(crate) fn start<'a>(&'a self, bundle: &'a Bundle) -> Container<'a> {
        let running = self.runc.create(bundle).unwrap();
        running.start().unwrap();
        running
    }

    /// Runs a bundle whose command is the probe.
    pub(crate) fn probe(&self, bundle: &Bundle) -> Report {
        Report::parse(&self.run(bundle)).unwrap()
    }

    /// Returns the report of the probe in such a container.
    pub(crate) fn look(&self, container: BundleBuilder, questions: &Questions) -> Report {
        self.probe(&container.args(asking(questions)).build().unwrap())
    }

    /// Fails if anything on the machine still belongs to the bundle's container.
    pub(crate) fn assert_nothing_left(&self, bundle: &Bundle) {
        assert_eq!(
            leftovers::find_leftovers(&self.runc, bundle).unwrap(),
            Vec::<String>::new()
        );
    }
}

/// The stage in which the hook is called, unless a test is about that.
pub(crate) const STAGE: Stage = Stage::CreateRuntime;

/// The hook of this host.
pub(crate) fn hook(host: &HostDirectory) -> HookCommand {
    HookCommand::boathook(STAGE, &host.config_file()).unwrap()
}

/// The same as a CDI specification has it that grants a device.
pub(crate) fn granting(host: &HostDirectory, device: &str) -> HookCommand {
    hook(host).arg("--cdi").arg(device)
}

/// A container with the hook that requests devices by this variable.
pub(crate) fn requesting(
    host: &HostDirectory,
    rootfs: Rootfs,
    variable: &str,
    value: &str,
) -> BundleBuilder {
    let builder = Bundle::builder(rootfs).hook(STAGE, hook(host));
    builder.env(variable, value)
}

/// The arguments that make a container answer `questions`.
pub(crate) fn asking(questions: &Questions) -> Vec<String> {
    questions.command().unwrap()
}

/// The root file systems that have a dynamic C library and that can be made on
/// this machine.
pub(crate) fn images_with_a_loader() -> impl Iterator<Item = Rootfs> {
    Rootfs::ALL.into_iter().filter(
        |rootfs| match (rootfs.libc(), privilege::missing_for_musl()) {
            (Some(Libc::Musl), Some(reason)) => {
                skip::report("the vendor library in a musl image", &reason);
                false
            }
            (libc, _) => libc.is_some(),
        },
    )
}
