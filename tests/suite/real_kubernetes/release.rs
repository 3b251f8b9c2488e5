//! The release of Kubernetes whose programs are tried.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use harness::captured::Captured;

/// The minor number of a release, which is 36 for 1.36.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MinorVersion(pub(super) u32);

/// The first releases that have what a case needs, without a feature gate; by a part of its name.
const FIRST_VERSIONS: &[(&str, MinorVersion)] = &[
    ("sidecar", MinorVersion(29)),
    // `kubectl debug --profile=sysadmin`.
    ("docs/day-two.md", MinorVersion(30)),
    // The vendor's plugin names CDI devices (the feature gate DevicePluginCDIDevices).
    ("a vendor's plugin", MinorVersion(29)),
    ("hostUsers: false", MinorVersion(33)),
];

impl MinorVersion {
    /// Asks the kubelet in the directory with Kubernetes' programs.
    pub(super) fn read(programs: &Path) -> Result<Self> {
        let mut kubelet = Command::new(programs.join("kubelet"));
        let printed = Captured::run(kubelet.arg("--version"))?.success()?.stdout;
        let minor = printed.strip_prefix("Kubernetes v1.");
        let minor = minor.and_then(|rest| rest.split('.').next()?.parse().ok());
        minor.map(Self).context(printed)
    }

    /// Returns the first release with which a case can be tried, if it is later than this one.
    pub(super) fn find_later_version(self, case: &str) -> Option<Self> {
        let needed = FIRST_VERSIONS
            .iter()
            .find(|(part, _)| case.contains(part))?;
        (needed.1 > self).then_some(needed.1)
    }
}
