//! The outcome of a container: it was refused, or it started, with its probe's report.

use harness::bundle::BundleBuilder;
use harness::demo_host::DemoHost;
pub(super) use harness::demo_host::in_container::node;
use harness::demo_host::in_container::questions;
use harness::probe::{Access, Kind, Questions, Report};

use crate::lab::{Lab, asking};

/// The end of a container whose command was the probe.
pub(super) enum Outcome {
    /// The output of the engine and of the hook.
    Refused(String),
    /// The report of the container.
    Started(Box<Report>),
}

impl Outcome {
    /// Runs a container, which may be refused with a message of the hook, but by
    /// nothing else. Nothing is left of it.
    #[track_caller]
    pub(super) fn run(lab: &Lab, builder: BundleBuilder) -> Self {
        Self::of_bundle(lab, &asked(builder).build().unwrap())
    }

    /// The same for a bundle of a container that is [`asked`].
    #[track_caller]
    pub(super) fn of_bundle(lab: &Lab, bundle: &harness::bundle::Bundle) -> Self {
        let ran = lab.runc.run(bundle).unwrap();
        lab.assert_nothing_left(bundle);
        if ran.status.success() {
            return Self::Started(Box::new(Report::parse(&ran.stdout).unwrap()));
        }
        let said = ran.stderr;
        assert!(
            said.contains("boathook: "),
            "refused without a word: {said}"
        );
        assert!(!said.contains("panicked"), "{said}");
        Self::Refused(said)
    }

    /// The devices that it has, if it was started.
    pub(super) fn devices(&self) -> Option<Vec<usize>> {
        let Self::Started(report) = self else {
            return None;
        };
        let there = |index: &usize| report.path(node(*index)).unwrap().kind != Kind::Missing;
        Some((0..DemoHost::NODES).filter(there).collect())
    }

    /// Fails if it was started and has a device, or may open one.
    #[track_caller]
    pub(super) fn assert_no_device(&self, case: &str) {
        assert!(
            self.devices().is_none_or(|devices| devices.is_empty()),
            "{case}: {:?}",
            self.devices()
        );
    }

    /// Fails unless it was refused, or has this device with all that belongs to it.
    #[track_caller]
    pub(super) fn assert_whole_or_refused(&self, index: usize, case: &str) {
        if let Self::Started(report) = self {
            assert_whole(report, index, case);
        }
    }
}

/// The files that belong to a device that is requested with the tools.
const WHOLE: [(&str, Kind); 5] = [
    ("/usr/lib/boathook", Kind::Directory),
    ("/usr/lib/boathook/lib/libdummy-npu.so.1", Kind::File),
    ("/usr/bin/npu-tool", Kind::File),
    ("/etc/npu.conf", Kind::File),
    ("/var/lib/npu/table", Kind::File),
];

/// The container with the probe as its command.
pub(super) fn asked(builder: BundleBuilder) -> BundleBuilder {
    let paths = WHOLE.iter().map(|(path, _)| *path);
    builder.args(asking(&paths.fold(questions(), Questions::path)))
}

/// Fails unless the container has the device, its library and the tools.
#[track_caller]
pub(super) fn assert_whole(report: &Report, index: usize, case: &str) {
    let read = &report.path(node(index)).unwrap().read;
    assert_eq!(*read, Access::Granted, "{case}");
    for (path, kind) in WHOLE {
        let seen = report.path(path).unwrap();
        assert_eq!(seen.kind, kind, "{case}: {path}");
        assert_eq!(seen.read, Access::Granted, "{case}: {path}");
    }
}
