//! What an installation does about `/etc/boathook/config.toml`.
//!
//! Without a given configuration a default is written once. A given one, such as a
//! cluster's ConfigMap, is kept up to date, so that the hook on the host and the
//! plugin in its container read the same. A file that somebody else wrote or
//! edited is left alone.

use std::path::Path;

use anyhow::Result;
use runtime_config::{Change, HostRoot};

use crate::layout::{CONFIG, DEFAULT_CONFIG, GIVEN_CONFIG};
use crate::manifest::Manifest;
use crate::payload::Payload;
use crate::step::Step;

const MODE: u32 = 0o644;

#[derive(Debug, Default)]
pub(crate) struct Configuration {
    pub(crate) steps: Vec<Step>,
    /// The text that is written.
    pub(crate) written: Option<String>,
    /// The text of an earlier installation that it replaces.
    pub(crate) replaced: Option<String>,
    /// Why the given configuration is not written, if so.
    pub(crate) kept: Option<String>,
}

impl Configuration {
    pub(crate) fn plan(host: &HostRoot, payload: &Payload) -> Result<Self> {
        let old = Manifest::load(host)?.unwrap_or_default();
        let now = host.read(Path::new(CONFIG))?;
        let mut plan = Self::default();
        let wanted = payload.config.as_deref();
        match (now, wanted) {
            (None, _) => plan.write(None, wanted.unwrap_or(DEFAULT_CONFIG)),
            (Some(_), None) => {}
            (Some(now), Some(wanted)) if now == wanted => {}
            (Some(now), Some(wanted)) if old.has_written(&now) => plan.write(Some(now), wanted),
            (Some(_), Some(_)) => {
                plan.kept = Some(format!(
                    "{CONFIG} was not written by boathook-init and is kept: the hook does not \
                     use the configuration that was given; remove the file to use it"
                ));
            }
        }
        // A copy of what was given.
        let given = Path::new(GIVEN_CONFIG);
        let before = host.read(given)?;
        let change = Change::rewrite(given, before.as_deref(), wanted, MODE);
        plan.steps.extend(change.map(Step::Change));
        Ok(plan)
    }

    fn write(&mut self, before: Option<String>, text: &str) {
        let change = Change::rewrite(Path::new(CONFIG), before.as_deref(), Some(text), MODE);
        self.steps.extend(change.map(Step::Change));
        self.written = Some(text.to_owned());
        self.replaced = before;
    }
}
