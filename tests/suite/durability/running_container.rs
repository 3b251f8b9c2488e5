//! A container that things happen to.

use anyhow::{Result, bail};
use harness::probe::{Questions, Report};

pub(super) trait RunningContainer {
    /// Returns the report of a probe in the container.
    fn probe(&self, questions: &Questions) -> Result<Report>;

    /// The unit that it is in, if systemd made its cgroup.
    fn unit(&self) -> Option<String>;

    /// Changes its resources: with a number, its share of the processor.
    fn update(&self, cpu_shares: Option<u32>) -> Result<()>;

    /// Ends it and starts it again.
    fn restart(&self) -> Result<()>;

    /// Stops its engine and starts that again.
    fn restart_engine(&self) -> Result<()> {
        bail!("it has no engine")
    }
}
